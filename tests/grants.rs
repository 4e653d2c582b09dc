//! Write grants, patches, artifacts and the ledger, from outside: what an operator lets an agent write, what a kill in the
//! middle of a patch leaves, what is indexed, and what commands cost.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::path::PathBuf;

use ghost_provider::testing::{FakeAnswer, FakeRequest};
use ghost_testkit::blackbox::{
    AHEAD, Daemon, Database, Deadline, ModelServer, PATCH_KILL, TestEnvironment, fresh_outcomes, ghostd_testing,
    mail_of,
};
use serde_json::{Value, json};

const WORLD: &str = "\
world: { name: Grants }
agents:
  - { id: ada, archetype: worker, write_acl: [agents/ada/, output/] }
  - { id: bob, archetype: worker }
tool_privileges: { shell: [tool.cli] }
sandbox: { kind: local }
cli_policy: { default: deny, tiers: { all: { commands: [sh, echo, rm, false, exit], action: allow, unrestricted: true } } }
llm:
  default_provider: fake
  default_model: fake
  providers: { fake: { kind: openai, base_url: 'BASE', attempts: 3, retry_base: 20ms, retry_cap: 100ms } }
";

/// `call TOOL JSON` in a message makes the model call that tool; then it says what the tool gave.
fn answer(request: &FakeRequest, number: u64) -> FakeAnswer {
    if let Some(last) = fresh_outcomes(request).last() {
        return FakeAnswer::say(format!("{} gave {}", last.tool, last.content));
    }
    let mail = mail_of(request);
    match mail.iter().find_map(|mail| mail.body.strip_prefix("call ")).and_then(|rest| rest.split_once(' ')) {
        Some((tool, arguments)) => {
            FakeAnswer::call(format!("c{number}"), tool, serde_json::from_str(arguments).unwrap())
        }
        None => FakeAnswer::say("nothing to do"),
    }
}

struct Grants {
    test_env: TestEnvironment,
    world: PathBuf,
    daemon: Option<Daemon>,
    _server: ModelServer,
}

impl Grants {
    fn new() -> Self {
        let server = ModelServer::start(answer);
        let mut test_env = TestEnvironment::new(ghostd_testing());
        // If the tests run as root, commands are another user, who must reach the workspace.
        for dir in [test_env.path().to_owned(), test_env.join("state")] {
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::set_permissions(&dir, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        }
        let (ahead, kill) = (test_env.join("ahead"), test_env.join("kill"));
        test_env.set(AHEAD, ahead).set(PATCH_KILL, kill);
        let world = test_env.world("grants");
        world.config(&WORLD.replace("BASE", &server.base_url()));
        world.archetype("worker", "## Tool Access\nprivilege_groups: shell\n");
        let world = world.path().to_owned();
        let daemon = Some(test_env.up(&world, &[]));
        Self { test_env, world, daemon, _server: server }
    }

    /// What the agent's call gives, in a turn of the agent.
    fn ask(&self, agent: &str, tool: &str, arguments: &Value) -> String {
        let asked = self.test_env.json(&["ask", agent, &format!("call {tool} {arguments}")]);
        asked["reply"].as_str().unwrap().to_owned()
    }

    fn write(&self, path: &str) -> String {
        self.ask("ada", "workspace.write", &json!({ "path": path, "content": "x\n", "scope": "world" }))
    }

    fn may_write(&self, path: &str) -> bool {
        let reply = self.write(path);
        let denied = reply.contains("path_denied");
        assert!(denied || reply.contains("\"bytes\":2"), "{reply}");
        assert_eq!(self.file(path).is_some(), !denied, "{reply}");
        !denied
    }

    fn file(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.test_env.data("grants").join("workspace").join(path)).ok()
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.test_env.data("grants").join("workspace").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Whether this machine has a sandbox. Without one, a test says that it skips its commands.
    fn has_shell(&self) -> bool {
        match self.test_env.json(&["status"])["sandbox"]["absent"].as_str() {
            None => true,
            Some(why) => {
                assert!(std::env::var("GHOST_SANDBOX").is_err(), "GHOST_SANDBOX=required: {why}");
                #[allow(clippy::print_stderr, reason = "a skipped test says so")]
                {
                    eprintln!("without commands: {why}");
                }
                false
            }
        }
    }

    fn command(&self, command: &str) -> Value {
        self.test_env.json(&["tool", "call", "ada", "tool.cli", &json!({ "command": command }).to_string()])["result"]
            .clone()
    }

    fn again(&mut self) {
        if let Some(daemon) = self.daemon.take() {
            daemon.kill();
        }
        self.daemon = Some(self.test_env.up(&self.world, &[]));
    }

    fn events(&self, family: &str) -> Vec<Value> {
        self.test_env.ctl(&["--json", "events", "--after", "0", "--kind", family]).ok().json_lines()
    }
}

// covers: ACL-03, ACL-04, ACL-05, ACL-10, CP-05, CP-09, TEST-10
#[test]
fn an_operator_grants_and_takes_back() {
    let mut grants = Grants::new();
    let shell = grants.has_shell();
    assert!(!grants.may_write("shared/plans/a.md"));
    let add = ["grant", "add", "ada", "shared/plans/", "--for", "1h", "--reason", "takes over the plan"];
    let grant = grants.test_env.json(&add);
    assert_eq!((&grant["prefix"], &grant["source"]), (&json!("shared/plans/"), &json!("manual")));
    // It holds from the next call on, for writes, patches and commands, and for this agent alone.
    assert!(grants.may_write("shared/plans/a.md"));
    assert!(!grants.may_write("shared/other.md"));
    let patch =
        json!({ "scope": "world", "patch": "--- shared/plans/a.md\n+++ shared/plans/a.md\n@@ -1 +1 @@\n-x\n+y\n" });
    assert!(grants.ask("ada", "workspace.patch", &patch).contains("\"modified\""));
    assert!(grants.ask("bob", "workspace.patch", &patch).contains("path_denied"));
    assert_eq!(grants.file("shared/plans/a.md").as_deref(), Some("y\n"));
    if shell {
        let done = grants.command("echo z > ../../shared/plans/b.md; echo z > ../../shared/b.md");
        assert!(done["stderr"].as_str().unwrap_or_default().contains("shared/b.md"), "{done}");
        assert_eq!((grants.file("shared/plans/b.md").as_deref(), grants.file("shared/b.md")), (Some("z\n"), None));
    }
    // It survives the daemon.
    grants.again();
    assert!(grants.may_write("shared/plans/c.md"));
    let listed = grants.test_env.json(&["grant", "list", "--agent", "ada"]);
    assert_eq!(listed, json!([grant]));
    // Taken back, it holds no more for the very next call, although it was just used.
    let id = grant["grant_id"].as_str().unwrap();
    assert!(grants.may_write("shared/plans/d.md"));
    grants.test_env.ctl(&["grant", "revoke", &id[..13]]).ok();
    assert!(!grants.may_write("shared/plans/e.md"));
    if shell {
        grants.command("echo z > ../../shared/plans/f.md");
        assert_eq!(grants.file("shared/plans/f.md"), None);
    }
    grants.test_env.ctl(&["grant", "revoke", id]).exits(3);
    assert_eq!(grants.test_env.json(&["grant", "list"]), json!([]));
    // What may not be granted is refused.
    for (args, code) in [
        (["grant", "add", "ada", "agents/bob/"], 2),
        (["grant", "add", "ada", "shared/plans"], 2),
        (["grant", "add", "ada", "../"], 4),
        (["grant", "add", "nobody", "shared/"], 3),
    ] {
        grants.test_env.ctl(&args).exits(code);
    }
    // All of it is on record, with who did it and what it was used for.
    let events = grants.events("grant.*");
    let of = |kind: &str| events.iter().filter(|event| event["kind"] == kind).collect::<Vec<_>>();
    let (created, used, revoked) = (of("grant.created"), of("grant.used"), of("grant.revoked"));
    assert_eq!((created.len(), revoked.len()), (1, 1));
    for event in [created[0], revoked[0]] {
        assert!(event["payload"]["by"].as_str().unwrap().starts_with("operator:"), "{event}");
        assert_eq!((&event["agent_id"], &event["payload"]["grant_id"]), (&json!("ada"), &grant["grant_id"]));
    }
    let paths: BTreeSet<&str> = used.iter().filter_map(|event| event["payload"]["path"].as_str()).collect();
    let wanted = ["shared/plans/a.md", "shared/plans/c.md", "shared/plans/d.md"];
    assert_eq!(paths, BTreeSet::from(wanted));
    assert_eq!(used.iter().any(|event| event["payload"]["path"].is_null()), shell, "a command that could write there");
}

// covers: ACL-04, ACL-06, TEST-10
#[test]
fn a_grant_ends_at_its_time() {
    let grants = Grants::new();
    let grant = grants.test_env.json(&["grant", "add", "ada", "projects/"]);
    let at = |key: &str| {
        let text = grant[key].as_str().unwrap();
        text[11..13].parse::<u32>().unwrap() * 60 + text[14..16].parse::<u32>().unwrap()
    };
    assert_eq!((at("expires_at") + 24 * 60 - at("created_at")) % (24 * 60), 4 * 60, "four hours: {grant}");
    assert!(grants.may_write("projects/a.md"));
    std::fs::write(grants.test_env.join("ahead"), (4 * 3_600_000 - 60_000).to_string()).unwrap();
    assert!(grants.may_write("projects/b.md"));
    std::fs::write(grants.test_env.join("ahead"), (4 * 3_600_000).to_string()).unwrap();
    assert!(!grants.may_write("projects/c.md"));
    assert_eq!(grants.test_env.json(&["grant", "list"]), json!([]));
}

const PATCH: &str = "\
--- /dev/null
+++ notes/new.md
@@ -0,0 +1 @@
+new
--- notes/old.md
+++ notes/old.md
@@ -1 +1 @@
-old
+changed
--- notes/gone.md
+++ /dev/null
@@ -1 +0,0 @@
-gone
";

fn three(grants: &Grants) -> [Option<String>; 3] {
    ["new", "old", "gone"].map(|name| grants.file(&format!("agents/ada/notes/{name}.md")))
}

fn texts(some: [Option<&str>; 3]) -> [Option<String>; 3] {
    some.map(|text| text.map(str::to_owned))
}

impl Grants {
    /// Has the daemon killed when `files` files of the patch are in their places, and brings the world up again after
    /// `meanwhile`. Returns the call's row of the ledger.
    fn cut_patch(&mut self, files: usize, meanwhile: impl FnOnce(&Self)) -> Value {
        self.put("agents/ada/notes/old.md", "old\n");
        self.put("agents/ada/notes/gone.md", "gone\n");
        std::fs::write(self.test_env.join("kill"), files.to_string()).unwrap();
        // A message and no question: its sender does not wait for a daemon that dies.
        self.test_env.ctl(&["send", "ada", &format!("call workspace.patch {}", json!({ "patch": PATCH }))]).ok();
        let mut daemon = self.daemon.take().unwrap();
        Deadline::seconds(60)
            .until("the daemon to be killed", || if daemon.has_ended() { Ok(()) } else { Err("it runs".to_owned()) });
        meanwhile(self);
        self.daemon = Some(self.test_env.up(&self.world, &[]));
        self.test_env.wait_until_quiet(Deadline::seconds(60));
        let calls = self.test_env.json(&["ledger", "--tool", "workspace.patch"]);
        assert_eq!(calls.as_array().unwrap().len(), 1, "it is one call: {calls}");
        calls[0].clone()
    }
}

// covers: BI-04
#[test]
fn a_patch_cut_by_kill_9_is_completed() {
    for files in 1..=3 {
        let mut grants = Grants::new();
        let call = grants.cut_patch(files, |grants| {
            let [new, old, gone] = three(grants);
            let done = [new.is_some(), old.as_deref() == Some("changed\n"), gone.is_none()];
            assert_eq!(done.iter().filter(|done| **done).count(), files, "the kill was in the middle: {done:?}");
        });
        assert_eq!(three(&grants), texts([Some("new\n"), Some("changed\n"), None]), "{files}");
        assert_eq!(call["status"], "ok", "{files}: {call}");
        assert!(call["result"].as_str().unwrap().contains("\"deleted\""), "{call}");
    }
}

// covers: BI-04
#[test]
fn a_cut_patch_that_cannot_be_completed_is_reported_as_uncertain() {
    let mut grants = Grants::new();
    let call = grants.cut_patch(1, |grants| grants.put("agents/ada/notes/old.md", "somebody else's\n"));
    assert_eq!(
        three(&grants),
        texts([Some("new\n"), Some("somebody else's\n"), Some("gone\n")]),
        "nothing more is changed"
    );
    assert_eq!((&call["status"], &call["error_code"]), (&json!("unknown"), &json!("outcome_unknown")), "{call}");
}

// covers: ACL-01, BI-04
#[test]
fn a_patch_is_all_or_nothing() {
    let grants = Grants::new();
    let reply = grants.ask("ada", "workspace.patch", &json!({ "patch": PATCH }));
    assert!(reply.contains("not_found"), "old.md is missing: {reply}");
    assert_eq!(three(&grants), texts([None, None, None]));
    grants.put("agents/ada/notes/old.md", "old\n");
    grants.put("agents/ada/notes/gone.md", "gone\nand more\n");
    let reply = grants.ask("ada", "workspace.patch", &json!({ "patch": PATCH }));
    assert!(reply.contains("conflict"), "gone.md would not be gone: {reply}");
    assert_eq!(three(&grants), texts([None, Some("old\n"), Some("gone\nand more\n")]));
    let outside = format!("{PATCH}--- /dev/null\n+++ ../../shared/x.md\n@@ -0,0 +1 @@\n+x\n");
    grants.put("agents/ada/notes/gone.md", "gone\n");
    let reply = grants.ask("ada", "workspace.patch", &json!({ "patch": outside }));
    assert!(reply.contains("path_denied"), "{reply}");
    assert_eq!(three(&grants), texts([None, Some("old\n"), Some("gone\n")]));
    let reply = grants.ask("ada", "workspace.patch", &json!({ "patch": PATCH, "dry_run": true }));
    assert!(reply.contains("\"created\""), "{reply}");
    assert_eq!(three(&grants), texts([None, Some("old\n"), Some("gone\n")]));
    let reply = grants.ask("ada", "workspace.patch", &json!({ "patch": PATCH }));
    assert!(reply.contains("\"deleted\""), "{reply}");
    assert_eq!(three(&grants), texts([Some("new\n"), Some("changed\n"), None]));
}

/// The newest line of each path in the index file. Other text is passed over.
fn indexed(grants: &Grants) -> Vec<Value> {
    let mut newest = std::collections::BTreeMap::new();
    for line in grants.file("shared/manifests/index.jsonl").unwrap_or_default().lines() {
        let Ok(line) = serde_json::from_str::<Value>(line) else { continue };
        newest.insert(line["path"].as_str().unwrap().to_owned(), line);
    }
    newest.into_values().filter(|line| line["removed_at"].is_null()).collect()
}

// covers: ART-01, ART-02, ART-03, ART-04
#[test]
fn what_is_written_under_output_is_indexed() {
    let mut grants = Grants::new();
    let shell = grants.has_shell();
    let paths = |rows: &[Value]| rows.iter().map(|row| row["path"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    let list = |grants: &Grants| grants.test_env.json(&["artifact", "list"]).as_array().unwrap().clone();
    let wait_for_index = |grants: &Grants, wanted: &[&str]| {
        Deadline::seconds(30).until("the index file", || {
            let there = paths(&indexed(grants));
            if there == wanted { Ok(()) } else { Err(format!("{there:?}")) }
        });
        assert_eq!(paths(&list(grants)), wanted, "the table has the same");
    };
    assert!(grants.may_write("output/reports/a.md"));
    let reply = grants.write("output/briefings/b.md");
    let row = list(&grants)[0].clone();
    assert!(reply.contains(row["artifact_id"].as_str().unwrap()), "{reply}: {row}");
    assert_eq!((&row["type"], &row["agent_id"], &row["bytes"]), (&json!("briefing"), &json!("ada"), &json!(2)));
    wait_for_index(&grants, &["output/briefings/b.md", "output/reports/a.md"]);
    let mut wanted = vec!["output/briefings/b.md", "output/reports/a.md"];
    if shell {
        let done = grants.command("echo 12345 > ../../output/reports/c.md; echo new > ../../output/reports/a.md; rm ../../output/briefings/b.md");
        assert_eq!(done["exit_code"], 0, "{done}");
        wanted = vec!["output/reports/a.md", "output/reports/c.md"];
        wait_for_index(&grants, &wanted);
        let rows = list(&grants);
        assert_eq!((&rows[0]["bytes"], &rows[1]["bytes"], &rows[1]["agent_id"]), (&json!(4), &json!(6), &json!("ada")));
        let ids = indexed(&grants).into_iter().map(|line| line["artifact_id"].clone()).collect::<Vec<_>>();
        assert_eq!(ids, [rows[0]["artifact_id"].clone(), rows[1]["artifact_id"].clone()]);
        // A command of somebody who may not write there changes nothing there.
        grants.test_env.json(&[
            "tool",
            "call",
            "bob",
            "tool.cli",
            &json!({ "command": "echo x > ../../output/d" }).to_string(),
        ]);
        assert_eq!(paths(&list(&grants)), wanted);
    }
    // The file is made again from the table; the table follows the files when it is asked to.
    let before = grants.file("shared/manifests/index.jsonl").unwrap();
    grants.put("shared/manifests/index.jsonl", "somebody's own text");
    grants.again();
    wait_for_index(&grants, &wanted);
    assert!(grants.file("shared/manifests/index.jsonl").unwrap().len() <= before.len(), "one line for each");
    grants.put("output/z.txt", "by hand");
    let done = grants.test_env.json(&["artifact", "rebuild"]);
    assert_eq!(done, json!({ "artifacts": wanted.len() + 1, "corrected": 1 }));
    wanted.push("output/z.txt");
    wait_for_index(&grants, &wanted);
    assert_eq!(list(&grants).last().unwrap()["agent_id"], Value::Null, "nobody knows who");
}

/// The SQL query of `docs/operations.md`: what commands cost.
fn query() -> &'static str {
    let (_, rest) = include_str!("../docs/operations.md").split_once("```sql\n").unwrap();
    rest.split_once(";\n```").unwrap().0
}

// covers: TOOL-09, TOOL-16
#[test]
fn the_ledger_knows_what_commands_cost_and_which_failed() {
    let mut grants = Grants::new();
    let shell = grants.has_shell();
    for arguments in [json!({ "micros": 35_000 }), json!({ "micros": 1, "fails": true })] {
        grants.ask("ada", "test.charge", &arguments);
    }
    let answer = grants.test_env.json(&["ledger", "--tool", "test.charge", "--since", "24h", "--totals"]);
    let sum = |status: &str, key: &str| {
        let totals = answer["totals"].as_array().unwrap();
        totals.iter().find(|sum| sum["status"] == status).unwrap()[key].clone()
    };
    assert_eq!((sum("ok", "calls"), sum("ok", "cost_usd")), (json!(1), json!(0.035)));
    assert_eq!((sum("failed", "calls"), sum("failed", "cost_usd")), (json!(1), json!(0.000_001)));
    let failed = &answer["failed"];
    assert_eq!((failed.as_array().unwrap().len(), &failed[0]["error_code"]), (1, &json!("exec_failed")));
    assert_eq!((&failed[0]["arguments"]["fails"], &failed[0]["cost_usd"]), (&json!(true), &json!(0.000_001)));
    for key in ["bytes_in", "bytes_out", "tokens"] {
        assert!(failed[0][key].as_u64().unwrap() > 0, "{key}: {failed}");
    }
    let text = grants.test_env.ctl(&["ledger", "--since", "24h", "--totals"]).ok().out.clone();
    assert!(text.contains("$0.035001") && text.contains("exec_failed"), "{text}");
    if !shell {
        return;
    }
    grants.command("echo fine");
    let failed = grants.command("echo bad; exit 3");
    assert_eq!((&failed["exit_code"], &failed["stdout"]), (&json!(3), &json!("bad\n")), "its output is a result");
    let answer = grants.test_env.json(&["ledger", "--tool", "tool.cli", "--since", "24h", "--totals"]);
    assert_eq!(answer["failed"].as_array().unwrap().len(), 1);
    assert_eq!(answer["failed"][0]["arguments"]["command"], "echo bad; exit 3");
    let daemon = grants.daemon.take().unwrap();
    daemon.stop();
    let wrapped = format!("SELECT status || ' ' || calls, '' || (tokens > 0) FROM ({})", query());
    let rows = Database::open(&grants.test_env.data("grants")).pairs(Box::leak(wrapped.into_boxed_str()));
    assert_eq!(rows, [("failed 1".to_owned(), "1".to_owned()), ("ok 1".to_owned(), "1".to_owned())]);
}
