//! Agents, facts about the world, held skills, jobs and stored answers.

use ghost_domain::{Agent, AgentKind, HeldSkill, Job, Party, TurnStatus};
use serde_json::json;

use super::tools::*;
use crate::Store;
use crate::tables::Family;

pub(super) async fn the_mail_and_the_turn_of_an_added_agent_are_found(store: Bench) {
    refuse!(&store, |w| {
        w.agent_put(&agent("a"))?;
        w.message_append(&mail(1, "a"))?;
    });
    keep!(&store, |w| {
        w.agent_put(&agent("a"))?;
        assert_eq!((w.inbox_depth(&id_of("a"))?, w.turn_open_of(&id_of("a"))?), (0, None));
        w.message_append(&mail(1, "a"))?;
    });
    keep!(&store, |w| {
        assert_eq!(w.inbox_depth(&id_of("a"))?, 1);
        w.turn_put(&turn(1, "a", TurnStatus::Open))?;
    });
    assert_eq!(keep!(&store, |w| { w.turn_open_of(&id_of("a"))? }).map(|turn| turn.turn_id), Some(turn_id(1)));
    let found = reading!(&store, |r| {
        (r.agent_get(&id_of("a"))?, r.inbox_depth(&id_of("a"))?, r.turn_open_of(&id_of("a"))?)
    });
    assert_eq!((found.0, found.1, found.2.map(|turn| turn.turn_id)), (Some(agent("a")), 1, Some(turn_id(1))));
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
    keep!(&store, |w| {
        w.agent_put(&agent("b"))?;
        w.agent_put(&agent("c"))?;
        w.agent_put(&agent("a"))?;
        w.agent_put(&full())?;
        assert_eq!(w.agent_get(&id_of("c"))?, Some(full()), "its own write");
    });
    assert_eq!(reading!(&store, |r| { r.agent_get(&id_of("c"))? }), Some(full()));
    assert_eq!(reading!(&store, |r| { r.agent_get(&id_of("b"))? }), Some(agent("b")));
    assert_eq!(reading!(&store, |r| { r.agent_get(&id_of("nobody"))? }), None);
    shows!(&store, |r| {
        map_rows(&r.agent_list(true)?, |agent| agent.agent_id.clone()) => [id_of("a"), id_of("b"), id_of("c")];
        map_rows(&r.agent_list(false)?, |agent| agent.agent_id.clone()) => [id_of("a"), id_of("b")];
    });
    refuse!(&store, |w| {
        w.agent_put(&agent("bb"))?;
        assert_eq!(w.agent_ids("b", 9)?, [id_of("b"), id_of("bb")], "the command's own writes count");
        assert_eq!(w.agents_among(&[id_of("bb"), id_of("a")])?, [id_of("a"), id_of("bb")]);
        w.agent_put(&Agent { deleted_at: Some(at(2)), ..agent("bb") })?;
        assert_eq!(w.agents_among(&[id_of("bb"), id_of("a")])?, [id_of("a")]);
    });
    let among = [id_of("c"), id_of("b"), id_of("nobody"), id_of("b")];
    assert_eq!(reading!(&store, |r| { r.agent_ids("", 9)? }), [id_of("a"), id_of("b")]);
    assert_eq!(reading!(&store, |r| { r.agent_ids("", 1)? }), [id_of("a")]);
    assert_eq!(reading!(&store, |r| { r.agents_among(&among)? }), [id_of("b")]);
    tombstones_are_pruned(&store).await;
}

/// Continues with two living agents and the tombstone of `c`: incarnation 7, deleted at second 4.
async fn tombstones_are_pruned(store: &Store) {
    let floor = async || reading!(store, |r| { r.agent_incarnation_floor()? });
    assert_eq!(floor().await, 0);
    keep!(store, |w| {
        w.agent_put(&Agent { incarnation: 3, deleted_at: Some(at(2)), ..agent("d") })?;
        w.agent_put(&Agent { incarnation: 9, deleted_at: Some(at(8)), ..agent("e") })?;
    });
    assert_eq!(keep!(store, |w| { w.prune(Family::Agents, at(2), 9)? }), 0, "only what is older");
    assert_eq!(keep!(store, |w| { w.prune(Family::Agents, at(8), 0)? }), 0, "bounded");
    refuse!(store, |w| {
        assert_eq!(w.prune(Family::Agents, at(8), 9)?, 2);
        assert_eq!((w.agent_get(&id_of("c"))?, w.agent_incarnation_floor()?), (None, 7));
    });
    assert_eq!(floor().await, 0, "a refused prune does not raise the floor");
    // The floor rises with the deleted tombstones, and the oldest are deleted first.
    for (gone, left, risen) in [(1, "a b c e", 3), (1, "a b e", 7), (0, "a b e", 7)] {
        assert_eq!(keep!(store, |w| { w.prune(Family::Agents, at(8), 1)? }), gone);
        let all = reading!(store, |r| { r.agent_list(true)? });
        assert_eq!(map_rows(&all, |agent| agent.agent_id.to_string()).join(" "), left);
        assert_eq!(floor().await, risen);
    }
    keep!(store, |w| {
        assert_eq!(w.agent_get(&id_of("c"))?, None);
        assert_eq!(w.agent_get(&id_of("a"))?, Some(agent("a")), "in a command, too");
    });
    // The floor never decreases.
    keep!(store, |w| {
        w.agent_put(&Agent { deleted_at: Some(at(3)), ..agent("d") })?;
        assert_eq!(w.prune(Family::Agents, at(8), 9)?, 1);
    });
    assert_eq!(floor().await, 7);
}

pub(super) async fn tombstones_of_creators_of_living_agents_are_kept(store: Bench) {
    let gone =
        |name: &str, owner: &str| Agent { owner: Some(owner.to_owned()), deleted_at: Some(at(2)), ..agent(name) };
    keep!(&store, |w| {
        w.agent_put(&Agent { owner: Some("agent:b".to_owned()), ..agent("a") })?;
        w.agent_put(&gone("b", "agent:c"))?;
        w.agent_put(&gone("c", "operator:b"))?;
        // These created each other, but no living agent.
        w.agent_put(&gone("x", "agent:y"))?;
        w.agent_put(&gone("y", "agent:x"))?;
        w.agent_put(&gone("z", "agent:a"))?;
    });
    let prune = async || {
        let gone = keep!(&store, |w| { w.prune(Family::Agents, at(9), 9)? });
        let left = reading!(&store, |r| { r.agent_list(true)? });
        (gone, map_rows(&left, |agent| agent.agent_id.to_string()).join(" "))
    };
    assert_eq!(prune().await, (3, "a b c".to_owned()));
    keep!(&store, |w| { w.agent_put(&gone("a", "agent:b"))? });
    assert_eq!(prune().await, (3, String::new()));
}

pub(super) async fn dynamic_agents_are_counted(store: Bench) {
    assert_eq!(reading!(&store, |r| { r.agent_count_dynamic()? }), 0);
    keep!(&store, |w| {
        w.agent_put(&agent("a"))?;
        w.agent_put(&Agent { kind: AgentKind::Dynamic, ..agent("b") })?;
        w.agent_put(&Agent { kind: AgentKind::Dynamic, ..agent("c") })?;
        w.agent_put(&Agent { kind: AgentKind::Dynamic, deleted_at: Some(at(2)), ..agent("d") })?;
        assert_eq!(w.agent_count_dynamic()?, 2);
    });
    keep!(&store, |w| {
        w.agent_put(&Agent { kind: AgentKind::Dynamic, deleted_at: Some(at(2)), ..agent("b") })?;
        assert_eq!(w.agent_count_dynamic()?, 1);
    });
    assert_eq!(reading!(&store, |r| { r.agent_count_dynamic()? }), 1);
}

pub(super) async fn meta_is_kept(store: Bench) {
    assert_eq!(reading!(&store, |r| { r.meta_get("world_id")? }), None);
    keep!(&store, |w| {
        w.meta_put("world_id", "one")?;
        w.meta_put("other", AWKWARD)?;
        w.meta_put("world_id", "two")?;
        assert_eq!(w.meta_get("world_id")?.as_deref(), Some("two"));
    });
    shows!(&store, |r| {
        r.meta_get("world_id")? => Some("two".to_owned());
        r.meta_get("other")? => Some(AWKWARD.to_owned());
    });
}

// covers: SKILL-41
pub(super) async fn skills_are_held_and_removed(store: Bench) {
    keep!(&store, |w| {
        w.skill_put(&held("a", "writing"))?;
        w.skill_put(&held("a", "editing"))?;
        w.skill_put(&held("aa", "editing"))?;
        w.skill_put(&held("a", "reading"))?;
        w.skill_put(&HeldSkill { active: true, acquired_at: at(5), ..held("a", "writing") })?;
        assert!(w.skill_remove(&id_of("a"), "reading")?);
        assert!(!w.skill_remove(&id_of("b"), "editing")?);
    });
    shows!(&store, |r| {
        r.skills_held(&id_of("a"))?
            => [held("a", "editing"), HeldSkill { active: true, acquired_at: at(5), ..held("a", "writing") }];
        r.skills_held(&id_of("aa"))? => vec![held("aa", "editing")];
        r.skills_held(&id_of("b"))? => vec![];
    });
    assert!(!keep!(&store, |w| { w.skill_remove(&id_of("a"), "reading")? }));
}

pub(super) async fn jobs_are_newest_first(store: Bench) {
    let done = || Job {
        task_id: Some(task_id(7)),
        finished_at: Some(at(9)),
        result_path: Some("output/briefings/x.md".to_owned()),
        ..job("bb", 2)
    };
    keep!(&store, |w| {
        w.job_put(&job("aa", 1))?;
        w.job_put(&job("cc", 3))?;
        w.job_put(&job("bb", 2))?;
        w.job_put(&done())?;
        assert_eq!(w.job_of_task(task_id(7))?, Some(done()), "its own write");
    });
    shows!(&store, |r| {
        r.job_of_task(task_id(7))?.as_ref() => Some(&done());
        r.job_of_task(task_id(8))? => None;
    });
    assert_eq!(reading!(&store, |r| { r.job_list(None, 1_000)? }), [job("cc", 3), done(), job("aa", 1)]);
    assert_eq!(reading!(&store, |r| { r.job_get("bb")? }), Some(done()));
    assert_eq!(reading!(&store, |r| { r.job_get("dd")? }), None);
}

pub(super) async fn requests_are_kept_by_principal(store: Bench) {
    let of = |name: &str, second| answer(Party::Operator(name.to_owned()), "r-1", second);
    keep!(&store, |w| {
        let (one, two) = (of("one", 1), of("two", 2));
        w.request_put(&one)?;
        w.request_put(&two)?;
        assert_eq!(w.request_get(&one.key.principal, &one.key.request_id)?, Some(one));
    });
    let (one, two) = (Party::Operator("one".to_owned()), Party::Operator("two".to_owned()));
    shows!(&store, |r| {
        r.request_get(&one, &"r-1".parse().unwrap())? => Some(of("one", 1));
        r.request_get(&two, &"r-1".parse().unwrap())? => Some(of("two", 2));
        r.request_get(&one, &"r-2".parse().unwrap())? => None;
        r.request_get(&Party::Agent(id_of("one")), &"r-1".parse().unwrap())? => None;
    });
}
