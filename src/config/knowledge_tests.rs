//! Tests of the knowledge entries in the world's files.

use super::*;
use crate::fixture::World;
use proptest::prelude::*;

const GOOD: &str = "\
---
id: style/guide
title: How we write
readers: [chora, archetype:doer]
writers: group:manager, mux
tags: [style, house]
x-source: the old wiki
---

# Short

Say it once.
---
Then stop.
";

/// The file, the line, the field and the text of each problem.
fn problems(world: &World) -> Vec<(String, usize, String, String)> {
    let found = world.load().unwrap_err().0;
    found
        .into_iter()
        .map(|problem| {
            let name = problem.file.file_name().unwrap().to_string_lossy().into_owned();
            (name, problem.line, problem.field, problem.message)
        })
        .collect()
}

// covers: KNOW-06
#[test]
fn entries_are_read_in_order_of_id() {
    let world = World::new();
    assert!(world.plan().knowledge.is_empty());
    world.write("knowledge/z.md", GOOD).write("knowledge/a.md", "---\r\nid: zero\r\ntitle: Zero\r\n---\r\ntext\r\n");
    let plan = world.plan();
    let [guide, zero] = plan.knowledge.as_slice() else { panic!("{:?}", plan.knowledge) };
    assert_eq!((guide.entry_id.as_str(), guide.title.as_str()), ("style/guide", "How we write"));
    assert_eq!(guide.content, "# Short\n\nSay it once.\n---\nThen stop.");
    assert_eq!(guide.tags, ["style", "house"]);
    let texts = |list: &[Grantee]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(texts(&guide.readers), ["chora", "archetype:doer"]);
    assert_eq!(texts(&guide.writers), ["group:manager", "mux"]);
    assert_eq!((zero.entry_id.as_str(), zero.content.as_str()), ("zero", "text"));
    assert_eq!((texts(&zero.readers), zero.writers.len()), (vec!["*".to_owned()], 0), "open to read, closed to write");
    assert!(plan.check_grantees(&guide.readers).is_ok());
    let wrong = plan.check_grantees(&[Grantee::Group("manger".into())]).unwrap_err();
    assert!(wrong.hint.unwrap().contains("`manager`"));
}

#[test]
fn all_problems_are_reported_with_their_lines() {
    let world = World::new();
    world
        .write("knowledge/bare.md", "no head")
        .write("knowledge/open.md", "---\nid: a\n")
        .write("knowledge/empty.md", "---\nid: empty\ntitle: E\n---\n\n")
        .write("knowledge/odd.md", "---\nid: Not An Id\ntitle: T\nauthor: me\n---\ntext")
        .write("knowledge/lacks.md", "---\ntags: [ok, 'a,b']\n---\ntext")
        .write(
            "knowledge/people.md",
            "---\nid: p\ntitle: P\nreaders: [archetype:dore, 'role:x']\nwriters: group:x\n---\nx",
        )
        .write("knowledge/one.md", "---\nid: twice\ntitle: T\n---\nx")
        .write("knowledge/two.md", "---\ntitle: T\nid: twice\n---\nx")
        .write("knowledge/env.md", "---\nid: env\ntitle: ${SECRET}\n---\nx")
        .write("knowledge/utf.md", b"---\nid: utf\n---\n\xff");
    let found = problems(&world);
    for (file, line, datum) in [
        ("bare.md", 1, ""),
        ("open.md", 1, ""),
        ("empty.md", 5, ""),
        ("odd.md", 2, "id"),
        ("odd.md", 4, "author"),
        ("lacks.md", 1, "id"),
        ("lacks.md", 1, "title"),
        ("lacks.md", 2, "tags"),
        ("people.md", 4, "`dore`"),
        ("people.md", 4, "`role:x`"),
        ("people.md", 5, "`x`"),
        ("two.md", 3, "`twice`"),
        ("env.md", 3, "SECRET"),
        ("utf.md", 4, ""),
    ] {
        let told = found.iter().any(|(in_file, at, field, text)| {
            in_file == file && *at == line && (field.contains(datum) || text.contains(datum))
        });
        assert!(told, "{file}:{line}: {datum}\n{found:#?}");
    }
    assert_eq!(found.len(), 14, "{found:#?}");
}

#[test]
fn sizes_and_counts_are_limited() {
    let world = World::new();
    world.with("limits: { hops_max: 8,", "limits: { knowledge_bytes: 4, knowledge_entries_max: 1, hops_max: 8,");
    world.write("knowledge/a.md", "---\nid: a\ntitle: T\n---\n12345");
    assert!(problems(&world)[0].3.contains("limits.knowledge_bytes"));
    world.write("knowledge/a.md", "---\nid: a\ntitle: T\n---\n1234");
    assert_eq!(world.plan().knowledge.len(), 1);
    world.write("knowledge/b.md", "---\nid: b\ntitle: T\n---\n1");
    assert!(problems(&world)[0].3.contains("knowledge_entries_max"));
}

#[test]
fn other_files_and_unknown_agents_are_warnings() {
    let world = World::new();
    world.write("knowledge/notes.txt", "x").write("knowledge/.hidden", "x");
    world.write("knowledge/README.md", "# What is here").write("knowledge/readme.md", "no head either");
    world.write("knowledge/a.md", "---\nid: a\ntitle: T\nreaders: later\n---\nx");
    let plan = world.plan();
    let warnings: Vec<String> = plan.warnings.iter().map(ToString::to_string).collect();
    assert!(warnings.iter().any(|warning| warning.contains("notes.txt")), "{warnings:?}");
    assert!(warnings.iter().any(|warning| warning.contains("`later`")), "{warnings:?}");
    assert!(!warnings.iter().any(|warning| warning.contains(".hidden") || warning.to_lowercase().contains("readme")));
    assert_eq!(plan.knowledge.len(), 1);
    assert_eq!(plan.knowledge[0].readers.len(), 1);
}

#[test]
fn a_link_out_of_the_world_is_not_followed() {
    let (world, outside) = (World::new(), tempfile::tempdir().unwrap());
    std::fs::write(outside.path().join("x.md"), GOOD).unwrap();
    std::os::unix::fs::symlink(outside.path(), world.dir().join("knowledge")).unwrap();
    assert_eq!(problems(&world)[0].0, "knowledge");
}

#[test]
fn a_reload_reports_changed_knowledge() {
    let world = World::new();
    let old = world.plan();
    world.write("knowledge/z.md", GOOD);
    assert_eq!(crate::diff(&old, &world.plan(), &crate::FileChanges::default()).world, ["knowledge"]);
}

proptest! {
    #[test]
    fn a_head_ends_at_its_line_of_dashes(text in "(---|a: b|x)(\n|\r\n| \n)(---|id: a|){0,3}\n?(---)?(\n.{0,9}){0,4}") {
        if let Some((head, body)) = split(&text) {
            prop_assert!(text.ends_with(body) && head.starts_with('\n'));
            prop_assert!(text.starts_with("---"));
        } else {
            let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
            prop_assert!(lines.first() != Some(&"---") || !lines[1..].contains(&"---"));
        }
    }
}
