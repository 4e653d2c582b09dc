use ghost_domain::journal::{CallOutcome, Effect, FilePlan};
use ghost_domain::{CallId, CallStatus, Code, Refusal, TurnId, TurnStatus};
use ghost_rules::turns::{self, CallStart, Ending};
use ghost_store::tables::TurnFilter;
use ghost_tools::workspace::sha256_hex;
use serde_json::{Value, json};

use super::fakes::say;
use super::rig::{Rig, id, read, write};
use crate::turn::{OperatorCall, call_for_operator};

async fn operate(rig: &Rig, tool: &str, arguments: Value) -> Result<Option<Code>, Code> {
    let turn_id = TurnId(rig.ctx().id());
    called(rig, turn_id, false, tool, arguments).await.map(|outcome| outcome.refusal.map(|refusal| refusal.code))
}

async fn called(rig: &Rig, turn_id: TurnId, again: bool, tool: &str, arguments: Value) -> Result<CallOutcome, Code> {
    let call = OperatorCall { turn_id, again, agent_id: id("ada"), tool: tool.into(), arguments };
    rig.in_time(call_for_operator(&rig.engine, call, &rig.session)).await.map_err(|refusal| refusal.code)
}

/// What a daemon's death left of an operator's call: its turn, with the call begun in this way if it was, ended by the next
/// start.
async fn cut_off(rig: &Rig, tool: &'static str, begun: Option<(Effect, Option<FilePlan>)>) -> TurnId {
    let turn_id = TurnId(rig.ctx().id());
    write!(rig, |w, ctx| {
        let turn = turns::operator_turn(w, &ctx, &id("ada"), turn_id).await?;
        if let Some((effect, file)) = begun {
            let start = CallStart {
                call_id: CallId(ctx.id()),
                id: "operator-1".into(),
                tool: tool.into(),
                alias: None,
                arguments: json!({}),
                effect,
                file,
                ask_id: None,
                begun_at: None,
            };
            turns::record_call_start(w, &ctx, &turn, &start).await?;
        }
        let ended = Ending::Failed(Refusal::new(Code::OutcomeUnknown, "the daemon stopped"));
        turns::finish(w, &ctx, turn_id, ended).await.map(drop)
    })
    .unwrap();
    turn_id
}

// covers: TOOL-04
#[tokio::test]
async fn a_call_of_the_operators_runs_as_the_agent_and_leaves_the_board_alone() {
    let rig = Rig::new().await;
    let sent = operate(&rig, "syscall.message.send", json!({ "to": "bob", "content": "hello" })).await;
    assert_eq!(sent, Ok(None));
    assert_eq!(rig.inbox("bob").await[0].from, ghost_domain::Party::Agent(id("ada")));
    let turn = rig.turn("ada").await;
    assert_eq!((turn.source.as_str(), turn.status, turn.calls), ("operator", TurnStatus::Finished, 1));
    assert!(rig.activity.0.lock().unwrap().is_empty());
    assert!(rig.model.asked().is_empty());
    // The tool's own refusal is an outcome like any other.
    let refused = operate(&rig, "syscall.message.send", json!({ "to": "nobody", "content": "x" })).await;
    assert_eq!(refused, Ok(Some(Code::NotFound)));
    assert_eq!(rig.turn("ada").await.status, TurnStatus::Failed);
    assert_eq!(rig.ledger().await.len(), 2);
}

#[tokio::test]
async fn a_slip_of_the_keyboard_leaves_no_turn() {
    let rig = Rig::new().await;
    assert_eq!(operate(&rig, "test.akt", json!({ "n": 1 })).await, Err(Code::UnknownTool));
    assert_eq!(operate(&rig, "syscall.agent.stop", json!({ "agent_id": "bob" })).await, Err(Code::AccessDenied));
    assert_eq!(operate(&rig, "test.act", json!({ "m": 1 })).await, Err(Code::InvalidArguments));
    assert!(read!(rig, |r| r.turn_list(&TurnFilter::default()).await?).is_empty());
    assert!(rig.ledger().await.is_empty());
}

#[tokio::test]
async fn a_tool_that_panics_hurts_its_call_alone() {
    let rig = Rig::new().await;
    assert_eq!(operate(&rig, "test.act", json!({ "n": 666 })).await, Err(Code::OutcomeUnknown));
    assert_eq!(rig.turn("ada").await.status, TurnStatus::Failed);
    assert_eq!(rig.ledger().await[0].status, CallStatus::Unknown);
    // The agent's own work goes on beside and after it.
    rig.model.does(|_, _| say("well"));
    rig.send("ada", "go").await;
    rig.work("ada").await.unwrap();
    assert_eq!(rig.turn("ada").await.text.as_deref(), Some("well"));
    assert_eq!(rig.turn("ada").await.crashes, 0);
}

#[tokio::test]
async fn a_call_whose_end_is_recorded_is_found_and_not_made_again() {
    let rig = Rig::new().await;
    let turn_id = TurnId(rig.ctx().id());
    let arguments = json!({ "to": "bob", "content": "hello" });
    let first = called(&rig, turn_id, false, "syscall.message.send", arguments.clone()).await.unwrap();
    let second = called(&rig, turn_id, true, "syscall.message.send", arguments).await.unwrap();
    assert_eq!(first, second);
    assert_eq!((rig.inbox("bob").await.len(), rig.ledger().await.len()), (1, 1));
}

#[tokio::test]
async fn a_call_that_had_done_nothing_yet_is_made_in_its_turn() {
    let rig = Rig::new().await;
    let turn_id = cut_off(&rig, "syscall.message.send", None).await;
    let arguments = json!({ "to": "bob", "content": "hello" });
    let made = called(&rig, turn_id, true, "syscall.message.send", arguments).await.unwrap();
    assert_eq!(made.refusal, None);
    assert_eq!(rig.inbox("bob").await.len(), 1);
    let turn = rig.turn("ada").await;
    assert_eq!((turn.turn_id, turn.status, turn.reason), (turn_id, TurnStatus::Finished, None));
}

#[tokio::test]
async fn a_write_that_was_cut_off_is_verified_by_its_hashes() {
    let new = "after\n";
    // What was there, what is there, and what a retry finds: done, safe to do, or uncertain.
    for (old, found, code) in [
        (None, Some(new), None),
        (Some("old"), Some(new), None),
        (None, None, None),
        (Some("old"), Some("old"), None),
        (Some("old"), Some("someone else's"), Some(Code::OutcomeUnknown)),
    ] {
        let rig = Rig::new().await;
        let path = "agents/ada/notes/sum.md";
        if let Some(found) = found {
            std::fs::write(rig.file(path), found).unwrap();
        }
        let hash = |text: &str| sha256_hex(text.as_bytes());
        let plan = FilePlan { path: path.into(), before: old.map(hash), after: hash(new) };
        let turn_id = cut_off(&rig, "workspace.write", Some((Effect::File, Some(plan)))).await;
        assert_eq!(rig.ledger().await[0].status, CallStatus::Unknown);
        let arguments = json!({ "path": "notes/sum.md", "content": new });
        let outcome = called(&rig, turn_id, true, "workspace.write", arguments).await.unwrap();
        assert_eq!(outcome.refusal.map(|refusal| refusal.code), code, "{old:?} {found:?}");
        let ledger = rig.ledger().await;
        assert_eq!((ledger.len(), ledger[0].status == CallStatus::Ok), (1, code.is_none()));
        let there = if code.is_none() { Some(new) } else { found };
        assert_eq!(std::fs::read_to_string(rig.file(path)).ok().as_deref(), there);
    }
}

#[tokio::test]
async fn an_effect_outside_that_was_cut_off_is_not_made_again() {
    let rig = Rig::new().await;
    let turn_id = cut_off(&rig, "test.act", Some((Effect::Outside, None))).await;
    let outcome = called(&rig, turn_id, true, "test.act", json!({ "n": 1 })).await.unwrap();
    assert_eq!(outcome.refusal.map(|refusal| refusal.code), Some(Code::OutcomeUnknown));
    assert_eq!(rig.ledger().await[0].status, CallStatus::Unknown);
}
