//! Tests of job specifications: which options exclude each other, and which defaults absent options
//! get.

use super::*;

fn options(spec: JobSpec) -> Result<JobOptions, Refusal> {
    spec.options(&"ada".parse().unwrap(), "report", &Limits::default())
}

fn options_of(spec: JobSpec) -> JobOptions {
    options(spec).unwrap()
}

fn refused(spec: JobSpec) -> Code {
    options(spec).unwrap_err().code
}

// covers: SCHED-05
#[test]
fn absent_options_get_defaults_from_the_given_ones() {
    assert_eq!(options(JobSpec::default()).unwrap(), JobOptions::default());
    let own = options(JobSpec { session: Some(Session::Isolated), ..JobSpec::default() }).unwrap();
    assert_eq!((own.payload, own.deliver, own.to.as_str()), (Payload::AgentTurn, Deliver::Announce, "last"));
    let bounded = options(JobSpec { max_rounds: Some(2), deliver: Some(Deliver::None), ..JobSpec::default() });
    let bounded = bounded.unwrap();
    assert_eq!((bounded.payload, bounded.deliver, bounded.to.as_str()), (Payload::AgentTurn, Deliver::None, ""));
    let hook = JobSpec { deliver: Some(Deliver::Webhook), to: Some("ops".into()), ..JobSpec::default() };
    assert_eq!(options(hook).unwrap().to, "ops/cron:ada/report");
}

// covers: SCHED-05
#[test]
fn options_that_exclude_each_other_are_a_payload_mismatch() {
    let main = || JobSpec { session: Some(Session::Main), ..JobSpec::default() };
    let turn = || JobSpec { payload: Some(Payload::AgentTurn), ..JobSpec::default() };
    for spec in [
        JobSpec { payload: Some(Payload::AgentTurn), ..main() },
        JobSpec { session: Some(Session::Isolated), payload: Some(Payload::SystemEvent), ..JobSpec::default() },
        JobSpec { deliver: Some(Deliver::Announce), ..main() },
        JobSpec { timeout_seconds: Some(5), ..main() },
        JobSpec { max_rounds: Some(5), ..main() },
        JobSpec { model: Some("m".into()), ..main() },
        JobSpec { to: Some("last".into()), ..main() },
        JobSpec { wake: Some(WakeMode::NextHeartbeat), ..turn() },
        JobSpec { deliver: Some(Deliver::None), to: Some("last".into()), ..turn() },
        JobSpec { deliver: Some(Deliver::None), ..main() },
        JobSpec { deliver: Some(Deliver::None), wake: Some(WakeMode::NextHeartbeat), ..JobSpec::default() },
    ] {
        assert_eq!(refused(spec.clone()), Code::PayloadMismatch, "{spec:?}");
    }
    let alone = JobSpec { deliver: Some(Deliver::None), ..JobSpec::default() };
    let quiet = options(alone.clone()).unwrap();
    assert_eq!((quiet.payload, quiet.deliver), (Payload::AgentTurn, Deliver::None));
    let refusal = options(JobSpec { wake: Some(WakeMode::NextHeartbeat), ..alone }).unwrap_err();
    assert!(refusal.message.starts_with("wake next-heartbeat does not go with deliver none: "), "{refusal}");
    assert_eq!(refusal.hint.unwrap(), "leave wake out, or leave deliver out");
    let refusal = options(JobSpec { timeout_seconds: Some(5), ..main() }).unwrap_err();
    assert!(refusal.message.starts_with("timeout_seconds does not go with session main: "), "{refusal}");
    assert_eq!(refusal.details, Some(json!({ "field": "timeout_seconds" })));
    for spec in [
        JobSpec { timeout_seconds: Some(0), ..turn() },
        JobSpec { timeout_seconds: Some(301), ..turn() },
        JobSpec { max_rounds: Some(16), ..turn() },
        JobSpec { model: Some(" ".into()), ..turn() },
        JobSpec { to: Some("No Channel!".into()), ..turn() },
        JobSpec { deliver: Some(Deliver::Webhook), ..turn() },
        JobSpec { deliver: Some(Deliver::Webhook), to: Some("ops/".into()), ..turn() },
    ] {
        assert_eq!(refused(spec.clone()), Code::InvalidArguments, "{spec:?}");
    }
}

#[test]
fn a_change_keeps_other_options_unless_the_payload_changes() {
    let before = JobSpec { max_rounds: Some(3), to: Some("alerts".into()), ..JobSpec::default() };
    let before = options(before).unwrap();
    let kept = options(JobSpec { timeout_seconds: Some(9), ..JobSpec::default() }.over(&before)).unwrap();
    assert_eq!((kept.max_rounds, kept.timeout_seconds, kept.to.as_str()), (Some(3), Some(9), "alerts"));
    let quiet = options(JobSpec { deliver: Some(Deliver::None), ..JobSpec::default() }.over(&before)).unwrap();
    assert_eq!((quiet.deliver, quiet.to.as_str(), quiet.max_rounds), (Deliver::None, "", Some(3)));
    let mail = options(JobSpec { session: Some(Session::Main), ..JobSpec::default() }.over(&before)).unwrap();
    assert_eq!(mail, JobOptions::default());
}

/// All combinations of options, with one valid value for each number and name.
fn combinations() -> Vec<JobSpec> {
    let mut all = Vec::new();
    for session in [None, Some(Session::Main), Some(Session::Isolated)] {
        for payload in [None, Some(Payload::SystemEvent), Some(Payload::AgentTurn)] {
            for wake in [None, Some(WakeMode::Now), Some(WakeMode::NextHeartbeat)] {
                for deliver in [None, Some(Deliver::None), Some(Deliver::Announce), Some(Deliver::Webhook)] {
                    for rest in 0..16_u8 {
                        let has = |bit: u8| rest & bit != 0;
                        all.push(JobSpec {
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
fn of_all_combinations_only_the_compatible_ones_are_accepted_unchanged() {
    let all = combinations();
    assert_eq!(all.len(), 3 * 3 * 3 * 4 * 16);
    let mut accepted = 0;
    for spec in all {
        let main = spec.session == Some(Session::Main) || spec.payload == Some(Payload::SystemEvent);
        let own = spec.session == Some(Session::Isolated) || spec.payload == Some(Payload::AgentTurn);
        let for_mail = spec.wake == Some(WakeMode::NextHeartbeat);
        let bounded = spec.timeout_seconds.is_some() || spec.max_rounds.is_some() || spec.model.is_some();
        let for_turn = spec.deliver.is_some() || spec.to.is_some() || bounded;
        let nowhere = spec.deliver == Some(Deliver::None);
        let pairs =
            [(main, own), (own, for_mail), (main, for_turn), (for_mail, for_turn), (nowhere, spec.to.is_some())];
        let compatible = !pairs.iter().any(|(one, other)| *one && *other);
        let missing = spec.deliver == Some(Deliver::Webhook) && spec.to.is_none();
        match options(spec.clone()) {
            Err(refusal) => {
                let code = if compatible { Code::InvalidArguments } else { Code::PayloadMismatch };
                assert_eq!(refusal.code, code, "{spec:?}: {refusal}");
                assert!(!compatible || missing, "{spec:?}: {refusal}");
                assert!(refusal.hint.is_some() && refusal.details.unwrap()["field"].is_string(), "{spec:?}");
            }
            Ok(options) => {
                assert!(compatible && !missing, "{spec:?}");
                accepted += 1;
                let payload = if own || for_turn { Payload::AgentTurn } else { Payload::SystemEvent };
                assert_eq!(options.payload, payload, "{spec:?}");
                assert_eq!(options.wake, spec.wake.unwrap_or(WakeMode::Now), "{spec:?}");
                let usual = if payload == Payload::AgentTurn { Deliver::Announce } else { Deliver::None };
                assert_eq!(options.deliver, spec.deliver.unwrap_or(usual), "{spec:?}");
                let given = (spec.timeout_seconds, spec.max_rounds, spec.model.clone());
                assert_eq!((options.timeout_seconds, options.max_rounds, options.model.clone()), given, "{spec:?}");
                // An empty change changes nothing.
                assert_eq!(options_of(JobSpec::default().over(&options)), options, "{spec:?}");
            }
        }
    }
    assert!(accepted > 100, "{accepted}");
}

fn hook(to: &str) -> JobSpec {
    JobSpec { deliver: Some(Deliver::Webhook), to: Some(to.into()), ..JobSpec::default() }
}

#[test]
fn a_job_cannot_use_another_jobs_thread() {
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
fn an_older_job_with_another_jobs_thread_keeps_it_until_the_target_changes() {
    let before = JobOptions { to: "ops/cron:bob/report".into(), ..options_of(hook("ops/free")) };
    let change = |spec: JobSpec| spec.changes(&before, &"ada".parse().unwrap(), "report", &Limits::default());
    let changed = change(JobSpec { max_rounds: Some(2), ..JobSpec::default() }).unwrap();
    assert_eq!((changed.max_rounds, changed.to.as_str()), (Some(2), "ops/cron:bob/report"));
    assert_eq!(change(hook("ops")).unwrap().to, "ops/cron:ada/report");
    assert_eq!(change(hook("ops/cron:bob/other")).unwrap_err().code, Code::AccessDenied);
}
