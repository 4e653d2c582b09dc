//! A call whose daemon died between the record of its end and that of its answer.

use ghost_domain::{Code, Party, RequestId, StoredAnswer, TurnId};
use ghost_proto::v1;
use ghost_proto::v1::tools_server::Tools;
use serde_json::json;

use super::ToolsService;
use crate::fixture::{Scene, from_operator, refusal_of};

fn call(request_id: &str) -> v1::CallToolRequest {
    v1::CallToolRequest {
        request_id: request_id.into(),
        agent_id: "ada".into(),
        tool: "workspace.read".into(),
        arguments_json: json!({ "path": "no/such" }).to_string(),
        timeout_ms: None,
    }
}

/// Puts the mark of a daemon that is gone in the place of an answer.
async fn lose(scene: &Scene, request_id: &str, mark: serde_json::Value) {
    let (id, by): (RequestId, _) = (request_id.parse().unwrap(), Party::Operator("tester".into()));
    let write = scene.world.store().write(move |w| {
        Box::pin(async move {
            let kept = w.request_get(&by, &id).await?.unwrap();
            w.request_put(&StoredAnswer { answer: mark.to_string(), ..kept }).await?;
            Ok::<_, ghost_domain::Refusal>(())
        })
    });
    write.await.unwrap();
}

#[tokio::test]
async fn who_asks_again_finds_the_recorded_outcome_and_nothing_runs_twice() {
    let scene = Scene::new().await;
    let service = ToolsService(scene.control.clone());
    let ask = async |id: &str| service.call(from_operator(call(id))).await.map(tonic::Response::into_inner);
    let first = ask("1").await.unwrap();
    assert_eq!((first.status.as_str(), first.refusal_json.is_some()), ("failed", true));
    lose(&scene, "1", json!({ "begun": { "epoch": 0, "attempt": "x", "turn_id": first.turn_id } })).await;
    let second = ask("1").await.unwrap();
    assert_eq!(second, first);
    // It is kept as the answer now.
    assert_eq!(ask("1").await.unwrap(), first);

    // A turn that was never opened: nothing has happened, and the call is made now.
    lose(&scene, "1", json!({ "begun": { "epoch": 0, "attempt": "x", "turn_id": TurnId(uuid::Uuid::from_u128(9)) } }))
        .await;
    let third = ask("1").await.unwrap();
    assert_eq!(third.turn_id, uuid::Uuid::from_u128(9).to_string());
    assert_ne!(third.call_id, first.call_id);

    // The record of a daemon that chose no turn beforehand tells nothing.
    lose(&scene, "1", json!({ "begun": { "epoch": 0, "attempt": "x" } })).await;
    assert_eq!(refusal_of(&ask("1").await.unwrap_err()).code, Code::OutcomeUnknown);
}
