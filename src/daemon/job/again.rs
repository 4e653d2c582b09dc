//! When it is tried to get a job going again, and what gives reason to.
//!
//! Must never: ask the store or the clock, or lose an attempt because of another one.

use ghost_domain::budget::next_day;
use ghost_domain::event::{Event, EventKind};
use ghost_domain::{AgentId, RootId, Scope, Timestamp};

/// Attempts after the first to get a job going again.
const TRIES: u32 = 20;

/// When a job that stands still may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MayGoOn {
    /// At once.
    AtOnce,
    /// When the next day begins, which is then.
    NextDay(Timestamp),
}

/// When a job that stands still may go on, going by what an event says of its lead or of budgets: at once where the lead was
/// created again or a limit was set, the next day where that of a day is spent, for the lead or for work of the job's. What
/// archetypes give the agents that are created says nothing about the job: a world that creates agents all night must not begin
/// a failing job again with each of them.
pub(super) fn may_go_on(event: &Event, lead: &AgentId, root_id: RootId) -> Option<MayGoOn> {
    let text = |pointer: &str| event.payload.pointer(pointer).and_then(|text| text.as_str()).unwrap_or_default();
    let of_the_lead = event.agent_id.as_ref() == Some(lead);
    match event.kind {
        EventKind::AgentCreated => of_the_lead.then_some(MayGoOn::AtOnce),
        EventKind::BudgetSet => (text("/origin") != "archetype").then_some(MayGoOn::AtOnce),
        EventKind::BudgetExhausted => {
            let of_a_day = matches!(text("/details/scope").parse(), Ok(Scope::Day(_)));
            let of_the_job = of_the_lead || text("/root_id") == root_id.to_string();
            (of_a_day && of_the_job).then(|| MayGoOn::NextDay(next_day(event.ts)))
        }
        _ => None,
    }
}

/// What is to be done for a job at its time. Each has a time of its own, and none moves it back that is there already.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Again {
    /// When it is tried to get the job going, and how often after that.
    attempt: Option<(Timestamp, u32)>,
    /// When the day begins that has a budget again.
    next_day: Option<Timestamp>,
    /// When it is only looked how the job stands, which could not be told.
    look: Option<Timestamp>,
}

impl Again {
    /// It is tried now, and for a while.
    pub(super) fn at_once(&mut self, now: Timestamp) {
        self.try_at(now, TRIES);
    }

    /// It is tried then, and so often after that: at the time that is set already if that is earlier, and as often as the more
    /// patient of the two says.
    pub(super) fn try_at(&mut self, at: Timestamp, tries: u32) {
        self.attempt = Some(self.attempt.map_or((at, tries), |(set, left)| (set.min(at), left.max(tries))));
    }

    /// It is tried when the day begins, at that time.
    pub(super) fn next_day(&mut self, at: Timestamp) {
        self.next_day = Some(self.next_day.map_or(at, |set| set.min(at)));
    }

    /// It is looked then, and nothing is begun.
    pub(super) fn look_at(&mut self, at: Timestamp) {
        self.look = Some(self.look.map_or(at, |set| set.min(at)));
    }

    /// The job has been begun again: what was to be tried meanwhile is not. The day that is to come stays.
    pub(super) fn it_goes_on(&mut self) {
        self.attempt = None;
    }

    /// When something is to be done next.
    pub(super) fn at(&self) -> Option<Timestamp> {
        [self.attempt.map(|(at, _)| at), self.next_day, self.look].into_iter().flatten().min()
    }

    /// Takes what is to be done by now, which is what comes first at least. Gives how often it is tried to get the job going
    /// after this time; nothing if it is only looked at.
    pub(super) fn take(&mut self, now: Timestamp) -> Option<u32> {
        let now = self.at()?.max(now);
        let attempt = self.attempt.take_if(|(at, _)| *at <= now).map(|(_, tries)| tries);
        let day = self.next_day.take_if(|at| *at <= now).map(|_| TRIES);
        self.look.take_if(|at| *at <= now);
        attempt.max(day)
    }
}

#[cfg(test)]
mod tests {
    use ghost_domain::EventId;
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    const MIDNIGHT: Timestamp = Timestamp(2 * 86_400_000);

    #[test]
    fn a_job_goes_on_when_someone_raised_a_budget_or_a_day_begins_or_its_lead_is_back_and_not_because_of_another_agent()
    {
        let ts = Timestamp(86_400_000);
        let root = |number| RootId(Uuid::from_u128(number));
        let of = |kind, agent: Option<&str>, payload: serde_json::Value| {
            let payload = payload.into();
            let event_id = EventId(Uuid::nil());
            let agent_id = agent.map(|agent| agent.parse().unwrap());
            let event = Event { seq: 1, event_id, ts, kind, agent_id, channel: None, correlation_id: None, payload };
            may_go_on(&event, &"lea".parse().unwrap(), root(1))
        };
        let set = |origin: &str| of(EventKind::BudgetSet, None, json!({ "scope": "agent:a/day", "origin": origin }));
        let at_once = Some(MayGoOn::AtOnce);
        assert_eq!((set("hand"), set("file"), set("archetype")), (at_once, at_once, None));
        let spent = |agent, number, scope: &str| {
            let payload = json!({ "root_id": root(number), "details": { "scope": scope } });
            of(EventKind::BudgetExhausted, Some(agent), payload)
        };
        let next_day = Some(MayGoOn::NextDay(MIDNIGHT));
        for (agent, number) in [("lea", 1), ("lea", 9), ("ann", 1)] {
            assert_eq!((spent(agent, number, "world/day"), spent(agent, number, "world")), (next_day, None));
        }
        assert_eq!(spent("ann", 9, "agent:ann/day"), None, "it was no matter of the job's");
        assert_eq!(of(EventKind::TurnFinished, Some("lea"), json!({})), None);
        let created = |agent| of(EventKind::AgentCreated, Some(agent), json!({}));
        assert_eq!((created("lea"), created("ann")), (at_once, None));
    }

    #[test]
    fn a_spent_day_does_not_put_off_what_a_raised_limit_lets_go_on() {
        let mut again = Again::default();
        again.at_once(Timestamp(1_000));
        assert_eq!(again.take(Timestamp(1_000)), Some(TRIES));
        // Something was at work, and then a day's budget is spent.
        again.try_at(Timestamp(31_000), TRIES - 1);
        again.next_day(MIDNIGHT);
        assert_eq!(again.at(), Some(Timestamp(31_000)));
        assert_eq!(again.take(Timestamp(31_000)), Some(TRIES - 1));
        again.it_goes_on();
        assert_eq!(again.at(), Some(MIDNIGHT));
        // What is spent a day later does not move the day that is awaited.
        again.next_day(next_day(MIDNIGHT));
        assert_eq!((again.at(), again.take(MIDNIGHT)), (Some(MIDNIGHT), Some(TRIES)));
        assert_eq!((again.at(), again.take(MIDNIGHT)), (None, None));
    }

    #[test]
    fn a_raised_limit_that_got_nothing_going_leaves_the_next_day_as_it_was() {
        let mut again = Again::default();
        again.next_day(MIDNIGHT);
        again.at_once(Timestamp(1_000));
        let mut tried = 0;
        while let Some(at) = again.at().filter(|at| *at < MIDNIGHT) {
            let tries = again.take(at).unwrap();
            tried += 1;
            if let Some(tries) = tries.checked_sub(1) {
                again.try_at(Timestamp(at.0 + 30_000), tries);
            }
        }
        assert_eq!((tried, again.at()), (TRIES + 1, Some(MIDNIGHT)));
        assert_eq!(again.take(MIDNIGHT), Some(TRIES));
    }

    #[test]
    fn an_attempt_that_is_due_is_not_moved_back_and_a_new_reason_gives_it_all_its_tries() {
        let mut again = Again::default();
        again.try_at(Timestamp(5), 2);
        again.at_once(Timestamp(9));
        assert_eq!((again.at(), again.take(Timestamp(9))), (Some(Timestamp(5)), Some(TRIES)));
        // Both at the same time are one attempt.
        again.try_at(MIDNIGHT, 3);
        again.next_day(MIDNIGHT);
        assert_eq!((again.take(MIDNIGHT), again.at()), (Some(TRIES), None));
        // A clock that wakes too early does what it woke for.
        again.try_at(Timestamp(50), 1);
        assert_eq!(again.take(Timestamp(49)), Some(1));
    }

    #[test]
    fn a_look_that_failed_is_only_looked_at_again() {
        let mut again = Again::default();
        again.look_at(Timestamp(30));
        again.look_at(Timestamp(60));
        assert_eq!(again.at(), Some(Timestamp(30)));
        assert_eq!((again.take(Timestamp(30)), again.at()), (None, None), "nothing is begun");
    }
}
