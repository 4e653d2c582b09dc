//! `worlds/devshop`: a developer has a bug repaired by a coding agent, and nothing is pushed before an operator agrees.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

use std::path::{Path, PathBuf};
use std::process::Command;

use ghost_testkit::blackbox::{Daemon, Deadline, TestEnvironment, ghostd_testing};
use serde_json::{Value, json};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

struct Devshop {
    test_env: TestEnvironment,
    world: PathBuf,
    daemon: Daemon,
}

impl Devshop {
    /// `None`, with the reason on standard error, if this machine has no sandbox and none is required.
    fn new() -> Option<Self> {
        let test_env = TestEnvironment::new(ghostd_testing());
        std::fs::set_permissions(test_env.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        // Commands run as another user, who may not reach the sources.
        let (worlds, toolbox) = (test_env.path().join("worlds"), test_env.path().join("toolbox"));
        for (from, to) in [("worlds/devshop", worlds.join("devshop")), ("toolbox/devtools", toolbox.join("devtools"))] {
            std::fs::create_dir_all(to.parent().unwrap()).unwrap();
            let done = Command::new("cp").arg("-R").arg(Path::new(ROOT).join(from)).arg(&to).status().unwrap();
            assert!(done.success());
        }
        let world = worlds.join("devshop");
        let daemon = test_env.up(&world, &[]);
        test_env.has_sandbox().then_some(Self { test_env, world, daemon })
    }

    /// The one push that waits for an operator.
    fn waiting(&self) -> String {
        let waiting = Deadline::seconds(120).until("the push waits", || {
            let list = self.test_env.json(&["approval", "list"]);
            let pending: Vec<&Value> =
                list.as_array().unwrap().iter().filter(|approval| approval["status"] == "pending").collect();
            match pending[..] {
                [approval] => Ok(approval.clone()),
                _ => Err(list.to_string()),
            }
        });
        assert_eq!(waiting["tool"], "shop.push");
        waiting["approval_id"].as_str().unwrap().to_owned()
    }

    fn workspace(&self) -> PathBuf {
        self.test_env.data("devshop").join("workspace")
    }

    /// What `git` prints about the remote.
    fn remote(&self, arguments: &[&str]) -> Vec<String> {
        let repo = self.workspace().join("remotes/titles.git");
        let mut git = Command::new("git");
        let done = git.args(["-c", "safe.directory=*", "--git-dir"]).arg(repo).args(arguments).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        String::from_utf8(done.stdout).unwrap().lines().map(str::to_owned).collect()
    }

    fn branches(&self) -> Vec<String> {
        self.remote(&["for-each-ref", "--format=%(refname:short)"])
    }

    /// The state of each call of a tool, the newest first.
    fn calls(&self, tool: &str) -> Vec<String> {
        let rows = self.test_env.json(&["ledger", "--tool", tool]);
        rows.as_array().unwrap().iter().map(|row| row["status"].as_str().unwrap().to_owned()).collect()
    }

    /// Waits for the end of the job. Returns the state of its task and its report.
    fn ended(&self) -> (Value, String) {
        let job = Deadline::seconds(120).until("the job", || {
            let tasks = self.test_env.json(&["task", "list"]);
            let task = &tasks[0];
            if task["status"] == "done" || task["status"] == "failed" {
                Ok(task.clone())
            } else {
                Err(tasks.to_string())
            }
        });
        let report = self.workspace().join(job["result"].as_str().unwrap());
        (job["status"].clone(), std::fs::read_to_string(report).unwrap())
    }
}

// covers: DEV-11, EXEC-10
#[test]
fn a_repair_is_pushed_after_an_operator_agreed_and_not_before() {
    let Some(mut shop) = Devshop::new() else { return };
    let approval_id = shop.waiting();
    assert_eq!(shop.branches(), ["main"]);
    // The question outlives the daemon.
    shop.daemon.kill();
    shop.daemon = shop.test_env.up(&shop.world, &[]);
    assert_eq!(shop.waiting(), approval_id);
    assert_eq!(shop.branches(), ["main"]);
    shop.test_env.ctl(&["approval", "approve", &approval_id]).ok();
    let (status, report) = shop.ended();
    assert_eq!(status, "done", "{report}");
    assert_eq!(shop.branches(), ["fix-title", "main"]);
    assert_eq!(shop.remote(&["rev-list", "--count", "fix-title"]), ["2"]);
    let head = shop.remote(&["rev-parse", "fix-title"]).remove(0);
    let url = "https://git.example/devshop/titles/compare/main...fix-title";
    for part in ["status: pushed", &format!("commit: {head}"), url, "exit code 1", "exit code 0", "title.sh"] {
        assert!(report.contains(part), "{part}: {report}");
    }
    // Each step happened once, also the one that the kill came upon.
    for tool in ["shop.open", "shop.coder", "devtools.repo-git", "shop.push", "shop.pr-url"] {
        assert_eq!(shop.calls(tool), ["ok"], "{tool}");
    }
}

// covers: EXEC-10
#[test]
fn a_push_that_an_operator_denies_does_not_happen() {
    let Some(shop) = Devshop::new() else { return };
    // There is no way around the question.
    let push = json!({ "command": "git push origin fix-title", "cwd": "agents/dev/artifact-repo/titles" }).to_string();
    let approval_id = shop.waiting();
    assert_ne!(shop.test_env.ctl(&["tool", "call", "dev", "tool.cli", &push]).code, Some(0));
    shop.test_env.ctl(&["approval", "deny", &approval_id, "--note", "Not before the release."]).ok();
    let (status, report) = shop.ended();
    assert_eq!(status, "failed");
    assert!(report.contains("status: denied") && report.contains("Not before the release."), "{report}");
    assert_eq!((shop.branches(), shop.calls("shop.pr-url")), (vec!["main".to_owned()], Vec::new()));
    assert_eq!(shop.calls("shop.push"), ["failed"]);
}
