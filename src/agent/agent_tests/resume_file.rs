//! After a crash in a file write, the hashes before and after show whether the write has happened.

use std::time::Duration;

use ghost_domain::grant::NewGrant;
use ghost_domain::journal::{Effect, FilePlan};
use ghost_domain::transcript::TokenUsage;
use ghost_domain::{CallId, CallStatus, EventKind, GrantSource, Party, TurnStatus};
use ghost_operations::budgets::{Demand, Reserved};
use ghost_operations::grants;
use ghost_operations::turns::{self, BriefedLog, CallStart, ModelResult};
use ghost_provider::testing::{block, say};
use ghost_tools::workspace::sha256_hex;
use serde_json::{Value, json};

use super::agent_world::{AgentWorld, id, results, write};

const PATH: &str = "agents/ada/notes/sum.md";

/// A plan of ada's from one text to another; `None` is no file.
fn plan(path: &str, old: Option<&str>, new: Option<&str>) -> FilePlan {
    let hash = |text: &str| sha256_hex(text.as_bytes());
    FilePlan { path: path.into(), before: old.map(hash), after: new.map(hash), grant_id: None }
}

/// Resumes a turn of ada's whose journal has the start of a write of `new` over `old`, with `found`
/// on the disk.
async fn resumed(old: Option<&str>, found: Option<&str>) -> (AgentWorld, Value) {
    let world = AgentWorld::new().await;
    if let Some(found) = found {
        std::fs::write(world.file(PATH), found).unwrap();
    }
    let arguments = json!({ "path": "notes/sum.md", "content": "new" });
    let result = resume(&world, "workspace.write", arguments, vec![plan(PATH, old, Some("new"))]).await;
    (world, result)
}

/// Resumes a turn of ada's whose journal has the start of this call. Returns what the model gets.
async fn resume(world: &AgentWorld, tool: &'static str, arguments: Value, files: Vec<FilePlan>) -> Value {
    world.send("ada", "go").await;
    write!(world, |w| {
        let turn = turns::take(w, &id("ada"), None)?.unwrap().turn;
        turns::brief(
            w,
            turn.turn_id,
            ("s", "system"),
            ("b", "briefing"),
            BriefedLog::default(),
            ("mail".into(), None),
        )?;
        let demand = Demand {
            provider: "test".into(),
            model: "one".into(),
            input: 1,
            max_tokens: 16,
            price: None,
            free: false,
            behind: Default::default(),
            another: false,
        };
        let reserved = turns::model_started(w, turn.turn_id, &demand)?;
        let Reserved::Granted(reservation_id, _) = reserved else { panic!("{reserved:?}") };
        let result = ModelResult {
            reservation_id,
            provider: "test".into(),
            model: "one".into(),
            blocks: vec![block("c1", tool, arguments.clone())],
            stop: None,
            usage: Some(TokenUsage::default()),
            estimated: false,
            price: None,
            duration_ms: 0,
        };
        turns::model_answered(w, turn.turn_id, result)?;
        let start = CallStart {
            call_id: CallId(w.ctx.id()),
            id: "c1".into(),
            tool: tool.into(),
            alias: None,
            arguments,
            effect: Effect::File,
            files,
            ask_id: None,
            begun_at: None,
        };
        turns::record_call_start(w, &turn, &start)
    })
    .unwrap();
    world.model.reply_with(|_, _| say("well"));
    world.work("ada").await.unwrap();
    assert_eq!(world.turn("ada").await.status, TurnStatus::Finished);
    assert_eq!(world.ledger().await.len(), 1);
    results(&world.model.requests()[0]).remove(0)
}

#[tokio::test]
async fn a_completed_write_is_recorded_as_done() {
    for old in [None, Some("old")] {
        let (world, result) = resumed(old, Some("new")).await;
        assert!(result.get("code").is_none(), "{result}");
        assert_eq!(world.ledger().await[0].status, CallStatus::Ok);
    }
}

#[tokio::test]
async fn a_write_that_did_not_happen_is_done_now() {
    for old in [None, Some("old")] {
        let (world, result) = resumed(old, old).await;
        assert!(result.get("code").is_none(), "{result}");
        assert_eq!(std::fs::read_to_string(world.file(PATH)).unwrap(), "new");
        assert_eq!(world.ledger().await[0].status, CallStatus::Ok);
    }
}

#[tokio::test]
async fn any_other_content_is_kept_and_the_outcome_is_unknown() {
    for (old, found) in [(Some("old"), Some("someone else's")), (None, Some("someone else's")), (Some("old"), None)] {
        let (world, result) = resumed(old, found).await;
        assert_eq!(result["code"], "outcome_unknown");
        assert_eq!(std::fs::read_to_string(world.file(PATH)).ok().as_deref(), found);
        assert_eq!(world.ledger().await[0].status, CallStatus::Unknown);
    }
}

/// A patch of three files of ada's, and its plans: one is created, one changed, one deleted.
fn three() -> (Value, Vec<FilePlan>) {
    let patch = "--- /dev/null\n+++ notes/new.md\n@@ -0,0 +1 @@\n+new\n--- notes/old.md\n+++ notes/old.md\n@@ -1 +1 @@\n-old\n\
                 +changed\n--- notes/gone.md\n+++ /dev/null\n@@ -1 +0,0 @@\n-gone\n";
    let plans = vec![
        plan("agents/ada/notes/new.md", None, Some("new\n")),
        plan("agents/ada/notes/old.md", Some("old\n"), Some("changed\n")),
        plan("agents/ada/notes/gone.md", Some("gone\n"), None),
    ];
    (json!({ "patch": patch }), plans)
}

/// The texts of the three files.
fn texts(world: &AgentWorld) -> [Option<String>; 3] {
    ["new", "old", "gone"].map(|name| std::fs::read_to_string(world.file(&format!("agents/ada/notes/{name}.md"))).ok())
}

fn put(world: &AgentWorld, contents: [Option<&str>; 3]) {
    for (name, text) in ["new", "old", "gone"].into_iter().zip(contents) {
        if let Some(text) = text {
            std::fs::write(world.file(&format!("agents/ada/notes/{name}.md")), text).unwrap();
        }
    }
}

const DONE: [Option<&str>; 3] = [Some("new\n"), Some("changed\n"), None];

// covers: BI-04
#[tokio::test]
async fn a_patch_that_a_crash_cut_is_completed_wherever_it_was_cut() {
    let undone = [None, Some("old\n"), Some("gone\n")];
    for cut in 0..=3 {
        let world = AgentWorld::new().await;
        let found: Vec<Option<&str>> = (0..3).map(|n| if n < cut { DONE[n] } else { undone[n] }).collect();
        put(&world, [found[0], found[1], found[2]]);
        let (arguments, plans) = three();
        let result = resume(&world, "workspace.patch", arguments, plans).await;
        assert!(result.get("code").is_none(), "{cut}: {result}");
        let actions: Vec<&Value> = result["files"].as_array().unwrap().iter().map(|file| &file["action"]).collect();
        assert_eq!(actions, ["created", "modified", "deleted"], "{cut}");
        assert_eq!(texts(&world), DONE.map(|text| text.map(str::to_owned)), "{cut}");
        assert_eq!(world.ledger().await[0].status, CallStatus::Ok, "{cut}");
    }
}

// covers: BI-04
#[tokio::test]
async fn a_cut_patch_whose_files_somebody_else_changed_is_left_as_it_is() {
    for found in [
        [Some("new\n"), Some("old\n"), Some("somebody else's")],
        [Some("somebody else's"), Some("old\n"), Some("gone\n")],
        [Some("new\n"), None, Some("gone\n")],
    ] {
        let world = AgentWorld::new().await;
        put(&world, found);
        let (arguments, plans) = three();
        let result = resume(&world, "workspace.patch", arguments, plans).await;
        assert_eq!(result["code"], "outcome_unknown", "{found:?}");
        assert_eq!(texts(&world), found.map(|text| text.map(str::to_owned)));
        assert_eq!(world.ledger().await[0].status, CallStatus::Unknown);
    }
}

// covers: ACL-05, BI-04
#[tokio::test]
async fn access_is_checked_again_for_what_was_not_written() {
    let patch = "--- /dev/null\n+++ agents/ada/notes/new.md\n@@ -0,0 +1 @@\n+new\n--- /dev/null\n+++ output/reports/r.md\n\
                 @@ -0,0 +1 @@\n+r\n";
    let arguments = json!({ "patch": patch, "scope": "world" });
    let plans =
        vec![plan("agents/ada/notes/new.md", None, Some("new\n")), plan("output/reports/r.md", None, Some("r\n"))];
    // The grant that the second file needed is no more. Nothing was written: the call is refused.
    let world = AgentWorld::new().await;
    let result = resume(&world, "workspace.patch", arguments.clone(), plans.clone()).await;
    assert_eq!((&result["code"], world.ledger().await[0].status), (&json!("path_denied"), CallStatus::Failed));
    assert!(!world.file("agents/ada/notes/new.md").exists());
    // The first was written: the model learns what is there and what is not.
    let world = AgentWorld::new().await;
    std::fs::write(world.file("agents/ada/notes/new.md"), "new\n").unwrap();
    let result = resume(&world, "workspace.patch", arguments.clone(), plans.clone()).await;
    assert_eq!((&result["code"], world.ledger().await[0].status), (&json!("outcome_unknown"), CallStatus::Unknown));
    let told = json!({ "changed": ["agents/ada/notes/new.md"], "unchanged": ["output/reports/r.md"] });
    assert_eq!(result["details"], told);
    assert!(!world.file("output/reports/r.md").exists());
    // With the grant it is completed, and the use of the grant is an event.
    let world = AgentWorld::new().await;
    std::fs::write(world.file("agents/ada/notes/new.md"), "new\n").unwrap();
    let new = NewGrant {
        agent_id: id("ada"),
        prefix: "output/".into(),
        source: GrantSource::Manual,
        reason: None,
        lasts: Duration::from_secs(60),
    };
    let grant = write!(world, |w| grants::add(w, &Party::System, new)).unwrap();
    let with = vec![plans[0].clone(), FilePlan { grant_id: Some(grant.grant_id), ..plans[1].clone() }];
    let result = resume(&world, "workspace.patch", arguments, with).await;
    assert!(result.get("code").is_none() && result["files"][1]["artifact_id"].is_string(), "{result}");
    let events = world.events().await;
    let used = events.iter().find(|event| event.kind == EventKind::GrantUsed).unwrap();
    assert_eq!(
        (&used.payload["grant_id"], &used.payload["path"]),
        (&json!(grant.grant_id), &json!("output/reports/r.md"))
    );
}
