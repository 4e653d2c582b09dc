//! Reloads in the middle of a turn: what they take away cannot be called any more, also by calls of an answer that was
//! under way, and what they leave goes on.

use std::sync::Arc;
use std::time::Duration;

use ghost_config::plan::Plan;
use ghost_domain::write_acl::WriteAcl;
use ghost_domain::{ApprovalStatus, Code, TurnStatus};
use ghost_operations::approvals::{self, Decision};
use ghost_provider::testing::{Reply, block, call, calls, say};
use ghost_store::tables::ApprovalFilter;
use serde_json::json;

use super::agent_world::{AgentWorld, id, operator, read, results, write};
use crate::{Engine, turn};

/// Makes a changed plan current, as a reload does.
fn reload(engine: &Engine, change: impl FnOnce(&mut Plan)) {
    let mut plan = (*engine.services.plan()).clone();
    change(&mut plan);
    engine.services.set_plan(Arc::new(plan));
}

/// Leaves the agents these tools alone.
fn narrow(plan: &mut Plan, tools: &[&str]) {
    let tools = tools.iter().map(|tool| (*tool).to_owned()).collect();
    for agent in &mut plan.agents {
        agent.access = Arc::new(ghost_config::access::narrow(&agent.access, &tools));
    }
}

fn codes(rows: &[ghost_domain::LedgerRow]) -> Vec<Option<Code>> {
    rows.iter().map(|row| row.error_code).collect()
}

/// Ada's model makes these answers, one after another; before the answer with this number, the world is reloaded.
fn answers(world: &AgentWorld, replies: Vec<Reply>, at: usize, change: impl Fn(&mut Plan) + Send + 'static) {
    let engine = Arc::clone(&world.engine);
    let replies = std::sync::Mutex::new(replies.into_iter());
    world.model.reply_with(move |_, n| {
        if n == at {
            reload(&engine, &change);
        }
        replies.lock().unwrap().next().unwrap_or_else(|| say("well"))
    });
}

// covers: ACC-05, ACC-11
#[tokio::test]
async fn a_tool_that_a_reload_takes_away_cannot_be_called_in_the_running_turn() {
    for kind in ["test.act", "test.file", "test.change"] {
        let world = AgentWorld::new().await;
        // The reload comes while the model writes its first answer. Each call is made alone and beside others.
        let several = || calls(vec![block("a", "test.look", json!({ "n": 1 })), block("b", kind, json!({ "n": 2 }))]);
        answers(&world, vec![call(kind, json!({ "n": 1 })), several(), call(kind, json!({ "n": 3 }))], 0, |plan| {
            narrow(plan, &["test.look"]);
        });
        world.send("ada", "go").await;
        world.work("ada").await.unwrap();
        let denied = Some(Code::AccessDenied);
        // A refused call is recorded before those beside it run.
        assert_eq!(codes(&world.ledger().await), [denied, denied, None, denied], "{kind}");
        assert_eq!(world.tool_state.count(|state| &state.outside), 0);
        assert!(!world.file(super::fakes::FILE).exists());
        assert_eq!(world.turn("ada").await.status, TurnStatus::Finished);
    }
}

// covers: ACC-05
#[tokio::test]
async fn a_call_that_waits_for_its_place_does_not_run_after_a_reload_took_its_tool() {
    for second in ["test.act", "test.look"] {
        let world = AgentWorld::with(|plan| plan.limits.calls_parallel = 1).await;
        let blocks = || vec![block("a", "test.act", json!({ "n": 1 })), block("b", second, json!({ "n": 2 }))];
        world.model.reply_with(move |_, n| if n == 0 { calls(blocks()) } else { say("well") });
        world.send("ada", "go").await;
        let (agent_id, session) = (id("ada"), Arc::default());
        let work = async { turn::work(&world.engine, &agent_id, &session).await.unwrap() };
        let reloaded = async {
            world.tool_state.entered.notified().await;
            reload(&world.engine, |plan| narrow(plan, &["syscall.status"]));
        };
        world.in_time(async { tokio::join!(work, reloaded) }).await;
        assert_eq!(codes(&world.ledger().await), [None, Some(Code::AccessDenied)], "{second}");
        assert_eq!(world.tool_state.count(|state| &state.outside), 1, "what runs goes on");
        assert_eq!(world.tool_state.count(|state| &state.reads), 0);
    }
}

// covers: ACC-05, ACL-01
#[tokio::test]
async fn a_directory_that_a_reload_takes_away_is_not_written_in_the_running_turn() {
    let world = AgentWorld::new().await;
    let write = |path: &str| call("workspace.write", json!({ "path": path, "scope": "world", "content": "x" }));
    let own = "agents/ada/notes/a.md";
    let replies = vec![write(own), write("output/a.md"), write("output/b.md"), write(own)];
    let acl = |dirs: &[&str]| {
        let dirs: Vec<String> = dirs.iter().map(|dir| (*dir).to_owned()).collect();
        WriteAcl::new(&dirs).unwrap()
    };
    reload(&world.engine, |plan| {
        plan.agents.iter_mut().for_each(|agent| agent.write_acl = acl(&["agents/ada/", "output/"]))
    });
    answers(&world, replies, 1, move |plan| {
        plan.agents.iter_mut().for_each(|agent| agent.write_acl = acl(&["agents/ada/"]));
    });
    world.send("ada", "go").await;
    world.work("ada").await.unwrap();
    // The call of the answer that was under way may be made again, under the rules that hold now.
    let wanted = [None, Some(Code::Conflict), Some(Code::PathDenied), None];
    assert_eq!(codes(&world.ledger().await), wanted);
    assert!(!world.file("output").join("a.md").exists() && !world.file("output").join("b.md").exists());
}

// covers: WORLD-14
#[tokio::test]
async fn a_reload_that_takes_nothing_away_disturbs_no_turn() {
    let world = AgentWorld::new().await;
    let replies = vec![call("test.act", json!({ "n": 1 })), call("test.act", json!({ "n": 2 }))];
    answers(&world, replies, 1, |plan| plan.laws = "Be late.".into());
    world.send("ada", "go").await;
    world.work("ada").await.unwrap();
    assert_eq!(codes(&world.ledger().await), [None, None]);
    let requests = world.model.requests();
    assert_eq!(requests[0].tools, requests[2].tools, "what requests describe stays");
    assert_eq!(requests[0].system, requests[2].system);
    assert_eq!(results(&requests[2]).len(), 2);
}

// covers: ACC-05, EXEC-10
#[tokio::test]
async fn a_reload_while_a_call_waits_for_an_approval_is_heeded() {
    let under = |plan: &mut Plan, under: bool| {
        plan.approvals.tools = under.then(|| "test.act".to_owned()).into_iter().collect();
    };
    // What the reload does, and how the call ends that is approved after it.
    type Change = fn(&mut Plan);
    let cases: [(Change, Option<Code>); 4] = [
        (|plan| plan.laws = "Be late.".into(), None),
        // The rule is gone; a call that waits already is not run without its answer.
        (|plan| plan.approvals.tools.clear(), None),
        (|plan| narrow(plan, &["test.look"]), Some(Code::AccessDenied)),
        (|plan| plan.archetypes.clear(), Some(Code::Conflict)),
    ];
    for (number, (change, code)) in cases.into_iter().enumerate() {
        let world = AgentWorld::with(|plan| under(plan, true)).await;
        world.model.reply_with(|_, n| if n == 0 { call("test.act", json!({ "n": 1 })) } else { say("well") });
        world.send("ada", "go").await;
        let agent_id = id("ada");
        let work = async { drop(turn::work(&world.engine, &agent_id, &world.session).await) };
        let answered = async {
            let approval = loop {
                let all = read!(world, |r| r.approval_list(&ApprovalFilter::default(), None, 0)?);
                if let [approval] = &*all {
                    break approval.clone();
                }
                tokio::task::yield_now().await;
            };
            reload(&world.engine, change);
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            assert_eq!((approval.status, world.tool_state.count(|state| &state.outside)), (ApprovalStatus::Pending, 0));
            let (approval_id, approve) = (approval.approval_id, Decision::Approve { always: false });
            write!(world, |w| { approvals::decide(w, &operator(), &Default::default(), approval_id, approve, None) })
                .unwrap();
        };
        world.in_time(async { tokio::join!(work, answered) }).await;
        assert_eq!(codes(&world.ledger().await), [code], "case {number}");
        assert_eq!(world.tool_state.count(|state| &state.outside), u32::from(code.is_none()), "case {number}");
    }
}

// covers: EXEC-10
#[tokio::test]
async fn a_rule_for_approvals_that_a_reload_adds_holds_for_the_next_call() {
    let world = AgentWorld::with(|plan| plan.approvals.expires = Duration::from_secs(60)).await;
    let replies = vec![call("test.act", json!({ "n": 1 })), call("test.act", json!({ "n": 2 }))];
    answers(&world, replies, 1, |plan| plan.approvals.tools = ["test.act".to_owned()].into());
    world.send("ada", "go").await;
    world.work("ada").await.unwrap();
    assert_eq!(codes(&world.ledger().await), [None, Some(Code::Timeout)]);
    assert_eq!(world.tool_state.count(|state| &state.outside), 1);
}

// covers: EXEC-10
#[tokio::test]
async fn a_denial_holds_although_the_rule_was_removed_while_the_daemon_was_down() {
    for decision in [Decision::Deny, Decision::Approve { always: false }] {
        let world = AgentWorld::with(|plan| plan.approvals.tools = ["test.act".to_owned()].into()).await;
        world.model.reply_with(|_, n| if n == 0 { call("test.act", json!({ "n": 1 })) } else { say("well") });
        world.send("ada", "go").await;
        let asked = async || read!(world, |r| r.approval_list(&ApprovalFilter::default(), None, 0)?).pop();
        let waiting = async {
            while asked().await.is_none() {
                tokio::task::yield_now().await;
            }
        };
        world.work_until("ada", waiting).await;
        let (approval_id, denied) = (asked().await.unwrap().approval_id, decision == Decision::Deny);
        write!(world, |w| { approvals::decide(w, &operator(), &Default::default(), approval_id, decision, None) })
            .unwrap();
        reload(&world.engine, |plan| plan.approvals.tools.clear());
        write!(world, |w| ghost_operations::turns::review_at_boot(w)).unwrap();
        world.work("ada").await.unwrap();
        assert_eq!(codes(&world.ledger().await), [denied.then_some(Code::ApprovalDenied)]);
        assert_eq!(world.tool_state.count(|state| &state.outside), u32::from(!denied));
    }
}
