//! After a crash in a file write, the hashes before and after show whether the write has happened.

use ghost_domain::journal::{Effect, FilePlan};
use ghost_domain::transcript::TokenUsage;
use ghost_domain::{CallId, CallStatus, TurnStatus};
use ghost_operations::budgets::{Demand, Reserved};
use ghost_operations::turns::{self, BriefedLog, CallStart, ModelResult};
use ghost_provider::testing::{block, say};
use ghost_tools::workspace::sha256_hex;
use serde_json::{Value, json};

use super::agent_world::{AgentWorld, id, results, write};

const PATH: &str = "agents/ada/notes/sum.md";

/// Resumes a turn of ada's whose journal has the start of a write of `new` over `old`, with `found`
/// on the disk.
async fn resumed(old: Option<&str>, found: Option<&str>) -> (AgentWorld, Value) {
    let world = AgentWorld::new().await;
    if let Some(found) = found {
        std::fs::write(world.file(PATH), found).unwrap();
    }
    world.send("ada", "go").await;
    let plan =
        FilePlan { path: PATH.into(), before: old.map(|old| sha256_hex(old.as_bytes())), after: sha256_hex(b"new") };
    write!(world, |w, ctx| {
        let turn = turns::take(w, &ctx, &id("ada"), None).await?.unwrap().turn;
        turns::brief(w, &ctx, turn.turn_id, ("s", "system"), ("b", "briefing"), BriefedLog::default(), "mail".into())
            .await?;
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
        let reserved = turns::model_started(w, &ctx, turn.turn_id, &demand).await?;
        let Reserved::Granted(reservation_id, _) = reserved else { panic!("{reserved:?}") };
        let arguments = json!({ "path": "notes/sum.md", "content": "new" });
        let result = ModelResult {
            reservation_id,
            provider: "test".into(),
            model: "one".into(),
            blocks: vec![block("c1", "workspace.write", arguments.clone())],
            stop: None,
            usage: Some(TokenUsage::default()),
            estimated: false,
            price: None,
            duration_ms: 0,
        };
        turns::model_answered(w, &ctx, turn.turn_id, result).await?;
        let start = CallStart {
            call_id: CallId(ctx.id()),
            id: "c1".into(),
            tool: "workspace.write".into(),
            alias: None,
            arguments,
            effect: Effect::File,
            file: Some(plan),
            ask_id: None,
            begun_at: None,
        };
        turns::record_call_start(w, &ctx, &turn, &start).await
    })
    .unwrap();
    world.model.reply_with(|_, _| say("well"));
    world.work("ada").await.unwrap();
    assert_eq!(world.turn("ada").await.status, TurnStatus::Finished);
    assert_eq!(world.ledger().await.len(), 1);
    let result = results(&world.model.requests()[0]).remove(0);
    (world, result)
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
