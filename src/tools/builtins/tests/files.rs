use ghost_domain::journal::CallOutcome;
use ghost_domain::{Code, EventKind};
use ghost_operations::artifacts;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::tool_world::{ToolWorld, code, read, with};
use crate::view::model_view;

// covers: BI-01, BI-02, BI-03, BI-05
#[tokio::test]
async fn a_file_is_written_read_edited_and_listed() {
    let world = ToolWorld::new().await;
    let written = world.content("workspace.write", json!({ "path": "notes/a.md", "content": "one\ntwo\n" })).await;
    assert_eq!(written, json!({ "path": "agents/ada/notes/a.md", "bytes": 8, "appended": false }));
    world.content("workspace.write", json!({ "path": "notes/a.md", "content": "two\n", "append": true })).await;
    let read = world.content("workspace.read", json!({ "path": "notes/a.md" })).await;
    assert_eq!(read["content"], "one\ntwo\ntwo\n");
    assert_eq!((&read["lines"], &read["truncated"], &read["bytes"]), (&json!(3), &json!(false), &json!(12)));
    let part = world.content("workspace.read", json!({ "path": "notes/a.md", "offset": 2, "limit": 1 })).await;
    assert_eq!((&part["content"], &part["next_offset"]), (&json!("two\n"), &json!(3)));
    let edit = |more: Value| {
        let mut arguments = json!({ "path": "notes/a.md", "old_text": "two", "new_text": "2" });
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        arguments
    };
    assert_eq!(code(world.call("workspace.edit", edit(json!({}))).await), Code::Conflict);
    assert_eq!(code(world.call("workspace.edit", edit(json!({ "old_text": "three" }))).await), Code::NotFound);
    assert_eq!(code(world.call("workspace.edit", edit(json!({ "old_text": "" }))).await), Code::InvalidArguments);
    assert_eq!(code(world.call("workspace.edit", edit(json!({ "path": "none" }))).await), Code::NotFound);
    assert_eq!(world.content("workspace.edit", edit(json!({ "old_text": "one" }))).await["replacements"], 1);
    assert_eq!(world.content("workspace.edit", edit(json!({ "replace_all": true }))).await["replacements"], "all");
    assert_eq!(world.content("workspace.read", json!({ "path": "notes/a.md" })).await["content"], "2\n2\n2\n");
    let list = world.content("workspace.list", json!({ "depth": 2, "glob": "*.md" })).await;
    assert_eq!(list["entries"], json!([{ "path": "agents/ada/notes/a.md", "kind": "file", "bytes": 6 }]));
    assert_eq!(world.content("workspace.list", json!({ "scope": "world" })).await["path"], ".");
    assert_eq!(code(world.call("workspace.list", json!({ "depth": 9 })).await), Code::InvalidArguments);
    assert!(!world.events().await.iter().any(|event| event.kind == EventKind::ArtifactCreated));
}

/// A PNG file of this size, as far as its head goes.
fn png(width: u32, height: u32) -> Vec<u8> {
    let head = [&b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"[..], &width.to_be_bytes(), &height.to_be_bytes()];
    [&head.concat()[..], &[8, 2, 0, 0, 0]].concat()
}

// covers: BI-01, TOOL-15
#[tokio::test]
async fn an_image_file_is_returned_as_an_image() {
    let world = ToolWorld::new().await;
    let dir = world.files.path("data/workspace/agents/ada");
    std::fs::write(dir.join("shot.txt"), png(640, 480)).unwrap();
    let output = world.call("workspace.read", json!({ "path": "shot.txt" })).await.unwrap();
    let path = "agents/ada/shot.txt";
    let expected = json!({ "path": path, "media_type": "image/png", "bytes": 29, "width": 640, "height": 480 });
    assert_eq!(output.content, expected);
    let image = &output.images[0];
    assert_eq!((image.path.as_str(), image.bytes, image.sha256.len()), (path, 29, 64));
    for (bytes, expected) in [
        (png(8_001, 1), Code::TooLarge),
        ([png(8, 8), vec![0; 3_750_000]].concat(), Code::TooLarge),
        (png(0, 8), Code::InvalidArguments),
        (b"GIF89a\x08\0\x08\0\0\0\0NETSCAPE2.0".to_vec(), Code::InvalidArguments),
        (b"%PDF-1.4\0".to_vec(), Code::InvalidArguments),
    ] {
        std::fs::write(dir.join("shot.txt"), bytes).unwrap();
        assert_eq!(code(world.call("workspace.read", json!({ "path": "shot.txt" })).await), expected);
    }
}

// covers: ACL-01, ACL-03, ACL-09, CONF-15
#[tokio::test]
async fn writes_stay_within_the_rules() {
    let world = ToolWorld::new().await;
    let write = |path: &str| json!({ "path": path, "content": "x", "scope": "world" });
    for bad in [
        "agents/bob/notes/x.md",
        "agents/ada",
        "agents/ada2/x",
        "output/reports",
        "output/reportsx/a.md",
        "output/briefings/a.md",
        "shared/a.md",
        "../x",
        "/etc/x",
        "output/reports/../../x",
    ] {
        assert_eq!(code(world.call("workspace.write", write(bad)).await), Code::PathDenied, "{bad}");
    }
    for good in ["agents/ada/new/deep.md", "output/reports/r.md", "./output//reports/r.md"] {
        world.call("workspace.write", write(good)).await.unwrap();
    }
    // A link in the agent's own directory does not lead into another agent's.
    let workspace = world.files.path("data/workspace");
    std::os::unix::fs::symlink("../bob", workspace.join("agents/ada/friend")).unwrap();
    assert_eq!(code(world.call("workspace.write", write("agents/ada/friend/notes/x.md")).await), Code::PathDenied);
    assert!(!workspace.join("agents/bob/notes/x.md").exists());
    // Every agent may read every file.
    std::fs::write(workspace.join("agents/bob/notes/own.md"), "b").unwrap();
    let read = json!({ "path": "agents/bob/notes/own.md", "scope": "world" });
    assert_eq!(world.content("workspace.read", read).await["content"], "b");
    let nowhere = with(&world.ada, |caller| caller.write_acl = ghost_domain::write_acl::WriteAcl::new(&[]).unwrap());
    for (tool, arguments) in [
        ("workspace.write", json!({ "path": "x", "content": "" })),
        ("workspace.edit", json!({ "path": "new/deep.md", "old_text": "x", "new_text": "y" })),
        ("workspace.patch", json!({ "patch": "--- /dev/null\n+++ p.md\n@@ -0,0 +1 @@\n+x\n" })),
    ] {
        assert_eq!(code(world.call_as(&nowhere, tool, None, arguments).await), Code::PathDenied, "{tool}");
    }
    // The same call of another agent is about that agent's own directory.
    let (bob, own) = (world.call_by("bob").await, json!({ "path": "own.md", "content": "x" }));
    let written = world.call_as(&bob, "workspace.write", None, own).await.unwrap();
    assert_eq!(written.content["path"], "agents/bob/own.md");
}

#[tokio::test]
async fn a_likely_wrong_scope_gets_a_hint() {
    let world = ToolWorld::new().await;
    let refusal = world.call("workspace.read", json!({ "path": "output/reports/r.md" })).await.unwrap_err();
    assert!(refusal.hint.unwrap().contains("scope: world"));
    let refusal = world.call("workspace.read", json!({ "path": "/shared/x" })).await.unwrap_err();
    assert!(refusal.hint.unwrap().contains("scope: world"));
    let refusal = world.call("workspace.read", json!({ "path": "notes/r.md" })).await.unwrap_err();
    assert!(!refusal.hint.unwrap().contains("scope: world"));
    let own = world.content("workspace.write", json!({ "path": "output/x.md", "content": "x" })).await;
    assert_eq!(own["path"], "agents/ada/output/x.md");
    assert!(own["note"].as_str().unwrap().contains("scope: world") && own.get("artifact_id").is_none());
    // The legacy aliases use the shared root.
    let arguments = json!({ "path": "output/reports/r.md", "content": "x" });
    let shared = world.call_as(&world.ada, "workspace.write", Some("file_write"), arguments).await.unwrap();
    assert_eq!(shared.content["path"], "output/reports/r.md");
}

// covers: ART-01, ART-02, BI-02, STORE-02
#[tokio::test]
async fn a_file_under_output_is_an_artifact() {
    let world = ToolWorld::new().await;
    let arguments = json!({ "path": "output/reports/r.md", "content": "abc", "scope": "world" });
    let artifact_id = world.content("workspace.write", arguments).await["artifact_id"].clone();
    assert!(artifact_id.as_str().unwrap().len() == 36);
    let events = world.events().await;
    let payload = &events.iter().find(|event| event.kind == EventKind::ArtifactCreated).unwrap().payload;
    assert_eq!(payload["artifact_id"], artifact_id);
    assert_eq!((&payload["type"], &payload["path"]), (&json!("report"), &json!("output/reports/r.md")));
    assert_eq!((&payload["bytes"], &payload["replaced"]), (&json!(3), &json!(false)));
    // The text is a file, and a row describes it.
    assert_eq!(std::fs::read(world.files.path("data/workspace/output/reports/r.md")).unwrap(), b"abc");
    let rows = read!(world, |r| artifacts::all(r)?);
    let rows: Vec<(&str, u64)> = rows.iter().map(|(path, artifact)| (path.as_str(), artifact.bytes)).collect();
    assert_eq!(rows, [("output/reports/r.md", 3)]);
}

// covers: BI-01, LIM-01
#[tokio::test]
async fn sizes_are_limited() {
    let world = ToolWorld::new().await;
    let most = usize::try_from(world.ctx.limits().file_bytes).unwrap();
    let large = "x".repeat(most + 1);
    let result = world.call("workspace.write", json!({ "path": "a", "content": large })).await;
    assert_eq!(code(result), Code::TooLarge);
    world.content("workspace.write", json!({ "path": "a", "content": "x".repeat(most) })).await;
    let append = json!({ "path": "a", "content": "y", "append": true });
    assert_eq!(code(world.call("workspace.write", append).await), Code::TooLarge);
    let grow = json!({ "path": "a", "old_text": "x", "new_text": "xxxx", "replace_all": true });
    assert_eq!(code(world.call("workspace.edit", grow).await), Code::TooLarge);
    std::fs::write(world.files.path("data/workspace/agents/ada/big"), "line\n".repeat(most)).unwrap();
    let read = world.call("workspace.read", json!({ "path": "big" })).await.unwrap();
    assert!(read.truncated && read.content["content"].as_str().unwrap().len() == most);
    let next = read.content["next_offset"].as_u64().unwrap();
    assert_eq!(next, most as u64 / 5 + 1);
    let rest = world.content("workspace.read", json!({ "path": "big", "offset": next, "limit": 1 })).await;
    assert_eq!(rest["content"], "line\n");
    std::fs::write(world.files.path("data/workspace/agents/ada/blob"), [0xff, 0xfe, 0]).unwrap();
    assert_eq!(code(world.call("workspace.read", json!({ "path": "blob" })).await), Code::InvalidArguments);
}

#[tokio::test]
async fn the_encoding_of_a_text_is_returned_and_kept() {
    let world = ToolWorld::new().await;
    let latin = world.files.path("data/workspace/agents/ada/latin");
    std::fs::write(&latin, b"Gr\xfc\xdfe: 5\n").unwrap();
    let read = world.content("workspace.read", json!({ "path": "latin" })).await;
    assert_eq!(
        (&read["content"], &read["encoding"], &read["bytes"]),
        (&json!("Gr\u{fc}\u{df}e: 5\n"), &json!("windows-1252"), &json!(9))
    );
    let edit = json!({ "path": "latin", "old_text": "5", "new_text": "6" });
    assert_eq!(code(world.call("workspace.edit", edit).await), Code::InvalidArguments);
    let append = json!({ "path": "latin", "content": "6", "append": true });
    assert_eq!(code(world.call("workspace.write", append).await), Code::InvalidArguments);
    assert_eq!(std::fs::read(&latin).unwrap(), b"Gr\xfc\xdfe: 5\n");
}

#[tokio::test]
async fn the_next_offset_reaches_the_model_with_a_page_of_any_size() {
    let world = ToolWorld::new().await;
    world.limits(|limits| limits.file_bytes = 4 * 1024 * 1024);
    // In JSON a quote takes two bytes, a control character six.
    for (name, line) in [("plain", "a line of text\n"), ("quotes", "\"\"\"\"\"\n"), ("controls", "\u{1}\u{1}\u{1}é\n")]
    {
        let text = line.repeat(1024 * 1024 / line.len());
        std::fs::write(world.files.path("data/workspace/agents/ada").join(name), &text).unwrap();
        let (mut got, mut offset) = (String::new(), 1);
        loop {
            let page = world.call("workspace.read", json!({ "path": name, "offset": offset })).await.unwrap();
            let content = page.content["content"].as_str().unwrap();
            let view = world.tools["workspace.read"].view_bytes;
            let outcome = CallOutcome {
                content: page.content.clone(),
                refusal: None,
                truncated: page.truncated,
                ..CallOutcome::default()
            };
            let (shown, _) = model_view(&outcome, view, &world.ctx.limits());
            assert!(!shown.contains("[cut: "), "{name}: {}", shown.len());
            if page.content["truncated"] == false {
                got.push_str(content);
                break;
            }
            offset = page.content["next_offset"].as_u64().unwrap();
            got.push_str(&content[..=content.rfind('\n').unwrap()]);
        }
        assert!(got == text, "{name}");
    }
}

#[tokio::test]
async fn a_long_line_is_read_in_parts_and_wrong_skips_are_refused() {
    let world = ToolWorld::new().await;
    let most = usize::try_from(world.ctx.limits().file_bytes).unwrap();
    let text = format!("{}\nend\n", "é".repeat(most));
    std::fs::write(world.files.path("data/workspace/agents/ada/long"), &text).unwrap();
    let first = world.content("workspace.read", json!({ "path": "long" })).await;
    assert_eq!((&first["next_offset"], &first["next_skip_bytes"]), (&json!(1), &json!(most)));
    let more = world.content("workspace.read", json!({ "path": "long", "offset": 1, "skip_bytes": most })).await;
    assert_eq!((&more["next_offset"], &more["next_skip_bytes"]), (&json!(1), &json!(2 * most)));
    let last = world.content("workspace.read", json!({ "path": "long", "offset": 1, "skip_bytes": 2 * most })).await;
    assert_eq!((&last["content"], &last["truncated"]), (&json!("\nend\n"), &json!(false)));
    for (wrong, words) in [
        (json!({ "path": "long", "skip_bytes": 3 }), "next_skip_bytes"),
        (json!({ "path": "long", "skip_bytes": 2 * most + 1 }), "next_skip_bytes"),
        (json!({ "path": "long", "offset": 2, "skip_bytes": 9 }), "3 bytes"),
        (json!({ "path": "long", "limit": 0 }), "limit"),
    ] {
        let refusal = world.call("workspace.read", wrong).await.unwrap_err();
        assert!(refusal.code == Code::InvalidArguments && refusal.to_string().contains(words), "{refusal}");
    }
    let unchecked = json!({ "path": "long", "limit": 0 });
    let refusal = world.run(&world.ada, &world.tools["workspace.read"], unchecked).await.unwrap_err();
    assert!(refusal.message.contains("limit"), "{refusal}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn reading_in_parts_gives_the_whole_file(text in "([a-zé€]{0,24}\n?){0,8}", most in 1u32..24, limit in 0u64..4) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let world = ToolWorld::new().await;
            std::fs::write(world.files.path("data/workspace/agents/ada/t"), &text).unwrap();
            world.limits(|limits| limits.file_bytes = most);
            let mut got = String::new();
            let mut arguments = json!({ "path": "t" });
            if limit > 0 {
                arguments["limit"] = limit.into();
            }
            for _ in 0..=text.len() {
                let part = world.content("workspace.read", arguments.clone()).await;
                let content = part["content"].as_str().unwrap();
                let whole: usize = content.split_inclusive('\n').filter(|line| line.ends_with('\n')).map(str::len).sum();
                if part["truncated"] == false {
                    got.push_str(content);
                    break;
                }
                // A cut last line is read again from its start.
                let kept = if part.get("next_skip_bytes").is_some() { content.len() } else { whole };
                assert!(kept > 0, "{part}");
                got.push_str(&content[..kept]);
                arguments["offset"] = part["next_offset"].clone();
                arguments["skip_bytes"] = part.get("next_skip_bytes").cloned().unwrap_or(json!(0));
            }
            assert_eq!(got, text);
        });
    }
}

#[tokio::test]
async fn a_path_that_names_the_mounted_workspace_is_in_the_shared_root() {
    let world = ToolWorld::new().await;
    world.content("workspace.write", json!({ "path": "/workspace/output/reports/a.md", "content": "one\n" })).await;
    for path in ["/workspace/output/reports/a.md", "/workspace//output/reports/a.md"] {
        let read = world.content("workspace.read", json!({ "path": path, "scope": "agent" })).await;
        assert_eq!((&read["path"], &read["content"]), (&json!("output/reports/a.md"), &json!("one\n")));
    }
    let root = world.content("workspace.list", json!({ "path": "/workspace" })).await;
    assert!(root["entries"].as_array().unwrap().iter().any(|entry| entry["path"] == "output"));
    for path in ["/workspaces/a.md", "/workspace/../a.md", "/workspace/", "/etc/passwd"] {
        assert_eq!(code(world.call("workspace.read", json!({ "path": path })).await), Code::PathDenied, "{path}");
    }
    let foreign = world.call("workspace.write", json!({ "path": "/workspace/agents/bob/a.md", "content": "x" })).await;
    assert_eq!(code(foreign), Code::PathDenied);
}
