//! `data_dir`, `workspace_dir`, `listen` and `storage`: where a daemon keeps the data of the world, and where it listens.
//! Flags of `ghostd up` win over these keys. Relative paths start at the world's directory, never at the directory in which
//! the daemon was started.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use ghost_domain::text::one_line;
use schemars::{JsonSchema, json_schema};
use serde::Deserialize;
use serde::de::{self, Deserializer, IntoDeserializer as _, Visitor};

use crate::files::real_place;
use crate::kinds::{Variable, schema, text_kind};
use crate::plan::Plan;
use crate::plan::places::{ListenAddress, PlacesPlan, StoragePlan, http_address};
use crate::reader::Field;
use crate::substitute::Env;
use crate::typed::{Read, Spanned};

/// The longest path in the file, in bytes.
const PATH_MAX: usize = 1_024;
/// The largest number of gRPC listeners.
const LISTENERS_MAX: usize = 16;

text_kind! {
    /// The path of a directory. It need not exist yet.
    pub Place(String), PATH_MAX, "directory", |text| {
        if text.chars().any(char::is_control) {
            return Err(("the path contains a control character".into(), "write the path on one line".into()));
        }
        match text.strip_prefix('~') {
            None => Ok(text.to_owned()),
            Some(rest) => {
                let rest = one_line(rest.trim_start_matches('~'));
                let hint = format!("write `${{HOME}}{rest}`, or an absolute path");
                Err(("`~` stands for no directory here".into(), hint))
            }
        }
    }
}

/// `listen`: the addresses of the daemon.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ListenSection {
    /// Where gRPC listens, at most 16 addresses. The host is an IP address; the path of a socket has at most 107
    /// bytes, with the world's directory. The default is the socket `ghostd.sock` in the data directory.
    grpc: Option<Spanned<Grpc>>,
    /// Where HTTP listens. The default is nowhere.
    http: Option<HttpAddress>,
}

/// The addresses of gRPC.
enum Grpc {
    One(Address),
    Several(Vec<Spanned<Address>>),
}

schema!(Grpc, generator => json_schema!({
    "title": "`unix:PATH` or `HOST:PORT`, or a list of them",
    "anyOf": [generator.subschema_for::<Address>(), generator.subschema_for::<Vec<Address>>()]
}));

impl<'de> Deserialize<'de> for Grpc {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrSeveral;
        impl<'de> Visitor<'de> for OneOrSeveral {
            type Value = Grpc;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("write unix:PATH or HOST:PORT, or a list of them")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Grpc, E> {
                Address::deserialize(text.into_deserializer()).map(Grpc::One)
            }

            fn visit_unit<E: de::Error>(self) -> Result<Grpc, E> {
                Ok(Grpc::Several(Vec::new()))
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut seq: A) -> Result<Grpc, A::Error> {
                let mut found = Vec::new();
                while let Some(address) = seq.next_element()? {
                    found.push(address);
                }
                Ok(Grpc::Several(found))
            }
        }
        deserializer.deserialize_newtype_struct("$text_or ", OneOrSeveral)
    }
}

text_kind!(pub Address(ListenAddress), PATH_MAX, "`unix:PATH` or `HOST:PORT`", |text| {
    text.parse().map_err(|hint: String| (format!("`{text}` is not an address to listen on"), hint))
});

text_kind!(pub HttpAddress(SocketAddr), PATH_MAX, "`HOST:PORT`", |text| {
    http_address(text).map_err(|hint| (format!("`{text}` is not an address for HTTP"), hint))
});

/// `storage`: the database.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StorageSection {
    /// Where the records are.
    #[schemars(extend("default" = "sqlite"))]
    backend: Option<Backend>,
    /// The variable with the URL of PostgreSQL; required for `postgres`. The URL may hold a password, so it is never
    /// in the file.
    url_env: Option<Spanned<Variable>>,
}

/// A database that Ghost can use.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Backend {
    /// In the data directory.
    Sqlite,
    /// In a schema of PostgreSQL.
    Postgres,
}

/// Where the file says that the daemon keeps its data and listens.
pub struct Places<'w, 'n, T> {
    pub(super) read: &'w Read<'n, T>,
    pub(super) data_dir: Option<&'w Spanned<Place>>,
    pub(super) workspace_dir: Option<&'w Spanned<Place>>,
    pub(super) listen: &'w ListenSection,
    pub(super) storage: &'w StorageSection,
}

impl<T> Places<'_, '_, T> {
    /// The places, with relative paths resolved against the world's directory `dir`.
    pub fn plan(&self, dir: &Path) -> PlacesPlan {
        PlacesPlan {
            data_dir: self.data_dir.and_then(|path| directory(self.read.at(path), path, dir)),
            workspace_dir: self.workspace_dir.and_then(|path| directory(self.read.at(path), path, dir)),
            grpc: self.grpc(dir),
            http: self.listen.http.as_ref().map(|address| address.0),
            storage: match self.url_env() {
                Some(url_env) => StoragePlan::Postgres { url_env: url_env.0.clone() },
                None => StoragePlan::Sqlite,
            },
        }
    }

    fn grpc(&self, dir: &Path) -> Vec<ListenAddress> {
        let Some(grpc) = &self.listen.grpc else { return Vec::new() };
        let field = self.read.at(grpc);
        let addresses = match &grpc.value {
            Grpc::One(address) => vec![(field, &address.0)],
            Grpc::Several(list) => {
                if field.length() == 0 {
                    let hint = "write one address or a list, or remove the key for the default socket";
                    field.error("it names no address", hint);
                } else if field.length() > LISTENERS_MAX {
                    field.error("there are too many", format!("name at most {LISTENERS_MAX}"));
                }
                list.iter().map(|address| (self.read.at(address), &address.0)).collect()
            }
        };
        let socket = |(field, address): (&Field<'_>, &ListenAddress)| {
            let wrong = |hint: String| {
                field.error(format!("the path of the socket in {} is too long", dir.display()), hint);
            };
            address.clone().within(dir).map_err(wrong).ok()
        };
        addresses.into_iter().filter_map(socket).collect()
    }

    /// The variable with the URL of PostgreSQL, if that is the backend.
    fn url_env(&self) -> Option<&Spanned<Variable>> {
        self.storage.url_env.as_ref().filter(|_| self.storage.backend == Some(Backend::Postgres))
    }

    /// Checks that the database has what it needs, and that data and workspace share no directory with the files of the
    /// world. Warns if the URL is not set, which is no error, because a flag may give one.
    pub fn check(&self, root: &Field<'_>, plan: &Plan, env: Env<'_>) {
        if let Some(storage) = root.get("storage") {
            let written = |key: &str| storage.node().get(key).is_some();
            match (self.storage.backend, &self.storage.url_env) {
                (Some(Backend::Postgres), _) if !written("url_env") => {
                    storage.error("`url_env` is missing", "for example `url_env: GHOST_DATABASE_URL`");
                }
                (Some(Backend::Postgres), _) => {}
                // What the backend should be is unknown.
                (None, _) if written("backend") => {}
                (_, Some(url_env)) => {
                    let hint = "write `backend: postgres`, or remove this key";
                    self.read.at(url_env).error("the backend is `sqlite`, which has no URL", hint);
                }
                _ => {}
            }
        }
        if let Some(url_env) = self.url_env()
            && env(&url_env.0).is_none_or(|url| url.is_empty())
        {
            let message = format!("`{}` is not set: the world cannot start without the URL of its database", url_env.0);
            self.read.at(url_env).warn(message, "set it to postgres://USER:PASSWORD@HOST/DATABASE");
        }
        if let (Some(path), Some(data)) = (self.data_dir, &plan.places.data_dir)
            && let Some(dir) = plan.data_conflict(data)
        {
            self.read.at(path).error(
                format!("the data would be among the files of {}", dir.display()),
                "name a directory of its own, such as `data`",
            );
        }
        let (Some(path), Some(workspace)) = (self.workspace_dir, &plan.places.workspace_dir) else { return };
        if let Some(dir) = plan.workspace_conflict(workspace, plan.places.data_dir.as_deref()) {
            self.read.at(path).error(
                format!("agents write into the workspace, and it would share files with {}", dir.display()),
                "name a directory of its own, such as `workspace`",
            );
        }
    }
}

/// The place of a directory. It need not exist yet.
fn directory(field: &Field<'_>, text: &str, dir: &Path) -> Option<PathBuf> {
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
