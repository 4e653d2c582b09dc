//! Turns that a crash interrupted resume from their journals.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ghost_config::plan::Plan;
use ghost_domain::journal::Step;
use ghost_domain::{AskStatus, CallStatus, DeadLetterStatus, EventKind, Refusal, TurnStatus};
use ghost_operations::turns::Settled;
use ghost_operations::{agents, dead_letters, turns};
use ghost_provider::testing::{block, call, calls, say};
use serde_json::json;

use super::agent_world::{AgentWorld, id, operator, read, results, write};
use crate::turn;

/// Ada's turn crashes while `test.act` runs; one call before it is done.
async fn crash_in_act(world: &AgentWorld) {
    crash_in(world, "test.act").await;
}

async fn crash_in(world: &AgentWorld, tool: &'static str) {
    world.tool_state.hangs.store(true, Ordering::SeqCst);
    world.model.reply_with(move |_, _| {
        calls(vec![
            block("a", "syscall.message.send", json!({ "to": "bob", "content": "once" })),
            block("b", tool, json!({ "n": 1 })),
        ])
    });
    world.send("ada", "go").await;
    world.work_until("ada", world.tool_state.entered.notified()).await;
    world.tool_state.hangs.store(false, Ordering::SeqCst);
    world.model.reply_with(|_, _| say("well"));
}

/// The plan, but for the tools of all agents.
fn without_tools(world: &AgentWorld) -> Arc<Plan> {
    let mut plan = (*world.engine.services.plan()).clone();
    for agent in &mut plan.agents {
        let narrowed = ghost_config::access::narrow(&agent.access, &["workspace.read".to_owned()].into());
        agent.access = Arc::new(narrowed);
    }
    Arc::new(plan)
}

#[tokio::test]
async fn an_interrupted_outside_call_is_not_run_again() {
    let world = AgentWorld::new().await;
    crash_in_act(&world).await;
    write!(world, |w| turns::review_at_boot(w)).unwrap();
    world.work("ada").await.unwrap();
    assert_eq!(world.tool_state.count(|tool_state| &tool_state.outside), 1);
    assert_eq!(world.inbox("bob").await.len(), 1, "the message is sent once");
    let requests = world.model.requests();
    assert_eq!(requests.len(), 1, "the answered request is not repeated");
    let seen = results(&requests[0]);
    assert_eq!((seen.len(), seen[1]["code"].as_str()), (2, Some("outcome_unknown")));
    let rows = world.ledger().await;
    assert_eq!(rows.iter().map(|row| row.status).collect::<Vec<_>>(), [CallStatus::Ok, CallStatus::Unknown]);
    assert_eq!(world.turn("ada").await.status, TurnStatus::Finished);
}

/// A turn whose call waits for a person goes on with what the person says, over any number of starts, and calls nothing.
#[tokio::test]
async fn a_cut_call_waits_until_a_person_says_what_became_of_it() {
    for (settled, status, code) in
        [(Settled::Happened, CallStatus::Ok, None), (Settled::DidNot, CallStatus::Failed, Some(json!("cancelled")))]
    {
        let world = AgentWorld::new().await;
        crash_in(&world, "test.pay").await;
        let call_id = world.ledger().await[1].call_id;
        let waits = async || {
            while !world.ctx().waiting(&id("ada")).is_some_and(|why| why.reason.contains(&call_id.to_string())) {
                tokio::task::yield_now().await;
            }
        };
        for boot in 0..4 {
            write!(world, |w| turns::review_at_boot(w)).unwrap();
            world.work_until("ada", waits()).await;
            assert_eq!(world.ledger().await[1].status, CallStatus::Unknown, "start {boot}");
        }
        if settled == Settled::DidNot {
            // The wait is the call's, not the tool's.
            world.engine.services.set_plan(without_tools(&world));
            write!(world, |w| turns::review_at_boot(w)).unwrap();
            world.work_until("ada", waits()).await;
        }
        assert_eq!(world.count(EventKind::ToolUnsettled).await, 1, "it is asked for once");
        assert_eq!(world.turn("ada").await.stalled_boots, 0, "who waits for a person does not stall");
        let person = async {
            waits().await;
            write!(world, |w| turns::settle(w, &operator(), call_id, (settled, Some("I looked")))).unwrap();
            std::future::pending::<()>().await;
        };
        let ada = id("ada");
        tokio::select! {
            biased;
            done = turn::work(&world.engine, &ada, &world.session) => done.unwrap(),
            () = person => {}
        }
        let requests = world.model.requests();
        let seen = results(&requests[0]);
        assert_eq!((requests.len(), seen[1].get("code")), (1, code.as_ref()), "{seen:?}");
        assert!(seen[1].to_string().contains("I looked"), "{seen:?}");
        assert_eq!(world.tool_state.count(|tool_state| &tool_state.outside), 1, "nothing is called again");
        assert_eq!(world.ledger().await[1].status, status);
        assert!(world.inbox("ada").await.is_empty(), "the result says it, no message");
        assert_eq!(world.turn("ada").await.status, TurnStatus::Finished);
    }
}

#[tokio::test]
async fn the_result_of_the_last_open_call_joins_those_of_the_journal() {
    let world = AgentWorld::new().await;
    crash_in(&world, "test.look").await;
    write!(world, |w| turns::review_at_boot(w)).unwrap();
    world.work("ada").await.unwrap();
    let requests = world.model.requests();
    let seen = results(&requests[0]);
    assert_eq!((requests.len(), seen.len(), &seen[1]["n"]), (1, 2, &json!(1)), "{seen:?}");
    let rows = world.ledger().await;
    assert_eq!(rows.iter().map(|row| row.status).collect::<Vec<_>>(), [CallStatus::Ok, CallStatus::Ok]);
}

#[tokio::test]
async fn an_interrupted_call_of_a_removed_tool_has_an_unknown_outcome() {
    let world = AgentWorld::new().await;
    crash_in_act(&world).await;
    world.engine.services.set_plan(without_tools(&world));
    world.work("ada").await.unwrap();
    assert_eq!(
        results(&world.model.requests()[0])[1]["code"],
        "outcome_unknown",
        "the outcome is unknown even if the tool is now denied"
    );
    assert_eq!(world.tool_state.count(|tool_state| &tool_state.outside), 1);
}

#[tokio::test]
async fn a_resumed_turn_shows_the_model_the_same_prompt() {
    let world = AgentWorld::new().await;
    world.model.reply_with(|_, n| {
        if n == 0 { call("test.look", json!({ "n": 1 })) } else { ghost_provider::testing::Reply::Hang }
    });
    world.send("ada", "go").await;
    world.work_until("ada", world.model.stalled.notified()).await;
    let first = world.model.requests().pop().unwrap();
    // A change of the world does not change the prompt of an open turn.
    let mut plan = (*world.engine.services.plan()).clone();
    plan.laws = "Be late.".into();
    world.engine.services.set_plan(Arc::new(plan));
    world.model.reply_with(|_, _| say("well"));
    world.work("ada").await.unwrap();
    let second = world.model.requests().pop().unwrap();
    assert_eq!((first.system, first.messages), (second.system, second.messages));
    let sums = read!(world, |r| r.usage_sum(&Default::default())?);
    assert_eq!(sums.iter().map(|sum| sum.calls).sum::<u64>(), 3, "the interrupted model call counts as spent");
}

/// Ada waits for bob when her turn crashes.
async fn asking(world: &AgentWorld) -> ghost_domain::Ask {
    world.model.reply_with(|request, n| match (request.agent_id.as_str(), n) {
        ("ada", 0) => call("syscall.ask", json!({ "agent_id": "bob", "message": "how many?" })),
        ("bob", _) => say("seven"),
        _ => say("well"),
    });
    world.send("ada", "go").await;
    let ask_opened = async {
        while world.asks().await.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    world.work_until("ada", ask_opened).await;
    world.asks().await.remove(0)
}

#[tokio::test]
async fn an_ask_goes_on_waiting_for_the_same_answer() {
    let world = AgentWorld::new().await;
    let ask = asking(&world).await;
    write!(world, |w| turns::review_at_boot(w)).unwrap();
    let a_while = async {
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
    };
    world.work_until("ada", a_while).await;
    assert_eq!(world.asks().await, std::slice::from_ref(&ask), "no second ask");
    world.work("bob").await.unwrap();
    assert_eq!(world.ask_row(ask.ask_id).await.status, AskStatus::Answered);
    world.work("ada").await.unwrap();
    let requests = world.model.requests();
    assert_eq!(requests.len(), 3);
    assert_eq!(results(&requests[2])[0]["reply"], "seven");
    assert_eq!(world.ledger().await.len(), 1);
}

#[tokio::test]
async fn a_turn_that_is_retried_after_its_ask_failed_goes_on() {
    let world = AgentWorld::new().await;
    world.limits(|limits| limits.crashes_max = 1);
    let ask = asking(&world).await;
    write!(world, |w| agents::crashed(w, &id("ada"), "fell")).unwrap();
    write!(world, |w| agents::restarted(w, &id("ada"))).unwrap();
    assert_eq!(world.ask_row(ask.ask_id).await.status, AskStatus::Failed);
    let dead_letters = read!(world, |r| r.dead_letter_list(None, Some(DeadLetterStatus::Held), None, 1_000)?);
    let dead_letter_id = dead_letters[0].dead_letter_id;
    write!(world, |w| dead_letters::retry(w, &operator(), dead_letter_id, false)).unwrap();
    world.work("ada").await.unwrap();
    let turn = world.turn("ada").await;
    assert_eq!((turn.turn_id, turn.status), (dead_letters[0].turn_id, TurnStatus::Finished));
    assert_eq!(results(world.model.requests().last().unwrap())[0]["code"], "unavailable");
}

#[tokio::test]
async fn the_turns_after_a_split_get_a_note_of_what_was_done() {
    let world = AgentWorld::new().await;
    world.send("ada", "with another").await;
    crash_in_act(&world).await;
    write!(world, |w| agents::crashed(w, &id("ada"), "fell")).unwrap();
    write!(world, |w| agents::restarted(w, &id("ada"))).unwrap();
    world.work("ada").await.unwrap();
    let requests = world.model.requests();
    assert_eq!(requests.len(), 2, "each message alone");
    for request in requests {
        let mail = request.messages.last().unwrap().visible_text();
        assert_eq!(mail.matches("<message ").count(), 1);
        assert!(mail.contains("do not do it again") && mail.contains("- syscall.message.send: "), "{mail}");
        assert!(mail.contains("- test.act: it was interrupted and may or may not have happened"));
    }
}

#[tokio::test]
async fn a_daemon_that_no_longer_owns_the_agent_leaves_its_turn_open() {
    let world = AgentWorld::new().await;
    crash_in_act(&world).await;
    let mut ada = read!(world, |r| r.agent_get(&id("ada"))?.unwrap());
    ada.epoch = 2;
    write!(world, |w| Ok::<_, Refusal>(w.agent_put(&ada)?)).unwrap();
    let lost = world.work("ada").await.unwrap_err();
    assert_eq!(lost.code, ghost_domain::Code::Conflict);
    assert_eq!(world.turn("ada").await.status, TurnStatus::Open);
    assert!(world.model.requests().is_empty());
}

/// A call whose effect takes several transactions goes on where it was cut.
#[tokio::test]
async fn a_call_in_slices_goes_on_where_it_was_cut() {
    let world = AgentWorld::new().await;
    write!(world, |w| {
        let bob = w.agent_get(&id("bob"))?.unwrap();
        (0..2_500).try_for_each(|n| {
            let agent_id = id(&format!("b{n:04}"));
            w.agent_put(&ghost_domain::Agent { agent_id, ..bob.clone() })
        })?;
        Ok::<_, ghost_store::StoreError>(())
    })
    .unwrap();
    let disk = world.disk.clone();
    world.model.reply_with(move |_, n| match n {
        0 => {
            // The answer, and the first slice.
            disk.spare_next_commits(2);
            disk.fail_next_commits(1, || ghost_store::StoreError::Full);
            call("syscall.broadcast", json!({ "message": "all hands" }))
        }
        _ => say("told"),
    });
    world.send("ada", "go").await;
    assert_eq!(world.work("ada").await.unwrap_err().code, ghost_domain::Code::Unavailable);
    assert_eq!(read!(world, |r| r.inbox_total()?), 999, "one slice is stored, of which one is the sender");
    write!(world, |w| turns::review_at_boot(w)).unwrap();
    world.work("ada").await.unwrap();
    // Each has it once: as many messages as agents, and an inbox that has one.
    assert_eq!(read!(world, |r| r.inbox_total()?), 2_502);
    for name in ["bob", "b0000", "b0997", "b0998", "b0999", "b1998", "b2499", "cyd"] {
        assert_eq!(world.inbox(name).await.len(), 1, "{name}");
    }
    let rows = world.ledger().await;
    assert_eq!(rows.iter().map(|row| row.status).collect::<Vec<_>>(), [CallStatus::Ok], "one call");
    let steps = world.steps("ada").await;
    let names: Vec<&str> = steps.iter().map(Step::name).filter(|name| name.starts_with("call")).collect();
    assert_eq!(names, ["call_sliced", "call_sliced", "call_finished"]);
    let requests = world.model.requests();
    let seen = results(requests.last().unwrap());
    assert_eq!(seen[0]["delivered"], json!(2_502), "{seen:?}");
    assert_eq!(world.turn("ada").await.status, TurnStatus::Finished);
}
