//! Tests of droids: their bounds, their ends, and what their parents hear.

use ghost_domain::droid::{OVERDUE, TASK_BYTES};

use super::operation_world::*;

fn new(world: &OperationWorld, parent: &str, mode: DroidMode) -> NewDroid {
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

async fn spawn(world: &OperationWorld, new: NewDroid) -> Result<Droid> {
    run!(world, |w| droids::spawn(w, new))
}

async fn run_of(world: &OperationWorld, parent: &str) -> Droid {
    spawn(world, new(world, parent, DroidMode::Run)).await.unwrap()
}

async fn now(world: &OperationWorld, droid: &Droid) -> Droid {
    let droid_id = droid.droid_id.clone();
    read!(world, |r| r.droid_get(&droid_id)?.unwrap())
}

async fn take(world: &OperationWorld, droid: &Droid) -> Turn {
    world.take(droid.droid_id.as_str()).await.turn
}

async fn over(world: &OperationWorld, ended: usize) {
    assert_eq!(droids::end_overdue(&world.store, &world.ctx).await.unwrap(), ended);
}

async fn over_after(world: &OperationWorld, time: Duration, ended: usize) {
    world.pass(time);
    over(world, ended).await;
}

/// What has come for a parent: subjects and bodies.
async fn told(world: &OperationWorld, parent: &str) -> Vec<(String, String)> {
    let mail = world.inbox(parent).await.into_iter().filter(|mail| mail.kind == Kind::DroidDone);
    mail.map(|mail| (mail.subject.unwrap_or_default(), mail.body)).collect()
}

// covers: DROID-02, DROID-05, DROID-10, DROID-14
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
    let droid_id = at_work.droid_id.to_string();
    run!(&world, |w| droids::kill(w, &Party::Agent(id("ada")), &droid_id, None)).unwrap();
    assert_eq!(
        world.agent(at_work.droid_id.as_str()).await.status,
        AgentStatus::Stopping,
        "its supervisor stops its actor"
    );
});

// covers: DROID-05, DROID-16, LIM-06
world_test!(droids_are_bounded_in_number_depth_size_and_time, async |world| {
    world.limits(|limits| (limits.droids_max, limits.droids_per_agent) = (3, 2));
    let first = run_of(&world, "ada").await;
    run_of(&world, "ada").await;
    assert_eq!(code(spawn(&world, new(&world, "ada", DroidMode::Run)).await), Code::RateLimited, "two of ada's");
    run_of(&world, "bob").await;
    assert_eq!(code(spawn(&world, new(&world, "cyd", DroidMode::Run)).await), Code::RateLimited, "three in all");
    world.end(take(&world, &first).await.turn_id, Ending::Finished(String::new())).await;
    world.limits(|limits| limits.droids_max = 50);
    // A droid starts none, unless the world lets it.
    let below = run_of(&world, "cyd").await;
    assert_eq!(code(spawn(&world, new(&world, below.droid_id.as_str(), DroidMode::Run)).await), Code::RateLimited);
    world.limits(|limits| limits.droid_depth_max = 2);
    let second = run_of(&world, below.droid_id.as_str()).await;
    assert_eq!(second.terms.depth, 2);
    assert_eq!(code(spawn(&world, new(&world, second.droid_id.as_str(), DroidMode::Run)).await), Code::RateLimited);
    for (task, seconds) in [(" ".to_owned(), 1), ("x".repeat(TASK_BYTES + 1), 1), ("x".into(), 0), ("x".into(), 301)] {
        let mut bad = new(&world, "cyd", DroidMode::Run);
        (bad.task, bad.terms.turn_seconds) = (task, seconds);
        assert_eq!(code(spawn(&world, bad).await), Code::InvalidArguments);
    }
    assert_eq!(code(spawn(&world, new(&world, "nobody", DroidMode::Run)).await), Code::NotFound);
});

// covers: DROID-13, DROID-15
world_test!(a_session_reports_waits_for_more_and_ends_when_it_is_idle, async |world| {
    let droid = spawn(&world, new(&world, "ada", DroidMode::Session)).await.unwrap();
    let steer = async |by: Party, words: &'static str| {
        let droid_id = droid.droid_id.to_string();
        run!(&world, |w| droids::steer(w, &by, &droid_id, words, None))
    };
    let turn = take(&world, &droid).await;
    world.end(turn.turn_id, Ending::Finished("first".into())).await;
    assert_eq!((now(&world, &droid).await.state, told(&world, "ada").await.len()), (DroidState::Running, 1));
    assert_eq!(code(steer(party("bob"), "more").await), Code::AccessDenied);
    assert_eq!(code(steer(party("ada"), " ").await), Code::InvalidArguments);
    world.pass(Duration::from_secs(800));
    steer(party("ada"), "more").await.unwrap();
    over_after(&world, Duration::from_secs(800), 0).await;
    world.end(take(&world, &droid).await.turn_id, Ending::Finished("second".into())).await;
    over_after(&world, Duration::from_secs(899), 0).await;
    over_after(&world, Duration::from_secs(1), 1).await;
    let over = now(&world, &droid).await;
    assert_eq!((over.state, over.result.as_deref(), over.used.turns), (DroidState::Succeeded, Some("second"), 2));
    assert_eq!(code(steer(operator(), "again").await), Code::Conflict);
    assert_eq!(told(&world, "ada").await.len(), 3);
});

// covers: DROID-15
world_test!(guidance_joins_a_running_turn_and_keeps_a_run_alive_that_has_not_read_it, async |world| {
    let droid = run_of(&world, "ada").await;
    let steer = async |words: &'static str| {
        let droid_id = droid.droid_id.to_string();
        run!(&world, |w| droids::steer(w, &party("ada"), &droid_id, words, None)).unwrap();
    };
    let turn = take(&world, &droid).await;
    let turn_id = turn.turn_id;
    let guided = async || {
        let shown = |mail: &[Envelope]| mail.iter().map(|mail| mail.body.clone()).collect();
        run!(&world, |w| droids::take_guidance(w, turn_id, &shown)).unwrap()
    };
    assert_eq!(guided().await, None);
    steer("count the lines, too").await;
    assert_eq!(guided().await.as_deref(), Some("count the lines, too"));
    assert_eq!(guided().await, None, "it is read once");
    steer("and the letters").await;
    world.end(turn.turn_id, Ending::Finished("done".into())).await;
    assert_eq!(now(&world, &droid).await.state, DroidState::Running, "one was not read");
    world.end(take(&world, &droid).await.turn_id, Ending::Finished("all done".into())).await;
    let over = now(&world, &droid).await;
    assert_eq!((over.state, over.result.as_deref()), (DroidState::Succeeded, Some("all done")));
});

// covers: DROID-10, DROID-16
world_test!(a_run_that_is_overdue_is_ended_and_the_agent_of_an_old_one_is_deleted, async |world| {
    let droid = run_of(&world, "ada").await;
    let turn = take(&world, &droid).await;
    over_after(&world, Duration::from_secs(120) + OVERDUE - Duration::from_secs(1), 0).await;
    over_after(&world, Duration::from_secs(1), 1).await;
    let over = now(&world, &droid).await;
    assert_eq!((over.state, over.error.unwrap().code), (DroidState::TimedOut, Code::Timeout));
    assert_eq!(world.turn(turn.turn_id).await.status, TurnStatus::Cancelled);
    world.stopped(&droid.droid_id).await;
    let old = || vec![droid.droid_id.clone(), id("bob")];
    assert_eq!(droids::archive(&world.store, &world.ctx, old()).await, 0);
    world.pass(Duration::from_secs(3_600));
    assert_eq!(droids::archive(&world.store, &world.ctx, old()).await, 1, "and never another agent");
    assert_eq!(droids::archive(&world.store, &world.ctx, old()).await, 0);
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
    run!(&world, |w| {
        agents::crashed(w, &droid_id, "boom")?;
        agents::failed(w, &droid_id, "it is temporary: boom")
    })
    .unwrap();
    assert_eq!(now(&world, &three).await.state, DroidState::Failed);
    assert!(told(&world, "cyd").await[0].1.contains("boom"));
    run!(&world, |w| agents::stop(w, &operator(), &id("bob"), None)).unwrap();
    assert_eq!(code(spawn(&world, new(&world, "bob", DroidMode::Run)).await), Code::Conflict, "it was told to stop");
    assert_eq!(now(&world, &two).await.state, DroidState::Killed);
    // The supervisor has stopped the droid, and so its own ones end.
    world.stopped(&two.droid_id).await;
    assert_eq!(now(&world, &below).await.state, DroidState::Killed);
    assert_eq!(read!(&world, |r| r.droids_live()?), []);
});

// covers: DROID-10, DROID-15
world_test!(a_droid_that_has_ended_stays_ended, async |world| {
    world.limits(|limits| limits.droid_depth_max = 3);
    let one = run_of(&world, "ada").await;
    let two = run_of(&world, one.droid_id.as_str()).await;
    let three = run_of(&world, two.droid_id.as_str()).await;
    let ended = run!(&world, |w| droids::kill(w, &operator(), one.droid_id.as_str(), None)).unwrap();
    assert_eq!(ended.state, DroidState::Killed);
    let droid_id = ended.droid_id.clone();
    assert_eq!(read!(&world, |r| r.inbox_depth(&droid_id)?), 0, "its task starts no turn");
    let start = async || {
        let droid_id = ended.droid_id.clone();
        code(run!(&world, |w| agents::start(w, &operator(), &droid_id)))
    };
    assert_eq!(start().await, Code::Conflict);
    // Nor does an operator act as it.
    let acts = async |droid_id: &AgentId| {
        let droid_id = droid_id.clone();
        run!(&world, |w| turns::open_for_operator(w, &droid_id))
    };
    assert_eq!(code(acts(&ended.droid_id).await), Code::Conflict);
    // The daemon dies before the supervisor has stopped it. The next one ends all that are below it.
    let claimed = run!(&world, |w| agents::claim_all(w)).unwrap();
    for droid in [&ended, &two, &three] {
        assert_eq!(now(&world, droid).await.state, DroidState::Killed);
        assert_eq!(world.agent(droid.droid_id.as_str()).await.status, AgentStatus::Stopped);
        let row = claimed.iter().find(|agent| agent.agent_id == droid.droid_id).unwrap();
        assert_eq!((row.status, row.desired), (AgentStatus::Stopped, Desired::Stopped));
    }
    assert_eq!(start().await, Code::Conflict);
});

// covers: DROID-14, DROID-17
world_test!(an_end_is_reported_even_if_the_words_are_too_long_for_a_message, async |world| {
    let droid = run_of(&world, "ada").await;
    let turn = take(&world, &droid).await;
    world.limits(|limits| limits.message_bytes = 400);
    world.end(turn.turn_id, Ending::Finished("long ".repeat(500))).await;
    assert_eq!(now(&world, &droid).await.state, DroidState::Succeeded);
    let (_, body) = told(&world, "ada").await.remove(0);
    assert!(body.len() <= 400 && body.starts_with("status: succeeded") && body.contains("long long"), "{body}");
});

// covers: DROID-13, DROID-15
world_test!(guidance_raises_the_hop_and_the_work_is_for_the_one_who_asks, async |world| {
    let droid = spawn(&world, new(&world, "ada", DroidMode::Session)).await.unwrap();
    let steer = async |chain: Chain| {
        let droid_id = droid.droid_id.to_string();
        run!(&world, |w| droids::steer(w, &party("ada"), &droid_id, "more", Some(chain)))
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
    let made = run!(&world, |w| agents::create(w, &operator(), taken));
    assert_eq!(code(made), Code::InvalidArguments, "the form of the id is for droids");
});
