//! Tests of droids: their bounds, their ends, and what their parents hear.

use ghost_domain::droid::{OVERDUE, TASK_BYTES};

use super::operation_world::*;

fn new(world: &World, parent: &str, mode: DroidMode) -> NewDroid {
    let terms = DroidTerms {
        tools: ["workspace.read".to_owned()].into(),
        groups: ["ops".to_owned()].into(),
        model: None,
        parent_model: "p/m".into(),
        turn_seconds: 120,
        depth: 9,
    };
    NewDroid {
        parent_id: id(parent),
        task: "count the words".into(),
        output: "../a b.md".into(),
        mode,
        label: Some("counter".into()),
        terms,
        chain: Chain { hop: 1, ..Chain::root(&world.ctx) },
    }
}

async fn spawn(world: &World, new: NewDroid) -> Result<Droid> {
    run!(world, |w| droids::spawn(w, new))
}

async fn run_of(world: &World, parent: &str) -> Droid {
    spawn(world, new(world, parent, DroidMode::Run)).await.unwrap()
}

async fn now(world: &World, droid: &Droid) -> Droid {
    let droid_id = droid.droid_id.clone();
    read!(world, |r| r.droid_get(&droid_id)?.unwrap())
}

async fn take(world: &World, droid: &Droid) -> Turn {
    world.take(droid.droid_id.as_str()).await.turn
}

/// After some time, so many droids are overdue.
async fn over_after(world: &World, time: Duration, ended: usize) {
    world.pass(time);
    assert_eq!(droids::end_overdue(&world.store, &world.ctx).await.unwrap(), ended);
}

async fn steer(world: &World, droid: &Droid, by: Party, words: &'static str) -> Result<Droid> {
    let droid_id = droid.droid_id.to_string();
    run!(world, |w| droids::steer(w, &by, &droid_id, words, None))
}

/// Ends the next turn of a droid with this text.
async fn done(world: &World, droid: &Droid, words: &str) {
    world.done(droid.droid_id.as_str(), words).await;
}

/// What has come for a parent: subjects and bodies.
async fn told(world: &World, parent: &str) -> Vec<(String, String)> {
    let mail = world.inbox(parent).await.into_iter().filter(|mail| mail.kind == Kind::DroidDone);
    mail.map(|mail| (mail.subject.unwrap_or_default(), mail.body)).collect()
}

// covers: DROID-02, DROID-05, DROID-10, DROID-14, DROID-17
world_test!(a_run_ends_with_its_turn_and_its_parent_is_told_what_happened, async |world| {
    let cut = |why: &str| Refusal::new(Code::LoopGuard, why);
    let at_bound = Ending::AtBound { refusal: cut("time"), timed_out: true, text: "half".into() };
    for (ending, state, code, words) in [
        (Ending::Finished("42 words".into()), DroidState::Succeeded, None, "42 words"),
        (at_bound, DroidState::TimedOut, Some(Code::LoopGuard), "half"),
        (Ending::Failed(cut("no model")), DroidState::Failed, Some(Code::LoopGuard), "no model"),
        (Ending::Cancelled("by operator:x".into()), DroidState::Killed, Some(Code::Cancelled), "by operator:x"),
    ] {
        let droid = run_of(&world, "ada").await;
        assert!(droid.droid_id.is_droid() && droid.output_path == format!("droids/{}/a_b.md", droid.droid_id));
        assert_eq!((droid.state, droid.terms.depth), (DroidState::Pending, 1));
        let turn = take(&world, &droid).await;
        assert_eq!(now(&world, &droid).await.state, DroidState::Running);
        world.end(turn.turn_id, ending).await;
        let over = now(&world, &droid).await;
        assert_eq!((over.state, over.error.as_ref().map(|error| error.code)), (state, code));
        assert_eq!((over.ended_at, over.used.turns), (Some(world.ctx.now()), 1));
        assert_eq!(world.agent(droid.droid_id.as_str()).await.status, AgentStatus::Stopped, "nothing is left to stop");
        let (subject, body) = told(&world, "ada").await.pop().unwrap();
        assert!(subject.starts_with(droid.droid_id.as_str()) && subject.contains("counter"), "{subject}");
        assert!(body.starts_with(&format!("status: {state}\noutput: {}", droid.output_path)), "{body}");
        assert!(body.contains(words), "{body}");
    }
    assert_eq!(told(&world, "ada").await.len(), 4);
    for kind in [EventKind::DroidSpawned, EventKind::DroidEnded, EventKind::AgentStopped] {
        assert_eq!(world.count(kind).await, 4);
    }
    let at_work = run_of(&world, "ada").await;
    take(&world, &at_work).await;
    let droid_id = at_work.droid_id.clone();
    run!(world, |w| droids::kill(w, &party("ada"), droid_id.as_str(), None)).unwrap();
    let status = world.agent(at_work.droid_id.as_str()).await.status;
    assert_eq!(status, AgentStatus::Stopping, "its supervisor stops its actor");
    // An end is reported even if the words are too long for a message.
    let droid = run_of(&world, "ada").await;
    world.limits(|limits| limits.message_bytes = 400);
    done(&world, &droid, &"long ".repeat(500)).await;
    assert_eq!(now(&world, &droid).await.state, DroidState::Succeeded);
    let (_, body) = told(&world, "ada").await.pop().unwrap();
    assert!(body.len() <= 400 && body.starts_with("status: succeeded") && body.contains("long long"), "{body}");
});

// covers: DROID-05, DROID-16, LIM-06
world_test!(droids_are_bounded_in_number_depth_size_and_time, async |world| {
    world.limits(|limits| (limits.droids_max, limits.droids_per_agent) = (3, 2));
    let refused = async |parent: &str| code(spawn(&world, new(&world, parent, DroidMode::Run)).await);
    let first = run_of(&world, "ada").await;
    run_of(&world, "ada").await;
    assert_eq!(refused("ada").await, Code::RateLimited, "two of ada's");
    run_of(&world, "bob").await;
    assert_eq!(refused("cyd").await, Code::RateLimited, "three in all");
    done(&world, &first, "").await;
    world.limits(|limits| limits.droids_max = 50);
    // A droid starts none, unless the world lets it.
    let below = run_of(&world, "cyd").await;
    assert_eq!(refused(below.droid_id.as_str()).await, Code::RateLimited);
    world.limits(|limits| limits.droid_depth_max = 2);
    let second = run_of(&world, below.droid_id.as_str()).await;
    assert_eq!((second.terms.depth, refused(second.droid_id.as_str()).await), (2, Code::RateLimited));
    for (task, seconds) in [(" ".to_owned(), 1), ("x".repeat(TASK_BYTES + 1), 1), ("x".into(), 0), ("x".into(), 301)] {
        let mut bad = new(&world, "cyd", DroidMode::Run);
        (bad.task, bad.terms.turn_seconds) = (task, seconds);
        assert_eq!(code(spawn(&world, bad).await), Code::InvalidArguments);
    }
    assert_eq!(refused("nobody").await, Code::NotFound);
});

// covers: DROID-13, DROID-15
world_test!(a_session_reports_waits_for_more_and_ends_when_it_is_idle, async |world| {
    let droid = spawn(&world, new(&world, "ada", DroidMode::Session)).await.unwrap();
    let steer = async |by: Party, words: &'static str| steer(&world, &droid, by, words).await;
    done(&world, &droid, "first").await;
    assert_eq!((now(&world, &droid).await.state, told(&world, "ada").await.len()), (DroidState::Running, 1));
    assert_eq!(code(steer(party("bob"), "more").await), Code::AccessDenied);
    assert_eq!(code(steer(party("ada"), " ").await), Code::InvalidArguments);
    world.pass(Duration::from_secs(800));
    steer(party("ada"), "more").await.unwrap();
    over_after(&world, Duration::from_secs(800), 0).await;
    done(&world, &droid, "second").await;
    over_after(&world, Duration::from_secs(899), 0).await;
    over_after(&world, Duration::from_secs(1), 1).await;
    let over = now(&world, &droid).await;
    assert_eq!((over.state, over.result.as_deref(), over.used.turns), (DroidState::Succeeded, Some("second"), 2));
    assert_eq!((code(steer(operator(), "again").await), told(&world, "ada").await.len()), (Code::Conflict, 3));
});

// covers: DROID-15
world_test!(guidance_joins_a_running_turn_and_keeps_a_run_alive_that_has_not_read_it, async |world| {
    let droid = run_of(&world, "ada").await;
    let turn_id = take(&world, &droid).await.turn_id;
    let guided = async || {
        let shown = |mail: &[Envelope]| mail.iter().map(|mail| mail.body.clone()).collect();
        run!(world, |w| droids::take_guidance(w, turn_id, &shown)).unwrap()
    };
    assert_eq!(guided().await, None);
    steer(&world, &droid, party("ada"), "count the lines, too").await.unwrap();
    assert_eq!(guided().await.as_deref(), Some("count the lines, too"));
    assert_eq!(guided().await, None, "it is read once");
    steer(&world, &droid, party("ada"), "and the letters").await.unwrap();
    done(&world, &droid, "done").await;
    assert_eq!(now(&world, &droid).await.state, DroidState::Running, "one was not read");
    done(&world, &droid, "all done").await;
    let over = now(&world, &droid).await;
    assert_eq!((over.state, over.result.as_deref()), (DroidState::Succeeded, Some("all done")));
});

// covers: DROID-10, DROID-16
world_test!(a_run_that_is_overdue_is_ended_and_the_agent_of_an_old_one_is_deleted, async |world| {
    let droid = run_of(&world, "ada").await;
    let turn = take(&world, &droid).await;
    over_after(&world, MINUTE * 2 + OVERDUE - Duration::from_secs(1), 0).await;
    over_after(&world, Duration::from_secs(1), 1).await;
    let over = now(&world, &droid).await;
    assert_eq!((over.state, over.error.unwrap().code), (DroidState::TimedOut, Code::Timeout));
    assert_eq!(world.turn(turn.turn_id).await.status, TurnStatus::Cancelled);
    world.stopped(&droid.droid_id).await;
    let archive = async || droids::archive(&world.store, &world.ctx, vec![droid.droid_id.clone(), id("bob")]).await;
    assert_eq!(archive().await, 0);
    world.pass(HOUR);
    assert_eq!(archive().await, 1, "and never another agent");
    assert_eq!(archive().await, 0);
    assert_eq!(now(&world, &droid).await.state, DroidState::TimedOut, "the record stays");
});

// covers: DROID-15
world_test!(no_droid_is_left_without_a_parent_that_works, async |world| {
    world.limits(|limits| limits.droid_depth_max = 2);
    let (one, two, three) = (run_of(&world, "ada").await, run_of(&world, "bob").await, run_of(&world, "cyd").await);
    let below = run_of(&world, two.droid_id.as_str()).await;
    take(&world, &one).await;
    delete(&world, "ada").await;
    assert_eq!(now(&world, &one).await.state, DroidState::Killed);
    // A crash ends a droid: nothing restarts it.
    let droid_id = three.droid_id.clone();
    take(&world, &three).await;
    run!(world, |w| {
        agents::crashed(w, &droid_id, "boom")?;
        agents::failed(w, &droid_id, "it is temporary: boom")
    })
    .unwrap();
    assert_eq!(now(&world, &three).await.state, DroidState::Failed);
    assert!(told(&world, "cyd").await[0].1.contains("boom"));
    run!(world, |w| agents::stop(w, &operator(), &id("bob"), None)).unwrap();
    assert_eq!(code(spawn(&world, new(&world, "bob", DroidMode::Run)).await), Code::Conflict, "it was told to stop");
    assert_eq!(now(&world, &two).await.state, DroidState::Killed);
    // The supervisor has stopped the droid, and so its own ones end.
    world.stopped(&two.droid_id).await;
    assert_eq!(now(&world, &below).await.state, DroidState::Killed);
    assert_eq!(read!(world, |r| r.droids_live()?), []);
});

// covers: DROID-10, DROID-15
world_test!(a_droid_that_has_ended_stays_ended, async |world| {
    world.limits(|limits| limits.droid_depth_max = 3);
    let one = run_of(&world, "ada").await;
    let two = run_of(&world, one.droid_id.as_str()).await;
    let three = run_of(&world, two.droid_id.as_str()).await;
    let ended = run!(world, |w| droids::kill(w, &operator(), one.droid_id.as_str(), None)).unwrap();
    assert_eq!(ended.state, DroidState::Killed);
    let droid_id = ended.droid_id.clone();
    assert_eq!(read!(world, |r| r.inbox_depth(&droid_id)?), 0, "its task starts no turn");
    let start = async || {
        let droid_id = ended.droid_id.clone();
        code(run!(world, |w| agents::start(w, &operator(), &droid_id)))
    };
    assert_eq!(start().await, Code::Conflict);
    // Nor does an operator act as it.
    let droid_id = ended.droid_id.clone();
    assert_eq!(code(run!(world, |w| operator_turn(w, &droid_id))), Code::Conflict);
    // The daemon dies before the supervisor has stopped it. The next one ends all that are below it.
    let claimed = run!(world, |w| agents::claim_all(w)).unwrap();
    for droid in [&ended, &two, &three] {
        assert_eq!(now(&world, droid).await.state, DroidState::Killed);
        assert_eq!(world.agent(droid.droid_id.as_str()).await.status, AgentStatus::Stopped);
        let row = claimed.iter().find(|agent| agent.agent_id == droid.droid_id).unwrap();
        assert_eq!((row.status, row.desired), (AgentStatus::Stopped, Desired::Stopped));
    }
    assert_eq!(start().await, Code::Conflict);
});

// covers: DROID-13, DROID-15
world_test!(guidance_raises_the_hop_and_the_work_is_for_the_one_who_asks, async |world| {
    let droid = spawn(&world, new(&world, "ada", DroidMode::Session)).await.unwrap();
    let steer = async |chain: Chain| {
        let droid_id = droid.droid_id.to_string();
        run!(world, |w| droids::steer(w, &party("ada"), &droid_id, "more", Some(chain)))
    };
    let other = Chain { hop: 5, ..Chain::root(&world.ctx) };
    let elsewhere = Chain { conversation_id: Some(ConversationId(world.ctx.id())), ..other };
    assert_eq!(code(steer(elsewhere).await), Code::Conflict);
    steer(other).await.unwrap();
    steer(Chain { hop: 2, ..other }).await.unwrap();
    let steered = now(&world, &droid).await;
    assert_eq!((steered.root_id, steered.hop), (other.root_id, 5));
    assert_eq!(code(steer(Chain { hop: 1_000, ..other }).await), Code::HopLimit);
    // A session whose turn never ends has an end, too.
    take(&world, &droid).await;
    over_after(&world, Duration::from_secs(900 + 120) + OVERDUE - Duration::from_secs(1), 0).await;
    over_after(&world, Duration::from_secs(1), 1).await;
    assert_eq!(now(&world, &droid).await.state, DroidState::TimedOut);
});

world_test!(a_droid_gets_no_mail_but_its_task_and_guidance, async |world| {
    let droid = run_of(&world, "ada").await;
    let chain = Chain { hop: 1, ..Chain::root(&world.ctx) };
    for kind in [Kind::Message, Kind::Ask, Kind::Task, Kind::Chat, Kind::Conversation, Kind::Timer] {
        let mail = NewMessage::new(&droid.droid_id, party("bob"), kind, "hi", chain);
        assert_eq!(code(world.deliver(mail).await), Code::Unsupported, "{kind}");
    }
    let all = NewMessage::new(&id("ada"), party("bob"), Kind::Broadcast, "hi", chain);
    let done = world.broadcast(&all, &[]).await.unwrap();
    assert_eq!((done.delivered, done.skipped.len()), (2, 0), "ada and cyd");
    let taken = new_agent(&world.ctx, "droid-12345678");
    let made = run!(world, |w| agents::create(w, &operator(), taken));
    assert_eq!(code(made), Code::InvalidArguments, "the form of the id is for droids");
});
