//! Which database a world's records are in: SQLite in the data directory, or a schema of PostgreSQL. The data directory
//! remembers the schema, so that a world never goes on with an empty database of the other kind.
//!
//! The URL of PostgreSQL must never be in a message: it may hold a password.

use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::Path;

use ghost_config::plan::{Plan, StoragePlan};
use ghost_domain::{Code, Refusal};
use ghost_store::postgres::PostgresOptions;
use ghost_store::sqlite::SqliteOptions;
use sha2::{Digest as _, Sha256};
use url::{Url, form_urlencoded};

use crate::data_dir::{DataDir, replace};

/// SQLite's file in the data directory.
pub(crate) const FILE: &str = "ghost.db";
/// The file in the data directory that says in which schema of PostgreSQL the records are. Without it they are in SQLite.
const MARK: &str = "world.store";
/// The word before the schema in that file.
const POSTGRES: &str = "postgres ";
/// The word before the id of the data directory in that file.
const DIRECTORY: &str = "directory ";
/// The longest name of a schema in bytes (PostgreSQL).
const SCHEMA_MAX: usize = 63;
/// The options of a URL. Others would be ignored, also a mistyped `sslmode`.
const OPTIONS: [&str; 12] = [
    "application_name",
    "dbname",
    "host",
    "hostaddr",
    "options",
    "password",
    "port",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "user",
];
/// The values of `sslmode`.
const MODES: [&str; 6] = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"];
/// An example for hints.
const EXAMPLE: &str = "postgres://USER:PASSWORD@HOST/DATABASE";

/// The value of `--store`.
#[derive(Clone)]
pub(crate) enum StoreOption {
    Sqlite,
    Postgres(String),
}

impl StoreOption {
    /// # Errors
    /// `InvalidArguments` if it is neither `sqlite` nor a URL of PostgreSQL.
    pub(crate) fn parse(text: &str) -> Result<Self, Refusal> {
        if text == "sqlite" { Ok(Self::Sqlite) } else { url_of(text, "--store").map(Self::Postgres) }
    }
}

/// Checks a URL of PostgreSQL, and returns it as it stands. `source` says where it comes from.
fn url_of(text: &str, source: &str) -> Result<String, Refusal> {
    let refusal = |why: &str| {
        Refusal::new(Code::InvalidArguments, format!("{source} is no URL of PostgreSQL: {why}"))
            .hint(format!("give {EXAMPLE}, with %40 for an @ in the password and so on (or `sqlite`, for --store)"))
    };
    let url = Url::parse(text).map_err(|why| refusal(&why.to_string()))?;
    if !matches!(url.scheme(), "postgres" | "postgresql") {
        return Err(refusal("it does not begin with postgres://"));
    }
    // A password with an unescaped `/`, `?` or `#` ends up in these parts, so they are not shown.
    if url.fragment().is_some() || url.path().contains('@') {
        return Err(refusal("a character of the user or the password needs an escape"));
    }
    if url.query_pairs().any(|(key, _)| !OPTIONS.contains(&&*key)) {
        return Err(refusal(&format!("after `?` it has an option other than {}", OPTIONS.join(", "))));
    }
    // The driver takes one of several, so each must be near.
    let hosts = url.query_pairs().filter(|(key, _)| matches!(&**key, "host" | "hostaddr"));
    let hosts = hosts.map(|(_, host)| host.into_owned()).chain(url.host_str().map(decoded));
    let hosts: Vec<_> = hosts.map(|host| host.trim_matches(['[', ']']).to_owned()).collect();
    let is_near = |host: &str| {
        host.is_empty()
            || host.starts_with('/')
            || host == "localhost"
            || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    };
    let modes: Vec<_> = url.query_pairs().filter(|(key, _)| key == "sslmode").map(|(_, mode)| mode).collect();
    if !modes.iter().all(|mode| MODES.contains(&&**mode)) {
        return Err(refusal(&format!("its sslmode is none of {}", MODES.join(", "))));
    }
    if modes.is_empty() && !hosts.iter().all(|host| is_near(host)) {
        return Err(refusal("its host is another machine, and it does not say how far the network is trusted")
            .hint("add `?sslmode=verify-full` and, for a CA of your own, `&sslrootcert=FILE`; or `?sslmode=disable` for a network that is yours"));
    }
    Ok(text.to_owned())
}

/// A database, and how to open it.
#[derive(Clone)]
pub(crate) enum Database {
    Sqlite(SqliteOptions),
    Postgres(PostgresOptions),
}

impl Database {
    /// The database of a world: that of the option, else that of the world file. `sqlite` are the options of SQLite.
    ///
    /// # Errors
    /// `InvalidArguments` if the variable that the file names holds no URL of PostgreSQL.
    pub(crate) fn of(
        option: Option<&StoreOption>,
        plan: &Plan,
        sqlite: &SqliteOptions,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Refusal> {
        let url = match (option, &plan.places.storage) {
            (Some(StoreOption::Sqlite), _) | (None, StoragePlan::Sqlite) => return Ok(Self::Sqlite(sqlite.clone())),
            (Some(StoreOption::Postgres(url)), _) => url.clone(),
            (None, StoragePlan::Postgres { url_env }) => {
                let text = env(url_env).filter(|url| !url.is_empty()).ok_or_else(|| {
                    let what = format!("the world's database is in PostgreSQL, and {url_env} is not set");
                    Refusal::new(Code::InvalidArguments, what).hint(format!("set it to {EXAMPLE}"))
                })?;
                url_of(&text, &format!("the value of {url_env}"))?
            }
        };
        if plan.limits.store_bytes_max > 0 {
            let what =
                "limits.store_bytes_max cannot be held in PostgreSQL, whose files do not shrink when rows are deleted";
            return Err(Refusal::new(Code::InvalidArguments, what)
                .hint("leave it out: bound the records with `retention` and the database with means of its server"));
        }
        Ok(Self::Postgres(PostgresOptions::new(url, schema_name(&plan.world_id))))
    }

    /// What must not be shown: the URL and its password.
    pub(crate) fn secrets(&self) -> Vec<String> {
        let Self::Postgres(options) = self else { return Vec::new() };
        let mut secrets = vec![options.url.clone()];
        if let Ok(url) = Url::parse(&options.url) {
            secrets.extend(url.password().map(str::to_owned));
            // A message may show the password without the escapes of the URL.
            secrets.extend(url.password().map(decoded));
            let of_query = url.query_pairs().filter(|(key, _)| key == "password");
            secrets.extend(of_query.map(|(_, password)| password.into_owned()));
        }
        secrets
    }

    /// Checks that the records of the world in the data directory, if there are any, are in this database.
    ///
    /// # Errors
    /// `Conflict` if they are in another one.
    pub(crate) fn check_kept(&self, data_dir: &DataDir) -> Result<(), Refusal> {
        let path = data_dir.path();
        let (kept, wanted) = match (schema_of(path)?, self) {
            (None, Self::Sqlite(_)) => return Ok(()),
            (Some(kept), Self::Postgres(options)) if kept == options.schema => return Ok(()),
            (None, Self::Postgres(options)) => {
                let used = data_dir.has_held_a_world() || path.join(FILE).symlink_metadata().is_ok();
                if !used {
                    return Ok(());
                }
                (in_sqlite(path), in_postgres(&options.schema))
            }
            (Some(kept), Self::Postgres(options)) => (in_postgres(&kept), in_postgres(&options.schema)),
            (Some(kept), Self::Sqlite(_)) => (in_postgres(&kept), in_sqlite(path)),
        };
        let what = format!(
            "the records of the world in {} are in {kept}, and this start would look for them in {wanted}",
            path.display()
        );
        Err(Refusal::new(Code::Conflict, what).hint(
            "start with the database that the world has used (`storage` in its file, or --store), or give a new world \
             another data directory with --data",
        ))
    }
}

fn in_sqlite(data_dir: &Path) -> String {
    data_dir.join(FILE).display().to_string()
}

fn in_postgres(schema: &str) -> String {
    format!("the schema {schema} of PostgreSQL")
}

/// What messages call the database of a data directory.
pub(crate) fn shown(data_dir: &Path) -> String {
    match schema_of(data_dir) {
        Ok(Some(schema)) => in_postgres(&schema),
        _ => format!("the database {}", in_sqlite(data_dir)),
    }
}

/// What the data directory remembers of a schema of PostgreSQL.
pub(crate) struct Kept {
    pub(crate) schema: String,
    /// The id of the data directory, which the schema knows, too. So no other directory takes it over.
    pub(crate) directory: Option<String>,
}

/// The schema of PostgreSQL that the data directory remembers; `None` if its records are in SQLite.
///
/// # Errors
/// `Unavailable` if the file cannot be read.
pub(crate) fn kept_in(data_dir: &Path) -> Result<Option<Kept>, Refusal> {
    let file = data_dir.join(MARK);
    let unread = |why: String| {
        let what = format!("{} cannot be read, which says where the records of the world are: {why}", file.display());
        Refusal::new(Code::Unavailable, what)
            .hint("make the file readable, or restore it: its first line is `postgres` and the name of the schema")
    };
    match std::fs::read_to_string(&file) {
        Ok(text) => {
            let of = |word: &str| text.lines().find_map(|line| Some(line.trim_end().strip_prefix(word)?.to_owned()));
            match of(POSTGRES) {
                Some(schema) if !schema.is_empty() => Ok(Some(Kept { schema, directory: of(DIRECTORY) })),
                _ => Err(unread("it does not name a schema".to_owned())),
            }
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unread(error.to_string())),
    }
}

pub(crate) fn schema_of(data_dir: &Path) -> Result<Option<String>, Refusal> {
    Ok(kept_in(data_dir)?.map(|kept| kept.schema))
}

/// Remembers the schema in the data directory, with an atomic rename. Returns the id of the directory.
///
/// # Errors
/// `Unavailable` if the file cannot be written.
pub(crate) fn remember(data_dir: &Path, schema: &str) -> Result<String, Refusal> {
    if let Some(directory) = kept_in(data_dir)?.and_then(|kept| kept.directory) {
        return Ok(directory);
    }
    let file = data_dir.join(MARK);
    let directory = uuid::Uuid::new_v4().to_string();
    let text = format!("{POSTGRES}{schema}\n{DIRECTORY}{directory}\n");
    replace(&file, text.as_bytes()).map_err(|error| {
        let what = format!("{} cannot be written, which says where the records are: {error}", file.display());
        Refusal::new(Code::Unavailable, what)
            .hint("make the data directory and its content writable, or give another with --data")
    })?;
    Ok(directory)
}

/// The refusal of a schema whose records belong to the data directory with the id `owner`.
pub(crate) fn of_another(data_dir: &Path, schema: &str, owner: &str) -> Refusal {
    let what =
        format!("the records in the schema {schema} belong to another data directory, in which the world has run");
    let file = data_dir.join(MARK);
    Refusal::new(Code::Conflict, what).hint(format!(
        "start it there, or give this world another id. If its files have moved here, write two lines to {}: `{POSTGRES}{schema}` and \
         `{DIRECTORY}{owner}`",
        file.display()
    ))
}

/// The schema of a world: `ghost_` and its id. An id that is changed or shortened gets a part of its hash, so that no two
/// worlds have the same schema.
fn schema_name(world_id: &str) -> String {
    let plain = |c: char| if c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' { c } else { '_' };
    let name: String = "ghost_".chars().chain(world_id.chars().map(plain)).collect();
    if name.len() <= SCHEMA_MAX && name.ends_with(world_id) {
        return name;
    }
    let hash = hex::encode(&Sha256::digest(world_id)[..4]);
    // Every character has one byte.
    let kept: String = name.chars().take(SCHEMA_MAX - 1 - hash.len()).collect();
    format!("{kept}_{hash}")
}

/// `text` without the escapes of a URL.
fn decoded(text: &str) -> String {
    let escaped = format!("p={}", text.replace('+', "%2B").replace('&', "%26"));
    form_urlencoded::parse(escaped.as_bytes()).map(|(_, value)| value.into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use ghost_domain::testing::ManualClock;

    use super::*;

    #[test]
    fn each_world_has_a_schema_of_its_own() {
        assert_eq!(schema_name("office_2"), "ghost_office_2");
        let names = ["Office", "office", "of-fice", "of.fice", "of_fice", &"x".repeat(58), &"x".repeat(64)];
        let schemas: std::collections::BTreeSet<String> = names.iter().map(|name| schema_name(name)).collect();
        assert_eq!(schemas.len(), names.len(), "{schemas:?}");
        for schema in &schemas {
            assert!(schema.len() <= SCHEMA_MAX && schema.starts_with("ghost_"), "{schema}");
            assert!(schema.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'), "{schema}");
        }
        assert_eq!(schema_name(&"x".repeat(57)).len(), SCHEMA_MAX);
    }

    #[test]
    fn a_wrong_option_is_refused_and_never_shown() {
        for text in [
            "",
            "postgres",
            "mysql://u:hunter2@h/d",
            "hunter2",
            "postgres://u:hunter2@h:x/d",
            "SQLite",
            // A password that needs escapes, and options that would be ignored.
            "postgres://u:/hunter2@localhost/d",
            "postgres://u:1#hunter2@localhost/d",
            "postgres://u:1?hunter2@localhost/d",
            "postgres://localhost/d?ssl_mode=verify-full",
            "postgres://localhost/d?pass=hunter2",
            "postgres://localhost/d?sslmode=on",
            // Nobody has said that the network may read along.
            "postgres://u:hunter2@db.example/d",
            "postgres:///d?host=10.0.0.7",
            "postgres:///d?hostaddr=127.0.0.1&host=10.0.0.7",
            "postgres://db.example/d?host=",
        ] {
            let Err(refusal) = StoreOption::parse(text) else { panic!("{text} was accepted") };
            assert_eq!(refusal.code, Code::InvalidArguments);
            let shown = format!("{} {:?}", refusal.message, refusal.hint);
            assert!(!shown.contains("hunter2") && refusal.hint.is_some(), "{shown}");
        }
        assert!(matches!(StoreOption::parse("sqlite"), Ok(StoreOption::Sqlite)));
        for text in [
            "postgresql:///d?host=/run/postgresql",
            "postgres://u:p@%2Frun%2Fpostgresql/d",
            "postgres://u:p@[::1]:5432/d",
            "postgres://u@db.example/d?sslmode=verify-full&sslrootcert=/ca.pem",
            "postgres://u@10.0.0.7/d?sslmode=disable",
        ] {
            assert!(matches!(StoreOption::parse(text), Ok(StoreOption::Postgres(_))), "{text}");
        }
    }

    #[test]
    fn the_url_and_its_password_are_secrets() {
        let of = |url: &str| Database::Postgres(PostgresOptions::new(url, "s")).secrets();
        let url = "postgres://ghost:a%40b+c@h/d";
        assert_eq!(of(url), [url, "a%40b+c", "a@b+c"]);
        assert!(of("postgres://h/d?password=hunter2").contains(&"hunter2".to_owned()));
        assert!(Database::Sqlite(SqliteOptions::default()).secrets().is_empty());
    }

    #[tokio::test]
    async fn the_records_of_a_world_stay_in_their_database() {
        let home = tempfile::tempdir().unwrap();
        let dir = DataDir::lock(home.path(), &*ManualClock::at(0)).await.unwrap();
        let sqlite = Database::Sqlite(SqliteOptions::default());
        let postgres = |schema: &str| Database::Postgres(PostgresOptions::new("postgres://h/d", schema));
        let refused = |database: &Database| database.check_kept(&dir).err().map(|refusal| refusal.code);
        // New data may be anywhere.
        assert_eq!((refused(&sqlite), refused(&postgres("ghost_a"))), (None, None));
        std::fs::write(home.path().join(FILE), "").unwrap();
        assert_eq!((refused(&sqlite), refused(&postgres("ghost_a"))), (None, Some(Code::Conflict)));
        std::fs::remove_file(home.path().join(FILE)).unwrap();
        dir.keep("a", home.path());
        assert_eq!((refused(&sqlite), refused(&postgres("ghost_a"))), (None, Some(Code::Conflict)));

        let directory = remember(home.path(), "ghost_a").unwrap();
        assert_eq!(remember(home.path(), "ghost_a").unwrap(), directory);
        assert_eq!(kept_in(home.path()).unwrap().unwrap().directory, Some(directory));
        assert_eq!(schema_of(home.path()).unwrap().as_deref(), Some("ghost_a"));
        assert_eq!((refused(&sqlite), refused(&postgres("ghost_a"))), (Some(Code::Conflict), None));
        assert_eq!(refused(&postgres("ghost_b")), Some(Code::Conflict));
        // A damaged file is not taken for none.
        std::fs::write(home.path().join(MARK), "").unwrap();
        assert_eq!(refused(&sqlite), Some(Code::Unavailable));
    }
}
