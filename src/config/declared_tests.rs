//! Tests of the chat channels and cron jobs that `world-config.yaml` declares.

use ghost_domain::schedule::{Target, When};

use crate::fixture::{GOOD, World};

fn with(text: &str) -> World {
    let world = World::new();
    world.config(&format!("{GOOD}{text}"));
    world
}

#[test]
fn channels_and_jobs_are_read() {
    let world = with(
        "chat_channels:\n  desk: { members: [chora, mux], gated: true, topic: ' the news ' }\n  talk: { members: [mux] }\n\
         cron:\n  - { agent: chora, name: morning, cron: '0 7 * * 1-5', zone: Europe/Berlin, message: Read, missed: \
         run_once }\n  - { agent: mux, name: pulse, every: 1h, message: Look, to: desk, timeout: 2m, enabled: false }\n",
    );
    let plan = world.plan();
    assert_eq!(world.warnings(), "");
    let names: Vec<&str> = plan.declared.channels.iter().map(|channel| channel.channel.as_str()).collect();
    assert_eq!(names, ["desk", "talk"]);
    assert_eq!(plan.declared.channels[0].topic.as_deref(), Some("the news"));
    let [morning, pulse] = &plan.declared.jobs[..] else { panic!("{:?}", plan.declared.jobs) };
    assert!(matches!(&morning.when, When::Cron { zone: Some(zone), .. } if zone == "Europe/Berlin"));
    let turn = pulse.mode.own_turn().unwrap();
    assert_eq!((&turn.target, turn.timeout_seconds), (&Target::Channel("desk".parse().unwrap()), Some(120)));
    assert!(!pulse.enabled);
    // The result does not depend on the time of reading.
    assert_eq!(world.plan().declared, plan.declared);
}

#[test]
fn every_mistake_has_its_line_and_a_hint() {
    let before = GOOD.lines().count();
    for (text, line, expected) in [
        ("chat_channels: { desk: { members: [chora, chorra] } }\n", 1, "`chora`"),
        ("chat_channels:\n  desk: { }\n", 2, "`members`"),
        ("chat_channels:\n  desk: { members: [] }\n", 2, "chat_channels.desk: "),
        ("chat_channels:\n  desk: { members: [chora, chora] }\n", 2, "`chora`"),
        ("chat_channels:\n  '#desk': { members: [chora] }\n", 2, "chat_channels.#desk"),
        ("chat_channels:\n  desk: { members: [chora], gate: true }\n", 2, "`gated`"),
        ("chat_channels:\n  desk: { members: [chora], topic: \"a\\nb\" }\n", 2, "chat_channels.desk.topic"),
        ("chat_chanels: { }\n", 1, "`chat_channels`"),
        ("channels: { desk: { members: [chora] } }\n", 1, "`chat_channels: { desk: { members: [lead] } }`"),
        ("chat: { channels: [desk] }\n", 1, "`chat_channels`"),
        ("crons: []\n", 1, "`cron`"),
        ("schedules: []\n", 1, "`cron`"),
        ("cron:\n  - { agent: chorra, name: a, every: 1h, message: x }\n", 2, "`chora`"),
        ("cron:\n  - { agent: chora, name: a/b, every: 1h, message: x }\n", 2, "`/`"),
        ("cron:\n  - { agent: chora, name: a, message: x }\n", 2, "cron[0]"),
        ("cron:\n  - { agent: chora, name: a, every: 1h, at: 2030-01-01, message: x }\n", 2, "cron[0]"),
        ("cron:\n  - { agent: chora, name: a, cron: '61 * * * *', message: x }\n", 2, "cron"),
        ("cron:\n  - { agent: chora, name: a, every: 1s, message: x }\n", 2, "cron_gap_seconds"),
        (
            "cron:\n  - { agent: chora, name: a, cron: '0 7 * * *', zone: Europe/Berlim, message: x }\n",
            2,
            "Europe/Berlin",
        ),
        ("cron:\n  - { agent: chora, name: a, every: 1h }\n", 2, "`message`"),
        ("cron:\n  - { agent: chora, name: a, every: 1h, message: x, schedule: b }\n", 2, "`every: 1h`"),
        ("cron:\n  - { agent: chora, name: a, every: 1h, message: x, model: hugee }\n", 2, "`hugee`"),
        ("cron:\n  - { agent: chora, name: a, every: 1h, message: x, deliver: webhook, to: ops }\n", 2, "`ops`"),
        ("cron:\n  - { agent: chora, name: a, every: 1h, message: x, session: main, timeout: 5m }\n", 2, "session"),
        ("cron:\n  - { agent: chora, name: a, every: 1h, message: x, timeout: 20h }\n", 2, "72000"),
        (
            "cron:\n  - { agent: chora, name: a, every: 1h, message: x }\n  - { agent: chora, name: a, every: 2h, message: x }\n",
            3,
            "cron[1]",
        ),
        ("cron: { morning: { agent: chora } }\n", 1, "cron: "),
    ] {
        let problems = with(text).problems();
        assert!(problems.contains(&format!("world-config.yaml:{}:", before + line)), "{text}{problems}");
        assert!(problems.contains(expected) && problems.contains("hint: "), "{text}{problems}");
    }
}

#[test]
fn all_mistakes_of_one_job_are_reported_and_none_that_follows_from_another() {
    for (job, fields) in [
        ("agent: chorra, name: a, cron: '61 * * * *', message: x, model: hugee", &["agent", "cron", "model"][..]),
        ("agent: chora, name: a, cron: '61 * * * *', zone: Europe/Berlim, message: x", &["cron", "zone"]),
        ("agent: chora, name: a, every: 0s, anchor: soon, message: x", &["anchor", "every"]),
        ("agent: chora, name: a, every: 1s, at: soon, message: x", &["", "at", "every"]),
        (
            "agent: chora, name: a, every: 1h, message: x, timeout: 20h, max_rounds: 999999, model: hugee",
            &["max_rounds", "model", "timeout"],
        ),
        ("agent: chora, name: a, every: 1h, message: x, deliver: webhook, to: ops, model: hugee", &["model", "to"]),
        (
            "agent: chora, name: a, every: 1h, message: x, deliver: none, to: desk, wake: next-heartbeat",
            &["to", "wake"],
        ),
        // That the other settings belong to a turn of its own, too, is the same mistake.
        ("agent: chora, name: a, every: 1h, message: x, session: main, timeout: 5m, max_rounds: 3", &["timeout"]),
        ("agent: chora, name: a, every: 1h, message: x, session: main, timeout: 20h", &["timeout", "timeout"]),
        ("name: a/b, every: 1h, message: x, timeout: 20h, to: a b", &["", "name", "timeout", "to"]),
    ] {
        let world = with(&format!("cron:\n  - {{ {job} }}\n"));
        let all = world.load().map(|_| ()).unwrap_err();
        let errors = all.0.iter().filter(|problem| problem.severity == crate::Severity::Error);
        let mut found: Vec<&str> =
            errors.map(|problem| problem.field.strip_prefix("cron[0]").unwrap().trim_start_matches('.')).collect();
        found.sort_unstable();
        assert_eq!(found, fields, "{job}: {all}");
    }
}

#[test]
fn questionable_settings_are_warnings() {
    let world = with(
        "cron:\n  - { agent: chora, name: a, every: 1h, message: x, to: dessk }\nchat_channels: { desk: { members: [mux] } }\n",
    );
    assert!(world.warnings().contains("`desk`"), "{}", world.warnings());
    let crowd = GOOD.replace("agents:\n", "agents:\n  - { id: nova, archetype: doer }\n");
    let world = World::new();
    world.config(&format!(
        "{crowd}chat: {{ wake: all }}\nchat_channels: {{ desk: {{ members: [mux, nova, chora] }} }}\n"
    ));
    assert!(world.warnings().contains("gated: true"), "{}", world.warnings());
}
