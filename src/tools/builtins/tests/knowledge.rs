use ghost_domain::Code;
use serde_json::{Value, json};

use super::tool_world::{ToolWorld, code, with};

// covers: BI-60, BI-61, BI-62, BI-63, CONF-25
#[tokio::test]
async fn an_entry_is_written_listed_read_and_deleted() {
    let world = ToolWorld::new().await;
    let new = json!({
        "entry_id": "style/guide", "content": "Short.", "title": "How we write", "tags": ["style"],
        "readers": ["archetype:writer"], "expected_version": 0,
    });
    assert_eq!(world.content("syscall.knowledge.write", new).await, json!({ "entry_id": "style/guide", "version": 1 }));
    world.content("syscall.knowledge.write", json!({ "entry_id": "style/guide", "content": "Shorter." })).await;
    world.content("syscall.knowledge.write", json!({ "entry_id": "own", "content": "mine" })).await;
    let bob = world.call_by("bob").await;
    let as_bob = async |tool: &str, arguments: Value| world.call_as(&bob, tool, None, arguments).await;
    let listed = as_bob("syscall.knowledge.list", json!({})).await.unwrap().content;
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["can_write"]), (1, &json!(false)));
    assert_eq!((&listed[0]["title"], &listed[0]["tags"]), (&json!("How we write"), &json!(["style"])));
    assert!(listed[0].get("content").is_none() && listed[0].get("id").is_none());
    let read = as_bob("syscall.knowledge.read", json!({ "entry_id": "style/guide" })).await.unwrap().content;
    assert_eq!((&read["content"], &read["version"]), (&json!("Shorter."), &json!(2)));
    let old = json!({ "entry_id": "style/guide", "version": 1 });
    assert_eq!(as_bob("syscall.knowledge.read", old).await.unwrap().content["content"], "Short.");
    let older = json!({ "entry_id": "style/guide", "version": 9 });
    assert_eq!(code(as_bob("syscall.knowledge.read", older).await), Code::NotFound);
    let over = json!({ "entry_id": "style/guide", "content": "x" });
    assert_eq!(code(as_bob("syscall.knowledge.write", over).await), Code::AccessDenied);
    assert_eq!(code(as_bob("syscall.knowledge.read", json!({ "entry_id": "own" })).await), Code::NotFound);
    let stale = json!({ "entry_id": "style/guide", "expected_version": 1 });
    assert_eq!(code(world.call("syscall.knowledge.delete", stale).await), Code::Conflict);
    let gone = world.content("syscall.knowledge.delete", json!({ "entry_id": "style/guide" })).await;
    assert_eq!(gone, json!({ "entry_id": "style/guide", "version": 3, "deleted": true }));
    assert_eq!(as_bob("syscall.knowledge.list", json!({})).await.unwrap().content, json!([]));
}

// covers: KNOW-03
#[tokio::test]
async fn groups_and_archetypes_grant_access_to_entries() {
    let world = ToolWorld::new().await;
    let editor = with(&world.ada, |caller| caller.archetype = "editor".into());
    let manager = with(&world.ada, |caller| caller.groups = ["manager".to_owned()].into());
    let bob = world.call_by("bob").await;
    let write = async |who, arguments| world.call_as(who, "syscall.knowledge.write", None, arguments).await;
    write(&bob, json!({ "entry_id": "e", "content": "x", "writers": ["archetype:editor"] })).await.unwrap();
    write(&editor, json!({ "entry_id": "e", "content": "y" })).await.unwrap();
    assert_eq!(code(write(&manager, json!({ "entry_id": "e", "content": "z" })).await), Code::NotFound);
    // Groups and archetypes in a list must exist.
    for readers in [["archetype:edtor"], ["group:manager"], ["bop"], ["role:x"]] {
        let refused = write(&bob, json!({ "entry_id": "f", "content": "x", "readers": readers })).await;
        assert!(matches!(code(refused), Code::NotFound | Code::InvalidArguments), "{readers:?}");
    }
    let only = json!({ "entry_id": "f", "content": "x", "create": false });
    assert_eq!(code(write(&bob, only).await), Code::NotFound);
}

#[tokio::test]
async fn cut_lists_are_marked_and_can_be_continued() {
    let world = ToolWorld::new().await;
    for n in 0..5 {
        let new = json!({ "entry_id": format!("e{n}"), "content": "x", "tags": [if n < 4 { "few" } else { "one" }] });
        world.content("syscall.knowledge.write", new).await;
    }
    let first = world.call("syscall.knowledge.list", json!({ "limit": 2, "tag": "few" })).await.unwrap();
    assert!(first.truncated);
    let rest = json!({ "limit": 2, "tag": "few", "after": first.content[1]["entry_id"] });
    let rest = world.call("syscall.knowledge.list", rest).await.unwrap();
    assert_eq!((rest.truncated, &rest.content[1]["entry_id"]), (false, &json!("e3")));
    assert_eq!(world.content("syscall.knowledge.list", json!({ "query": "ONE" })).await[0]["entry_id"], "e4");
    for limit in [0, 501] {
        assert_eq!(code(world.call("syscall.knowledge.list", json!({ "limit": limit })).await), Code::InvalidArguments);
    }
}
