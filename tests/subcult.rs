//! `worlds/subcult`: the six roles and nine tools of the seed, with its access map and write rules. One test follows the chain
//! of work from a source to a published briefing, through a droid. Another kills the daemon on the way.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

use std::path::Path;

use ghost_testkit::blackbox::{Daemon, Deadline, TestEnvironment, ghostd_testing};
use serde_json::{Value, json};

const SUBCULT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/worlds/subcult");

struct Subcult {
    test_env: TestEnvironment,
    daemon: Daemon,
}

impl Subcult {
    /// With a key for the search, its tool is there; the input then names no sources, so that nothing calls it.
    fn new(key: bool) -> Self {
        let mut test_env = TestEnvironment::new(ghostd_testing());
        std::fs::set_permissions(test_env.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        if key {
            test_env.set("BRAVE_API_KEY", "not-a-key-of-anybody");
        }
        let input = test_env.path().join("input");
        std::fs::create_dir(&input).unwrap();
        std::fs::write(input.join("note.txt"), "Nothing to do.\n").unwrap();
        let input = ["--input", input.to_str().unwrap()];
        let daemon = test_env.up(Path::new(SUBCULT), if key { &input } else { &[] });
        Self { test_env, daemon }
    }

    fn file(&self, path: &str) -> String {
        let path = self.test_env.data("subcult").join("workspace").join(path);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    fn job(&self) -> Value {
        self.test_env.json(&["status"])["job"].clone()
    }

    /// Waits for the end of the job. Returns its briefing.
    fn briefing(&self) -> String {
        let job = Deadline::seconds(120).until("the job", || match self.job() {
            job if job["state"] == "finished" => Ok(job),
            job => Err(job.to_string()),
        });
        self.file(job["result_path"].as_str().unwrap())
    }

    fn count(&self, tool: &str, status: &str) -> usize {
        let rows = self.test_env.json(&["ledger"]);
        let rows = rows.as_array().unwrap().iter();
        rows.filter(|row| row["tool"] == tool && row["status"] == status).count()
    }
}

// covers: ACC-12, ACL-02, DROID-11
#[test]
fn each_role_has_the_tools_of_the_map_and_no_other() {
    let subcult = Subcult::new(true);
    let has_sandbox = subcult.test_env.json(&["status"])["sandbox"]["absent"].is_null();
    let tools = |agent: &str| -> Vec<String> {
        let listed = subcult.test_env.json(&["tool", "list", agent]);
        let names = listed.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned());
        let mut names: Vec<String> =
            names.filter(|name| !name.starts_with("syscall.skill.") && !name.starts_with("syscall.tool.")).collect();
        names.sort();
        names
    };
    let basics = ["syscall.droid.check", "syscall.message.send", "workspace.read", "workspace.write"];
    let delegator = ["syscall.artifact.promote", "syscall.droid.control", "syscall.droid.spawn"];
    let shell: &[&str] = if has_sandbox { &["tool.cli"] } else { &[] };
    for (agent, more) in [
        ("chora", vec!["tool.fetch", "tool.web_search"]),
        ("subrosa", vec!["tool.web_search"]),
        ("thaum", vec!["tool.fetch", "tool.web_search"]),
        ("praxis", [&delegator[..], shell, &["tool.fetch", "tool.web_search"]].concat()),
        ("mux", [&delegator[..], shell, &["tool.fetch"]].concat()),
        // It closes the task of the job, which it owns.
        ("primus", [&delegator[..], &["syscall.task.update"]].concat()),
    ] {
        let mut wanted: Vec<&str> = basics.iter().copied().chain(more).collect();
        wanted.sort_unstable();
        assert_eq!(tools(agent), wanted, "{agent}");
    }
    let write = |agent: &str, path: &str| {
        let arguments = json!({ "path": path, "content": "x", "scope": "world" }).to_string();
        subcult.test_env.ctl(&["tool", "call", agent, "workspace.write", &arguments]).code == Some(0)
    };
    for (agent, may, may_not) in [
        ("chora", ["output/reports/a", "output/briefings/a", "output/digests/a"], ["output/reviews/a", "projects/a"]),
        (
            "subrosa",
            ["output/reviews/a", "output/reviews/b", "agents/subrosa/a"],
            ["output/reports/a", "agents/chora/a"],
        ),
        ("thaum", ["output/a", "projects/a", "agents/thaum/a"], ["shared/a", "agents/praxis/a"]),
        ("praxis", ["projects/a", "output/a", "agents/praxis/a"], ["shared/a", "agents/mux/a"]),
        ("mux", ["output/a", "projects/a", "agents/mux/a"], ["shared/a", "droids/a"]),
        ("primus", ["shared/a", "output/a", "projects/a"], ["agents/chora/a", "droids/droid-00000000/a"]),
    ] {
        assert!(may.iter().all(|path| write(agent, path)), "{agent} may write {may:?}");
        assert!(may_not.iter().all(|path| !write(agent, path)), "{agent} may not write {may_not:?}");
    }
}

// covers: DROID-01, DROID-09, DROID-14, ART-05
#[test]
fn the_chain_of_work_ends_in_a_briefing_that_names_what_each_role_did() {
    let subcult = Subcult::new(false);
    let briefing = subcult.briefing();
    for source in ["tool-library.md", "night-market.md", "repair-cafe.txt"] {
        assert!(briefing.contains(source), "{source}: {briefing}");
    }
    subcult.test_env.wait_until_quiet(Deadline::seconds(60));
    let droids = subcult.test_env.json(&["droid", "list"]);
    let droid = &droids[0];
    assert_eq!(
        (droids.as_array().unwrap().len(), &droid["parent_id"], &droid["state"]),
        (1, &json!("praxis"), &json!("succeeded"))
    );
    // What the droid made was promoted once, and stands in its place.
    assert_eq!(subcult.count("syscall.artifact.promote", "ok"), 1);
    let artifacts = subcult.test_env.json(&["artifact", "list"]);
    let promoted: Vec<&Value> =
        artifacts.as_array().unwrap().iter().filter(|artifact| artifact["droid_id"] == droid["droid_id"]).collect();
    assert_eq!((promoted.len(), &promoted[0]["agent_id"]), (1, &json!("praxis")));
    let of = |kind: &str| artifacts.as_array().unwrap().iter().filter(|artifact| artifact["type"] == kind).count();
    assert!(of("report") >= 1 && of("review") == 1 && of("digest") == 1 && of("briefing") == 1, "{artifacts}");
    assert!(briefing.contains("web_search"), "a tool that is missing is named: {briefing}");
}

// covers: DROID-10
#[test]
fn a_daemon_that_is_killed_on_the_way_loses_and_repeats_nothing() {
    let mut subcult = Subcult::new(false);
    // Killed when the droid is at work, and again after it has ended.
    for event in ["droid.spawned", "droid.ended"] {
        Deadline::seconds(120).until(event, || {
            let seen = subcult.test_env.ctl(&["--json", "events", "--kind", event, "--after", "0"]).out;
            if seen.contains(event) { Ok(()) } else { Err(String::new()) }
        });
        subcult.daemon.kill();
        subcult.daemon = subcult.test_env.up(Path::new(SUBCULT), &[]);
    }
    let briefing = subcult.briefing();
    assert!(briefing.contains("repair-cafe.txt"), "{briefing}");
    subcult.test_env.wait_until_quiet(Deadline::seconds(60));
    assert_eq!((subcult.count("syscall.droid.spawn", "ok"), subcult.count("syscall.artifact.promote", "ok")), (1, 1));
    let artifacts = subcult.test_env.json(&["artifact", "list"]);
    let briefings = artifacts.as_array().unwrap().iter().filter(|artifact| artifact["type"] == "briefing").count();
    assert_eq!(briefings, 1, "{artifacts}");
}
