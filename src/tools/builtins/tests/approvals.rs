//! What an approval of a command binds, and which commands may be approved for good.

use ghost_config::Plan;
use ghost_domain::{ApprovalPlan, Code};
use serde_json::{Value, json};

use super::tool_world::{ToolWorld, code};
use crate::tool::Need;

const PLAIN: &str = "[core]\n\tbare = false\n[remote \"origin\"]\n\turl = https://x.example/r\n";
const EVIL: &str = "[core]\n\tbare = false\n[diff]\n\texternal = ./x\n";

impl ToolWorld {
    fn put(&self, path: &str, text: &str) -> &Self {
        self.files.write(&format!("../data/workspace/{path}"), text);
        self
    }

    async fn plan_of(&self, tool: &str, arguments: Value) -> ApprovalPlan {
        self.tools[tool].approval_plan(&self.ada, &arguments).await.unwrap()
    }

    async fn once_only(&self, line: &str) -> Option<String> {
        self.plan_of("tool.cli", json!({ "command": line })).await.once_only
    }

    /// Why a line waits for an operator, by the rules and by what its files hold.
    async fn waits(&self, arguments: Value) -> Option<String> {
        let (tool, plan) = (&self.tools["tool.cli"], self.services.plan());
        match tool.need(&plan, &self.ada.caller, &arguments) {
            Need::Nothing => tool.closer_need(&self.services, &self.ada.caller, &arguments).await.unwrap(),
            Need::Approval(why) => Some(why),
            Need::Refused => panic!("refused: {arguments}"),
        }
    }
}

// covers: CONF-14, EXEC-11
#[tokio::test]
async fn the_policy_decides_first_and_no_approval_lifts_what_it_denies() {
    let world = ToolWorld::new().await;
    let mut plan = Plan::clone(&world.services.plan());
    let need =
        |plan: &Plan, line: &str| world.tools["tool.cli"].need(plan, &world.ada.caller, &json!({ "command": line }));
    assert_eq!(need(&plan, "ls"), Need::Nothing);
    for listed in [false, true] {
        if listed {
            plan.approvals.tools.insert("tool.cli".to_owned());
        }
        assert!(matches!(need(&plan, "mkdir notes"), Need::Approval(_)), "{listed}");
        for denied in ["rm x", "ls; rm x", "mkdir notes && sudo ls"] {
            assert_eq!(need(&plan, denied), Need::Refused, "{denied} {listed}");
        }
    }
    assert!(matches!(need(&plan, "ls"), Need::Approval(_)), "the world file puts the tool under approval");
}

// covers: EXEC-10
#[tokio::test]
async fn what_loads_code_that_agents_can_change_is_approved_once_only() {
    let world = ToolWorld::new().await;
    world.put("agents/ada/imp.py", "print(1)").put("agents/ada/Makefile", "all:\n");
    for line in
        ["python3 -m imp", "python3 imp.py", "make", "npm test", "cargo test", "node x.js", "./gone.sh", "touch $x"]
    {
        assert!(world.once_only(line).await.is_some(), "{line}");
    }
    for line in ["mkdir -p notes", "cp imp.py copy.py", "tee log < imp.py"] {
        assert_eq!(world.once_only(line).await, None, "{line}");
    }
    let python = world.plan_of("tool.python", json!({ "code": "import imp" })).await;
    assert!(python.once_only.is_some());
    // Other tools do what their arguments say.
    let write = world.plan_of("workspace.write", json!({ "path": "x", "content": "y" })).await;
    assert_eq!(write.once_only, None);
}

// covers: EXEC-10, MSG-11
#[tokio::test]
async fn what_goes_to_the_conversation_of_a_turn_is_approved_once_only() {
    let world = ToolWorld::new().await;
    let said = json!({ "content": "Your refund is on its way." });
    for (tool, arguments) in [
        ("channel.send", said.clone()),
        ("syscall.channel.send", said),
        ("channel.file_attach", json!({ "path": "r.md" })),
        ("channel.handoff", json!({ "agent_id": "bob" })),
        ("message", json!({ "action": "send", "message": "yes" })),
    ] {
        assert!(world.plan_of(tool, arguments).await.once_only.is_some(), "{tool}");
    }
    // What is sent is what the operator could see when it was asked.
    for (tool, arguments, path) in [
        ("syscall.channel.send", json!({ "content": "x", "attachments": ["agents/ada/r.md"] }), "agents/ada/r.md"),
        ("message", json!({ "action": "send", "message": "x", "attachments": ["agents/ada/r.md"] }), "agents/ada/r.md"),
        ("channel.file_attach", json!({ "path": "r.md" }), "agents/ada/r.md"),
    ] {
        let mut seen = Vec::new();
        for text in ["first", "second"] {
            let args = json!({ "path": "r.md", "content": text });
            world.call("workspace.write", args).await.unwrap();
            let plan = world.plan_of(tool, arguments.clone()).await;
            assert_eq!(plan.files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), [path], "{tool}");
            seen.push(plan.digest(&world.ada.caller.agent_id));
        }
        assert_ne!(seen[0], seen[1], "{tool}");
    }
    // What names its receiver does not depend on the turn.
    let mail = world.plan_of("syscall.message.send", json!({ "to": "bob", "content": "yes" })).await;
    assert_eq!(mail.once_only, None);
}

// covers: EXEC-10
#[tokio::test]
async fn a_script_is_bound_if_each_of_its_commands_is() {
    let world = ToolWorld::new().await;
    world.put("agents/ada/good.sh", "#!/bin/sh\nmkdir -p a\ntouch 'a/x'\n");
    world.put("agents/ada/bad.sh", "#!/bin/bash\nmkdir -p a\nmake\n");
    world.put("agents/ada/deep.sh", "#!/bin/bash\n./good.sh\n").put("agents/ada/plain", "# It's fine.\nmkdir b\n");
    world.put("agents/ada/hidden.sh", "#!/bin/bash\necho '\n#' ; make '\n'\n");
    world.put("agents/ada/py", "#!/usr/bin/env python3\nimport x\n").put("agents/ada/args.sh", "#!/bin/sh\ntouch $1\n");
    for line in ["./good.sh", "bash good.sh", "sh good.sh", ". ./good.sh", "./plain", "cd /; ./good.sh"] {
        assert_eq!(world.once_only(line).await, None, "{line}");
    }
    for line in ["./bad.sh", "sh bad.sh", "./deep.sh", "./py", "./args.sh x", "./none.sh", "./hidden.sh"] {
        assert!(world.once_only(line).await.is_some(), "{line}");
    }
    let plan = world.plan_of("tool.cli", json!({ "command": "./good.sh" })).await;
    assert_eq!(plan.files.iter().map(|file| &*file.path).collect::<Vec<_>>(), ["agents/ada/good.sh"]);
    // Another content is another plan.
    world.put("agents/ada/good.sh", "mkdir c\n");
    let changed = world.plan_of("tool.cli", json!({ "command": "./good.sh" })).await;
    assert_ne!(changed.digest(&world.ada.caller.agent_id), plan.digest(&world.ada.caller.agent_id));
}

// covers: EXEC-10
#[tokio::test]
async fn git_is_bound_with_the_settings_that_it_reads() {
    let world = ToolWorld::new().await;
    world.put("agents/ada/r/.git/config", PLAIN).put("agents/ada/evil/.git/config", EVIL);
    let of = |cwd: &str| json!({ "command": "git commit -m x", "cwd": format!("agents/ada/{cwd}") });
    let plan = world.plan_of("tool.cli", of("r")).await;
    let bound: Vec<&str> = plan.files.iter().map(|file| &*file.path).collect();
    assert_eq!((plan.once_only, bound), (None, vec!["agents/ada/r/.git/config"]));
    assert!(world.plan_of("tool.cli", of("evil")).await.once_only.is_some());
    assert!(world.once_only("git -C evil add .").await.is_some());
    assert!(world.once_only("cd r && git push").await.is_some(), "the other side may run hooks");
}

// covers: SBX-11
#[tokio::test]
async fn reading_with_git_waits_where_the_repository_names_programs() {
    let world = ToolWorld::new().await;
    world.put("agents/ada/r/.git/config", PLAIN).put("agents/ada/r/src/x", "").put("agents/ada/evil/.git/config", EVIL);
    world.put("agents/ada/evil/src/x", "");
    for line in [
        "git status",
        "cd r && git diff",
        "git -C r log | head",
        "cd r/src; git blame x > out.txt",
        "cat evil/.git/config",
        "cat r/.git/HEAD; git -C r log",
        "git -C r log --oneline --reverse",
        "ls evil",
    ] {
        assert_eq!(world.waits(json!({ "command": line })).await, None, "{line}");
    }
    for line in [
        "git -C evil diff",
        "git -C evil/src status",
        "cd evil; git log -p",
        "cd evil && cd src && git show",
        "timeout 5 git -C evil status",
        "echo \"$(git -C evil diff)\"",
        "git -C r/../evil diff",
        "cd r; echo x > config; git status",
        "git -C /elsewhere log",
        "git -C r diff --submodule=diff",
        "git -C r status --ignore-sub=none",
    ] {
        assert!(world.waits(json!({ "command": line })).await.is_some(), "{line}");
    }
    let inside = json!({ "command": "git diff", "cwd": "agents/ada/evil/src" });
    assert!(world.waits(inside).await.is_some());
}

// covers: ACL-01
#[tokio::test]
async fn file_tools_write_nothing_that_git_reads_as_its_own() {
    let world = ToolWorld::new().await;
    world.put("agents/ada/r/.git/config", PLAIN).put("agents/ada/w/.git", "gitdir: ../sep\n");
    for name in ["HEAD", "objects/x", "refs/x", "config"] {
        world.put(&format!("agents/ada/sep/{name}"), "");
    }
    for path in
        ["r/.git/config", "r/.git/hooks/pre-commit", "w/.git", "new/.git", "r/.GIT/config", "sep/config", "sep/hooks/x"]
    {
        let write = json!({ "path": path, "content": "[diff]\nexternal = ./x\n" });
        assert_eq!(code(world.call("workspace.write", write).await), Code::PathDenied, "{path}");
    }
    let edit = json!({ "path": "r/.git/config", "old_text": "bare", "new_text": "x" });
    assert_eq!(code(world.call("workspace.edit", edit).await), Code::PathDenied);
    let patch = "--- a/sep/config\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n";
    assert_eq!(code(world.call("workspace.patch", json!({ "patch": patch })).await), Code::PathDenied);
    world.call("workspace.write", json!({ "path": "r/.gitignore", "content": "x" })).await.unwrap();
}
