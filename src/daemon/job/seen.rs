//! What the feed has told of a job so far: its result, and what went wrong last.
//!
//! Must never: ask the store or the clock. The same events give the same answer, in a daemon that saw them happen and in one
//! that reads them after a crash.

use std::collections::BTreeSet;

use ghost_config::plan::JobPlan;
use ghost_domain::event::{Event, EventKind};
use ghost_domain::{AgentId, Job};

/// A file that is the job's result, by its name.
struct Written {
    path: String,
    turn_id: String,
    root_id: String,
    agent_id: Option<AgentId>,
}

/// What an event means for the job.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News {
    /// It is done; where its result is.
    Done(String),
    /// Somebody has begun to work on it.
    GoesOn,
    /// Something has come to its end: the job may stand still now.
    Ended,
    /// Nothing.
    Nothing,
}

/// What is known of a job.
pub(super) struct Seen {
    job_id: String,
    root_id: String,
    lead: AgentId,
    /// The directory of results, with a slash at its end.
    results: String,
    written: Option<Written>,
    /// The lead's turns for the job that have begun since and not ended.
    begun: BTreeSet<String>,
    /// Whether one of them has finished.
    confirmed: bool,
    failure: Option<String>,
}

impl Seen {
    /// The kinds of events that tell of a job.
    pub(super) const KINDS: [EventKind; 15] = [
        EventKind::ArtifactCreated,
        EventKind::TurnStarted,
        EventKind::TurnFinished,
        EventKind::TurnParked,
        EventKind::BudgetSet,
        EventKind::BudgetExhausted,
        EventKind::DeadLetterHeld,
        EventKind::ScheduleCancelled,
        EventKind::ScheduleFired,
        EventKind::ScheduleSkipped,
        EventKind::AgentCreated,
        EventKind::AgentStarted,
        EventKind::AgentStopped,
        EventKind::AgentFailed,
        EventKind::AgentDeleted,
    ];

    pub(super) fn new(plan: &JobPlan, job: &Job) -> Self {
        Self {
            job_id: job.job_id.clone(),
            root_id: job.root_id.to_string(),
            lead: plan.lead.clone(),
            results: format!("{}/", plan.result.trim_end_matches('/')),
            written: None,
            begun: BTreeSet::new(),
            confirmed: false,
            failure: None,
        }
    }

    /// Whether a file of that path is the job's result.
    pub(super) fn is_result(&self, path: &str) -> bool {
        path.starts_with(&self.results) && path.contains(&self.job_id)
    }

    /// The result that an agent has written last.
    pub(super) fn result(&self) -> Option<&str> {
        self.written.as_ref().map(|written| written.path.as_str())
    }

    /// Whether the lead can have seen the result: a turn of its for the job that began after it was written has finished, or
    /// nobody knows when it was written.
    pub(super) fn is_confirmed(&self) -> bool {
        self.written.is_none() || self.confirmed
    }

    /// What of the job went wrong last, since its lead began a turn for it.
    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Takes the next event.
    pub(super) fn take(&mut self, event: &Event) -> News {
        let text = |field: &str| event.payload.get(field).and_then(|value| value.as_str()).unwrap_or_default();
        let of_the_job = text("root_id") == self.root_id;
        match event.kind {
            EventKind::ArtifactCreated => {
                if self.is_result(text("path")) {
                    self.confirmed = false;
                    self.begun.clear();
                    self.written = Some(Written {
                        path: text("path").to_owned(),
                        turn_id: text("turn_id").to_owned(),
                        root_id: event.correlation_id.clone().unwrap_or_default(),
                        agent_id: event.agent_id.clone(),
                    });
                }
                News::Nothing
            }
            EventKind::TurnStarted if of_the_job => {
                if event.agent_id.as_ref() == Some(&self.lead) {
                    self.failure = None;
                    self.begun.insert(text("turn_id").to_owned());
                }
                News::GoesOn
            }
            EventKind::TurnFinished => {
                let finished = text("status") == "finished";
                if finished && self.written.as_ref().is_some_and(|written| self.is_last_word(event, written)) {
                    return News::Done(self.result().unwrap_or_default().to_owned());
                }
                self.confirmed |= self.begun.remove(text("turn_id")) && finished;
                if of_the_job && !finished {
                    self.failure = Some(text("reason").to_owned()).filter(|reason| !reason.is_empty());
                }
                News::Ended
            }
            EventKind::DeadLetterHeld => {
                if of_the_job {
                    self.failure = Some(text("reason").to_owned()).filter(|reason| !reason.is_empty());
                }
                News::Ended
            }
            EventKind::AgentStopped | EventKind::AgentFailed | EventKind::AgentDeleted => News::Ended,
            // Its agent goes on without it, and no job of another root waits for it.
            EventKind::TurnParked if text("standing") == "aside" => News::Ended,
            // What a job waits for has come, perhaps to one that does not run, or will not come any more.
            EventKind::ScheduleCancelled | EventKind::ScheduleFired | EventKind::ScheduleSkipped
                if matches!(text("kind"), "timer" | "watch") =>
            {
                News::Ended
            }
            _ => News::Nothing,
        }
    }

    /// Whether a turn that finished is the one that wrote the result, or a later one of its writer's over the same work: the
    /// first may have failed with the result written, and whoever finds it there does not write it again.
    fn is_last_word(&self, finished: &Event, written: &Written) -> bool {
        let text = |field: &str| finished.payload.get(field).and_then(|value| value.as_str()).unwrap_or_default();
        let root_id = text("root_id");
        let same_work = !root_id.is_empty() && (root_id == self.root_id || root_id == written.root_id);
        text("turn_id") == written.turn_id
            || (same_work && written.agent_id.is_some() && finished.agent_id == written.agent_id)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use ghost_domain::{EventId, RootId, Timestamp};
    use serde_json::{Value, json};
    use uuid::Uuid;

    use super::*;

    const JOB: &str = "0123456789abcdef";

    fn root(number: u128) -> String {
        RootId(Uuid::from_u128(number)).to_string()
    }

    fn seen() -> Seen {
        let plan = JobPlan {
            input: PathBuf::new(),
            lead: "lea".parse().unwrap(),
            brief: String::new(),
            result: "output/briefings".into(),
        };
        let job = Job {
            job_id: JOB.into(),
            root_id: RootId(Uuid::from_u128(1)),
            files: 1,
            started_at: Timestamp(0),
            finished_at: None,
            result_path: None,
        };
        Seen::new(&plan, &job)
    }

    fn event(kind: EventKind, agent: &str, payload: Value) -> Event {
        Event {
            seq: 1,
            event_id: EventId(Uuid::nil()),
            ts: Timestamp(0),
            kind,
            agent_id: Some(agent.parse().unwrap()),
            channel: None,
            correlation_id: None,
            payload: payload.into(),
        }
    }

    fn writes(seen: &mut Seen, agent: &str, root_id: u128, turn: &str, path: &str) -> News {
        let event = event(EventKind::ArtifactCreated, agent, json!({ "path": path, "turn_id": turn }));
        seen.take(&Event { correlation_id: Some(root(root_id)), ..event })
    }

    fn ends(seen: &mut Seen, agent: &str, root_id: u128, turn: &str, status: &str) -> News {
        let payload = json!({ "turn_id": turn, "status": status, "root_id": root(root_id), "reason": "why" });
        seen.take(&event(EventKind::TurnFinished, agent, payload))
    }

    fn starts(seen: &mut Seen, agent: &str, root_id: u128, turn: &str) -> News {
        seen.take(&event(EventKind::TurnStarted, agent, json!({ "turn_id": turn, "root_id": root(root_id) })))
    }

    fn result() -> String {
        format!("output/briefings/{JOB}.md")
    }

    #[test]
    fn a_job_is_done_when_the_turn_that_wrote_its_result_finishes() {
        let mut seen = seen();
        for other in ["output/briefings/other.md".to_owned(), format!("output/briefings2/{JOB}.md")] {
            writes(&mut seen, "lea", 1, "t1", &other);
            assert_eq!(ends(&mut seen, "lea", 1, "t1", "finished"), News::Ended, "{other}");
        }
        // Whoever asked for it: the file says which job it is of.
        writes(&mut seen, "ann", 7, "t2", &result());
        assert_eq!(ends(&mut seen, "lea", 1, "t3", "finished"), News::Ended);
        assert_eq!(ends(&mut seen, "ann", 7, "t2", "finished"), News::Done(result()));
    }

    #[test]
    fn a_result_whose_turn_failed_counts_when_a_later_turn_of_its_writer_over_the_same_work_finishes() {
        for (root_id, later, done) in [(1, 1, true), (7, 7, true), (7, 1, true), (1, 2, false)] {
            for status in ["failed", "cancelled", "split"] {
                let mut seen = seen();
                writes(&mut seen, "lea", root_id, "t1", &result());
                assert_eq!(ends(&mut seen, "lea", root_id, "t1", status), News::Ended);
                assert_eq!(ends(&mut seen, "lea", later, "t2", "failed"), News::Ended, "it failed as well");
                assert_eq!(ends(&mut seen, "ann", later, "t3", "finished"), News::Ended, "another's turn says nothing");
                let last = ends(&mut seen, "lea", later, "t4", "finished");
                assert_eq!(last, if done { News::Done(result()) } else { News::Ended }, "{root_id} {later} {status}");
            }
        }
        // A turn that a crash has split names no root.
        let mut seen = seen();
        writes(&mut seen, "lea", 1, "t1", &result());
        let rootless = json!({ "turn_id": "t2", "status": "finished" });
        assert_eq!(seen.take(&event(EventKind::TurnFinished, "lea", rootless)), News::Ended);
    }

    #[test]
    fn anothers_result_counts_when_a_turn_of_the_leads_that_began_since_has_finished() {
        let mut seen = seen();
        assert!(seen.is_confirmed(), "nobody knows of any");
        starts(&mut seen, "lea", 1, "t1");
        ends(&mut seen, "lea", 1, "t1", "finished");
        starts(&mut seen, "lea", 1, "t2");
        writes(&mut seen, "ann", 1, "t3", &result());
        ends(&mut seen, "ann", 1, "t3", "failed");
        assert_eq!(ends(&mut seen, "lea", 1, "t2", "finished"), News::Ended);
        assert!(!seen.is_confirmed(), "it was under way when the result was written");
        for (agent, root_id, turn, status) in
            [("lea", 1, "t4", "failed"), ("lea", 9, "t5", "finished"), ("bob", 1, "t6", "finished")]
        {
            starts(&mut seen, agent, root_id, turn);
            ends(&mut seen, agent, root_id, turn, status);
            assert!(!seen.is_confirmed(), "{turn}");
        }
        // Written again under a turn that had begun since.
        starts(&mut seen, "lea", 1, "t7");
        writes(&mut seen, "ann", 1, "t8", &result());
        ends(&mut seen, "ann", 1, "t8", "failed");
        ends(&mut seen, "lea", 1, "t7", "finished");
        assert!(!seen.is_confirmed());
        starts(&mut seen, "lea", 1, "t9");
        assert_eq!(ends(&mut seen, "lea", 1, "t9", "finished"), News::Ended);
        assert!(seen.is_confirmed());
    }

    #[test]
    fn what_went_wrong_last_is_why_it_stands_until_the_lead_begins_again() {
        let mut seen = seen();
        assert_eq!(seen.failure(), None);
        assert_eq!(ends(&mut seen, "ann", 1, "t1", "failed"), News::Ended);
        assert_eq!(seen.failure(), Some("why"));
        // What others do says nothing about it.
        ends(&mut seen, "ann", 9, "t2", "finished");
        ends(&mut seen, "bob", 1, "t3", "finished");
        let begun = (starts(&mut seen, "bob", 1, "t4"), starts(&mut seen, "lea", 9, "t5"));
        assert_eq!((begun, seen.failure()), ((News::GoesOn, News::Nothing), Some("why")));

        assert_eq!(starts(&mut seen, "lea", 1, "t6"), News::GoesOn);
        assert_eq!(ends(&mut seen, "lea", 1, "t6", "finished"), News::Ended);
        assert_eq!(seen.failure(), None);
    }

    #[test]
    fn what_happens_to_strangers_may_be_the_last_thing_that_was_at_work_and_is_not_why_the_job_stands() {
        let mut seen = seen();
        let held = |root_id: Option<u128>| json!({ "reason": "poison", "root_id": root_id.map(root) });
        for stranger in [
            event(EventKind::DeadLetterHeld, "ann", held(Some(9))),
            event(EventKind::DeadLetterHeld, "ann", held(None)),
            event(EventKind::AgentStopped, "ann", json!({})),
            event(EventKind::AgentFailed, "ann", json!({ "reason": "past its intensity" })),
            event(EventKind::AgentDeleted, "ann", json!({ "reason": "by hand" })),
            event(EventKind::ScheduleFired, "ann", json!({ "kind": "timer" })),
            event(EventKind::ScheduleSkipped, "ann", json!({ "kind": "watch" })),
            event(EventKind::ScheduleCancelled, "ann", json!({ "kind": "watch" })),
        ] {
            assert_eq!((seen.take(&stranger), seen.failure()), (News::Ended, None), "{:?}", stranger.kind);
        }
        let parked = |standing: &str| event(EventKind::TurnParked, "ann", json!({ "standing": standing }));
        assert_eq!((seen.take(&parked("aside")), seen.take(&parked("in_line"))), (News::Ended, News::Nothing));
        let beat = event(EventKind::ScheduleFired, "ann", json!({ "kind": "heartbeat" }));
        assert_eq!(seen.take(&beat), News::Nothing);
        assert_eq!(seen.take(&event(EventKind::DeadLetterHeld, "ann", held(Some(1)))), News::Ended);
        assert_eq!(seen.failure(), Some("poison"));
    }
}
