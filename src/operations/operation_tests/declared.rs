//! Channels and jobs of `world-config.yaml`: changes in the file change the records, and changes by
//! hand stay.

use super::operation_world::*;
use crate::declared::Followed;

fn channel(name: &str, members: &[&str]) -> DeclaredChannel {
    DeclaredChannel {
        channel: name.parse().unwrap(),
        members: members.iter().map(|member| id(member)).collect(),
        gated: true,
        topic: Some("news".into()),
    }
}

fn job(agent: &str, name: &str) -> DeclaredJob {
    DeclaredJob {
        agent_id: id(agent),
        name: name.into(),
        when: When::Every { every_ms: 3_600_000, anchor: Timestamp(0) },
        message: "look".into(),
        missed: Missed::Skip,
        mode: JobMode::default(),
        enabled: true,
    }
}

fn file(channels: Vec<DeclaredChannel>, jobs: Vec<DeclaredJob>) -> Declared {
    Declared { channels, jobs }
}

/// Applies the file. Checks that the preview equals the result, and that a second run only reports
/// the declarations that are not applied.
async fn follow(world: &OperationWorld, declared: &Declared) -> Followed {
    let wanted = declared.clone();
    let would = read!(world, |r| declared::would(r, &wanted)?);
    let wanted = declared.clone();
    let done = run!(world, |w| declared::follow(w, &wanted)).unwrap();
    assert_eq!(would.len(), done.lines.len() + done.refused.len());
    let wanted = declared.clone();
    let again = run!(world, |w| declared::follow(w, &wanted)).unwrap();
    assert!(again.lines.iter().all(|line| line.starts_with('=')), "{again:?}");
    done
}

async fn there(world: &OperationWorld, name: &str) -> (ChatChannel, Vec<AgentId>) {
    let name = name.parse().unwrap();
    read!(world, |r| {
        let members = r.chat_members(&name)?.into_iter().map(|member| member.agent_id).collect();
        (r.chat_channel_get(&name)?.unwrap(), members)
    })
}

async fn schedule(world: &OperationWorld, agent: &str, name: &'static str) -> Option<Schedule> {
    let agent_id = id(agent);
    read!(world, |r| r.schedule_find(&agent_id, ScheduleKind::Cron, name)?)
}

async fn set_by_hand(world: &OperationWorld, job: DeclaredJob) {
    run!(world, |w| {
        let new = NewSchedule {
            kind: ScheduleKind::Cron,
            agent_id: job.agent_id,
            name: job.name,
            when: job.when,
            message: "by hand".into(),
            missed: job.missed,
            mode: job.mode,
            enabled: true,
            chain: mail::Chain::root(w.ctx),
            baseline: None,
        };
        schedules::set(w, &operator(), new)
    })
    .unwrap();
}

world_test!(channels_are_created_changed_and_left_as_the_file_says, async |world| {
    let done = follow(&world, &file(vec![channel("desk", &["ada", "bob"])], vec![])).await;
    assert_eq!((done.lines.len(), done.refused.len()), (1, 0));
    let (desk, members) = there(&world, "desk").await;
    assert_eq!((desk.gated, desk.topic.as_deref(), desk.creator), (true, Some("news"), Party::System));
    assert_eq!(members, [id("ada"), id("bob")]);
    // cyd is invited and bob removed by hand; the file then changes neither.
    run!(world, |w| {
        let (by, desk) = (Speaker::from(operator()), "desk".parse().unwrap());
        chat::invite(w, &by, &desk, &id("cyd"))?;
        chat::remove(w, &by, &desk, &id("bob"))
    })
    .unwrap();
    let mut open = channel("desk", &["ada", "bob"]);
    (open.gated, open.topic) = (false, None);
    follow(&world, &file(vec![open], vec![])).await;
    let (desk, members) = there(&world, "desk").await;
    assert_eq!((desk.gated, desk.topic, members), (false, None, vec![id("ada"), id("cyd")]));
    assert_eq!(world.count(EventKind::ChatChanged).await, 1);
    // No longer named: the members of the file leave, and the channel stays. It belongs to the file
    // again when it is named again.
    follow(&world, &Declared::default()).await;
    assert_eq!(there(&world, "desk").await.1, [id("cyd")]);
    follow(&world, &file(vec![channel("desk", &["ada", "bob"])], vec![])).await;
    let (desk, members) = there(&world, "desk").await;
    assert_eq!((desk.gated, members), (true, vec![id("ada"), id("bob"), id("cyd")]));
});

world_test!(a_channel_of_another_creator_is_left_alone_and_reported, async |world| {
    world.channel(party("cyd"), new_channel("desk", &[])).await.unwrap();
    let done = follow(&world, &file(vec![channel("desk", &["ada"])], vec![])).await;
    assert!(done.lines[0].starts_with("= channel desk"), "{done:?}");
    assert!(world.count(EventKind::WorldWarning).await > 0);
    follow(&world, &Declared::default()).await;
    let (desk, members) = there(&world, "desk").await;
    assert_eq!((desk.gated, members), (false, vec![id("cyd")]));
});

world_test!(jobs_are_set_changed_and_cancelled_as_the_file_says, async |world| {
    follow(&world, &file(vec![], vec![job("ada", "pulse"), job("bob", "pulse")])).await;
    let first = schedule(&world, "ada", "pulse").await.unwrap();
    assert_eq!(first.next_at.map(|at| at.0 % 3_600_000), Some(0));
    let mut changed = job("ada", "pulse");
    changed.message = "look again".into();
    follow(&world, &file(vec![], vec![changed.clone()])).await;
    let second = schedule(&world, "ada", "pulse").await.unwrap();
    assert_eq!((second.schedule_id, second.message.as_str()), (first.schedule_id, "look again"));
    assert_eq!(schedule(&world, "bob", "pulse").await, None);
    // Switched off by hand, it stays off although the file changes another field.
    run!(world, |w| schedules::enable(w, &operator(), first.schedule_id, false)).unwrap();
    changed.message = "look once more".into();
    follow(&world, &file(vec![], vec![changed.clone()])).await;
    let third = schedule(&world, "ada", "pulse").await.unwrap();
    assert_eq!((third.enabled, third.message.as_str()), (false, "look once more"));
    // Cancelled by hand, it stays cancelled until the file changes it.
    run!(world, |w| schedules::cancel(w, &operator(), first.schedule_id)).unwrap();
    follow(&world, &file(vec![], vec![changed.clone()])).await;
    assert_eq!(schedule(&world, "ada", "pulse").await, None);
    changed.message = "look".into();
    follow(&world, &file(vec![], vec![changed])).await;
    assert!(schedule(&world, "ada", "pulse").await.is_some());
    // An agent that is created again gets its jobs again.
    delete(&world, "ada").await;
    assert_eq!(schedule(&world, "ada", "pulse").await, None);
    world.add_agent(new_agent(&world.ctx, "ada")).await;
    follow(&world, &file(vec![], vec![job("ada", "pulse")])).await;
    assert!(schedule(&world, "ada", "pulse").await.is_some());
});

world_test!(a_job_set_by_hand_is_left_alone_and_a_past_one_is_reported_once, async |world| {
    set_by_hand(&world, job("ada", "pulse")).await;
    let done = follow(&world, &file(vec![], vec![job("ada", "pulse")])).await;
    assert!(done.lines[0].starts_with("= cron ada/pulse"), "{done:?}");
    follow(&world, &Declared::default()).await;
    assert_eq!(schedule(&world, "ada", "pulse").await.unwrap().message, "by hand");
    // A job of the file that someone replaced by hand belongs to them.
    follow(&world, &file(vec![], vec![job("bob", "pulse")])).await;
    set_by_hand(&world, job("bob", "pulse")).await;
    follow(&world, &Declared::default()).await;
    assert_eq!(schedule(&world, "bob", "pulse").await.unwrap().message, "by hand");
    let mut once = job("cyd", "once");
    once.when = When::At { at: Timestamp(1_000) };
    let wanted = file(vec![], vec![once]);
    assert_eq!(follow(&world, &wanted).await.lines.len(), 1);
    assert_eq!(follow(&world, &wanted).await, Followed::default());
    assert_eq!(schedule(&world, "cyd", "once").await, None);
});

world_test!(a_refused_declaration_affects_no_other_and_is_tried_again, async |world| {
    world.limits(|limits| limits.crons_max = 1);
    let wanted = file(vec![channel("desk", &["ada"])], vec![job("ada", "one"), job("ada", "two")]);
    let first = wanted.clone();
    let done = run!(world, |w| declared::follow(w, &first)).unwrap();
    assert_eq!((done.lines.len(), done.refused.len()), (2, 1), "{done:?}");
    assert!(done.refused[0].contains(&Code::RateLimited.to_string()) || done.refused[0].contains("crons_max"));
    assert!(schedule(&world, "ada", "one").await.is_some() && schedule(&world, "ada", "two").await.is_none());
    world.pass(Duration::from_secs(60));
    world.limits(|limits| limits.crons_max = 2);
    assert_eq!(follow(&world, &wanted).await.lines.len(), 1);
    assert!(schedule(&world, "ada", "two").await.is_some());
});

world_test!(a_refused_change_of_a_channel_changes_nothing, async |world| {
    follow(&world, &file(vec![channel("desk", &["ada", "bob"])], vec![])).await;
    world.add_agent(new_agent(&world.ctx, "dan")).await;
    world.limits(|limits| limits.chat_members_max = 3);
    let before = there(&world, "desk").await;
    let events = async || {
        let kinds = [EventKind::ChatChanged, EventKind::ChatMemberAdded, EventKind::ChatMemberRemoved];
        let mut count = 0;
        for kind in kinds {
            count += world.count(kind).await;
        }
        count
    };
    // Too many members, and an unknown agent after a known one.
    for (members, why) in [(&["ada", "bob", "cyd", "dan"][..], "chat_members_max"), (&["ada", "cyd", "zed"], "zed")] {
        let mut wanted = channel("desk", members);
        (wanted.gated, wanted.topic) = (false, Some("other".into()));
        let wanted = file(vec![wanted], vec![]);
        let done = run!(world, |w| declared::follow(w, &wanted)).unwrap();
        assert_eq!((done.lines.len(), done.refused.len()), (0, 1), "{done:?}");
        assert!(done.refused[0].contains(why), "{done:?}");
        assert_eq!((there(&world, "desk").await, events().await), (before.clone(), 0), "{members:?}");
    }
    // Leaving members free capacity for new members.
    world.limits(|limits| limits.chat_members_max = 2);
    follow(&world, &file(vec![channel("desk", &["cyd", "dan"])], vec![])).await;
    assert_eq!(there(&world, "desk").await.1, [id("cyd"), id("dan")]);
});
