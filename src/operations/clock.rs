//! Jumps of the wall clock: what was computed from it is computed again, in the transaction that records
//! the jump. Deadlines that are durations move with the clock, so that no jump shortens or prolongs
//! them; slots of schedules follow from their rules.
//!
//! These rules must never move a date that a person gave, and never delete anything.

use ghost_domain::conversation::DELIVERY_WAIT_MAX;
use ghost_domain::event::EventFilter;
use ghost_domain::wall_clock::{DOWN_MAX, Doubt, JUMP_MIN, Jump};

use crate::prelude::*;
use crate::{approvals, budgets};

/// The world fact that holds the [`ClockState`].
const STATE: &str = "clock";
/// How long `status` warns of a jump that retention does not wait for.
const WARNED_MS: u64 = 24 * 3_600_000;

/// What the world knows of its clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockState {
    /// The last reading that was recorded here.
    pub seen: Timestamp,
    /// How far the clock may be ahead.
    pub doubt: Doubt,
    /// The last jump, as long as `status` warns of it.
    pub jump: Option<Jump>,
    /// Milliseconds that the daemon has run since that jump.
    pub since_ms: u64,
}

impl ClockState {
    /// The warning for `status`.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let jump = self.jump?;
        let (size, way) = (text(jump.by_ms().unsigned_abs()), if jump.by_ms() < 0 { "back" } else { "forward" });
        let mut warning = format!("the clock jumped {way} by {size}, to {}", jump.to.rfc3339_seconds());
        if !self.doubt.is_over() {
            let left = text(self.doubt.ahead_ms - self.doubt.ran_ms);
            warning.push_str(&format!(
                "; nothing is deleted because of it until the daemon has run for another {left}. If the clock is right, \
                 confirm it with `ghostctl confirm-clock`"
            ));
        }
        Some(warning)
    }
}

/// A time in its largest unit, for people.
fn text(ms: u64) -> String {
    match ms / 1_000 {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

/// Reads what the world knows of its clock.
pub fn state(r: &mut StoreTx) -> Result<ClockState> {
    let stored = r.meta_get(STATE)?;
    // A text of a later version is no reason not to start.
    Ok(stored.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default())
}

fn put(w: &mut StoreTx, state: ClockState) -> Result<()> {
    Ok(w.meta_put(STATE, &json!(state).to_string())?)
}

/// Compares the clock with what is stored, at the start of a daemon: no monotonic clock survives it. A
/// clock that shows less than the newest record was put back; one that is far ahead counts as a jump
/// for retention.
pub fn at_start(w: &mut Tx) -> Result<()> {
    let (before, now) = (state(w)?, w.ctx.now());
    let (_, last) = w.event_bounds()?;
    // One record that cannot be read must not keep a world from starting.
    let newest = match w.event_list(last.saturating_sub(1).max(0), &EventFilter::default(), 1) {
        Ok((events, _)) => events.first().map_or(before.seen, |event| event.ts.max(before.seen)),
        Err(StoreError::Row { .. }) => before.seen,
        Err(error) => return Err(error.into()),
    };
    let jump = Jump { from: newest, to: now };
    if newest == Timestamp::default() {
        return put(w, ClockState { seen: now, ..before });
    }
    if now.plus(JUMP_MIN) <= newest {
        return jumped(w, jump);
    }
    let state = ClockState { seen: now, ..before };
    if now.since(newest) > DOWN_MAX {
        put(w, after(state, jump))?;
        emit(w, jump, "start")?;
    } else {
        put(w, state)?;
    }
    set_schedules_right(w, None, now)
}

fn after(state: ClockState, jump: Jump) -> ClockState {
    ClockState { seen: jump.to, doubt: state.doubt.jumped(jump.by_ms()), jump: Some(jump), since_ms: 0 }
}

fn emit(w: &mut Tx, jump: Jump, found: &str) -> Result<()> {
    let (from, to) = (jump.from.rfc3339(), jump.to.rfc3339());
    let payload = json!({ "from": from, "to": to, "by_ms": jump.by_ms(), "found": found });
    w.emit(NewEvent::new(EventKind::WorldClockJumped, payload))
}

/// Records a jump, and computes again what was computed from the clock.
pub fn jumped(w: &mut Tx, jump: Jump) -> Result<()> {
    let before = state(w)?;
    put(w, after(before, jump))?;
    emit(w, jump, "running")?;
    for mut ask in w.asks_open()? {
        (ask.created_at, ask.deadline_at) = (jump.moved(ask.created_at), jump.moved(ask.deadline_at));
        w.ask_put(&ask)?;
    }
    for mut approval in approvals::pending(w)? {
        approval.requested_at = jump.moved(approval.requested_at);
        approval.expires_at = jump.moved(approval.expires_at);
        w.approval_put(&approval)?;
    }
    for mut droid in w.droids_live()? {
        (droid.created_at, droid.deadline_at) = (jump.moved(droid.created_at), jump.moved(droid.deadline_at));
        w.droid_put(&droid)?;
    }
    move_grants(w, jump)?;
    let mut accounts = Vec::new();
    let filter = BudgetFilter { limited: true, no_roots: true, ..BudgetFilter::default() };
    budgets::each(w, filter, |account| accounts.push(account))?;
    for account in accounts {
        let moved = account.clone().moved(jump);
        if moved != account {
            w.budget_put(&moved)?;
        }
    }
    set_deliveries_right(w, jump)?;
    if let Some(ahead) = before.jump.filter(|before| jump.by_ms() < 0 && before.by_ms() > 0) {
        move_sessions(w, jump, ahead.to)?;
    }
    w.signal(Signal::LimitsSet);
    set_schedules_right(w, Some(jump), jump.to)
}

fn move_grants(w: &mut StoreTx, jump: Jump) -> Result<()> {
    // All of them: one that is over stays over.
    for mut grant in read_all(|last: Option<&Grant>| w.grant_list(last.map(|last| last.grant_id), PAGE_MAX))? {
        (grant.created_at, grant.expires_at) = (jump.moved(grant.created_at), jump.moved(grant.expires_at));
        w.grant_put(&grant)?;
        w.signal(Signal::Grants(grant.agent_id));
    }
    Ok(())
}

/// A session's log is in the order in which its turns ended, and begins at a place in it. What a clock
/// that was ahead since `since` has put after the present goes to where it belongs, so that later turns
/// follow it.
fn move_sessions(w: &mut StoreTx, jump: Jump, since: Timestamp) -> Result<()> {
    let right = |at: Timestamp| if at >= since.max(jump.to) { jump.moved(at).min(jump.to) } else { at };
    let place = |place: LogPlace| LogPlace { ended_at: right(place.ended_at), ..place };
    for mut agent in w.agent_list(false)? {
        let before = (agent.created_at, agent.last_active_at);
        agent.created_at = right(agent.created_at);
        agent.last_active_at = agent.last_active_at.map(right);
        if before == (agent.created_at, agent.last_active_at) {
            continue;
        }
        w.agent_put(&agent)?;
        let agent_id = agent.agent_id;
        let talks = w.session_list(&agent_id, jump.to, jump.to, PAGE_MAX)?;
        let talks = talks.into_iter().filter_map(|talk| talk.conversation_id).map(Some);
        for conversation_id in talks.chain([None]) {
            for source in ["mail", "cron"] {
                let newest = SessionTurns::newest(&agent_id, conversation_id, source, u32::MAX);
                let query = SessionTurns { from: Some(LogPlace::last_at(jump.to)), ..newest };
                for mut turn in w.session_turns(&query)? {
                    turn.ended_at = turn.ended_at.map(right);
                    w.turn_put(&turn)?;
                }
            }
            if let Some(mut start) = w.session_start(&agent_id, conversation_id)? {
                start.start.place = place(start.start.place);
                start.reset = start.reset.map(place);
                w.session_start_put(&start)?;
            }
        }
    }
    Ok(())
}

/// Deliveries wait as long as they would have without the jump, and never longer than any wait lasts.
fn set_deliveries_right(w: &mut StoreTx, jump: Jump) -> Result<()> {
    let now = jump.to;
    let latest = now.plus(DELIVERY_WAIT_MAX);
    for mut entry in w.deliveries_due(Timestamp(i64::MAX), &[], u32::MAX)? {
        let Some(at) = entry.next_at.filter(|at| *at > jump.from) else { continue };
        let moved = jump.moved(at);
        entry.next_at = Some(if moved > latest { now } else { moved });
        w.conversation_entry_put(&entry)?;
    }
    w.signal(Signal::Delivery);
    Ok(())
}

/// Next slots follow from the rules again.
fn set_schedules_right(w: &mut StoreTx, jump: Option<Jump>, now: Timestamp) -> Result<()> {
    let mut after: Option<SchedulePlace> = None;
    loop {
        let page = match w.schedule_list(None, None, after.as_ref()) {
            Ok(page) => page,
            // It is set aside when it is due; until then those after it stay as they are.
            Err(StoreError::Row { key, .. }) => {
                tracing::warn!(schedule = key, "a schedule cannot be read; those after it keep their next slots");
                break;
            }
            Err(error) => return Err(error.into()),
        };
        let Some(last) = page.last() else { break };
        after = Some((last.agent_id.clone(), last.kind, last.name.clone()));
        for again in page.iter().filter_map(|schedule| schedule.computed_again(jump, now)) {
            w.schedule_put(&again)?;
        }
    }
    w.signal(Signal::Schedules);
    Ok(())
}

/// Counts time that the daemon has run, for the trust of retention and for the warning.
pub fn ran(w: &mut StoreTx, now: Timestamp, time: Duration) -> Result<()> {
    let before = state(w)?;
    let since_ms = before.since_ms.saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    let doubt = before.doubt.ran(time);
    let jump = before.jump.filter(|_| !doubt.is_over() || since_ms < WARNED_MS);
    put(w, ClockState { seen: now, doubt, jump, since_ms })
}

/// An operator confirms that the clock is right. Returns whether there was a doubt or a warning.
pub fn confirm(w: &mut Tx, by: &Party) -> Result<bool> {
    let (before, seen) = (state(w)?, w.ctx.now());
    if before.jump.is_none() && before.doubt.is_over() {
        return Ok(false);
    }
    put(w, ClockState { seen, ..ClockState::default() })?;
    w.emit(NewEvent::new(EventKind::WorldClockConfirmed, json!({ "by": by })))?;
    Ok(true)
}
