//! Repeated tool calls after the daemon died before it stored the answer.

use ghost_domain::{Code, Party, RequestId, StoredAnswer, TurnId};
use ghost_proto::v1;
use serde_json::json;

use crate::testing::{TestControl, refusal_of};

fn call(request_id: &str) -> v1::CallToolRequest {
    v1::CallToolRequest {
        request_id: request_id.into(),
        agent_id: "ada".into(),
        tool: "workspace.read".into(),
        arguments_json: json!({ "path": "no/such" }).to_string(),
        timeout_ms: None,
    }
}

/// Replaces the stored answer by the marker of an earlier daemon process.
async fn replace_answer(test: &TestControl, request_id: &str, marker: serde_json::Value) {
    let (id, by): (RequestId, _) = (request_id.parse().unwrap(), Party::Operator("tester".into()));
    let write = test.world.store().write(move |w| {
        let stored = w.request_get(&by, &id)?.unwrap();
        w.request_put(&StoredAnswer { answer: marker.to_string(), ..stored })?;
        Ok::<_, ghost_domain::Refusal>(())
    });
    write.await.unwrap();
}

#[tokio::test]
async fn a_repeated_call_finds_the_recorded_outcome_and_runs_nothing_twice() {
    let test = TestControl::new().await;
    let ask = async |id: &str| test.call::<v1::CallToolResponse>("Tools/Call", call(id)).await;
    let first = ask("1").await.unwrap();
    assert_eq!((first.status.as_str(), first.refusal_json.is_some()), ("failed", true));
    replace_answer(&test, "1", json!({ "begun": { "epoch": 0, "attempt": "x", "turn_id": first.turn_id } })).await;
    let second = ask("1").await.unwrap();
    assert_eq!(second, first);
    // It is stored as the answer now.
    assert_eq!(ask("1").await.unwrap(), first);

    // The turn was never opened, so nothing has happened: the call runs now.
    replace_answer(
        &test,
        "1",
        json!({ "begun": { "epoch": 0, "attempt": "x", "turn_id": TurnId(uuid::Uuid::from_u128(9_000)) } }),
    )
    .await;
    let third = ask("1").await.unwrap();
    assert_eq!(third.turn_id, uuid::Uuid::from_u128(9_000).to_string());
    assert_ne!(third.call_id, first.call_id);

    // A marker without a turn id, from an earlier version, does not determine the outcome.
    replace_answer(&test, "1", json!({ "begun": { "epoch": 0, "attempt": "x" } })).await;
    assert_eq!(refusal_of(&ask("1").await.unwrap_err()).code, Code::OutcomeUnknown);
}
