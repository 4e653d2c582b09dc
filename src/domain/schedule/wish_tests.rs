//! What goes together in a wish, and what follows from what is not said.

use super::*;

fn options(wish: JobWish) -> Result<JobOptions, Refusal> {
    wish.options(&"ada".parse().unwrap(), "report", &Limits::default())
}

fn options_of(wish: JobWish) -> JobOptions {
    options(wish).unwrap()
}

fn refused(wish: JobWish) -> Code {
    options(wish).unwrap_err().code
}

#[test]
fn what_is_not_said_follows_from_what_is() {
    assert_eq!(options(JobWish::default()).unwrap(), JobOptions::default());
    let own = options(JobWish { session: Some(Session::Isolated), ..JobWish::default() }).unwrap();
    assert_eq!((own.payload, own.deliver, own.to.as_str()), (Payload::AgentTurn, Deliver::Announce, "last"));
    let bounded = options(JobWish { max_rounds: Some(2), deliver: Some(Deliver::None), ..JobWish::default() });
    let bounded = bounded.unwrap();
    assert_eq!((bounded.payload, bounded.deliver, bounded.to.as_str()), (Payload::AgentTurn, Deliver::None, ""));
    let hook = JobWish { deliver: Some(Deliver::Webhook), to: Some("ops".into()), ..JobWish::default() };
    assert_eq!(options(hook).unwrap().to, "ops/cron:ada/report");
}

#[test]
fn what_does_not_go_together_has_a_code_of_its_own() {
    let main = || JobWish { session: Some(Session::Main), ..JobWish::default() };
    let turn = || JobWish { payload: Some(Payload::AgentTurn), ..JobWish::default() };
    for wish in [
        JobWish { payload: Some(Payload::AgentTurn), ..main() },
        JobWish { session: Some(Session::Isolated), payload: Some(Payload::SystemEvent), ..JobWish::default() },
        JobWish { deliver: Some(Deliver::Announce), ..main() },
        JobWish { timeout_seconds: Some(5), ..main() },
        JobWish { max_rounds: Some(5), ..main() },
        JobWish { model: Some("m".into()), ..main() },
        JobWish { to: Some("last".into()), ..main() },
        JobWish { wake: Some(WakeMode::NextHeartbeat), ..turn() },
        JobWish { deliver: Some(Deliver::None), to: Some("last".into()), ..turn() },
        JobWish { deliver: Some(Deliver::None), ..main() },
        JobWish { deliver: Some(Deliver::None), wake: Some(WakeMode::NextHeartbeat), ..JobWish::default() },
    ] {
        assert_eq!(refused(wish.clone()), Code::PayloadMismatch, "{wish:?}");
    }
    let alone = JobWish { deliver: Some(Deliver::None), ..JobWish::default() };
    let quiet = options(alone.clone()).unwrap();
    assert_eq!((quiet.payload, quiet.deliver), (Payload::AgentTurn, Deliver::None));
    let refusal = options(JobWish { wake: Some(WakeMode::NextHeartbeat), ..alone }).unwrap_err();
    assert!(refusal.message.starts_with("wake next-heartbeat does not go with deliver none: "), "{refusal}");
    assert_eq!(refusal.hint.unwrap(), "leave wake out, or leave deliver out");
    let refusal = options(JobWish { timeout_seconds: Some(5), ..main() }).unwrap_err();
    assert!(refusal.message.starts_with("timeout_seconds does not go with session main: "), "{refusal}");
    assert_eq!(refusal.details, Some(json!({ "field": "timeout_seconds" })));
    for wish in [
        JobWish { timeout_seconds: Some(0), ..turn() },
        JobWish { timeout_seconds: Some(301), ..turn() },
        JobWish { max_rounds: Some(16), ..turn() },
        JobWish { model: Some(" ".into()), ..turn() },
        JobWish { to: Some("No Channel!".into()), ..turn() },
        JobWish { deliver: Some(Deliver::Webhook), ..turn() },
        JobWish { deliver: Some(Deliver::Webhook), to: Some("ops/".into()), ..turn() },
    ] {
        assert_eq!(refused(wish.clone()), Code::InvalidArguments, "{wish:?}");
    }
}

#[test]
fn a_change_keeps_what_it_does_not_name_unless_the_job_becomes_another_thing() {
    let before = JobWish { max_rounds: Some(3), to: Some("alerts".into()), ..JobWish::default() };
    let before = options(before).unwrap();
    let kept = options(JobWish { timeout_seconds: Some(9), ..JobWish::default() }.over(&before)).unwrap();
    assert_eq!((kept.max_rounds, kept.timeout_seconds, kept.to.as_str()), (Some(3), Some(9), "alerts"));
    let quiet = options(JobWish { deliver: Some(Deliver::None), ..JobWish::default() }.over(&before)).unwrap();
    assert_eq!((quiet.deliver, quiet.to.as_str(), quiet.max_rounds), (Deliver::None, "", Some(3)));
    let mail = options(JobWish { session: Some(Session::Main), ..JobWish::default() }.over(&before)).unwrap();
    assert_eq!(mail, JobOptions::default());
}

/// Every way to fill the fields, with one value each that is within its bounds.
fn wishes() -> Vec<JobWish> {
    let mut all = Vec::new();
    for session in [None, Some(Session::Main), Some(Session::Isolated)] {
        for payload in [None, Some(Payload::SystemEvent), Some(Payload::AgentTurn)] {
            for wake in [None, Some(WakeMode::Now), Some(WakeMode::NextHeartbeat)] {
                for deliver in [None, Some(Deliver::None), Some(Deliver::Announce), Some(Deliver::Webhook)] {
                    for rest in 0..16_u8 {
                        let has = |bit: u8| rest & bit != 0;
                        all.push(JobWish {
                            session,
                            payload,
                            wake,
                            deliver,
                            to: has(1).then(|| "ops".to_owned()),
                            timeout_seconds: has(2).then_some(5),
                            max_rounds: has(4).then_some(2),
                            model: has(8).then(|| "m".to_owned()),
                        });
                    }
                }
            }
        }
    }
    all
}

#[test]
fn of_all_that_can_be_said_together_only_what_fits_is_taken_and_taken_as_it_was_said() {
    let all = wishes();
    assert_eq!(all.len(), 3 * 3 * 3 * 4 * 16);
    let mut taken = 0;
    for wish in all {
        let main = wish.session == Some(Session::Main) || wish.payload == Some(Payload::SystemEvent);
        let own = wish.session == Some(Session::Isolated) || wish.payload == Some(Payload::AgentTurn);
        let of_mail = wish.wake == Some(WakeMode::NextHeartbeat);
        let bounded = wish.timeout_seconds.is_some() || wish.max_rounds.is_some() || wish.model.is_some();
        let of_turn = wish.deliver.is_some() || wish.to.is_some() || bounded;
        let nowhere = wish.deliver == Some(Deliver::None);
        let pairs = [(main, own), (own, of_mail), (main, of_turn), (of_mail, of_turn), (nowhere, wish.to.is_some())];
        let fits = !pairs.iter().any(|(one, other)| *one && *other);
        let missing = wish.deliver == Some(Deliver::Webhook) && wish.to.is_none();
        match options(wish.clone()) {
            Err(refusal) => {
                let code = if fits { Code::InvalidArguments } else { Code::PayloadMismatch };
                assert_eq!(refusal.code, code, "{wish:?}: {refusal}");
                assert!(!fits || missing, "{wish:?}: {refusal}");
                assert!(refusal.hint.is_some() && refusal.details.unwrap()["field"].is_string(), "{wish:?}");
            }
            Ok(options) => {
                assert!(fits && !missing, "{wish:?}");
                taken += 1;
                let payload = if own || of_turn { Payload::AgentTurn } else { Payload::SystemEvent };
                assert_eq!(options.payload, payload, "{wish:?}");
                assert_eq!(options.wake, wish.wake.unwrap_or(WakeMode::Now), "{wish:?}");
                let usual = if payload == Payload::AgentTurn { Deliver::Announce } else { Deliver::None };
                assert_eq!(options.deliver, wish.deliver.unwrap_or(usual), "{wish:?}");
                let said = (wish.timeout_seconds, wish.max_rounds, wish.model.clone());
                assert_eq!((options.timeout_seconds, options.max_rounds, options.model.clone()), said, "{wish:?}");
                // A change that names nothing changes nothing.
                assert_eq!(options_of(JobWish::default().over(&options)), options, "{wish:?}");
            }
        }
    }
    assert!(taken > 100, "{taken}");
}

fn hook(to: &str) -> JobWish {
    JobWish { deliver: Some(Deliver::Webhook), to: Some(to.into()), ..JobWish::default() }
}

#[test]
fn a_job_has_one_thread_of_its_own_and_no_other_jobs() {
    for (given, thread) in [("ops", "ops/cron:ada/report"), ("ops/cron:ada/report", "ops/cron:ada/report")] {
        assert_eq!(options(hook(given)).unwrap().to, thread);
    }
    assert_eq!(options(hook("ops/free")).unwrap().to, "ops/free");
    for other in ["ops/cron:ada/other", "ops/cron:bob/report", "ops/cron:", "ops/cron:x"] {
        let refusal = options(hook(other)).unwrap_err();
        assert_eq!((refusal.code, refusal.details), (Code::AccessDenied, Some(json!({ "field": "to" }))), "{other}");
    }
}

#[test]
fn a_job_that_was_set_to_another_jobs_thread_can_be_changed_and_not_be_set_to_it_anew() {
    let before = JobOptions { to: "ops/cron:bob/report".into(), ..options_of(hook("ops/free")) };
    let change = |wish: JobWish| wish.changes(&before, &"ada".parse().unwrap(), "report", &Limits::default());
    let changed = change(JobWish { max_rounds: Some(2), ..JobWish::default() }).unwrap();
    assert_eq!((changed.max_rounds, changed.to.as_str()), (Some(2), "ops/cron:bob/report"));
    assert_eq!(change(hook("ops")).unwrap().to, "ops/cron:ada/report");
    assert_eq!(change(hook("ops/cron:bob/other")).unwrap_err().code, Code::AccessDenied);
}
