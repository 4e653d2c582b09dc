//! Tests with pointers of running daemons, which hold their locks, and of killed ones.

use std::os::unix::net::UnixListener;

use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::discovery::{ConnectionOptions, Environment, Target, find, known_worlds};

struct State {
    dir: TempDir,
    held: Vec<File>,
}

impl State {
    fn new() -> Self {
        let state = Self { dir: tempfile::tempdir().unwrap(), held: Vec::new() };
        std::fs::create_dir_all(state.root().join(RUNNING)).unwrap();
        state
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// A data directory outside of the state directory, unless it is named `state/NAME`.
    fn data(&self, name: &str) -> PathBuf {
        let dir = self.dir.path().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("world.id"), "").unwrap();
        dir.canonicalize().unwrap()
    }

    fn point(&mut self, file: &str, world: &str, data_dir: &Path, endpoint: &str, runs: bool) {
        let path = self.root().join(RUNNING).join(format!("{file}.json"));
        let text = json!({ "world": world, "data_dir": data_dir, "endpoint": endpoint });
        // A daemon replaces the file.
        drop(std::fs::remove_file(&path));
        std::fs::write(&path, text.to_string()).unwrap();
        let held = File::open(path).unwrap();
        if runs {
            flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
            self.held.push(held);
        }
    }

    fn environment(&self) -> Environment {
        Environment { state_dir: Some(self.root()), ..Environment::default() }
    }

    fn find(&self, world: Option<&str>, endpoint: Option<&str>) -> Result<Target, Failure> {
        let options = ConnectionOptions {
            world: world.map(Into::into),
            endpoint: endpoint.map(Into::into),
            ..ConnectionOptions::default()
        };
        find(&options, &self.environment())
    }

    fn endpoint(&self, world: Option<&str>) -> String {
        self.find(world, None).unwrap().endpoint.to_string()
    }
}

// covers: WORLD-10
#[test]
fn a_running_world_elsewhere_is_found_and_the_pointer_of_a_killed_one_is_ignored() {
    let mut state = State::new();
    let (desk, old) = (state.data("srv/desk"), state.data("srv/old"));
    state.point("a", "desk", &desk, "unix:/run/desk.sock", true);
    state.point("b", "old", &old, "unix:/run/old.sock", false);
    for text in ["", "{}", "[1]", "{\"world\": 1}"] {
        std::fs::write(state.root().join(RUNNING).join(format!("x{}.json", text.len())), text).unwrap();
    }
    std::fs::write(state.root().join(RUNNING).join("desk.new"), "half").unwrap();
    assert_eq!(state.endpoint(None), "unix:/run/desk.sock");
    assert_eq!(state.endpoint(Some("desk")), "unix:/run/desk.sock");
    // It does not run, but it may start again there.
    assert_eq!(state.endpoint(Some("old")), "unix:/run/old.sock");
    assert_eq!(known_worlds(&state.environment()), ["desk", "old"]);
    assert_eq!(state.find(Some("dask"), None).unwrap_err().exit_code(), 3);
    state.held.clear();
    let failure = state.find(None, None).unwrap_err();
    assert_eq!(failure.exit_code(), 5);
    assert!(failure.hint.unwrap().contains("desk, old"));
}

#[test]
fn worlds_with_the_same_id_are_told_apart_by_their_endpoints() {
    let mut state = State::new();
    let (one, two) = (state.data("srv/one"), state.data("srv/two"));
    let default = state.data("state/desk");
    state.point("a", "desk", &one, "unix:/run/one.sock", true);
    assert_eq!(state.endpoint(Some("desk")), "unix:/run/one.sock", "the default one does not run");
    state.point("b", "desk", &two, "http://127.0.0.1:7070", true);
    for world in [None, Some("desk")] {
        let failure = state.find(world, None).unwrap_err();
        assert_eq!(failure.exit_code(), 2);
        for endpoint in ["unix:/run/one.sock", "http://127.0.0.1:7070"] {
            assert!(failure.message.contains(endpoint), "{failure}");
        }
        assert!(failure.hint.unwrap().contains("--endpoint unix:/run/one.sock"));
    }
    assert_eq!(known_worlds(&state.environment()), ["desk"]);
    // Worlds with names of their own are told apart by them.
    state.point("a", "news", &one, "unix:/run/one.sock", true);
    let failure = state.find(None, None).unwrap_err();
    assert!(failure.exit_code() == 2 && failure.hint.unwrap().contains("--world"));
    state.held.clear();
    assert_eq!(state.endpoint(Some("desk")), format!("unix:{}", default.join(SOCKET).display()));
}

#[test]
fn the_pointer_of_a_default_data_directory_replaces_its_socket() {
    let mut state = State::new();
    let data = state.data("state/office");
    state.point("a", "desk", &data, "unix:/run/desk.sock", true);
    for name in [None, Some("office"), Some("desk")] {
        assert_eq!(state.endpoint(name), "unix:/run/desk.sock", "{name:?}");
    }
    assert_eq!(worlds(&state.root()).unwrap().len(), 1);
    // The daemon was killed and started again with the default socket.
    state.held.clear();
    let listener = UnixListener::bind(data.join(SOCKET)).unwrap();
    assert_eq!(state.endpoint(None), format!("unix:{}", data.join(SOCKET).display()));
    drop(listener);
    assert_eq!(state.endpoint(Some("office")), "unix:/run/desk.sock");
}

#[test]
fn the_token_is_that_of_the_data_directory_which_the_pointer_names() {
    let mut state = State::new();
    let (one, two) = (state.data("srv/one"), state.data("srv/two"));
    for (file, data, endpoint) in [("a", &one, "http://127.0.0.1:7070"), ("b", &two, "http://10.0.0.9:7070")] {
        std::fs::write(data.join("token"), format!("token-{file}\n")).unwrap();
        state.point(file, file, data, endpoint, true);
    }
    let token = |state: &State, world, endpoint| state.find(world, endpoint).unwrap().token;
    assert_eq!(token(&state, Some("a"), None).as_deref(), Some("token-a"));
    assert_eq!(token(&state, None, Some("127.0.0.1:7070")).as_deref(), Some("token-a"));
    // A token from a file is never sent to another machine.
    assert_eq!(token(&state, Some("b"), None), None);
    // Which world listens there is unknown.
    assert_eq!(token(&state, None, Some("127.0.0.1:9")), None);
    // A daemon that was killed had the same port.
    let old = state.data("srv/a-old");
    std::fs::write(old.join("token"), "token-old\n").unwrap();
    state.point("0", "a-old", &old, "http://127.0.0.1:7070", false);
    assert_eq!(token(&state, None, Some("127.0.0.1:7070")).as_deref(), Some("token-a"));
}
