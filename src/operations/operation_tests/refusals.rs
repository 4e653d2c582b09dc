//! Refusals: their hints must help, their suggestions are searched outside the writer, and a temporary error of the
//! store is `unavailable`.

use std::path::PathBuf;
use std::sync::Arc;

use super::operation_world::*;
use super::schedule_helpers::*;

/// The hint, and the status for programs, that a party gets that wants an id.
async fn refusal_for(world: &World, by: Party, name: &'static str, of_file: bool) -> (String, String) {
    let there = read!(world, |r| r.agent_get(&id(name))?);
    let refusal = if of_file {
        agents::reserved(&world.ctx, &by, &id(name), there.as_ref())
    } else {
        create_by(world, by, new_agent(&world.ctx, name)).await.unwrap_err()
    };
    let details = refusal.details.unwrap();
    assert_eq!((refusal.code, details["agent_id"].as_str()), (Code::Conflict, Some(name)));
    (refusal.hint.unwrap(), details["status"].as_str().unwrap_or_default().to_owned())
}

world_test!(the_refusal_for_a_taken_id_has_a_fitting_hint, async |world| {
    let named = NewAgent { kind: AgentKind::Persistent, ..new_agent(&world.ctx, "zoe") };
    create_by(&world, Party::System, named).await.unwrap();
    // The file names zoe, so deleting that agent would not free its id.
    for status in [AgentStatus::Running, AgentStatus::Failed, AgentStatus::Stopped] {
        for name in ["zoe", "ada"] {
            match status {
                AgentStatus::Failed => {
                    run!(world, |w| agents::failed(w, &id(name), "too often")).unwrap();
                }
                AgentStatus::Stopped => world.stop(name).await,
                _ => {}
            }
            let (hint, said) = refusal_for(&world, operator(), name, name == "zoe").await;
            let starts = hint.contains(&format!("`ghostctl agent start {name}`"));
            assert_eq!((starts, said.as_str()), (status != AgentStatus::Running, status.as_str()), "{hint}");
            assert_eq!(hint.contains("`ghostctl agent delete"), name == "ada", "{hint}");
        }
    }
    // A start does not help if the agent cannot run with the world's files.
    world.ctx.set_fitness(Arc::new(|agent| {
        Err(Refusal::new(Code::Conflict, format!("no place for {}", agent.agent_id)).hint("repair it and reload"))
    }));
    let (hint, _) = refusal_for(&world, operator(), "ada", false).await;
    assert!(hint.contains("no place for ada") && hint.contains("repair it and reload"), "{hint}");
    world.ctx.set_fitness(Arc::new(|_| Ok(())));

    // A deleted agent of the file returns with a reload; any other deleted agent leaves its id
    // free.
    for name in ["zoe", "ada"] {
        delete(&world, name).await;
    }
    let (hint, said) = refusal_for(&world, operator(), "zoe", true).await;
    assert!(said == "deleted" && hint.contains("reload"), "{hint}");
    assert_eq!(refusal_for(&world, operator(), "new", true).await.1, "", "it was never there");
    world.add_agent(new_agent(&world.ctx, "ada")).await;

    // An agent cannot use these commands.
    for (name, of_file) in [("zoe", true), ("ada", false)] {
        let (hint, _) = refusal_for(&world, party("bob"), name, of_file).await;
        assert!(!hint.contains("ghostctl"), "{hint}");
    }
});

world_test!(the_refusal_of_an_ask_to_an_agent_that_cannot_start_has_a_fitting_hint, async |world| {
    world.stop("bob").await;
    let hint = async || world.outside_ask("bob").await.unwrap_err().hint.unwrap();
    assert!(hint().await.contains("`ghostctl agent start bob`"));
    world.ctx.set_fitness(Arc::new(|_| {
        Err(Refusal::new(Code::Conflict, "the world file does not name `bob`").hint("name it again and reload"))
    }));
    let told = hint().await;
    assert!(told.contains("does not name `bob`") && told.contains("name it again"), "the reason and its hint: {told}");
    assert!(!told.contains("ghostctl"), "{told}");
    assert_eq!(world.agent("bob").await.desired, Desired::Stopped);
});

/// The refusal for work for a missing agent, which is the same for all ways to send work.
async fn missed(world: &World, by: Party, name: &'static str) -> (String, String) {
    let mut refusal_for = Vec::new();
    for way in 0..6 {
        let by = by.clone();
        let done = run!(world, |w| {
            let (to, chain) = (id(name), Chain::root(w.ctx));
            match way {
                0 => agents::start(w, &by, &to).map(drop),
                1 => agents::stop(w, &by, &to, None).map(drop),
                2 => agents::delete(w, &by, &to).map(drop),
                3 => asks::open(w, by, None, &to, "how many?".into(), Duration::from_secs(60), chain).map(drop),
                4 => mail::deliver(w, NewMessage::new(&to, by, Kind::Message, "hi", chain)).map(drop),
                _ => tasks::create(w, &by, new_task(name, "Count them", chain)).map(drop),
            }
        });
        let refusal = refused(done, Code::NotFound, "");
        refusal_for.push((refusal.message, refusal.hint.unwrap()));
    }
    let first = refusal_for.swap_remove(0);
    assert!(refusal_for.iter().all(|other| *other == first), "{first:?}: {refusal_for:?}");
    first
}

world_test!(work_for_a_deleted_agent_is_refused_with_a_hint_how_to_bring_it_back, async |world| {
    let named = NewAgent { kind: AgentKind::Persistent, ..new_agent(&world.ctx, "zoe") };
    create_by(&world, Party::System, named).await.unwrap();
    for name in ["zoe", "ada"] {
        delete(&world, name).await;
    }
    let told = async |by, name| {
        let (message, hint) = missed(&world, by, name).await;
        assert!(message.contains(&format!("`{name}`")), "{message}");
        (message, hint.contains("`ghostctl reload`"))
    };
    let (gone, reload) = told(operator(), "zoe").await;
    assert!(reload);
    // A reload does not help with an agent that the file does not name, and agents cannot reload.
    assert!(!told(operator(), "ada").await.1);
    assert_eq!(told(party("bob"), "zoe").await, (gone.clone(), false));
    world.ctx.set_fitness(Arc::new(|_| Err(Refusal::new(Code::Conflict, "the world file does not name `zoe`"))));
    assert_eq!(told(operator(), "zoe").await, (gone.clone(), false));
    // The name of an agent that never existed is a typing mistake. The suggestion is searched after
    // the command (see `with_nearest`).
    assert_ne!(told(operator(), "bobb").await.0.replace("`bobb`", "`zoe`"), gone);
});

#[test]
fn temporary_errors_are_unavailable_and_all_others_are_internal() {
    let path = PathBuf::from("ghost.db");
    let passing = [
        StoreError::Busy("locked by another program".into()),
        StoreError::Closed,
        StoreError::Full,
        StoreError::Gone { path: path.clone() },
        StoreError::ReadOnly("check the rights".into()),
    ];
    for error in passing {
        let words = error.to_string();
        let refusal = Refusal::from(error);
        assert_eq!((refusal.code, refusal.message.as_str()), (Code::Unavailable, words.as_str()));
    }
    let lasting = [
        StoreError::Damaged { path: path.clone(), what: "torn".into() },
        StoreError::Newer { path: path.clone(), found: 9, known: 1 },
        StoreError::Open { path, what: "no such directory".into() },
        StoreError::Row { table: "agents", key: "ada".into(), what: "not JSON".into() },
        StoreError::Broken("its thread is gone".into()),
        StoreError::Database("syntax error".into()),
    ];
    for error in lasting {
        let refusal = Refusal::from(error);
        assert_eq!(refusal.code, Code::Internal);
        // The error about damage says what to do and which record is damaged.
        let record = refusal.details.as_ref().map(|details| details["table"].as_str());
        assert_eq!(record, refusal.message.starts_with("table").then_some(Some("agents")));
        if refusal.message.contains("damaged") || record.is_some() {
            let told = format!("{} {}", refusal.message, refusal.hint.unwrap_or_default());
            assert!(told.contains("backup"), "{told}");
        }
    }
}

world_test!(suggestions_are_searched_after_the_command, async |world| {
    world.limits(|limits| limits.timers_max = 3_000);
    // The first names of the list do not include the intended one.
    for n in 0..1_100 {
        timer(&world, &format!("a{n:04}"), MINUTE).await;
    }
    timer(&world, "tea", MINUTE).await;
    let timer = async |name: &'static str| {
        run!(world, |w| schedules::named(w, &id("ada"), ScheduleKind::Timer, name)).unwrap_err()
    };
    world.channel(party("ada"), new_channel("news", &["bob"])).await.unwrap();
    let news: ChannelName = "newz".parse().unwrap();
    let name = news.clone();
    let channel = run!(world, |w| chat::channel_named(w, &name)).unwrap_err();
    let to_bop = NewMessage::new(&id("bop"), operator(), Kind::Message, "hello", Chain::root(&world.ctx));
    let receiver = run!(world, |w| mail::deliver(w, to_bop)).unwrap_err();
    for (within, unknown, near) in [
        (receiver, json!({ "agent_for_operator": "bop" }), "`bob`"),
        (timer("tee").await, json!({ "schedule": { "agent_id": "ada", "kind": "timer", "name": "tee" } }), "`tea`"),
        (channel, json!({ "channel": "newz" }), "`news`"),
    ] {
        assert_eq!(within.details, Some(json!({ "unknown": unknown })), "nothing is looked for in it");
        let refusal = world.with_suggestion(within).await;
        assert_eq!((refusal.code, refusal.details), (Code::NotFound, None));
        assert!(refusal.hint.unwrap().contains(near));
    }
    // A refusal without an unknown name stays as it is.
    let other = Refusal::new(Code::NotFound, "no").details(json!({ "field": "to" }));
    assert_eq!(world.with_suggestion(other.clone()).await, other);
    // A name without a similar one keeps its own hint.
    let far = timer("zzzzzz").await;
    let refusal = world.with_suggestion(far.clone()).await;
    assert_eq!((refusal.hint, refusal.details), (far.hint, None));
    // A read looks for it at once.
    let queried = read!(world, |r| chat::channel_named(r, &news).unwrap_err());
    assert_eq!(queried.details, None);
    assert!(queried.hint.unwrap().contains("`news`"));
});
