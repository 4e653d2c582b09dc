//! Agents, facts about the world, held skills, jobs and stored answers.

use super::tools::*;

fn names(agents: &[Agent]) -> String {
    map_rows(agents, |agent| agent.agent_id.to_string()).join(" ")
}

pub(super) async fn agents_are_put_and_listed(store: Bench) {
    let full = || {
        with(
            agent("c"),
            json!({
                "incarnation": 7, "name": AWKWARD, "team": "news", "owner": "agent:b", "kind": "dynamic",
                "desired": "stopped", "status": "failed", "status_reason": AWKWARD, "restarts": 4,
                "overrides": {"tools": ["a", "b"], "deep": {"n": 1.5, "none": null}}, "epoch": 9,
                "started_at": at(2), "last_active_at": at(3), "deleted_at": at(4),
            }),
        )
    };
    put!(&store, { agent_put: agent("b"), agent("c"), agent("a"), full(); });
    let among = [id_of("c"), id_of("b"), id_of("nobody"), id_of("b")];
    shows!(&store, |r| {
        r.agent_get(&id_of("c"))? => Some(full());
        r.agent_get(&id_of("b"))? => Some(agent("b"));
        r.agent_get(&id_of("nobody"))? => None;
        names(&r.agent_list(true)?) => "a b c";
        names(&r.agent_list(false)?) => "a b";
        r.agent_ids("", 9)? => [id_of("a"), id_of("b")];
        r.agent_ids("", 1)? => [id_of("a")];
        r.agent_ids("b", 9)? => [id_of("b")];
        r.agents_among(&among)? => [id_of("b")];
    });
    tombstones_are_pruned(&store).await;
}

/// Continues with two living agents and the tombstone of `c`: incarnation 7, deleted at second 4.
async fn tombstones_are_pruned(store: &Store) {
    let gone = |name, incarnation, second| Agent { incarnation, deleted_at: Some(at(second)), ..agent(name) };
    put!(store, { agent_put: gone("d", 3, 2), gone("e", 9, 8); });
    // Only what is older, and bounded. The floor rises with the deleted tombstones, and the oldest are deleted first.
    prunes!(store, Family::Agents, |r| { (names(&r.agent_list(true)?), r.agent_incarnation_floor()?) }, {
        (2, 9) => 0, ("a b c d e".to_owned(), 0);
        (8, 0) => 0, ("a b c d e".to_owned(), 0);
        (8, 1) => 1, ("a b c e".to_owned(), 3);
        (8, 1) => 1, ("a b e".to_owned(), 7);
        (8, 1) => 0, ("a b e".to_owned(), 7);
    });
    put!(store, { agent_put: gone("d", 1, 3); });
    prunes!(store, Family::Agents, |r| { (r.agent_get(&id_of("d"))?, r.agent_incarnation_floor()?) }, {
        (8, 9) => 1, (None, 7);
    });
}

pub(super) async fn tombstones_of_creators_of_living_agents_are_kept(store: Bench) {
    let gone =
        |name: &str, owner: &str| Agent { owner: Some(owner.to_owned()), deleted_at: Some(at(2)), ..agent(name) };
    // `x` and `y` created each other, but no living agent.
    put!(&store, {
        agent_put: Agent { owner: Some("agent:b".to_owned()), ..agent("a") }, gone("b", "agent:c"),
            gone("c", "operator:b"), gone("x", "agent:y"), gone("y", "agent:x"), gone("z", "agent:a");
    });
    prunes!(&store, Family::Agents, |r| { names(&r.agent_list(true)?) }, { (9, 9) => 3, "a b c"; });
    put!(&store, { agent_put: gone("a", "agent:b"); });
    prunes!(&store, Family::Agents, |r| { names(&r.agent_list(true)?) }, { (9, 9) => 3, ""; });
}

pub(super) async fn dynamic_agents_are_counted(store: Bench) {
    let dynamic = |name, deleted_at| Agent { kind: AgentKind::Dynamic, deleted_at, ..agent(name) };
    shows!(&store, |r| { r.agent_count_dynamic()? => 0; });
    put!(&store, { agent_put: agent("a"), dynamic("b", None), dynamic("c", None), dynamic("d", Some(at(2))); });
    shows!(&store, |r| { r.agent_count_dynamic()? => 2; });
    put!(&store, { agent_put: dynamic("b", Some(at(2))); });
    shows!(&store, |r| { r.agent_count_dynamic()? => 1; });
}

pub(super) async fn meta_is_kept(store: Bench) {
    shows!(&store, |r| { r.meta_get("world_id")? => None; });
    keep!(&store, |w| {
        for (key, value) in [("world_id", "one"), ("other", AWKWARD), ("world_id", "two")] {
            w.meta_put(key, value)?;
        }
    });
    shows!(&store, |r| {
        r.meta_get("world_id")?.as_deref() => Some("two");
        r.meta_get("other")?.as_deref() => Some(AWKWARD);
    });
}

// covers: SKILL-41
pub(super) async fn skills_are_held_and_removed(store: Bench) {
    let active = || HeldSkill { active: true, acquired_at: at(5), ..held("a", "writing") };
    put!(&store, {
        skill_put: held("a", "writing"), held("a", "editing"), held("aa", "editing"), held("a", "reading"), active();
    });
    keep!(&store, |w| {
        assert!(w.skill_remove(&id_of("a"), "reading")?);
        assert!(!w.skill_remove(&id_of("a"), "reading")?);
        assert!(!w.skill_remove(&id_of("b"), "editing")?);
    });
    shows!(&store, |r| {
        r.skills_held(&id_of("a"))? => [held("a", "editing"), active()];
        r.skills_held(&id_of("aa"))? => [held("aa", "editing")];
        r.skills_held(&id_of("b"))? => [];
    });
}

pub(super) async fn jobs_are_newest_first(store: Bench) {
    let done = || Job {
        task_id: Some(task_id(7)),
        finished_at: Some(at(9)),
        result_path: Some("output/briefings/x.md".to_owned()),
        ..job("bb", 2)
    };
    put!(&store, { job_put: job("aa", 1), job("cc", 3), job("bb", 2), done(); });
    shows!(&store, |r| {
        r.job_of_task(task_id(7))? => Some(done());
        r.job_of_task(task_id(8))? => None;
        r.job_list(None, 1_000)? => [job("cc", 3), done(), job("aa", 1)];
        r.job_get("bb")? => Some(done());
        r.job_get("dd")? => None;
    });
}

pub(super) async fn requests_are_kept_by_principal(store: Bench) {
    let operator = |name: &str| Party::Operator(name.to_owned());
    let of = move |name: &str, second| answer(operator(name), "r-1", second);
    put!(&store, { request_put: of("one", 1), of("two", 2); });
    shows!(&store, |r| {
        r.request_get(&operator("one"), &"r-1".parse().unwrap())? => Some(of("one", 1));
        r.request_get(&operator("two"), &"r-1".parse().unwrap())? => Some(of("two", 2));
        r.request_get(&operator("one"), &"r-2".parse().unwrap())? => None;
        r.request_get(&Party::Agent(id_of("one")), &"r-1".parse().unwrap())? => None;
    });
}
