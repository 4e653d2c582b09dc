//! Worlds whose records are in PostgreSQL: starts that must be refused, a database that goes away and comes back, and
//! what must not be shown. `kill_storm.rs` and `main_job.rs` run on PostgreSQL, too.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use ghost_provider::testing::{FakeAnswer, FakeCall, FakeRequest};
use ghost_testkit::blackbox::{
    Backend, Deadline, EFFECTS, ModelServer, Ran, TestEnvironment, agent_of, ghostd_testing, mail_of,
};
use serde_json::json;

const PASSWORD: &str = "hunter2-hunter2";

/// A world with one agent, which answers each message. `None` if the test is skipped.
fn desk() -> Option<(TestEnvironment, PathBuf)> {
    let test_env = TestEnvironment::on(Backend::Postgres, env!("CARGO_BIN_EXE_ghostd"))?;
    let world = test_env.world("desk");
    world
        .config(&format!(
            "agents: [{{ id: ada, archetype: clerk }}]\nllm: {{ default_provider: scripted, default_model: clerk }}\n{}",
            test_env.storage()
        ))
        .archetype("clerk", "")
        .write("scripts/clerk.yaml", "otherwise: [{ say: Here. }]\n");
    let path = world.path().to_owned();
    Some((test_env, path))
}

fn up(test_env: &TestEnvironment, world: &Path, args: &[&str]) -> Ran {
    test_env.ghostd(&[&["up", world.to_str().unwrap()], args].concat())
}

/// The cluster's URL for the role `guest`, which must give a password.
fn guest(test_env: &TestEnvironment, password: &str) -> String {
    test_env.cluster().url().replace("ghost@", &format!("guest:{password}@"))
}

/// Makes the role `guest`, which must give [`PASSWORD`] and may do nothing but log in.
fn make_guest(test_env: &TestEnvironment) {
    let cluster = test_env.cluster();
    cluster.psql(&format!("CREATE ROLE guest LOGIN PASSWORD '{PASSWORD}'")).unwrap();
    let file = cluster.psql("SHOW hba_file").unwrap();
    let rules = format!(
        "COPY (SELECT unnest(ARRAY['local all guest scram-sha-256', 'local all all trust'])) TO '{}';\n\
         SELECT pg_reload_conf();",
        file.trim()
    );
    cluster.psql(&rules).unwrap();
}

// covers: STORE-01
#[test]
fn a_database_that_cannot_be_used_is_a_clear_refusal_and_changes_nothing() {
    let Some((mut test_env, world)) = desk() else { return };
    make_guest(&test_env);
    let cluster = test_env.cluster().url();
    let closed = format!("postgres://guest:{PASSWORD}@127.0.0.1:1/postgres");
    let no_database = cluster.replace("/postgres?", "/nowhere?");
    let (wrong, right) = (guest(&test_env, "wrong-wrong-wrong"), guest(&test_env, PASSWORD));
    let mysql = format!("mysql://guest:{PASSWORD}@h/d");
    for (url, code, says) in [
        (mysql.as_str(), 2, "--store"),
        ("PostgreSQL", 2, "--store"),
        (&closed, 5, "127.0.0.1:1"),
        (&no_database, 5, "nowhere"),
        (&wrong, 5, "password"),
        (&right, 5, "CREATE"),
    ] {
        let ran = up(&test_env, &world, &["--store", url]);
        ran.exits(code).says(&[says, "hint: "]);
        assert!(!ran.err.contains("hunter2") && !ran.err.contains("wrong-wrong"), "{}", ran.err);
        assert!(!test_env.data("desk").exists(), "{says}");
    }
    let config = world.join("world-config.yaml");
    let usable = std::fs::read_to_string(&config).unwrap();
    // Deleted rows free no space there.
    std::fs::write(&config, format!("{usable}limits: {{ store_bytes_max: 1000000000 }}\n")).unwrap();
    up(&test_env, &world, &[]).exits(2).says(&["store_bytes_max", "hint: "]);
    std::fs::write(&config, usable).unwrap();
    test_env.unset("GHOST_TEST_DATABASE");
    up(&test_env, &world, &[]).exits(2).says(&["GHOST_TEST_DATABASE", "hint: "]);
    assert!(!test_env.data("desk").exists());
    let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'ghost%'";
    assert_eq!(test_env.cluster().psql(schemas).unwrap().trim(), "0");

    // A schema that the role owns is enough.
    test_env.cluster().psql("CREATE SCHEMA ghost_desk AUTHORIZATION guest").unwrap();
    let daemon = test_env.up(&world, &["--store", &right]);
    assert_eq!(test_env.json(&["ask", "ada", "hello"])["reply"], "Here.");
    daemon.stop();
}

// covers: STORE-01
#[test]
fn records_stay_in_the_database_in_which_they_are() {
    let Some((test_env, world)) = desk() else { return };
    let (daemon, data) = (test_env.up(&world, &[]), test_env.data("desk"));
    // Another data directory does not help.
    let other = test_env.join("other").display().to_string();
    up(&test_env, &world, &["--data", &other]).exits(7).says(&["ghost_desk", "hint: "]);
    assert!(!Path::new(&other).exists());
    test_env.ctl(&["send", "ada", "keep me"]).ok();
    test_env.wait_until_quiet(Deadline::seconds(30));
    daemon.stop();

    // Nor does it when nobody uses the schema: the records belong to the first.
    up(&test_env, &world, &["--data", &other]).exits(7).says(&["ghost_desk", "hint: "]);
    assert!(!Path::new(&other).join("world.store").exists());
    up(&test_env, &world, &["--store", "sqlite"]).exits(7).says(&["ghost_desk", "ghost.db", "hint: "]);
    assert!(!data.join("ghost.db").exists());
    test_env.ghostd(&["check", "--data", data.to_str().unwrap()]).exits(2).says(&["ghost_desk"]);
    // A database without the records, for example one that was made anew, is not taken for a new world.
    test_env.cluster().psql("ALTER SCHEMA ghost_desk RENAME TO aside").unwrap();
    up(&test_env, &world, &[]).exits(5).says(&["ghost_desk", "has run"]);
    test_env
        .cluster()
        .psql("DROP SCHEMA IF EXISTS ghost_desk CASCADE; ALTER SCHEMA aside RENAME TO ghost_desk")
        .unwrap();
    let daemon = test_env.up(&world, &[]);
    assert_eq!(test_env.json(&["ask", "ada", "hello"])["reply"], "Here.");
    daemon.stop();
    let kept = "SELECT count(*) FROM messages WHERE body = 'keep me' AND state = 'consumed'";
    assert_eq!(test_env.database("desk").number(kept), 1);

    // The same with a world that has run with SQLite.
    let own = test_env.join("own").display().to_string();
    test_env.up(&world, &["--store", "sqlite", "--data", &own]).stop();
    up(&test_env, &world, &["--data", &own]).exits(7).says(&["ghost_desk", "ghost.db", "hint: "]);
}

// covers: STORE-01, TOOL-24
#[test]
fn the_url_and_its_password_are_never_shown() {
    let Some((mut test_env, world)) = desk() else { return };
    make_guest(&test_env);
    test_env.cluster().psql("GRANT CREATE ON DATABASE postgres TO guest").unwrap();
    let url = guest(&test_env, PASSWORD);
    test_env.set("GHOST_TEST_DATABASE", &url).set("GHOST_LOG", "debug");
    let daemon = test_env.up(&world, &[]);
    test_env.ctl(&["send", "ada", &format!("the URL is {url}, and its password {PASSWORD}")]).ok();
    test_env.wait_until_quiet(Deadline::seconds(30));
    let mut shown = test_env.ctl(&["--json", "events"]).ok().out.clone();
    shown.push_str(&test_env.ctl(&["--json", "status"]).ok().out);
    let (out, err) = (daemon.out.text(), daemon.err.text());
    daemon.stop();
    for (what, text) in [("events", shown), ("output", out), ("log", err)] {
        assert!(!text.contains("hunter2"), "{what}: {text}");
    }
}

const AGENTS: u32 = 4;
const CHAINS: u32 = 12;
const HOPS: u32 = 12;

/// Each message of a chain has an effect outside, and the receiver passes it on.
fn pass_on(request: &FakeRequest, number: u64) -> FakeAnswer {
    let mut calls = Vec::new();
    let me: u32 = agent_of(request)[1..].parse().unwrap();
    let mails = if request.rounds() == 0 { mail_of(request) } else { Vec::new() };
    for mail in mails {
        let mut call = |tool: &str, arguments| {
            let id = format!("c{number}-{}", calls.len());
            calls.push(FakeCall { id, tool: tool.to_owned(), arguments });
        };
        let Some((chain, hop)) = mail.body.split_once('-') else { continue };
        let hop: u32 = hop.parse().unwrap();
        call("test.effect", json!({ "arg": mail.body, "delay_ms": 5 }));
        if hop < HOPS {
            let to = format!("a{}", (me + 1) % AGENTS);
            call("syscall.message.send", json!({ "to": to, "content": format!("{chain}-{}", hop + 1) }));
        }
    }
    if calls.is_empty() { FakeAnswer::say("over") } else { FakeAnswer::Model { text: String::new(), calls } }
}

// covers: STORE-01, STORE-04
#[test]
fn a_database_that_goes_away_and_comes_back_costs_nothing_and_repeats_nothing() {
    let Some(mut test_env) = TestEnvironment::on(Backend::Postgres, ghostd_testing()) else { return };
    let server = ModelServer::start(pass_on);
    let effects = test_env.join("effects.txt");
    test_env.set(EFFECTS, &effects);
    let agents: String = (0..AGENTS).map(|n| format!("  - {{ id: a{n}, archetype: worker }}\n")).collect();
    let world = test_env.world("relay");
    world.archetype("worker", "").config(&format!(
        "agents:\n{agents}limits: {{ hops_max: 10000, turn_mail_max: 2 }}\n\
         llm:\n  default_provider: fake\n  default_model: fake\n  \
         providers: {{ fake: {{ kind: openai, base_url: '{}', retry_base: 10ms }} }}\n{}",
        server.base_url(),
        test_env.storage()
    ));
    let mut daemon = test_env.up(world.path(), &[]);
    for chain in 0..CHAINS {
        test_env.ctl(&["send", &format!("a{}", chain % AGENTS), &format!("{chain}-1")]).ok();
    }
    for outage in 1..=3 {
        assert!(server.wait_for(server.asked().len() + 20, Deadline::seconds(60)), "outage {outage}");
        test_env.cluster().stop();
        // Nothing is acknowledged that is not stored.
        let refused = test_env.ctl(&["--timeout", "1s", "send", "a0", "lost"]);
        assert_ne!(refused.code, Some(0), "{}", refused.out);
        test_env.cluster().resume();
    }
    assert!(!daemon.has_ended(), "{}", daemon.err.text());
    Deadline::seconds(60).until("the database is back", || {
        let status = test_env.ctl(&["--json", "status"]);
        if status.code == Some(0) { Ok(()) } else { Err(status.err) }
    });
    test_env.wait_until_quiet(Deadline::seconds(120));
    daemon.stop();

    let database = test_env.database("relay");
    let all: BTreeSet<String> =
        (0..CHAINS).flat_map(|chain| (1..=HOPS).map(move |hop| format!("{chain}-{hop}"))).collect();
    let once: BTreeMap<String, u32> = all.into_iter().map(|tag| (tag, 1)).collect();
    let counted = |texts: Vec<String>| {
        let mut counts = BTreeMap::<String, u32>::new();
        texts.into_iter().for_each(|text| *counts.entry(text).or_default() += 1);
        counts
    };
    // Failed calls are reported first, because other missing things follow from them.
    let failed = database.texts("SELECT record FROM ledger WHERE status <> 'ok'");
    assert!(failed.is_empty(), "{failed:#?}");
    let messages = "SELECT body FROM messages WHERE state = 'consumed' AND body LIKE '%-%'";
    assert_eq!(counted(database.texts(messages)), once);
    assert_eq!(database.texts("SELECT DISTINCT status FROM turns"), ["finished"]);
    let happened = std::fs::read_to_string(&effects).unwrap();
    let happened = happened.lines().map(|line| line.rsplit(' ').next().unwrap().to_owned());
    assert_eq!(counted(happened.collect()), once);
    let last = database.number("SELECT max(seq) FROM events");
    assert_eq!(database.number("SELECT count(*) FROM events"), last, "the feed has no gap");
}
