use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use ghost_config::Plan;
use ghost_config::skills::SkillSet;
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
    assert_eq!((&list[1]["eligible"], list[1]["missing"].as_array().map(Vec::len)), (&json!(false), Some(1)));
    assert!(list[2]["note"].is_string(), "{list}");
    assert_eq!(world.content("syscall.skill.list", json!({ "query": "GIT" })).await.as_array().unwrap().len(), 1);
    let name = json!({ "name": "git" });
    assert_eq!(world.content("syscall.skill.acquire", name.clone()).await["already_held"], false);
    assert_eq!(world.content("syscall.skill.acquire", name.clone()).await["already_held"], true);
    let read = world.content("syscall.skill.activate", name.clone()).await;
    assert_eq!((&read["document"], &read["already_active"]), (&json!("# Git\nCommit often."), &json!(false)));
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
    let mut plan = Plan::clone(&world.services.plan());
    plan.skills = Arc::new(SkillSet::read(plan.skills.roots(), &|_| None));
    world.services.set_plan(Arc::new(plan));
    assert_eq!(code(world.call("syscall.skill.acquire", json!({ "name": "git" })).await), Code::NotFound);
    world.content("syscall.skill.drop", json!({ "name": "git" })).await;
}

// covers: SKILL-21
#[tokio::test]
async fn a_skill_whose_program_is_missing_cannot_be_held() {
    let world = ToolWorld::new().await;
    for tool in ["syscall.skill.acquire", "syscall.skill.activate", "syscall.skill.load"] {
        assert_eq!(code(world.call(tool, json!({ "name": "needy" })).await), Code::Unavailable);
    }
}

// covers: BI-72
#[tokio::test]
async fn the_files_of_a_skill_can_be_read_but_not_written() {
    let world = ToolWorld::new().await;
    let read = async |path: &str| world.call("workspace.read", json!({ "scope": "skill", "path": path })).await;
    let page = world.content("workspace.read", json!({ "scope": "skill", "path": "git/more/FORMS.md", "offset": 2 }));
    let page = page.await;
    assert_eq!((&page["content"], &page["path"]), (&json!("two\n"), &json!("git/more/FORMS.md")));
    let list = world.content("workspace.list", json!({ "scope": "skill", "path": "git", "depth": 2 })).await;
    let paths: Vec<_> = list["entries"].as_array().unwrap().iter().map(|entry| entry["path"].clone()).collect();
    assert!(paths.iter().any(|path| path == "more/FORMS.md"), "{list}");
    let outside = world.files.path("skills/git/link");
    std::os::unix::fs::symlink(world.files.path("skills/tooled/SKILL.md"), outside).unwrap();
    for (path, wanted) in [
        ("git/link", Code::PathDenied),
        ("git/../tooled/SKILL.md", Code::PathDenied),
        ("git/none.md", Code::NotFound),
        ("git", Code::InvalidArguments),
        ("", Code::InvalidArguments),
        ("painting/SKILL.md", Code::NotFound),
    ] {
        assert_eq!(code(read(path).await), wanted, "{path}");
    }
    let narrow = with(&world.ada, |caller| caller.skills = Some(BTreeSet::new()));
    let arguments = json!({ "scope": "skill", "path": "git/SKILL.md" });
    assert_eq!(code(world.call_as(&narrow, "workspace.read", None, arguments).await), Code::AccessDenied);
    let arguments = json!({ "scope": "skill", "path": "git/SKILL.md", "content": "x" });
    assert_eq!(code(world.call("workspace.write", arguments).await), Code::InvalidArguments);
}

// covers: BI-72
#[tokio::test]
async fn what_becomes_a_link_after_a_skill_was_read_leads_nowhere() {
    let world = ToolWorld::new().await;
    for path in ["git/SKILL.md", "git/more/FORMS.md", "secret"] {
        world.files.write(&format!("../elsewhere/{path}"), "a secret\n");
    }
    let (skills, elsewhere) = (world.files.path("skills"), world.files.path("elsewhere"));
    let read = async |tool: &str, path: &str| {
        let arguments = json!({ "scope": "skill", "path": path });
        world.call(tool, arguments).await.map(|output| output.content.to_string())
    };
    let link = |target: &Path, at: &Path| std::os::unix::fs::symlink(target, at).unwrap();
    // Inside its directory: links out of it, to the whole machine, to themselves; what would wait for ever.
    let own = skills.join("git");
    link(&elsewhere.join("secret"), &own.join("absolute"));
    link(Path::new("../../elsewhere/secret"), &own.join("relative"));
    link(Path::new("more/../../../elsewhere/secret"), &own.join("deep"));
    link(Path::new("/proc/self/environ"), &own.join("environ"));
    link(Path::new("/"), &own.join("root"));
    link(Path::new("circle"), &own.join("circle"));
    link(Path::new("../tooled"), &own.join("sibling"));
    let (pipe, mode) = (own.join("pipe"), rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    for path in ["absolute", "relative", "deep", "environ", "root/etc/passwd", "circle", "sibling/SKILL.md", "pipe"] {
        let refused = read("workspace.read", &format!("git/{path}")).await;
        assert_eq!(refused.unwrap_err().code, Code::PathDenied, "{path}");
    }
    for path in ["root", "root/etc", "sibling", "circle"] {
        assert_eq!(read("workspace.list", &format!("git/{path}")).await.unwrap_err().code, Code::PathDenied, "{path}");
    }
    // Its file, its directory, and the root that it was found in, one after the other.
    let swapped = |at: &Path, target: &Path| {
        let mut aside = at.as_os_str().to_owned();
        aside.push(".aside");
        std::fs::rename(at, &aside).unwrap();
        link(target, at);
        aside
    };
    for (at, target) in [("git/SKILL.md", "git/SKILL.md"), ("git/more", "git/more"), ("git", "git"), ("", "")] {
        let (at, target) = (skills.join(at), elsewhere.join(target));
        let at = at.components().collect::<std::path::PathBuf>();
        let aside = swapped(&at, &target);
        let file = if at.ends_with("more") { "git/more/FORMS.md" } else { "git/SKILL.md" };
        assert_eq!(read("workspace.read", file).await.unwrap_err().code, Code::PathDenied, "{at:?}");
        if !at.ends_with("SKILL.md") {
            let folder = if at.ends_with("more") { "git/more" } else { "git" };
            assert_eq!(read("workspace.list", folder).await.unwrap_err().code, Code::PathDenied, "{at:?}");
        }
        std::fs::remove_file(&at).unwrap();
        std::fs::rename(aside, &at).unwrap();
        assert!(read("workspace.read", file).await.is_ok(), "{at:?}");
    }
}

// covers: SKILL-46
#[tokio::test]
async fn the_documents_of_active_skills_are_bounded_together() {
    let world = ToolWorld::new().await;
    for n in 0..4 {
        world.files.write(&format!("../skills/long{n}/SKILL.md"), &format!("# Long\n{}", "words\n".repeat(4_000)));
    }
    let mut plan = Plan::clone(&world.services.plan());
    plan.skills = Arc::new(SkillSet::read(plan.skills.roots(), &|_| None));
    world.services.set_plan(Arc::new(plan));
    for n in 0..3 {
        let loaded = world.content("syscall.skill.load", json!({ "name": format!("long{n}") })).await;
        assert!(loaded["document"].as_str().unwrap().contains("offset"));
    }
    let over = world.call("syscall.skill.load", json!({ "name": "long3" })).await;
    assert_eq!(code(over), Code::RateLimited);
    world.content("syscall.skill.load", json!({ "name": "long1" })).await;
    world.content("syscall.skill.drop", json!({ "name": "long0" })).await;
    world.content("syscall.skill.load", json!({ "name": "long3" })).await;
    // An agent with a small context has room for an eighth of it.
    let small = with(&world.ada, |caller| caller.context_bytes = 64_000);
    let too_long = world.call_as(&small, "syscall.skill.load", None, json!({ "name": "long0" })).await;
    assert_eq!(code(too_long), Code::TooLarge);
    let over = world.call_as(&small, "syscall.skill.load", None, json!({ "name": "git" })).await;
    assert_eq!(code(over), Code::RateLimited);
}
