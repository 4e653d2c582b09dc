use ghost_domain::Code;
use serde_json::{Value, json};

use super::tool_world::{ToolWorld, code};

// covers: BI-65, BI-66
#[tokio::test]
async fn values_are_written_read_listed_and_deleted() {
    let world = ToolWorld::new().await;
    let write = async |arguments: Value| world.call("syscall.state.write", arguments).await;
    let read = async |arguments: Value| world.call("syscall.state.read", arguments).await;
    let first = write(json!({ "key": "plan.step", "value": { "n": 1 }, "expected_version": 0 })).await.unwrap();
    assert_eq!(first.content, json!({ "key": "plan.step", "version": 1 }));
    for (key, value) in [("plan.a", json!("x")), ("plan.b", json!(false)), ("other", json!([1, null]))] {
        write(json!({ "key": key, "value": value })).await.unwrap();
    }
    let one = read(json!({ "key": "plan.step" })).await.unwrap().content;
    assert_eq!((&one["value"], &one["version"], &one["writer"]), (&json!({ "n": 1 }), &json!(1), &json!("agent:ada")));
    let plan = read(json!({ "prefix": "plan." })).await.unwrap();
    let expected = json!({
        "plan.a": { "value": "x", "version": 1 }, "plan.b": { "value": false, "version": 1 },
        "plan.step": { "value": { "n": 1 }, "version": 1 },
    });
    assert_eq!((plan.content, plan.truncated), (expected, false));
    let cut = read(json!({ "limit": 2 })).await.unwrap();
    assert_eq!((cut.content.as_object().unwrap().len(), cut.truncated), (2, true));
    let rest = read(json!({ "after": "plan.a" })).await.unwrap();
    assert_eq!((rest.content.as_object().unwrap().len(), rest.truncated), (2, false));
    assert_eq!(code(write(json!({ "key": "plan.step", "value": 2, "expected_version": 0 })).await), Code::Conflict);
    let gone = write(json!({ "key": "plan.step", "value": null })).await.unwrap();
    assert_eq!(gone.content, json!({ "key": "plan.step", "version": 2, "deleted": true }));
    assert_eq!(code(read(json!({ "key": "plan.step" })).await), Code::NotFound);
    for (arguments, expected) in [
        (json!({ "key": "system.x", "value": 1 }), Code::AccessDenied),
        (json!({ "key": "a..b", "value": 1 }), Code::InvalidArguments),
        (json!({ "key": "big", "value": "x".repeat(65_536) }), Code::TooLarge),
        (json!({ "key": "no-value" }), Code::InvalidArguments),
    ] {
        assert_eq!(code(write(arguments).await), expected);
    }
    for bad in [json!({ "key": "a", "prefix": "b" }), json!({ "limit": 0 }), json!({ "prefix": "a b" })] {
        assert_eq!(code(read(bad).await), Code::InvalidArguments);
    }
}

#[tokio::test]
async fn large_values_are_listed_until_the_view_is_full() {
    let world = ToolWorld::new().await;
    for key in ["a", "b", "c"] {
        let value = "x".repeat(40_000);
        world.call("syscall.state.write", json!({ "key": key, "value": value })).await.unwrap();
    }
    let listed = world.call("syscall.state.read", json!({})).await.unwrap();
    assert!(listed.truncated && listed.content.as_object().unwrap().len() == 1);
}
