//! Channels and jobs of `world-config.yaml`: changes in the file change the records, and changes by
//! hand stay.

use super::operation_world::*;
use super::schedule_helpers;
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

/// A file with these channels only.
fn channels(channels: Vec<DeclaredChannel>) -> Declared {
    Declared { channels, jobs: vec![] }
}

/// A file with these jobs only.
fn jobs(jobs: Vec<DeclaredJob>) -> Declared {
    Declared { channels: vec![], jobs }
}

/// A file with `desk` as the only channel.
fn only_desk(members: &[&str]) -> Declared {
    channels(vec![channel("desk", members)])
}

/// Applies the file once.
async fn apply(world: &World, declared: &Declared) -> Followed {
    let declared = declared.clone();
    run!(world, |w| declared::follow(w, &declared)).unwrap()
}

/// Applies the file. Checks that the preview equals the result, and that a second run only reports
/// the declarations that are not applied.
async fn follow(world: &World, declared: &Declared) -> Followed {
    let wanted = declared.clone();
    let would = read!(world, |r| declared::would(r, &wanted)?);
    let done = apply(world, declared).await;
    assert_eq!(would.len(), done.lines.len() + done.refused.len());
    let again = apply(world, declared).await;
    assert!(again.lines.iter().all(|line| line.starts_with('=')), "{again:?}");
    done
}

async fn there(world: &World, name: &str) -> (ChatChannel, Vec<AgentId>) {
    let name = name.parse().unwrap();
    read!(world, |r| {
        let members = r.chat_members(&name)?.into_iter().map(|member| member.agent_id).collect();
        (r.chat_channel_get(&name)?.unwrap(), members)
    })
}

async fn schedule(world: &World, agent: &str, name: &'static str) -> Option<Schedule> {
    let agent_id = id(agent);
    read!(world, |r| r.schedule_find(&agent_id, ScheduleKind::Cron, name)?)
}

async fn set_by_hand(world: &World, job: DeclaredJob) {
    let new = schedule_helpers::new(world, ScheduleKind::Cron, &job.name, job.when);
    let new = NewSchedule { agent_id: job.agent_id, message: "by hand".into(), ..new };
    schedule_helpers::set(world, operator(), new).await.unwrap();
}

world_test!(channels_are_created_changed_and_left_as_the_file_says, async |world| {
    let done = follow(&world, &only_desk(&["ada", "bob"])).await;
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
    let open = DeclaredChannel { gated: false, topic: None, ..channel("desk", &["ada", "bob"]) };
    follow(&world, &channels(vec![open])).await;
    let (desk, members) = there(&world, "desk").await;
    assert_eq!((desk.gated, desk.topic, members), (false, None, vec![id("ada"), id("cyd")]));
    assert_eq!(world.count(EventKind::ChatChanged).await, 1);
    // No longer named: the members of the file leave, and the channel stays. It belongs to the file
    // again when it is named again.
    follow(&world, &Declared::default()).await;
    assert_eq!(there(&world, "desk").await.1, [id("cyd")]);
    follow(&world, &only_desk(&["ada", "bob"])).await;
    let (there_now, members) = there(&world, "desk").await;
    assert_eq!((there_now.gated, members), (true, vec![id("ada"), id("bob"), id("cyd")]));
    // A channel of another creator is left alone and reported.
    world.channel(party("cyd"), new_channel("hers", &[])).await.unwrap();
    let done = follow(&world, &channels(vec![channel("hers", &["ada"])])).await;
    assert!(done.lines.iter().any(|line| line.starts_with("= channel hers")), "{done:?}");
    assert!(world.count(EventKind::WorldWarning).await > 0);
    follow(&world, &Declared::default()).await;
    let (hers, members) = there(&world, "hers").await;
    assert_eq!((hers.gated, members), (false, vec![id("cyd")]));
});

world_test!(jobs_are_set_changed_and_cancelled_as_the_file_says, async |world| {
    follow(&world, &jobs(vec![job("ada", "pulse"), job("bob", "pulse")])).await;
    let first = schedule(&world, "ada", "pulse").await.unwrap();
    assert_eq!(first.next_at.map(|at| at.0 % 3_600_000), Some(0));
    // Follows a file whose only job is ada's, with this message.
    let followed = async |message: &str| {
        follow(&world, &jobs(vec![DeclaredJob { message: message.into(), ..job("ada", "pulse") }])).await;
        schedule(&world, "ada", "pulse").await
    };
    let second = followed("look again").await.unwrap();
    assert_eq!((second.schedule_id, second.message.as_str()), (first.schedule_id, "look again"));
    assert_eq!(schedule(&world, "bob", "pulse").await, None);
    // Switched off by hand, it stays off although the file changes another field.
    run!(world, |w| schedules::enable(w, &operator(), first.schedule_id, false)).unwrap();
    let third = followed("look once more").await.unwrap();
    assert_eq!((third.enabled, third.message.as_str()), (false, "look once more"));
    // Cancelled by hand, it stays cancelled until the file changes it.
    run!(world, |w| schedules::cancel(w, &operator(), first.schedule_id)).unwrap();
    assert_eq!(followed("look once more").await, None);
    assert!(followed("look").await.is_some());
    // An agent that is created again gets its jobs again.
    delete(&world, "ada").await;
    assert_eq!(schedule(&world, "ada", "pulse").await, None);
    world.add_agent(new_agent(&world.ctx, "ada")).await;
    assert!(followed("look").await.is_some());
});

world_test!(a_job_set_by_hand_is_left_alone_and_a_past_one_is_reported_once, async |world| {
    set_by_hand(&world, job("ada", "pulse")).await;
    let done = follow(&world, &jobs(vec![job("ada", "pulse")])).await;
    assert!(done.lines[0].starts_with("= cron ada/pulse"), "{done:?}");
    // A job of the file that someone replaced by hand belongs to them.
    follow(&world, &jobs(vec![job("bob", "pulse")])).await;
    set_by_hand(&world, job("bob", "pulse")).await;
    follow(&world, &Declared::default()).await;
    for agent in ["ada", "bob"] {
        assert_eq!(schedule(&world, agent, "pulse").await.unwrap().message, "by hand");
    }
    let wanted = jobs(vec![DeclaredJob { when: When::At { at: Timestamp(1_000) }, ..job("cyd", "once") }]);
    assert_eq!(follow(&world, &wanted).await.lines.len(), 1);
    assert_eq!(follow(&world, &wanted).await, Followed::default());
    assert_eq!(schedule(&world, "cyd", "once").await, None);
});

world_test!(a_refused_declaration_affects_no_other_and_is_tried_again, async |world| {
    world.limits(|limits| limits.crons_max = 1);
    let wanted = Declared { jobs: vec![job("ada", "one"), job("ada", "two")], ..only_desk(&["ada"]) };
    let done = apply(&world, &wanted).await;
    assert_eq!((done.lines.len(), done.refused.len()), (2, 1), "{done:?}");
    assert!(done.refused[0].contains(&Code::RateLimited.to_string()) || done.refused[0].contains("crons_max"));
    assert!(schedule(&world, "ada", "one").await.is_some() && schedule(&world, "ada", "two").await.is_none());
    world.pass(MINUTE);
    world.limits(|limits| limits.crons_max = 2);
    assert_eq!(follow(&world, &wanted).await.lines.len(), 1);
    assert!(schedule(&world, "ada", "two").await.is_some());
});

world_test!(a_refused_change_of_a_channel_changes_nothing, async |world| {
    follow(&world, &only_desk(&["ada", "bob"])).await;
    world.add_agent(new_agent(&world.ctx, "dan")).await;
    world.limits(|limits| limits.chat_members_max = 3);
    let before = there(&world, "desk").await;
    let kinds = [EventKind::ChatChanged, EventKind::ChatMemberAdded, EventKind::ChatMemberRemoved];
    let events = async || world.events().await.iter().filter(|event| kinds.contains(&event.kind)).count();
    // Too many members, and an unknown agent after a known one.
    for (members, why) in [(&["ada", "bob", "cyd", "dan"][..], "chat_members_max"), (&["ada", "cyd", "zed"], "zed")] {
        let wanted = DeclaredChannel { gated: false, topic: Some("other".into()), ..channel("desk", members) };
        let done = apply(&world, &channels(vec![wanted])).await;
        assert_eq!((done.lines.len(), done.refused.len()), (0, 1), "{done:?}");
        assert!(done.refused[0].contains(why), "{done:?}");
        assert_eq!((there(&world, "desk").await, events().await), (before.clone(), 0), "{members:?}");
    }
    // Leaving members free capacity for new members.
    world.limits(|limits| limits.chat_members_max = 2);
    follow(&world, &only_desk(&["cyd", "dan"])).await;
    assert_eq!(there(&world, "desk").await.1, [id("cyd"), id("dan")]);
});
