use ghost_domain::journal::{CallOutcome, Effect, FilePlan};
use ghost_domain::{CallId, CallStatus, Code, Refusal, TurnId, TurnStatus};
use ghost_operations::turns::{self, CallStart, Ending};
use ghost_provider::testing::say;
use ghost_store::tables::TurnFilter;
use ghost_tools::workspace::sha256_hex;
use serde_json::{Value, json};

use super::agent_world::{AgentWorld, id, read, write};
use crate::turn::{OperatorCall, call_for_operator};

async fn operator_call_code(world: &AgentWorld, tool: &str, arguments: Value) -> Result<Option<Code>, Code> {
    let turn_id = TurnId(world.ctx().id());
    operator_call(world, turn_id, false, tool, arguments)
        .await
        .map(|outcome| outcome.refusal.map(|refusal| refusal.code))
}

async fn operator_call(
    world: &AgentWorld,
    turn_id: TurnId,
    again: bool,
    tool: &str,
    arguments: Value,
) -> Result<CallOutcome, Code> {
    let call = OperatorCall { turn_id, again, agent_id: id("ada"), tool: tool.into(), arguments };
    world.in_time(call_for_operator(&world.engine, call, &world.session)).await.map_err(|refusal| refusal.code)
}

/// The turn of an operator's call that a daemon's death interrupted, as the next start leaves it.
/// With `begun`, the call's start is recorded.
async fn interrupted_call(world: &AgentWorld, tool: &'static str, begun: Option<(Effect, Vec<FilePlan>)>) -> TurnId {
    let turn_id = TurnId(world.ctx().id());
    write!(world, |w| {
        let turn = turns::operator_turn(w, &id("ada"), turn_id)?;
        if let Some((effect, files)) = begun {
            let start = CallStart {
                call_id: CallId(w.ctx.id()),
                id: "operator-1".into(),
                tool: tool.into(),
                alias: None,
                arguments: json!({}),
                effect,
                files,
                ask_id: None,
                begun_at: None,
            };
            turns::record_call_start(w, &turn, &start)?;
        }
        let ended = Ending::Failed(Refusal::new(Code::OutcomeUnknown, "the daemon stopped"));
        turns::finish(w, turn_id, ended).map(drop)
    })
    .unwrap();
    turn_id
}

// covers: TOOL-04
#[tokio::test]
async fn an_operator_call_runs_as_the_agent_and_shows_no_activity() {
    let world = AgentWorld::new().await;
    let sent = operator_call_code(&world, "syscall.message.send", json!({ "to": "bob", "content": "hello" })).await;
    assert_eq!(sent, Ok(None));
    assert_eq!(world.inbox("bob").await[0].from, ghost_domain::Party::Agent(id("ada")));
    let turn = world.turn("ada").await;
    assert_eq!((turn.source.as_str(), turn.status, turn.calls), ("operator", TurnStatus::Finished, 1));
    assert!(world.activity.0.lock().unwrap().is_empty());
    assert!(world.model.requests().is_empty());
    // A refusal by the tool is an outcome like any other.
    let refused = operator_call_code(&world, "syscall.message.send", json!({ "to": "nobody", "content": "x" })).await;
    assert_eq!(refused, Ok(Some(Code::NotFound)));
    assert_eq!(world.turn("ada").await.status, TurnStatus::Failed);
    assert_eq!(world.ledger().await.len(), 2);
}

#[tokio::test]
async fn a_mistyped_call_leaves_no_turn() {
    let world = AgentWorld::new().await;
    assert_eq!(operator_call_code(&world, "test.akt", json!({ "n": 1 })).await, Err(Code::UnknownTool));
    assert_eq!(
        operator_call_code(&world, "syscall.agent.stop", json!({ "agent_id": "bob" })).await,
        Err(Code::AccessDenied)
    );
    assert_eq!(operator_call_code(&world, "test.act", json!({ "m": 1 })).await, Err(Code::InvalidArguments));
    assert!(read!(world, |r| r.turn_list(&TurnFilter::default())?).is_empty());
    assert!(world.ledger().await.is_empty());
}

#[tokio::test]
async fn a_panicking_tool_affects_only_its_own_call() {
    let world = AgentWorld::new().await;
    assert_eq!(operator_call_code(&world, "test.act", json!({ "n": 666 })).await, Err(Code::OutcomeUnknown));
    assert_eq!(world.turn("ada").await.status, TurnStatus::Failed);
    assert_eq!(world.ledger().await[0].status, CallStatus::Unknown);
    // The agent's own work is not affected.
    world.model.reply_with(|_, _| say("well"));
    world.send("ada", "go").await;
    world.work("ada").await.unwrap();
    assert_eq!(world.turn("ada").await.text.as_deref(), Some("well"));
    assert_eq!(world.turn("ada").await.crashes, 0);
}

#[tokio::test]
async fn a_call_with_a_recorded_outcome_is_not_repeated() {
    let world = AgentWorld::new().await;
    let turn_id = TurnId(world.ctx().id());
    let arguments = json!({ "to": "bob", "content": "hello" });
    let first = operator_call(&world, turn_id, false, "syscall.message.send", arguments.clone()).await.unwrap();
    let second = operator_call(&world, turn_id, true, "syscall.message.send", arguments).await.unwrap();
    // How much of a result is shown is decided anew.
    assert_eq!(CallOutcome { view_bytes: None, ..first }, second);
    assert_eq!((world.inbox("bob").await.len(), world.ledger().await.len()), (1, 1));
}

#[tokio::test]
async fn an_interrupted_call_that_never_started_runs_in_its_turn() {
    let world = AgentWorld::new().await;
    let turn_id = interrupted_call(&world, "syscall.message.send", None).await;
    let arguments = json!({ "to": "bob", "content": "hello" });
    let made = operator_call(&world, turn_id, true, "syscall.message.send", arguments).await.unwrap();
    assert_eq!(made.refusal, None);
    assert_eq!(world.inbox("bob").await.len(), 1);
    let turn = world.turn("ada").await;
    assert_eq!((turn.turn_id, turn.status, turn.reason), (turn_id, TurnStatus::Finished, None));
}

#[tokio::test]
async fn an_interrupted_write_is_verified_by_its_hashes() {
    let new = "after\n";
    // The old content, the content found at the retry, and the outcome: done, safe to do, or
    // unknown.
    for (old, found, code) in [
        (None, Some(new), None),
        (Some("old"), Some(new), None),
        (None, None, None),
        (Some("old"), Some("old"), None),
        (Some("old"), Some("someone else's"), Some(Code::OutcomeUnknown)),
    ] {
        let world = AgentWorld::new().await;
        let path = "agents/ada/notes/sum.md";
        if let Some(found) = found {
            std::fs::write(world.file(path), found).unwrap();
        }
        let hash = |text: &str| sha256_hex(text.as_bytes());
        let plan = FilePlan { path: path.into(), before: old.map(hash), after: Some(hash(new)), grant_id: None };
        let turn_id = interrupted_call(&world, "workspace.write", Some((Effect::File, vec![plan]))).await;
        assert_eq!(world.ledger().await[0].status, CallStatus::Unknown);
        let arguments = json!({ "path": "notes/sum.md", "content": new });
        let outcome = operator_call(&world, turn_id, true, "workspace.write", arguments).await.unwrap();
        assert_eq!(outcome.refusal.map(|refusal| refusal.code), code, "{old:?} {found:?}");
        let ledger = world.ledger().await;
        assert_eq!((ledger.len(), ledger[0].status == CallStatus::Ok), (1, code.is_none()));
        let expected = if code.is_none() { Some(new) } else { found };
        assert_eq!(std::fs::read_to_string(world.file(path)).ok().as_deref(), expected);
    }
}

#[tokio::test]
async fn an_interrupted_outside_effect_is_not_repeated() {
    let world = AgentWorld::new().await;
    let turn_id = interrupted_call(&world, "test.act", Some((Effect::Outside, Vec::new()))).await;
    let outcome = operator_call(&world, turn_id, true, "test.act", json!({ "n": 1 })).await.unwrap();
    assert_eq!(outcome.refusal.map(|refusal| refusal.code), Some(Code::OutcomeUnknown));
    assert_eq!(world.ledger().await[0].status, CallStatus::Unknown);
}
