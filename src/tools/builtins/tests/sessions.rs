use ghost_domain::Code;
use serde_json::json;

use super::tool_world::{ToolWorld, code};

// covers: BI-78
#[tokio::test]
async fn an_agent_lists_and_reads_its_own_sessions() {
    let world = ToolWorld::new().await;
    assert_eq!(world.content("syscall.session.list", json!({})).await, json!({ "sessions": [] }));
    let empty = json!({ "session": "own", "entries": [] });
    assert_eq!(world.content("syscall.session.history", json!({})).await, empty);
    assert_eq!(
        world.content("syscall.session.history", json!({ "session": "own", "include_tools": true })).await,
        empty
    );
    let refused = async |tool: &str, arguments| code(world.call(tool, arguments).await);
    assert_eq!(refused("syscall.session.list", json!({ "limit": 501 })).await, Code::InvalidArguments);
    assert_eq!(refused("syscall.session.history", json!({ "limit": 0 })).await, Code::InvalidArguments);
    assert_eq!(refused("syscall.session.history", json!({ "session": "bob" })).await, Code::InvalidArguments);
    let unknown = json!({ "before": "00000000-0000-0000-0000-000000000009" });
    assert_eq!(refused("syscall.session.history", unknown).await, Code::NotFound);
}
