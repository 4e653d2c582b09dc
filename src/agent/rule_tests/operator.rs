use ghost_domain::{CallStatus, Code, TurnStatus};
use ghost_store::tables::TurnFilter;
use serde_json::{Value, json};

use super::fakes::say;
use super::rig::{Rig, id, read};
use crate::turn::call_for_operator;

async fn operate(rig: &Rig, tool: &str, arguments: Value) -> Result<Option<Code>, Code> {
    let agent_id = id("ada");
    let called = rig.in_time(call_for_operator(&rig.engine, &agent_id, tool, arguments, &rig.bench)).await;
    called.map(|(_, outcome)| outcome.refusal.map(|refusal| refusal.code)).map_err(|refusal| refusal.code)
}

#[tokio::test]
async fn a_call_of_the_operators_runs_as_the_agent_and_leaves_the_board_alone() {
    let rig = Rig::new().await;
    let sent = operate(&rig, "syscall.message.send", json!({ "to": "bob", "content": "hello" })).await;
    assert_eq!(sent, Ok(None));
    assert_eq!(rig.inbox("bob").await[0].from, ghost_domain::Party::Agent(id("ada")));
    let turn = rig.turn("ada").await;
    assert_eq!((turn.source.as_str(), turn.status, turn.calls), ("operator", TurnStatus::Finished, 1));
    assert!(rig.board.0.lock().unwrap().is_empty());
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
