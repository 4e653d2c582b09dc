//! Finds the daemon's endpoint and token: `--endpoint`, else `GHOST_ENDPOINT`, else the only running world of this user.
//! A token that was found in a file is never sent to another machine.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::endpoint::Endpoint;
use crate::failure::Failure;
use crate::output::local_zone;
use crate::text::one_line;
use crate::worlds::{Stopped, World, worlds};

/// Name of the token file in a data directory.
const TOKEN: &str = "token";
/// Largest token file in bytes: a token with a line break. A larger file is not a token.
const TOKEN_BYTES: u64 = 4_096 + 2;

/// Settings from the environment of the process.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// `GHOST_ENDPOINT`.
    pub endpoint: Option<String>,
    /// `GHOST_TOKEN`.
    pub token: Option<String>,
    /// `GHOST_STATE_DIR`.
    pub state_dir: Option<PathBuf>,
    /// `HOME`.
    pub home: Option<PathBuf>,
    /// Time zone of `TZ`, else of this machine; `None` means UTC.
    pub zone: Option<jiff::tz::TimeZone>,
    /// `GHOST_TLS_CA`, `GHOST_TLS_CERT` and `GHOST_TLS_KEY`: PEM files for `https` endpoints.
    pub tls: TlsFiles,
}

/// PEM files for `https` endpoints.
#[derive(Clone, Debug, Default)]
pub struct TlsFiles {
    /// CA certificate that signs the daemon's certificate.
    pub ca: Option<PathBuf>,
    /// Certificate of this client.
    pub cert: Option<PathBuf>,
    /// Private key of the client certificate.
    pub key: Option<PathBuf>,
}

impl Environment {
    /// The environment of this process. An empty variable is treated as unset.
    pub fn of_process() -> Self {
        let text = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let path = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        Self {
            endpoint: text("GHOST_ENDPOINT"),
            token: text("GHOST_TOKEN"),
            state_dir: path("GHOST_STATE_DIR"),
            home: path("HOME"),
            // Unlike the others, an empty TZ is not unset: it means UTC.
            zone: local_zone(std::env::var("TZ").ok().as_deref()),
            tls: TlsFiles { ca: path("GHOST_TLS_CA"), cert: path("GHOST_TLS_CERT"), key: path("GHOST_TLS_KEY") },
        }
    }

    /// The directory that holds one data directory per world.
    fn state_root(&self) -> Result<PathBuf, Failure> {
        let from_home = || self.home.as_ref().map(|home| home.join(".local/state/ghost"));
        self.state_dir.clone().or_else(from_home).ok_or_else(|| {
            Failure::new("unavailable", "neither GHOST_STATE_DIR nor HOME is set, so there is no state directory")
                .hint("name the daemon with --endpoint unix:PATH or --endpoint HOST:PORT")
        })
    }
}

/// Address and token of a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Address to connect to.
    pub endpoint: Endpoint,
    /// Token to send, if any.
    pub token: Option<String>,
    /// The world that was asked for by its name, if no daemon runs it.
    pub stopped: Option<Stopped>,
}

/// Command-line options that select the daemon.
#[derive(Clone, Debug, Default)]
pub struct ConnectionOptions {
    /// `--endpoint`.
    pub endpoint: Option<String>,
    /// `--world`.
    pub world: Option<String>,
    /// `--token`.
    pub token: Option<String>,
}

/// Finds the daemon. Fails if no world runs or several do; the failure lists them.
pub fn find(options: &ConnectionOptions, environment: &Environment) -> Result<Target, Failure> {
    let mut stopped = None;
    let endpoint = match (&options.endpoint, &options.world, &environment.endpoint) {
        (Some(text), _, _) | (None, None, Some(text)) => text.parse()?,
        (None, Some(world), _) => {
            let world = named(world, &environment.state_root()?)?;
            stopped = (!world.runs()).then(|| world.stopped());
            world.endpoint
        }
        (None, None, None) => the_running_one(&environment.state_root()?)?,
    };
    let token = match options.token.clone().or_else(|| environment.token.clone()) {
        Some(token) => Some(token),
        None => token_beside(&endpoint, options, environment)?,
    };
    Ok(Target { endpoint, token, stopped })
}

/// Names of the worlds that have run here; empty if the directory cannot be read.
pub fn known_worlds(environment: &Environment) -> Vec<String> {
    let found = environment.state_root().and_then(|root| worlds(&root)).unwrap_or_default();
    let names: BTreeSet<String> = found.into_iter().map(|world| world.name).collect();
    names.into_iter().collect()
}

/// The worlds by name; a name that several of them have with its endpoint.
fn names(worlds: &[World]) -> String {
    let text = |world: &World| match worlds.iter().filter(|other| other.name == world.name).count() {
        1 => world.name.clone(),
        _ => format!("{} at {}", world.name, world.endpoint),
    };
    worlds.iter().map(text).collect::<Vec<_>>().join(", ")
}

/// The failure if several worlds run, and which one is meant is unknown.
fn several(running: &[World]) -> Failure {
    let distinct: BTreeSet<&str> = running.iter().map(|world| world.name.as_str()).collect();
    let hint = match running.first() {
        Some(first) if distinct.len() < running.len() => {
            format!("pick one by its endpoint, for example --endpoint {}", first.endpoint)
        }
        _ => "pick one with --world NAME".to_owned(),
    };
    Failure::new("invalid_arguments", format!("several worlds run: {}", names(running))).hint(hint)
}

/// The world with this name. It need not run yet. If several have the name, it is the one that runs.
fn named(world: &str, root: &Path) -> Result<World, Failure> {
    let (mut found, others): (Vec<World>, Vec<World>) =
        worlds(root)?.into_iter().partition(|known| known.is_called(world));
    if found.len() > 1 {
        let (running, stopped): (Vec<World>, Vec<World>) = found.into_iter().partition(World::runs);
        if running.len() > 1 {
            return Err(several(&running));
        }
        found = if running.is_empty() { stopped } else { running };
    }
    // If none of them runs, the one under the state directory comes first.
    if let Some(found) = found.into_iter().next() {
        return Ok(found);
    }
    let failure =
        Failure::new("not_found", format!("no world `{}` has run under {}", one_line(world, 100), root.display()));
    Err(if others.is_empty() {
        failure.hint("start one with `ghostd up`, or name a daemon elsewhere with --endpoint")
    } else {
        failure.hint(format!("worlds there: {}", names(&others)))
    })
}

fn the_running_one(root: &Path) -> Result<Endpoint, Failure> {
    let (mut running, stopped): (Vec<World>, Vec<World>) = worlds(root)?.into_iter().partition(World::runs);
    if running.len() > 1 {
        return Err(several(&running));
    }
    running.pop().map(|world| world.endpoint).ok_or_else(|| {
        let failure = Failure::new("unavailable", format!("no world runs under {}", root.display()));
        if stopped.is_empty() {
            failure.hint("start one with `ghostd up`, or name a daemon elsewhere with --endpoint")
        } else {
            failure.hint(format!("start one with `ghostd up`; these have run here: {}", names(&stopped)))
        }
    })
}

/// The token from the world's token file, for a TCP endpoint on this machine. A Unix socket needs no token: the daemon
/// checks the peer's user id.
fn token_beside(
    endpoint: &Endpoint,
    options: &ConnectionOptions,
    environment: &Environment,
) -> Result<Option<String>, Failure> {
    if matches!(endpoint, Endpoint::Unix(_)) || !endpoint.is_local() {
        return Ok(None);
    }
    let Ok(root) = environment.state_root() else { return Ok(None) };
    let known = worlds(&root)?;
    let is_named = |world: &World| options.world.as_deref().is_none_or(|name| world.is_called(name));
    let token_of = |world: &World| world.data_dir.join(TOKEN);
    // A daemon that was killed may have left a pointer to the port. Whoever listens there now must not get its token.
    let mut exact = known.iter().filter(|world| world.endpoint == *endpoint && is_named(world) && world.may_run());
    if let Some(exact) = exact.next() {
        return read_token(&token_of(exact));
    }
    let running = known.iter().filter(|world| is_named(world) && world.may_run());
    let with_token: Vec<PathBuf> = running.map(token_of).filter(|file| file.exists()).collect();
    match with_token.as_slice() {
        [only] => read_token(only),
        // With several worlds, the right token is unknown. The hint of the daemon's refusal
        // explains the remedy.
        _ => Ok(None),
    }
}

fn read_token(file: &Path) -> Result<Option<String>, Failure> {
    let unreadable = |why: String| {
        Failure::new("access_denied", format!("cannot read the token {}: {why}", file.display()))
            .hint("give it with --token or GHOST_TOKEN")
    };
    let size = match std::fs::metadata(file) {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error.to_string())),
    };
    if size > TOKEN_BYTES {
        return Err(unreadable(format!("{size} bytes are too many for a token")));
    }
    let token = std::fs::read_to_string(file).map_err(|error| unreadable(error.to_string()))?;
    Ok(Some(token.trim().to_owned()).filter(|token| !token.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::SOCKET;
    use std::os::unix::net::UnixListener;

    fn tcp_at(authority: &str) -> Endpoint {
        Endpoint::Tcp { authority: authority.to_owned(), tls: false }
    }

    struct State(tempfile::TempDir, Vec<UnixListener>);

    impl State {
        fn new(running: &[&str], stale: &[&str]) -> Self {
            let root = tempfile::tempdir().unwrap();
            let bind = |world: &&str| {
                std::fs::create_dir(root.path().join(world)).unwrap();
                UnixListener::bind(root.path().join(world).join(SOCKET)).unwrap()
            };
            let listeners = running.iter().map(bind).collect();
            stale.iter().map(bind).for_each(drop);
            Self(root, listeners)
        }

        fn environment(&self) -> Environment {
            Environment { state_dir: Some(self.0.path().to_owned()), ..Environment::default() }
        }
    }

    // covers: SKILL-13
    #[test]
    fn the_one_running_world_is_found_past_stale_sockets() {
        let state = State::new(&["news"], &["old"]);
        let target = find(&ConnectionOptions::default(), &state.environment()).unwrap();
        assert_eq!(target.endpoint, Endpoint::Unix(state.0.path().join("news/ghostd.sock")));
        assert_eq!(target.token, None);
        assert_eq!(state.1.len(), 1);
    }

    #[test]
    fn no_running_world_is_unavailable_and_several_are_a_usage_error() {
        let none = State::new(&[], &["old"]);
        let failure = find(&ConnectionOptions::default(), &none.environment()).unwrap_err();
        assert_eq!(failure.exit_code(), 5);
        assert!(failure.hint.unwrap().contains("old"));

        let several = State::new(&["alpha", "beta"], &[]);
        let failure = find(&ConnectionOptions::default(), &several.environment()).unwrap_err();
        assert_eq!(failure.exit_code(), 2);
        assert!(failure.message.contains("alpha, beta"), "{failure}");

        let options = ConnectionOptions { world: Some("beta".into()), ..ConnectionOptions::default() };
        let target = find(&options, &several.environment()).unwrap();
        assert_eq!(target.endpoint, Endpoint::Unix(several.0.path().join("beta/ghostd.sock")));
        assert_eq!(target.stopped, None, "it runs");
        let killed = ConnectionOptions { world: Some("old".into()), ..ConnectionOptions::default() };
        let killed = find(&killed, &none.environment()).unwrap().stopped.unwrap();
        assert!(!killed.shut_down, "its socket is still there");

        let options = ConnectionOptions { world: Some("gamma".into()), ..ConnectionOptions::default() };
        // This world has never run, so waiting for it would not help.
        let failure = find(&options, &several.environment()).unwrap_err();
        assert!(failure.exit_code() == 3 && failure.hint.unwrap().contains("alpha, beta"));
    }

    #[test]
    fn a_stopped_world_is_still_known() {
        let state = State::new(&[], &[]);
        let dir = state.0.path().join("openmic");
        std::fs::create_dir(&dir).unwrap();
        let options = |world: &str| ConnectionOptions { world: Some(world.into()), ..ConnectionOptions::default() };
        assert_eq!(find(&options("openmic"), &state.environment()).unwrap_err().exit_code(), 3, "an empty directory");
        std::fs::write(dir.join("world.id"), "openmic\n").unwrap();
        let target = find(&options("openmic"), &state.environment()).unwrap();
        assert_eq!(target.endpoint, Endpoint::Unix(dir.join(SOCKET)));
        // Who asks for it by name learns that it was shut down, and from where to start it.
        let stopped = target.stopped.unwrap();
        assert_eq!((stopped.name.as_str(), stopped.shut_down, stopped.world_dir), ("openmic", true, None));
        std::fs::write(dir.join("world.dir"), "/srv/worlds/openmic\n").unwrap();
        let world_dir = || find(&options("openmic"), &state.environment()).unwrap().stopped.unwrap().world_dir;
        assert_eq!(world_dir(), Some("/srv/worlds/openmic".into()));
        std::fs::write(dir.join("world.dir"), "x".repeat(9_000)).unwrap();
        assert_eq!(world_dir(), None, "no path is so long");
        for options in [options("openmike"), ConnectionOptions::default()] {
            assert!(find(&options, &state.environment()).unwrap_err().hint.unwrap().contains("openmic"));
        }
    }

    #[test]
    fn a_missing_state_directory_means_no_world() {
        let environment = Environment { home: Some("/nowhere/at/all".into()), ..Environment::default() };
        let failure = find(&ConnectionOptions::default(), &environment).unwrap_err();
        assert!(failure.message.contains("/nowhere/at/all/.local/state/ghost"), "{failure}");
        assert_eq!(find(&ConnectionOptions::default(), &Environment::default()).unwrap_err().exit_code(), 5);
    }

    // covers: CP-09
    #[test]
    fn flags_beat_the_environment() {
        let state = State::new(&["news"], &[]);
        let environment = Environment { endpoint: Some("box:1".into()), ..state.environment() };
        let endpoint = |options: &ConnectionOptions| find(options, &environment).unwrap().endpoint;
        assert_eq!(endpoint(&ConnectionOptions::default()), tcp_at("box:1"));
        assert_eq!(
            endpoint(&ConnectionOptions { endpoint: Some("other:2".into()), ..ConnectionOptions::default() }),
            tcp_at("other:2")
        );
        let world = ConnectionOptions { world: Some("news".into()), ..ConnectionOptions::default() };
        assert_eq!(endpoint(&world), Endpoint::Unix(state.0.path().join("news/ghostd.sock")));
    }

    #[test]
    fn a_token_from_a_file_is_sent_to_this_machine_only() {
        let state = State::new(&["news"], &[]);
        std::fs::write(state.0.path().join("news/token"), "s3cret\n").unwrap();
        let token = |endpoint: &str| {
            find(
                &ConnectionOptions { endpoint: Some(endpoint.into()), ..ConnectionOptions::default() },
                &state.environment(),
            )
            .unwrap()
            .token
        };
        assert_eq!(token("127.0.0.1:7777").as_deref(), Some("s3cret"));
        assert_eq!(token("[::1]:7777").as_deref(), Some("s3cret"));
        assert_eq!(token("localhost:7777").as_deref(), Some("s3cret"));
        assert_eq!(token("example.org:7777"), None);
        assert_eq!(token("127.0.0.1.example.org:7777"), None);

        let environment = Environment { token: Some("given".into()), ..state.environment() };
        let options = ConnectionOptions { endpoint: Some("example.org:7777".into()), ..ConnectionOptions::default() };
        assert_eq!(find(&options, &environment).unwrap().token.as_deref(), Some("given"));
        std::fs::write(state.0.path().join("news/token"), "x".repeat(5_000)).unwrap();
        let options = ConnectionOptions { endpoint: Some("127.0.0.1:7777".into()), ..ConnectionOptions::default() };
        assert_eq!(find(&options, &state.environment()).unwrap_err().exit_code(), 4);
    }
}
