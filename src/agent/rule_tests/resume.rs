//! Turns that a crash cut off go on from their journals.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ghost_domain::{AskStatus, CallStatus, DeadLetterStatus, Refusal, TurnStatus};
use ghost_rules::{agents, dead_letters, turns};
use serde_json::json;

use super::fakes::{block, call, calls, say};
use super::rig::{Rig, id, operator, read, results, write};

/// Ada's turn dies while `test.act` runs, with one call before it done.
async fn cut(rig: &Rig) {
    cut_in(rig, "test.act").await;
}

async fn cut_in(rig: &Rig, tool: &'static str) {
    rig.probe.hangs.store(true, Ordering::SeqCst);
    rig.model.does(move |_, _| {
        calls(vec![
            block("a", "syscall.message.send", json!({ "to": "bob", "content": "once" })),
            block("b", tool, json!({ "n": 1 })),
        ])
    });
    rig.send("ada", "go").await;
    rig.work_until("ada", rig.probe.entered.notified()).await;
    rig.probe.hangs.store(false, Ordering::SeqCst);
    rig.model.does(|_, _| say("well"));
}

#[tokio::test]
async fn an_outside_call_that_was_cut_off_is_not_run_again() {
    let rig = Rig::new().await;
    cut(&rig).await;
    write!(rig, |w, ctx| turns::review_at_boot(w, &ctx).await).unwrap();
    rig.work("ada").await.unwrap();
    assert_eq!(rig.probe.of(|probe| &probe.outside), 1);
    assert_eq!(rig.inbox("bob").await.len(), 1, "what was done is done once");
    let asked = rig.model.asked();
    assert_eq!(asked.len(), 1, "what had been answered is not asked again");
    let seen = results(&asked[0]);
    assert_eq!((seen.len(), seen[1]["code"].as_str()), (2, Some("outcome_unknown")));
    let rows = rig.ledger().await;
    assert_eq!(rows.iter().map(|row| row.status).collect::<Vec<_>>(), [CallStatus::Ok, CallStatus::Unknown]);
    assert_eq!(rig.turn("ada").await.status, TurnStatus::Finished);
}

#[tokio::test]
async fn the_result_of_the_only_call_that_was_left_stands_beside_those_of_the_journal() {
    let rig = Rig::new().await;
    cut_in(&rig, "test.look").await;
    write!(rig, |w, ctx| turns::review_at_boot(w, &ctx).await).unwrap();
    rig.work("ada").await.unwrap();
    let asked = rig.model.asked();
    let seen = results(&asked[0]);
    assert_eq!((asked.len(), seen.len(), &seen[1]["n"]), (1, 2, &json!(1)), "{seen:?}");
    let rows = rig.ledger().await;
    assert_eq!(rows.iter().map(|row| row.status).collect::<Vec<_>>(), [CallStatus::Ok, CallStatus::Ok]);
}

#[tokio::test]
async fn a_tool_that_is_gone_since_is_still_reported_as_uncertain() {
    let rig = Rig::new().await;
    cut(&rig).await;
    let mut plan = (*rig.engine.services.plan()).clone();
    for agent in &mut plan.agents {
        let narrow = ghost_config::access::narrow(&agent.access, &["workspace.read".to_owned()].into());
        agent.access = Arc::new(narrow);
    }
    rig.engine.services.set_plan(Arc::new(plan));
    rig.work("ada").await.unwrap();
    assert_eq!(results(&rig.model.asked()[0])[1]["code"], "outcome_unknown", "it may have happened, denied or not");
    assert_eq!(rig.probe.of(|probe| &probe.outside), 1);
}

#[tokio::test]
async fn a_resumed_turn_is_shown_what_the_first_one_was() {
    let rig = Rig::new().await;
    rig.model.does(|_, n| if n == 0 { call("test.look", json!({ "n": 1 })) } else { super::fakes::Reply::Hang });
    rig.send("ada", "go").await;
    rig.work_until("ada", rig.model.hung.notified()).await;
    let first = rig.model.asked().pop().unwrap();
    // The world may change meanwhile: the prompt of a turn that has begun does not.
    let mut plan = (*rig.engine.services.plan()).clone();
    plan.laws = "Be late.".into();
    rig.engine.services.set_plan(Arc::new(plan));
    rig.model.does(|_, _| say("well"));
    rig.work("ada").await.unwrap();
    let second = rig.model.asked().pop().unwrap();
    assert_eq!((first.system, first.messages), (second.system, second.messages));
    let sums = read!(rig, |r| r.usage_sum(&Default::default()).await?);
    assert_eq!(sums.iter().map(|sum| sum.calls).sum::<u64>(), 3, "the call that was cut off counts as spent");
}

/// Ada waits for bob when her turn dies.
async fn asking(rig: &Rig) -> ghost_domain::Ask {
    rig.model.does(|request, n| match (request.agent_id.as_str(), n) {
        ("ada", 0) => call("syscall.ask", json!({ "agent_id": "bob", "message": "how many?" })),
        ("bob", _) => say("seven"),
        _ => say("well"),
    });
    rig.send("ada", "go").await;
    let asked = async {
        while rig.asks().await.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    rig.work_until("ada", asked).await;
    rig.asks().await.remove(0)
}

#[tokio::test]
async fn an_ask_goes_on_waiting_for_the_same_answer() {
    let rig = Rig::new().await;
    let ask = asking(&rig).await;
    write!(rig, |w, ctx| turns::review_at_boot(w, &ctx).await).unwrap();
    let still = async {
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
    };
    rig.work_until("ada", still).await;
    assert_eq!(rig.asks().await, std::slice::from_ref(&ask), "no second question");
    rig.work("bob").await.unwrap();
    assert_eq!(rig.ask_row(ask.ask_id).await.status, AskStatus::Answered);
    rig.work("ada").await.unwrap();
    let asked = rig.model.asked();
    assert_eq!(asked.len(), 3);
    assert_eq!(results(&asked[2])[0]["reply"], "seven");
    assert_eq!(rig.ledger().await.len(), 1);
}

#[tokio::test]
async fn a_turn_that_is_retried_after_its_question_was_given_up_goes_on() {
    let rig = Rig::new().await;
    rig.limits(|limits| limits.crashes_max = 1);
    let ask = asking(&rig).await;
    write!(rig, |w, ctx| agents::crashed(w, &ctx, &id("ada"), "fell").await).unwrap();
    write!(rig, |w, ctx| agents::restarted(w, &ctx, &id("ada")).await).unwrap();
    assert_eq!(rig.ask_row(ask.ask_id).await.status, AskStatus::Failed);
    let held = read!(rig, |r| r.dead_letter_list(None, Some(DeadLetterStatus::Held)).await?);
    let dead_letter_id = held[0].dead_letter_id;
    write!(rig, |w, ctx| dead_letters::retry(w, &ctx, &operator(), dead_letter_id, false).await).unwrap();
    rig.work("ada").await.unwrap();
    let turn = rig.turn("ada").await;
    assert_eq!((turn.turn_id, turn.status), (held[0].turn_id, TurnStatus::Finished));
    assert_eq!(results(rig.model.asked().last().unwrap())[0]["code"], "unavailable");
}

#[tokio::test]
async fn the_turns_after_a_split_are_told_what_was_done() {
    let rig = Rig::new().await;
    rig.send("ada", "with another").await;
    cut(&rig).await;
    write!(rig, |w, ctx| agents::crashed(w, &ctx, &id("ada"), "fell").await).unwrap();
    write!(rig, |w, ctx| agents::restarted(w, &ctx, &id("ada")).await).unwrap();
    rig.work("ada").await.unwrap();
    let asked = rig.model.asked();
    assert_eq!(asked.len(), 2, "each message alone");
    for request in asked {
        let mail = request.messages.last().unwrap().visible_text();
        assert_eq!(mail.matches("<message ").count(), 1);
        assert!(mail.contains("do not do it again") && mail.contains("- syscall.message.send: "), "{mail}");
        assert!(mail.contains("- test.act: it was cut off and may or may not have happened"));
    }
}

#[tokio::test]
async fn a_daemon_that_has_lost_the_agent_lets_it_go() {
    let rig = Rig::new().await;
    cut(&rig).await;
    let mut ada = read!(rig, |r| r.agent_get(&id("ada")).await?.unwrap());
    ada.epoch = 2;
    write!(rig, |w, _cx| Ok::<_, Refusal>(w.agent_put(&ada).await?)).unwrap();
    let lost = rig.work("ada").await.unwrap_err();
    assert_eq!(lost.code, ghost_domain::Code::Conflict);
    assert_eq!(rig.turn("ada").await.status, TurnStatus::Open);
    assert!(rig.model.asked().is_empty());
}
