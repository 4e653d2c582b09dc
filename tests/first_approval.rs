//! Runs the blocks of `docs/first-approval.md`, one after another, as somebody pastes them: a tool of one's own, a call of it
//! that waits for an operator, a yes and a no.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::PathBuf;

use ghost_testkit::blackbox::{Deadline, Ran, TestEnvironment};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

const PAGE: &str = include_str!("../docs/first-approval.md");
const WORLD: &str = "first-approval";

/// The page, and how much of it was run.
struct Reader {
    test_env: TestEnvironment,
    rest: &'static str,
}

impl Reader {
    fn new() -> Self {
        let test_env = TestEnvironment::new(env!("CARGO_BIN_EXE_ghostd"));
        // If the test is root, commands run as another user, who must get to the program of the tool.
        std::fs::set_permissions(test_env.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        Self { test_env, rest: PAGE }
    }

    /// Runs the blocks up to the next one that contains `word`, and that one. Returns what it printed.
    fn paste_to(&mut self, word: &str) -> Ran {
        loop {
            let (_, rest) = self.rest.split_once("```sh\n").unwrap_or_else(|| panic!("no further block has `{word}`"));
            let (block, rest) = rest.split_once("\n```").expect("a block has an end");
            self.rest = rest;
            let ran = self.test_env.sh(block);
            ran.ok();
            if block.contains(word) {
                return ran;
            }
        }
    }

    fn approvals(&self, status: &str) -> Vec<Value> {
        self.test_env.json(&["approval", "list", "--status", status]).as_array().unwrap().clone()
    }

    /// The only call that waits.
    fn waiting(&self) -> Value {
        let waiting = self.approvals("pending");
        assert_eq!(waiting.len(), 1, "{waiting:?}");
        waiting[0].clone()
    }

    /// What the tool has written.
    fn orders(&self) -> Option<String> {
        std::fs::read_to_string(self.data().join("workspace/agents/clerk/orders.txt")).ok()
    }

    fn data(&self) -> PathBuf {
        self.test_env.data(WORLD)
    }

    fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.test_env.join(name)).unwrap()
    }

    /// How the calls of the tool ended, the oldest first.
    fn calls(&self) -> Vec<(Value, Value)> {
        let rows = self.test_env.json(&["ledger", "--tool", "orders.place"]);
        let rows = rows.as_array().unwrap().iter().rev();
        rows.map(|row| (row["status"].clone(), row["error_code"].clone())).collect()
    }

    /// The process id of the daemon, if it runs.
    fn daemon(&self) -> Option<Pid> {
        let lock = std::fs::read_to_string(self.data().join("lock")).ok()?;
        Pid::from_raw(lock.split_whitespace().next()?.parse().ok()?)
    }
}

impl Drop for Reader {
    /// A test that fails leaves no daemon behind.
    fn drop(&mut self) {
        let may_run = std::thread::panicking() && self.rest.contains("ghostctl shutdown");
        if let Some(daemon) = self.daemon().filter(|_| may_run) {
            let _ = kill_process(daemon, Signal::KILL);
        }
    }
}

// The other blocks of the page run on the way.
#[test]
fn the_page_about_a_first_approval_does_what_it_says() {
    let mut reader = Reader::new();
    reader.paste_to("ghostd check");
    // The block of the start ends with the line of the tool. Without a sandbox the tool is absent.
    reader.paste_to("ghostd up");
    if !reader.test_env.has_sandbox() {
        reader.test_env.ctl(&["shutdown"]).ok();
        return;
    }
    let checked = reader.test_env.ghostd(&["check", "--json", WORLD]).json();
    assert_eq!(checked, json!([]), "the world of the page has no problem");
    let tools = reader.test_env.json(&["tool", "list", "clerk"]);
    let names: Vec<&str> = tools.as_array().unwrap().iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert!(names.contains(&"orders.place") && !names.contains(&"tool.cli"), "{names:?}");

    // A call waits, and nothing has happened.
    reader.paste_to("12 chairs");
    let first = reader.waiting();
    assert_eq!((&first["tool"], &first["agent_id"]), (&json!("orders.place"), &json!("clerk")));
    let approval_id = first["approval_id"].as_str().unwrap();
    let whole = reader.test_env.json(&["approval", "show", approval_id]);
    assert_eq!((&whole["arguments"], reader.orders()), (&json!({ "item": "12 chairs" }), None));
    let shown = reader.paste_to("approval show");
    assert!(shown.out.contains(approval_id), "{}", shown.out);
    assert_eq!((reader.orders(), reader.file("answer.txt")), (None, String::new()));

    // Yes: the call runs once, and the asker gets the answer.
    let read = reader.paste_to("approval approve");
    assert_eq!(reader.orders().as_deref(), Some("12 chairs\n"));
    assert!(read.out.contains(reader.file("answer.txt").trim()) && read.out.contains("12 chairs"), "{}", read.out);
    assert_eq!(reader.calls(), [(json!("ok"), Value::Null)]);
    assert_eq!(reader.approvals("pending"), Vec::<Value>::new());

    // No: the call does not run, and the agent learns the note.
    reader.paste_to("approval deny");
    assert_eq!(reader.orders().as_deref(), Some("12 chairs\n"));
    assert_eq!(reader.calls()[1].1, "approval_denied");
    assert!(reader.file("no.txt").contains("That is too many."), "{}", reader.file("no.txt"));
    let mut closed: Vec<Value> = reader.approvals("all").iter().map(|row| row["status"].clone()).collect();
    closed.sort_by_key(Value::to_string);
    assert_eq!(closed, ["approved", "denied"]);

    // The page says that the call of an operator does not wait.
    let call = ["tool", "call", "clerk", "orders.place", r#"{"item": "1 desk"}"#];
    assert_eq!(reader.test_env.json(&call)["status"], "ok");
    assert_eq!((reader.orders().as_deref(), reader.approvals("pending").len()), (Some("12 chairs\n1 desk\n"), 0));

    reader.paste_to("ghostctl shutdown");
    assert!(!reader.rest.contains("```sh"), "no block of the page is left");
    Deadline::seconds(30).until("the daemon to end", || {
        let status = reader.test_env.ctl(&["status"]);
        if status.code == Some(5) { Ok(()) } else { Err(status.out) }
    });
}
