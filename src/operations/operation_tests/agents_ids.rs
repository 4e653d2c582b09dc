//! The refusals for an id that is taken and for an agent that cannot answer: their hints must help.

use std::sync::Arc;

use super::operation_world::*;

/// The hint, and the status for programs, that a party gets that wants an id.
async fn refusal_for(world: &OperationWorld, by: Party, name: &'static str, of_file: bool) -> (String, String) {
    let there = read!(world, |r| r.agent_get(&id(name))?);
    let refusal = if of_file {
        agents::reserved(&world.ctx, &by, &id(name), there.as_ref())
    } else {
        run!(world, |w| {
            let ctx = w.ctx;
            agents::create(w, &by, new_agent(ctx, name))
        })
        .unwrap_err()
    };
    assert_eq!(refusal.code, Code::Conflict, "{refusal}");
    let details = refusal.details.clone().unwrap();
    assert_eq!(details["agent_id"], name);
    (refusal.hint.unwrap(), details["status"].as_str().unwrap_or_default().to_owned())
}

world_test!(the_refusal_for_a_taken_id_has_a_fitting_hint, async |world| {
    let named = NewAgent { kind: AgentKind::Persistent, ..new_agent(&world.ctx, "zoe") };
    run!(world, |w| agents::create(w, &Party::System, named)).unwrap();
    // The file names zoe, so deleting that agent would not free its id.
    let commands = |hint: &str, name: &str, starts: bool| {
        assert_eq!(hint.contains(&format!("`ghostctl agent start {name}`")), starts, "{hint}");
        assert_eq!(hint.contains("`ghostctl agent delete"), name == "ada", "{hint}");
    };
    for name in ["zoe", "ada"] {
        let (hint, said) = refusal_for(&world, operator(), name, name == "zoe").await;
        commands(&hint, name, false);
        assert_eq!(said, "running");
    }
    for status in [AgentStatus::Failed, AgentStatus::Stopped] {
        for name in ["zoe", "ada"] {
            if status == AgentStatus::Failed {
                run!(world, |w| agents::failed(w, &id(name), "too often")).unwrap();
            } else {
                world.stop(name).await;
            }
            let (hint, said) = refusal_for(&world, operator(), name, name == "zoe").await;
            commands(&hint, name, true);
            assert_eq!(said, status.as_str());
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
async fn missed(world: &OperationWorld, by: Party, name: &'static str) -> (String, String) {
    let mut refusal_for = Vec::new();
    for way in 0..6 {
        let by = by.clone();
        let refused = run!(world, |w| {
            let (to, chain) = (id(name), Chain::root(w.ctx));
            match way {
                0 => agents::start(w, &by, &to).map(drop),
                1 => agents::stop(w, &by, &to, None).map(drop),
                2 => agents::delete(w, &by, &to).map(drop),
                3 => asks::open(w, by, None, &to, "how many?".into(), Duration::from_secs(60), chain).map(drop),
                4 => mail::deliver(w, NewMessage::new(&to, by, Kind::Message, "hi", chain)).map(drop),
                _ => {
                    let new = new_task(name, "Count them", chain);
                    tasks::create(w, &by, new).map(drop)
                }
            }
        });
        let refusal = refused.unwrap_err();
        assert_eq!(refusal.code, Code::NotFound, "{refusal}");
        refusal_for.push((refusal.message, refusal.hint.unwrap()));
    }
    let first = refusal_for.swap_remove(0);
    assert!(refusal_for.iter().all(|other| *other == first), "{first:?}: {refusal_for:?}");
    first
}

world_test!(work_for_a_deleted_agent_is_refused_with_a_hint_how_to_bring_it_back, async |world| {
    let named = NewAgent { kind: AgentKind::Persistent, ..new_agent(&world.ctx, "zoe") };
    run!(world, |w| agents::create(w, &Party::System, named)).unwrap();
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
