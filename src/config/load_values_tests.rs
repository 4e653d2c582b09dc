//! Tests of values in whole worlds: what a message may show, and what is refused or accepted.

use super::*;

// covers: WORLD-09
#[test]
fn no_part_of_a_long_value_of_a_variable_is_shown() {
    let secret = format!("sk-{}", "A".repeat(200));
    for line in [
        "chat: { wake: '${LONG}' }",
        "access: { default: '${LONG}' }",
        "sandbox: { kind: '${LONG}' }",
        "web: { timeout: '${LONG}' }",
        "web: { allow: ['${LONG}'] }",
        "approvals: { approvers: ['a ${LONG}'] }",
        "cron: [{ agent: '${LONG} x', name: n, every: 1h, message: m }]",
        "heartbeat: { target: '${LONG} x' }",
        "listen: { grpc: '${LONG}' }",
        "limits: { hops_max: '${LONG}' }",
    ] {
        let world = World::new();
        world.config(&format!("{GOOD}{line}\n").replace("limits: { hops_max: 8, turn_rounds_max: 20 }\n", ""));
        let (_, problems) = crate::examine(&world.dir(), &|name| (name == "LONG").then(|| secret.clone()));
        let text = problems.to_string();
        assert!(problems.has_errors() && !text.contains("sk-A") && !text.contains("AAAA"), "{line}: {text}");
    }
}

#[test]
fn keys_that_would_have_no_effect_are_refused() {
    for (entry, field) in [
        ("overrides: { daily_cost_usd: 1 }", "overrides.daily_cost_usd"),
        ("heartbeat: { ack_max_chars: 9 }", "heartbeat.ack_max_chars"),
    ] {
        let world = World::new();
        world.config(&GOOD.replace("archetype: analyst, ", &format!("archetype: analyst, {entry}, ")));
        let problems = world.problems();
        assert!(problems.contains(&format!("agents[0].{field}: ")), "{entry}: {problems}");
    }
    let world = World::new();
    world.config(&GOOD.replace("archetype: doer\n", "archetype: doer\n    count: 1_0\n"));
    world.config(&format!(
        "{}chat_channels: {{ all: {{ members: [mux] }} }}\n",
        GOOD.replace("archetype: doer\n", "archetype: doer\n    count: 1_0\n")
    ));
    assert!(world.problems().contains("there is no agent `mux`"), "{}", world.problems());
}

#[test]
fn own_notes_and_empty_values_are_accepted_where_one_value_or_a_map_may_stand() {
    for backoff in ["{ base: 1s, x-note: hi }", "", "5", "250ms"] {
        let world = World::new();
        world.config(&GOOD.replace("backoff: 250ms", &format!("backoff: {backoff}")));
        assert!(world.load().is_ok(), "{backoff}: {}", world.problems());
    }
    for (backoff, hint) in [("0x10", "250ms"), ("true", "250ms"), ("[1]", "250ms"), ("{ bas: 1s }", "`base`")] {
        let world = World::new();
        world.config(&GOOD.replace("backoff: 250ms", &format!("backoff: {backoff}")));
        let problems = world.problems();
        assert!(problems.contains("agents[1].restart.backoff") && problems.contains(hint), "{backoff}: {problems}");
    }
}

#[test]
fn the_address_of_a_webhook_stays_as_it_is_written() {
    let world = World::new();
    let hook = "channels: { webhooks: { shop: { url: 'https://h/hook/', secret_env: SECRET, agent: chora } } }\n";
    world.config(&format!("{GOOD}{hook}"));
    assert_eq!(world.plan().webhooks["shop"].url, "https://h/hook/");
}
