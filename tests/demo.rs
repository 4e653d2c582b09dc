//! `ghostd demo`. The test counts the figures of the proof again.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

use ghost_testkit::blackbox::{Database, TestEnvironment};

const WORLDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/worlds");

fn test_env() -> TestEnvironment {
    TestEnvironment::new(env!("CARGO_BIN_EXE_ghostd"))
}

#[test]
fn three_kills_lose_nothing() {
    let test_env = test_env();
    let (world, dir) = (test_env.copy_of(&Path::new(WORLDS).join("newsroom"), "newsroom"), test_env.join("demo"));
    // The places of the world itself stay as they are.
    let file = world.join("world-config.yaml");
    let places =
        "data_dir: ../data\nworkspace_dir: ../files\nlisten: { grpc: 'unix:../d.sock', http: '127.0.0.1:0' }\n";
    std::fs::write(&file, std::fs::read_to_string(&file).unwrap() + "\n" + places).unwrap();
    test_env.ghostd(&["demo", world.to_str().unwrap(), "--dir", dir.to_str().unwrap()]).exits(0);
    let database = Database::open(&dir.join("data"));
    // The last start, and perhaps one more that let the remaining work finish.
    assert!(database.number("SELECT count(*) FROM events WHERE kind = 'world.started'") >= 4);
    assert!(database.number("SELECT count(*) FROM events WHERE kind = 'turn.resumed'") > 0, "no kill met any work");
    assert_eq!(database.number("SELECT count(*) FROM turns WHERE status <> 'finished'"), 0);
    assert_eq!(database.number("SELECT count(*) FROM messages WHERE state <> 'consumed'"), 0);
    let briefings: Vec<_> = std::fs::read_dir(dir.join("data/workspace/output/briefings")).unwrap().collect();
    assert_eq!(briefings.len(), 1);
    let outside = ["data", "files", "d.sock", "state"].map(|name| test_env.join(name).exists());
    assert_eq!(outside, [false; 4]);
}

#[test]
fn a_world_without_a_proof_is_refused_before_anything_is_created() {
    let test_env = test_env();
    let (newsroom, openmic) = (Path::new(WORLDS).join("newsroom"), Path::new(WORLDS).join("openmic"));
    let there = test_env.join("there");
    std::fs::create_dir(&there).unwrap();
    test_env.ghostd(&["demo", newsroom.to_str().unwrap(), "--dir", there.to_str().unwrap()]).exits(7);
    assert_eq!(std::fs::read_dir(&there).unwrap().count(), 0);
    let new = test_env.join("new");
    test_env.ghostd(&["demo", openmic.to_str().unwrap(), "--dir", new.to_str().unwrap()]).exits(2);
    test_env.ghostd(&["demo", newsroom.to_str().unwrap(), "--files", "0"]).exits(2);
    // A world whose models may cost money.
    let costly = test_env.copy_of(&newsroom, "costly");
    let file = costly.join("world-config.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    let paid =
        text.replace("  providers:\n", "  providers:\n    paid: { kind: ollama, base_url: http://127.0.0.1:1 }\n");
    assert_ne!(text, paid);
    std::fs::write(&file, paid).unwrap();
    test_env.ghostd(&["demo", costly.to_str().unwrap(), "--dir", new.to_str().unwrap()]).exits(2);
    assert!(!new.exists());
}
