//! Reads `data_dir`, `workspace_dir`, `listen` and `storage`: where a daemon keeps the data of the world, and where it
//! listens. Flags of `ghostd up` win over these keys.
//!
//! Relative paths start at the world's directory, never at the directory in which the daemon was started.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use ghost_domain::text::one_line;

use super::parts::{Named, variable};
use crate::files::real_place;
use crate::plan::Plan;
use crate::plan::places::{ListenAddress, PlacesPlan, StoragePlan, http_address};
use crate::reader::{Field, Map};
use crate::substitute::Env;

/// The longest path in the file, in bytes.
const PATH_MAX: usize = 1_024;
/// The largest number of gRPC listeners.
const LISTENERS_MAX: usize = 16;
/// The databases that Ghost can use.
const BACKENDS: [&str; 2] = ["sqlite", "postgres"];

/// The places that the file names. The comment of each field is its key in the file.
#[derive(Default)]
pub struct PlacesEntry<'n> {
    /// `data_dir`.
    data_dir: Option<Named<'n>>,
    /// `workspace_dir`.
    workspace_dir: Option<Named<'n>>,
    /// `listen.grpc`.
    grpc: Vec<(Field<'n>, ListenAddress)>,
    /// `listen.http`.
    http: Option<SocketAddr>,
    /// `storage.url_env`, if the backend is `postgres`.
    url_env: Option<(Field<'n>, String)>,
}

/// Reads the keys.
pub fn places<'n>(map: &Map<'n>) -> PlacesEntry<'n> {
    let (grpc, http) = listen(map).unwrap_or_default();
    let path = |key| map.get(key).and_then(|field| path(&field));
    let url_env = storage(map);
    PlacesEntry { data_dir: path("data_dir"), workspace_dir: path("workspace_dir"), grpc, http, url_env }
}

/// Reads `storage`. Returns the variable with the URL of PostgreSQL, if that is the backend.
fn storage<'n>(map: &Map<'n>) -> Option<(Field<'n>, String)> {
    let storage = map.get("storage")?.map_of("{ backend: postgres, url_env: GHOST_DATABASE_URL }")?;
    let backend = storage.get("backend").map(|field| field.choice(&BACKENDS));
    let url_env = storage.get("url_env");
    let named = match backend {
        Some(Some("postgres")) => storage
            .need("url_env", "GHOST_DATABASE_URL")
            .and_then(|field| variable(&field).map(|name| (field.clone(), name))),
        // What the backend should be is unknown.
        Some(None) => None,
        _ => {
            if let Some(field) = url_env {
                let hint = "write `backend: postgres`, or remove this key";
                field.error("the backend is `sqlite`, which has no URL", hint);
            }
            None
        }
    };
    let secret =
        "the URL may hold a password, so it is never written here: name the variable that holds it with `url_env`";
    storage.finish(&[("url", secret), ("dsn", secret), ("password", secret)]);
    named
}

fn path<'n>(field: &Field<'n>) -> Option<Named<'n>> {
    let text = field.text(PATH_MAX)?;
    if text.chars().any(char::is_control) {
        field.error("the path contains a control character", "write the path on one line");
    } else if text.starts_with('~') {
        let rest = one_line(text.trim_start_matches('~'));
        field.error("`~` stands for no directory here", format!("write `${{HOME}}{rest}`, or an absolute path"));
    } else {
        return Some((field.clone(), text));
    }
    None
}

type Listen<'n> = (Vec<(Field<'n>, ListenAddress)>, Option<SocketAddr>);

fn listen<'n>(map: &Map<'n>) -> Option<Listen<'n>> {
    let listen = map.get("listen")?.map_of("{ grpc: 127.0.0.1:7070, http: 127.0.0.1:8080 }")?;
    let address = |field: Field<'n>| match field.text(PATH_MAX)?.parse() {
        Ok(address) => Some((field, address)),
        Err(hint) => {
            let hint: String = hint;
            field.error(format!("`{}` is not an address to listen on", field.shown()), hint);
            None
        }
    };
    let grpc = listen.get("grpc").map(|field| if field.is_single() { vec![field] } else { several(&field) });
    let grpc = grpc.unwrap_or_default().into_iter().filter_map(address).collect();
    let http = listen.get("http").and_then(|field| {
        let text = field.text(PATH_MAX)?;
        let wrong = |hint: String| {
            field.error(format!("`{}` is not an address for HTTP", field.shown()), hint);
        };
        http_address(text).map_err(wrong).ok()
    });
    let token = "the token is `GHOST_TOKEN`, or the file `token` in the data directory";
    listen.finish(&[
        ("auth_token_env", token),
        ("token", token),
        ("allowed_hosts", "write `http: { allowed_hosts: … }` at the top of the file"),
        ("allowed_origins", "write `http: { allowed_origins: … }` at the top of the file"),
    ]);
    Some((grpc, http))
}

/// The entries of a list of addresses.
fn several<'n>(field: &Field<'n>) -> Vec<Field<'n>> {
    let list = field.list();
    if field.length() == 0 {
        field.error("it names no address", "write one address or a list, or remove the key for the default socket");
    } else if list.len() > LISTENERS_MAX {
        field.error("there are too many", format!("name at most {LISTENERS_MAX}"));
    }
    list.into_iter().take(LISTENERS_MAX).collect()
}

impl PlacesEntry<'_> {
    /// The places, with relative paths resolved against the world's directory `dir`.
    pub fn resolve(&self, dir: &Path) -> PlacesPlan {
        let socket = |(field, address): &(Field<'_>, ListenAddress)| {
            let wrong = |hint: String| {
                field.error(format!("the path of the socket in {} is too long", dir.display()), hint);
            };
            address.clone().within(dir).map_err(wrong).ok()
        };
        PlacesPlan {
            data_dir: self.data_dir.as_ref().and_then(|named| directory(named, dir)),
            workspace_dir: self.workspace_dir.as_ref().and_then(|named| directory(named, dir)),
            grpc: self.grpc.iter().filter_map(socket).collect(),
            http: self.http,
            storage: match &self.url_env {
                Some((_, url_env)) => StoragePlan::Postgres { url_env: url_env.clone() },
                None => StoragePlan::Sqlite,
            },
        }
    }

    /// Checks that data and workspace share no directory with the files of the world. Warns if the URL is not set, which
    /// is no error, because a flag may give one.
    pub fn check(&self, plan: &Plan, env: Env<'_>) {
        if let Some((field, url_env)) = &self.url_env
            && env(url_env).is_none_or(|url| url.is_empty())
        {
            let message = format!("`{url_env}` is not set: the world cannot start without the URL of its database");
            field.warn(message, "set it to postgres://USER:PASSWORD@HOST/DATABASE");
        }
        if let (Some((field, _)), Some(data)) = (&self.data_dir, &plan.places.data_dir)
            && let Some(dir) = plan.data_conflict(data)
        {
            field.error(
                format!("the data would be among the files of {}", dir.display()),
                "name a directory of its own, such as `data`",
            );
        }
        let (Some((field, _)), Some(workspace)) = (&self.workspace_dir, &plan.places.workspace_dir) else { return };
        if let Some(dir) = plan.workspace_conflict(workspace, plan.places.data_dir.as_deref()) {
            field.error(
                format!("agents write into the workspace, and it would share files with {}", dir.display()),
                "name a directory of its own, such as `workspace`",
            );
        }
    }
}

/// The place of a directory. It need not exist yet.
fn directory((field, text): &Named<'_>, dir: &Path) -> Option<PathBuf> {
    let place = real_place(&dir.join(text));
    if place.metadata().is_ok_and(|meta| !meta.is_dir()) {
        field.error(format!("`{}` is not a directory", field.shown()), "name a directory; it is made if it is missing");
        return None;
    }
    Some(place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{GOOD, World};

    // covers: WORLD-04, WORLD-10, STORE-04
    #[test]
    fn relative_places_start_at_the_worlds_directory() {
        let world = World::new();
        assert_eq!(world.plan().places, PlacesPlan::default());
        world.config(&format!(
            "{GOOD}data_dir: state/../data\nworkspace_dir: ../files\nstorage: {{ backend: sqlite }}\n\
             listen: {{ grpc: ['unix:run/d.sock', '127.0.0.1:7070'], http: '[::1]:8080' }}\n"
        ));
        let plan = world.plan();
        let places = &plan.places;
        assert_eq!(places.data_dir, Some(plan.dir.join("data")));
        assert_eq!(places.workspace_dir, plan.dir.parent().map(|above| above.join("files")));
        let socket = ListenAddress::Unix(plan.dir.join("run/d.sock"));
        assert_eq!(places.grpc, [socket, ListenAddress::Tcp("127.0.0.1:7070".parse().unwrap())]);
        assert_eq!(places.http, Some("[::1]:8080".parse().unwrap()));
        world.config(&format!("{GOOD}data_dir: /srv/${{SECRET}}\nlisten: {{ grpc: 'unix:/run/d.sock' }}\n"));
        let places = world.plan().places;
        assert_eq!(places.data_dir, Some("/srv/hunter2-hunter2".into()));
        assert_eq!(places.grpc, [ListenAddress::Unix("/run/d.sock".into())]);
    }

    // covers: STORE-01
    #[test]
    fn the_variable_of_a_database_is_named_and_its_value_is_a_secret() {
        let world = World::new();
        world.config(&format!("{GOOD}storage: {{ backend: postgres, url_env: SECRET }}\n"));
        let plan = world.plan();
        assert_eq!(plan.places.storage, StoragePlan::Postgres { url_env: "SECRET".into() });
        assert!(plan.secret_env.contains("SECRET") && !format!("{plan:?}").contains("hunter2"));
        world.config(&format!("{GOOD}storage: {{ backend: sqlite }}\n"));
        assert_eq!(world.plan().places.storage, StoragePlan::Sqlite);
    }

    #[test]
    fn a_workspace_shares_no_directory_with_the_files_of_the_world() {
        let world = World::new();
        let plan = world.plan();
        let data = plan.dir.join("data");
        let conflict = |path: &str| plan.workspace_conflict(&real_place(&plan.dir.join(path)), Some(&data)).is_some();
        for path in [".", "..", "data", "data/agents", "data/agents/x", "archetype", "archetype/doer/x", "scripts"] {
            assert!(conflict(path), "{path}");
        }
        for path in ["data/workspace", "data/files", "workspace", "../elsewhere", "archetypes"] {
            assert!(!conflict(path), "{path}");
        }
        for (path, refused) in [("archetype/doer", true), ("scripts", true), ("data", false), ("../data", false)] {
            assert_eq!(plan.data_conflict(&plan.dir.join(path)).is_some(), refused, "{path}");
        }
        // A symbolic link does not hide the directory.
        std::os::unix::fs::symlink(&plan.dir, world.above().join("link")).unwrap();
        assert!(conflict("../link"));
    }
}
