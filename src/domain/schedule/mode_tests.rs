//! Tests of the modes of cron jobs: which options exclude each other, which defaults absent options
//! get, and how modes are stored.

use super::*;

fn change(given: JobOptions, before: Option<&JobMode>) -> Result<JobMode, Refusal> {
    JobMode::parse(given, before, &"ada".parse().unwrap(), "report", &Limits::default())
}

fn new(given: JobOptions) -> Result<JobMode, Refusal> {
    change(given, None)
}

fn refused(given: JobOptions) -> Code {
    new(given).unwrap_err().code
}

fn turn(mode: &JobMode) -> &OwnTurn {
    mode.own_turn().unwrap()
}

fn channel(name: &str) -> Target {
    Target::Channel(name.parse().unwrap())
}

fn thread(webhook: &str, thread: &str) -> Target {
    Target::Webhook { webhook: webhook.into(), thread: thread.into() }
}

// covers: SCHED-05
#[test]
fn absent_options_get_defaults_from_the_given_ones() {
    assert_eq!(new(JobOptions::default()).unwrap(), JobMode::Mail { wake: WakeMode::Now });
    let own = new(JobOptions { session: Some(Session::Isolated), ..JobOptions::default() }).unwrap();
    assert_eq!(own, JobMode::from(Target::Last));
    let bounded = JobOptions { max_rounds: Some(2), deliver: Some(Deliver::None), ..JobOptions::default() };
    let bounded = new(bounded).unwrap();
    assert_eq!((&turn(&bounded).target, turn(&bounded).max_rounds), (&Target::Nowhere, Some(2)));
    assert_eq!(new(hook("ops")).unwrap(), thread("ops", "cron:ada/report").into());
}

// covers: SCHED-05
#[test]
fn options_that_exclude_each_other_are_a_payload_mismatch() {
    let main = || JobOptions { session: Some(Session::Main), ..JobOptions::default() };
    let turn = || JobOptions { payload: Some(Payload::AgentTurn), ..JobOptions::default() };
    for (given, field) in [
        (JobOptions { payload: Some(Payload::AgentTurn), ..main() }, "session"),
        (JobOptions { payload: Some(Payload::SystemEvent), session: Some(Session::Isolated), ..turn() }, "session"),
        (JobOptions { deliver: Some(Deliver::Announce), ..main() }, "deliver"),
        (JobOptions { deliver: Some(Deliver::None), ..main() }, "deliver"),
        (JobOptions { timeout_seconds: Some(5), ..main() }, "timeout_seconds"),
        (JobOptions { max_rounds: Some(5), ..main() }, "max_rounds"),
        (JobOptions { model: Some("m".into()), ..main() }, "model"),
        (JobOptions { to: Some("last".into()), ..main() }, "to"),
        (JobOptions { wake: Some(WakeMode::NextHeartbeat), ..turn() }, "wake"),
        (JobOptions { deliver: Some(Deliver::None), to: Some("last".into()), ..turn() }, "to"),
        (
            JobOptions { payload: None, deliver: Some(Deliver::None), wake: Some(WakeMode::NextHeartbeat), ..turn() },
            "wake",
        ),
    ] {
        let refusal = new(given.clone()).unwrap_err();
        assert_eq!(refusal.code, Code::PayloadMismatch, "{given:?}");
        assert_eq!(refusal.details, Some(json!({ "field": field })), "{given:?}");
    }
    for given in [
        JobOptions { timeout_seconds: Some(0), ..turn() },
        JobOptions { timeout_seconds: Some(301), ..turn() },
        JobOptions { max_rounds: Some(16), ..turn() },
        JobOptions { model: Some(" ".into()), ..turn() },
        JobOptions { to: Some("No Channel!".into()), ..turn() },
        JobOptions { deliver: Some(Deliver::Webhook), ..turn() },
        JobOptions { deliver: Some(Deliver::Webhook), to: Some("ops/".into()), ..turn() },
        JobOptions { deliver: Some(Deliver::Webhook), to: Some("/thread".into()), ..turn() },
    ] {
        assert_eq!(refused(given.clone()), Code::InvalidArguments, "{given:?}");
    }
    let refusal = new(JobOptions { max_rounds: Some(16), ..turn() }).unwrap_err();
    assert!(refusal.message.starts_with("max_rounds is 16; "), "{refusal}");
}

#[test]
fn a_change_keeps_other_options_unless_the_payload_changes() {
    let before = JobOptions { max_rounds: Some(3), to: Some("alerts".into()), ..JobOptions::default() };
    let before = new(before).unwrap();
    let changed = |given: JobOptions| change(given, Some(&before));
    let kept = changed(JobOptions { timeout_seconds: Some(9), ..JobOptions::default() }).unwrap();
    let wanted = OwnTurn { timeout_seconds: Some(9), ..turn(&before).clone() };
    assert_eq!((turn(&kept), &wanted.target), (&wanted, &channel("alerts")));
    let quiet = changed(JobOptions { deliver: Some(Deliver::None), ..JobOptions::default() }).unwrap();
    assert_eq!(turn(&quiet), &OwnTurn { target: Target::Nowhere, ..turn(&before).clone() });
    let mail = changed(JobOptions { session: Some(Session::Main), ..JobOptions::default() }).unwrap();
    assert_eq!(mail, JobMode::default());
    let waits = JobMode::Mail { wake: WakeMode::NextHeartbeat };
    assert_eq!(
        change(JobOptions { session: Some(Session::Main), ..JobOptions::default() }, Some(&waits)).unwrap(),
        waits
    );
    let turn_only = JobOptions { max_rounds: Some(2), ..JobOptions::default() };
    assert_eq!(change(turn_only, Some(&waits)).unwrap_err().code, Code::PayloadMismatch);
}

/// All combinations of options, with one valid value for each number and name.
fn combinations() -> Vec<JobOptions> {
    let mut all = Vec::new();
    for session in [None, Some(Session::Main), Some(Session::Isolated)] {
        for payload in [None, Some(Payload::SystemEvent), Some(Payload::AgentTurn)] {
            for wake in [None, Some(WakeMode::Now), Some(WakeMode::NextHeartbeat)] {
                for deliver in [None, Some(Deliver::None), Some(Deliver::Announce), Some(Deliver::Webhook)] {
                    for rest in 0..16_u8 {
                        let has = |bit: u8| rest & bit != 0;
                        all.push(JobOptions {
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
        match new(spec.clone()) {
            Err(refusal) => {
                let code = if compatible { Code::InvalidArguments } else { Code::PayloadMismatch };
                assert_eq!(refusal.code, code, "{spec:?}: {refusal}");
                assert!(!compatible || missing, "{spec:?}: {refusal}");
                assert!(refusal.hint.is_some() && refusal.details.unwrap()["field"].is_string(), "{spec:?}");
            }
            Ok(mode) => {
                assert!(compatible && !missing, "{spec:?}");
                accepted += 1;
                let payload = if own || for_turn { Payload::AgentTurn } else { Payload::SystemEvent };
                let shown = JobOptions::from(mode.clone());
                assert_eq!((shown.session, shown.payload), (Some(payload.session()), Some(payload)), "{spec:?}");
                assert_eq!(shown.wake, Some(spec.wake.unwrap_or(WakeMode::Now)), "{spec:?}");
                let usual = if payload == Payload::AgentTurn { Deliver::Announce } else { Deliver::None };
                assert_eq!(shown.deliver, Some(spec.deliver.unwrap_or(usual)), "{spec:?}");
                let given = (spec.timeout_seconds, spec.max_rounds, spec.model.clone());
                assert_eq!((shown.timeout_seconds, shown.max_rounds, shown.model.clone()), given, "{spec:?}");
                // An empty change changes nothing, and a stored mode is read unchanged.
                assert_eq!(change(JobOptions::default(), Some(&mode)).unwrap(), mode, "{spec:?}");
                let stored = serde_json::to_string(&mode).unwrap();
                assert_eq!(serde_json::from_str::<JobMode>(&stored).unwrap(), mode, "{stored}");
            }
        }
    }
    assert!(accepted > 100, "{accepted}");
}

fn hook(to: &str) -> JobOptions {
    JobOptions { deliver: Some(Deliver::Webhook), to: Some(to.into()), ..JobOptions::default() }
}

#[test]
fn a_job_cannot_use_another_jobs_thread() {
    for (given, own) in [("ops", "cron:ada/report"), ("ops/cron:ada/report", "cron:ada/report"), ("ops/free", "free")] {
        assert_eq!(new(hook(given)).unwrap(), thread("ops", own).into());
    }
    for other in ["ops/cron:ada/other", "ops/cron:bob/report", "ops/cron:", "ops/cron:x"] {
        let refusal = new(hook(other)).unwrap_err();
        assert_eq!((refusal.code, refusal.details), (Code::AccessDenied, Some(json!({ "field": "to" }))), "{other}");
    }
}

#[test]
fn an_older_job_with_another_jobs_thread_keeps_it_until_the_target_changes() {
    let before = JobMode::from(thread("ops", "cron:bob/report"));
    let changed = |given: JobOptions| change(given, Some(&before));
    let bounded = changed(JobOptions { max_rounds: Some(2), ..JobOptions::default() }).unwrap();
    assert_eq!(turn(&bounded), &OwnTurn { max_rounds: Some(2), ..turn(&before).clone() });
    assert_eq!(changed(hook("ops")).unwrap(), thread("ops", "cron:ada/report").into());
    assert_eq!(changed(hook("ops/cron:bob/other")).unwrap_err().code, Code::AccessDenied);
}

#[test]
fn rows_of_older_versions_are_read() {
    for (stored, mode) in [
        (r#"{"payload":"systemEvent","wake":"now","deliver":"none"}"#, JobMode::default()),
        (
            r#"{"payload":"systemEvent","wake":"next-heartbeat","deliver":"none"}"#,
            JobMode::Mail { wake: WakeMode::NextHeartbeat },
        ),
        (r#"{"payload":"agentTurn","wake":"now","deliver":"none"}"#, Target::Nowhere.into()),
        (r#"{"payload":"agentTurn","wake":"now","deliver":"announce","to":"last"}"#, Target::Last.into()),
        (r#"{"payload":"agentTurn","wake":"now","deliver":"announce","to":"news"}"#, channel("news").into()),
        (
            r#"{"payload":"agentTurn","wake":"now","deliver":"webhook","to":"ops/cron:bob/x"}"#,
            thread("ops", "cron:bob/x").into(),
        ),
    ] {
        assert_eq!(serde_json::from_str::<JobMode>(stored).unwrap(), mode, "{stored}");
        assert_eq!(serde_json::to_string(&mode).unwrap(), stored);
    }
    // Mixtures that cannot be set any more.
    for (stored, mode) in [
        (r#"{"payload":"systemEvent","wake":"now","deliver":"announce","to":"news","model":"m"}"#, JobMode::default()),
        (r#"{"payload":"agentTurn","wake":"next-heartbeat","deliver":"none","to":"news"}"#, Target::Nowhere.into()),
        (r#"{"payload":"agentTurn","wake":"now","deliver":"webhook","to":"ops"}"#, thread("ops", "cron").into()),
    ] {
        assert_eq!(serde_json::from_str::<JobMode>(stored).unwrap(), mode, "{stored}");
    }
}

mod threads {
    use super::*;

    #[test]
    fn a_job_may_use_its_own_thread_or_threads_that_its_agent_answers() {
        let (ada, bob): (AgentId, AgentId) = ("ada".parse().unwrap(), "bob".parse().unwrap());
        check_thread(&ada, "ops", "free", &ada).unwrap();
        check_thread(&ada, "ops", "cron:ada/report", &bob).unwrap();
        for other in ["free", "cron:adam/report"] {
            assert_eq!(check_thread(&ada, "ops", other, &bob).unwrap_err().code, Code::AccessDenied, "{other}");
        }
        let own = |name, thread| check_own_thread(&ada, name, "ops", thread).is_ok();
        for (thread, allowed_for_report, allowed_for_deleted_job) in [
            ("free", true, true),
            ("cron:ada/report", true, true),
            ("cron:ada/other", false, true),
            ("cron:adam/report", false, false),
            ("cron:", false, false),
        ] {
            let allowed = (own(Some("report"), thread), own(None, thread));
            assert_eq!(allowed, (allowed_for_report, allowed_for_deleted_job), "{thread}");
        }
    }
}
