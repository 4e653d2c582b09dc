use std::time::Duration;

use ghost_domain::grant::NewGrant;
use ghost_domain::{Code, EventKind, Grant, GrantSource};
use ghost_operations::{artifacts, grants};
use serde_json::{Value, json};

use super::tool_world::{ToolWorld, code, id, read, write};

const PATCH: &str = "\
diff --git a/notes/a.md b/notes/a.md
--- a/notes/a.md
+++ b/notes/a.md
@@ -1,3 +1,3 @@
 one
-two
+2
 three
--- a/notes/gone.md
+++ /dev/null
@@ -1 +0,0 @@
-gone
--- /dev/null
+++ b/drafts/deep/new.md
@@ -0,0 +1,2 @@
+first
+second";

async fn write_file(world: &ToolWorld, path: &str, content: &str) {
    world.call("workspace.write", json!({ "path": path, "content": content })).await.unwrap();
}

fn on_disk(world: &ToolWorld, path: &str) -> Option<String> {
    std::fs::read_to_string(world.files.path("data/workspace").join(path)).ok()
}

fn three(world: &ToolWorld) -> [Option<String>; 3] {
    ["notes/a.md", "notes/gone.md", "drafts/deep/new.md"].map(|path| on_disk(world, &format!("agents/ada/{path}")))
}

// covers: BI-04
#[tokio::test]
async fn a_patch_changes_several_files_and_a_dry_run_none() {
    let world = ToolWorld::new().await;
    write_file(&world, "notes/a.md", "one\ntwo\nthree\n").await;
    write_file(&world, "notes/gone.md", "gone\n").await;
    let before = three(&world);
    let dry = world.content("workspace.patch", json!({ "patch": PATCH, "dry_run": true })).await;
    assert_eq!((&dry["dry_run"], three(&world)), (&json!(true), before));
    let done = world.content("workspace.patch", json!({ "patch": PATCH })).await;
    let files = json!([
        { "path": "agents/ada/notes/a.md", "action": "modified" },
        { "path": "agents/ada/drafts/deep/new.md", "action": "created" },
        { "path": "agents/ada/notes/gone.md", "action": "deleted" },
    ]);
    assert_eq!((&done["files"], &dry["files"]), (&files, &files), "what is deleted goes last");
    assert_eq!(three(&world), [Some("one\n2\nthree\n".into()), None, Some("first\nsecond\n".into())]);
    // The same patch again does not apply, and its alias is the same tool.
    let again = world.call_as(&world.ada, "workspace.patch", Some("apply_patch"), json!({ "patch": PATCH })).await;
    assert_eq!(code(again), Code::Conflict);
}

// covers: ACL-01, ACL-03, ACL-07, BI-04
#[tokio::test]
async fn one_file_that_may_not_be_changed_stops_the_whole_patch() {
    let world = ToolWorld::new().await;
    write_file(&world, "notes/a.md", "one\n").await;
    let workspace = world.files.path("data/workspace");
    std::fs::write(workspace.join("agents/bob/notes/b.md"), "b\n").unwrap();
    std::os::unix::fs::symlink("../bob/notes", workspace.join("agents/ada/friend")).unwrap();
    let good = "--- agents/ada/notes/a.md\n+++ agents/ada/notes/a.md\n@@ -1 +1 @@\n-one\n+1\n";
    let create = |path: &str| format!("--- /dev/null\n+++ {path}\n@@ -0,0 +1 @@\n+x\n");
    let change = |path: &str| format!("--- {path}\n+++ {path}\n@@ -1 +1 @@\n-b\n+c\n");
    for (other, wanted) in [
        (create("agents/bob/notes/new.md"), Code::PathDenied),
        (change("agents/bob/notes/b.md"), Code::PathDenied),
        (change("agents/ada/friend/b.md"), Code::PathDenied),
        (create("agents/ada/friend/new.md"), Code::PathDenied),
        (create("shared/new.md"), Code::PathDenied),
        (create("agents/ada/../bob/notes/new.md"), Code::PathDenied),
        (create("/etc/new.md"), Code::PathDenied),
        (create("agents/ada/.ghost-tmp-1"), Code::PathDenied),
        (create("agents/ada/notes"), Code::PathDenied),
        (create("agents/ada/notes/a.md"), Code::Conflict),
        (change("agents/ada/notes/none.md"), Code::NotFound),
        (change("agents/ada/notes/a.md"), Code::Conflict),
        (
            "--- agents/ada/notes/./a.md\n+++ agents/ada/notes/./a.md\n@@ -1 +1 @@\n-one\n+2\n".to_owned(),
            Code::InvalidArguments,
        ),
        (
            "--- agents/ada/notes/a.md\n+++ agents/ada/notes/b.md\n@@ -1 +1 @@\n-one\n+2\n".to_owned(),
            Code::InvalidArguments,
        ),
        (format!("--- /dev/null\n+++ agents/ada/big.md\n@@ -0,0 +1 @@\n+{}\n", "x".repeat(70_000)), Code::TooLarge),
        ("and so on\n".to_owned(), Code::InvalidArguments),
    ] {
        for patch in [format!("{good}{other}"), format!("{other}{good}")] {
            let result = world.call("workspace.patch", json!({ "patch": patch, "scope": "world" })).await;
            assert_eq!(code(result), wanted, "{other}");
            assert_eq!(on_disk(&world, "agents/ada/notes/a.md").as_deref(), Some("one\n"), "{other}");
        }
    }
    assert_eq!(on_disk(&world, "agents/bob/notes/b.md").as_deref(), Some("b\n"));
    world.limits(|limits| limits.patch_files_max = 1);
    let two = format!("{good}{}", create("agents/ada/new.md"));
    let result = world.call("workspace.patch", json!({ "patch": two, "scope": "world" })).await;
    assert_eq!(code(result), Code::TooLarge);
}

async fn grant(world: &ToolWorld, prefix: &str, seconds: u64) -> Grant {
    let new = NewGrant {
        agent_id: id("ada"),
        prefix: prefix.into(),
        source: GrantSource::Manual,
        reason: None,
        lasts: Duration::from_secs(seconds),
    };
    let by = ghost_operations::testing::operator();
    let grant = write!(world, |w| grants::add(w, &by, new)).unwrap();
    // The world's signal router does this.
    world.services.grants.forget(&id("ada"));
    grant
}

// covers: ACL-04, ACL-05, LIM-08, TEST-10
#[tokio::test]
async fn a_grant_holds_until_its_end_and_is_remembered_for_thirty_seconds() {
    let world = ToolWorld::new().await;
    let write_at = async |path: &str| {
        world.call("workspace.write", json!({ "path": path, "content": "x", "scope": "world" })).await
    };
    assert_eq!(code(write_at("shared/plans/a.md").await), Code::PathDenied);
    let made = grant(&world, "shared/plans/", 20).await;
    write_at("shared/plans/a.md").await.unwrap();
    for path in ["shared/plans", "shared/plansx/a.md", "shared/a.md", "agents/bob/a.md"] {
        assert_eq!(code(write_at(path).await), Code::PathDenied, "{path}");
    }
    let refusal = write_at("shared/b.md").await.unwrap_err();
    assert!(refusal.hint.unwrap().contains("shared/plans/"), "the hint names what is granted, too");
    assert_eq!(world.ada.may_write(&"shared/plans/b.md".parse_path()).await.unwrap(), Some(made.grant_id));
    assert_eq!(world.ada.may_write(&"agents/ada/b.md".parse_path()).await.unwrap(), None);
    // A grant ends at its time, although it is remembered.
    world.clock.advance(Duration::from_secs(20));
    assert_eq!(code(write_at("shared/plans/b.md").await), Code::PathDenied);
    // What another daemon would have changed is seen after thirty seconds.
    let late = grant(&world, "shared/plans/", 600).await;
    write_at("shared/plans/b.md").await.unwrap();
    write!(world, |w| Ok::<_, ghost_domain::Refusal>(w.grant_remove(late.grant_id)?)).unwrap();
    world.clock.advance(Duration::from_secs(29));
    write_at("shared/plans/b.md").await.unwrap();
    world.clock.advance(Duration::from_secs(1));
    assert_eq!(code(write_at("shared/plans/b.md").await), Code::PathDenied);
}

// covers: ACL-05
#[tokio::test]
async fn without_a_store_nothing_is_granted_and_the_rules_still_hold() {
    let world = ToolWorld::new().await;
    grant(&world, "shared/", 600).await;
    world.store.close().await;
    assert_eq!(world.ada.may_write(&"shared/a.md".parse_path()).await.unwrap_err().code, Code::Unavailable);
    assert_eq!(world.ada.may_write(&"agents/ada/a.md".parse_path()).await.unwrap(), None);
    assert_eq!(world.ada.writable().await.unwrap_err().code, Code::Unavailable);
}

// covers: ART-01, ART-02, ART-03
#[tokio::test]
async fn a_patch_indexes_what_it_changes_under_output() {
    let world = ToolWorld::new().await;
    let write_report = async |text: &str| {
        let arguments = json!({ "path": "output/reports/r.md", "content": text, "scope": "world" });
        world.content("workspace.write", arguments).await["artifact_id"].clone()
    };
    let first = write_report("one\n").await;
    assert_eq!(write_report("two\n").await, first, "a file keeps its id");
    let patch = "--- /dev/null\n+++ output/reports/new.md\n@@ -0,0 +1 @@\n+new\n--- output/reports/r.md\n+++ output/reports/r.md\n\
                 @@ -1 +1 @@\n-two\n+three\n";
    let done = world.content("workspace.patch", json!({ "patch": patch, "scope": "world" })).await;
    assert_eq!((&done["files"][1]["artifact_id"], done["files"][0]["artifact_id"].is_string()), (&first, true));
    let all = read!(world, |r| artifacts::all(r)?);
    let sizes: Vec<(&str, u64)> = all.iter().map(|(path, artifact)| (path.as_str(), artifact.bytes)).collect();
    assert_eq!(sizes, [("output/reports/new.md", 4), ("output/reports/r.md", 6)]);
    let gone = "--- output/reports/r.md\n+++ /dev/null\n@@ -1 +0,0 @@\n-three\n";
    let done = world.content("workspace.patch", json!({ "patch": gone, "scope": "world" })).await;
    assert_eq!(done["files"], json!([{ "path": "output/reports/r.md", "action": "deleted" }]));
    assert_eq!(read!(world, |r| artifacts::all(r)?).len(), 1);
    assert_eq!(world.count(EventKind::ArtifactRemoved).await, 1);
}

// covers: ART-01, ART-03
#[tokio::test]
async fn the_index_file_is_made_from_the_table_and_the_table_from_the_files() {
    let world = ToolWorld::new().await;
    let index = || on_disk(&world, crate::manifest::INDEX);
    assert_eq!((crate::manifest::rewrite(&world.services).await.unwrap(), index()), (0, None));
    for (path, text) in [("b.md", "b"), ("a.md", "aa")] {
        let path = format!("output/reports/{path}");
        world.call("workspace.write", json!({ "path": path, "content": text, "scope": "world" })).await.unwrap();
    }
    assert_eq!(crate::manifest::rewrite(&world.services).await.unwrap(), 2);
    let lines: Vec<Value> = index().unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["path"], &lines[1]["path"]), (&json!("output/reports/a.md"), &json!("output/reports/b.md")));
    assert_eq!(
        (&lines[0]["type"], &lines[0]["agent_id"], &lines[0]["bytes"]),
        (&json!("report"), &json!("ada"), &json!(2))
    );
    assert!(lines[0]["artifact_id"].is_string() && lines[0]["created_at"].is_i64(), "{}", lines[0]);
    // The line of an event has what the line of the table has.
    let events = world.events().await;
    let last = events.iter().rfind(|event| event.kind == EventKind::ArtifactCreated).unwrap();
    let of_event: Value = serde_json::from_str(&crate::manifest::line_of(last).unwrap()).unwrap();
    assert_eq!(of_event, lines[0]);
    // What changed behind the daemon's back is found.
    let output = world.files.path("data/workspace/output");
    std::fs::write(output.join("reports/a.md"), "changed").unwrap();
    std::fs::write(output.join("new.txt"), "n").unwrap();
    std::fs::remove_file(output.join("reports/b.md")).unwrap();
    let mut found = crate::manifest::differences(&world.services).await.unwrap();
    found.sort_by(|one, other| one.path.cmp(&other.path));
    let found: Vec<(&str, Option<u64>)> =
        found.iter().map(|found| (found.path.as_str(), found.content.as_ref().map(|(_, bytes)| *bytes))).collect();
    assert_eq!(found, [("output/new.txt", Some(1)), ("output/reports/a.md", Some(7)), ("output/reports/b.md", None)]);
}

trait ParsePath {
    fn parse_path(&self) -> ghost_domain::write_acl::WorkspacePath;
}

impl ParsePath for str {
    fn parse_path(&self) -> ghost_domain::write_acl::WorkspacePath {
        ghost_domain::write_acl::WorkspacePath::parse(self, false).unwrap()
    }
}
