use std::collections::BTreeSet;

use ghost_domain::{Code, EventKind};
use serde_json::json;

use super::tool_world::{ToolWorld, code, with};

// covers: BI-70, BI-71, BI-72, BI-73, BI-74, CONF-06, SKILL-41, SKILL-42
#[tokio::test]
async fn skills_are_listed_held_read_and_dropped() {
    let world = ToolWorld::new().await;
    let list = world.content("syscall.skill.list", json!({})).await;
    assert_eq!(
        list[0],
        json!({
            "name": "git", "description": "work with git", "held": false, "active": false, "eligible": true, "tools": [],
        })
    );
    assert!(list[1]["note"].is_string(), "{list}");
    assert_eq!(world.content("syscall.skill.list", json!({ "query": "GIT" })).await.as_array().unwrap().len(), 1);
    let name = json!({ "name": "git" });
    assert_eq!(world.content("syscall.skill.acquire", name.clone()).await["already_held"], false);
    assert_eq!(world.content("syscall.skill.acquire", name.clone()).await["already_held"], true);
    let read = world.content("syscall.skill.activate", name.clone()).await;
    assert_eq!((&read["document"], &read["already_active"]), (&json!("# Git\nCommit often.\n"), &json!(false)));
    assert_eq!(world.content("syscall.skill.load", name.clone()).await["already_active"], true);
    assert_eq!(world.content("syscall.skill.list", json!({ "query": "git" })).await[0]["active"], true);
    assert_eq!(world.content("syscall.skill.drop", name.clone()).await, json!({ "name": "git", "removed": [] }));
    assert_eq!(code(world.call("syscall.skill.drop", name.clone()).await), Code::NotFound);
    let kinds: Vec<EventKind> = world.events().await.into_iter().map(|event| event.kind).collect();
    for kind in [EventKind::SkillAcquired, EventKind::SkillActivated, EventKind::SkillDropped] {
        assert_eq!(kinds.iter().filter(|seen| **seen == kind).count(), 1, "{kind}");
    }
    let loaded = world.content("syscall.skill.load", json!({ "name": "tooled" })).await;
    assert_eq!((&loaded["tools_count"], loaded["note"].is_string()), (&json!(0), true));
}

// covers: SKILL-24
#[tokio::test]
async fn skills_outside_the_filter_are_not_available() {
    let world = ToolWorld::new().await;
    let refusal = world.call("syscall.skill.load", json!({ "name": "gti" })).await.unwrap_err();
    assert_eq!(refusal.code, Code::NotFound);
    assert!(refusal.hint.unwrap().contains("`git`"));
    assert_eq!(code(world.call("syscall.skill.load", json!({ "name": "painting" })).await), Code::NotFound);
    let narrow = with(&world.ada, |caller| caller.skills = Some(BTreeSet::from(["tooled".to_owned()])));
    let list = world.call_as(&narrow, "syscall.skill.list", None, json!({})).await.unwrap();
    assert_eq!(list.content.as_array().unwrap().len(), 1);
    let denied = world.call_as(&narrow, "syscall.skill.acquire", None, json!({ "name": "git" })).await;
    assert_eq!(code(denied), Code::AccessDenied);
    // A skill whose folder is gone can still be dropped.
    world.content("syscall.skill.acquire", json!({ "name": "git" })).await;
    std::fs::remove_dir_all(world.files.path("skills/git")).unwrap();
    world.services.set_plan(world.services.plan());
    assert_eq!(code(world.call("syscall.skill.acquire", json!({ "name": "git" })).await), Code::NotFound);
    world.content("syscall.skill.drop", json!({ "name": "git" })).await;
}
