//! What ends droids from outside: their parent, an operator, the end of their parent, a crash, their time.
//!
//! A droid must never be left without a parent that works.

use ghost_domain::droid::OVERDUE;

use super::close::{at_work, end, own, report, words};
use crate::prelude::*;
use crate::turns::end::finish;
use crate::turns::ending::Ending;

/// Ends a droid for `by`.
///
/// # Errors
/// Those of [`own`]. A droid that has ended stays as it is.
pub fn kill(w: &mut Tx, by: &Party, droid_id: &str, reason: Option<&str>) -> Result<Droid> {
    let droid = own(w, by, droid_id)?;
    if droid.state.is_over() {
        return Ok(droid);
    }
    let why = reason.map(|reason| format!(": {}", w.ctx.excerpt(reason, 300))).unwrap_or_default();
    end_at_work(w, droid, DroidState::Killed, Some(refusal!(Cancelled, "{by} ended it{why}")))
}

/// What ended the work of an agent whose droids end with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parent {
    /// It was told to stop. It hears of its droids when it is started again.
    Stopped,
    /// It crashed too often. Like [`Parent::Stopped`].
    Failed,
    /// It was deleted. Nobody hears of its droids.
    Deleted,
}

/// Ends all droids of an agent whose own work has ended, so that none is left without a parent.
pub fn ended_with_parent(w: &mut Tx, parent_id: &AgentId, how: Parent) -> Result<()> {
    let words = match how {
        Parent::Stopped => "was stopped",
        Parent::Failed => "has failed",
        Parent::Deleted => "was deleted",
    };
    if w.droids_live_count(parent_id)?.of_parent == 0 {
        return Ok(());
    }
    for droid in w.droids_live()?.into_iter().filter(|droid| droid.parent_id == *parent_id) {
        let why = refusal!(Cancelled, "its parent {parent_id} {words}");
        match how {
            Parent::Deleted => end_quietly(w, droid, DroidState::Killed, Some(why))?,
            Parent::Stopped | Parent::Failed => end_at_work(w, droid, DroidState::Killed, Some(why))?,
        };
    }
    Ok(())
}

/// Ends a droid whose agent an operator stops or deletes. Other agents are left alone, and so are droids that have ended.
pub fn agent_ended(w: &mut Tx, agent: &Agent) -> Result<()> {
    if agent.kind != AgentKind::Droid {
        return Ok(());
    }
    let Some(droid) = at_work(w, &agent.agent_id)? else { return Ok(()) };
    let why = refusal!(Cancelled, "its agent was stopped or deleted");
    end_at_work(w, droid, DroidState::Killed, Some(why)).map(drop)
}

/// Ends a droid whose actor crashed, or whose task is a dead letter. A droid is not restarted; its parent decides.
pub fn crashed(w: &mut Tx, droid_id: &AgentId, reason: &str) -> Result<()> {
    let Some(droid) = at_work(w, droid_id)? else { return Ok(()) };
    let why = refusal!(Unavailable, "it could not go on: {}", w.ctx.excerpt(reason, 500))
        .hint("start another droid, with smaller or different work");
    end_at_work(w, droid, DroidState::Failed, Some(why)).map(drop)
}

/// Ends a droid with whatever it is at, and tells its parent.
fn end_at_work(w: &mut Tx, droid: Droid, state: DroidState, error: Option<Refusal>) -> Result<Droid> {
    let droid = end_quietly(w, droid, state, error)?;
    report(w, &droid, words(state))?;
    Ok(droid)
}

/// Like [`end_at_work`], without a word to the parent.
fn end_quietly(w: &mut Tx, droid: Droid, state: DroidState, error: Option<Refusal>) -> Result<Droid> {
    // First, so that the end of its turn finds it ended.
    let droid = end(w, droid, state, error)?;
    if let Some(turn) = w.turn_open_of(&droid.droid_id)? {
        let why = droid.error.as_ref().map_or_else(|| words(state).to_owned(), |error| error.message.clone());
        finish(w, turn.turn_id, Ending::Cancelled(why))?;
        w.signal(Signal::TurnCancelled { agent_id: droid.droid_id.clone(), turn_id: turn.turn_id });
    }
    Ok(droid)
}

/// Ends droids that are past their time: runs some minutes after it, because waiting for a model does not count,
/// and sessions that are idle. Returns how many.
///
/// # Errors
/// If the store cannot be read.
pub async fn end_overdue(store: &Store, ctx: &Context) -> Result<usize> {
    let now = ctx.now();
    let live = store.read_latest(|r| r.droids_live()).await.map_err(Refusal::from)?;
    let is_due = |droid: &Droid| match droid.mode {
        DroidMode::Run => now >= droid.deadline_at.plus(OVERDUE),
        DroidMode::Session => now >= droid.deadline_at,
    };
    let mut ended = 0;
    for droid in live.into_iter().filter(is_due) {
        let droid_id = droid.droid_id.clone();
        let done: Result<bool> = ctx.write(store, move |w| end_late(w, &droid.droid_id)).await;
        match done {
            Ok(is_ended) => ended += usize::from(is_ended),
            // The others do not wait for this one. The next round tries it again.
            Err(refusal) => tracing::warn!(%droid_id, %refusal, "a droid that is past its time could not be ended"),
        }
    }
    Ok(ended)
}

fn end_late(w: &mut Tx, droid_id: &AgentId) -> Result<bool> {
    let Some(droid) = at_work(w, droid_id)? else { return Ok(false) };
    let late = || {
        refusal!(Timeout, "it was still not done {} s after its time", OVERDUE.as_secs())
            .hint("its model may be down or its budget spent; try again later")
    };
    let (state, error) = match droid.mode {
        DroidMode::Run => (DroidState::TimedOut, Some(late())),
        DroidMode::Session if w.ctx.now() < droid.deadline_at => return Ok(false),
        DroidMode::Session => {
            let is_busy = w.turn_open_of(droid_id)?.is_some() || w.inbox_depth(droid_id)? > 0;
            // Its last work may begin just before it would be idle.
            let last = droid.deadline_at.plus(Limits::seconds(droid.terms.turn_seconds)).plus(OVERDUE);
            match is_busy {
                true if w.ctx.now() < last => return Ok(false),
                true => (DroidState::TimedOut, Some(late())),
                false => (DroidState::Succeeded, None),
            }
        }
    };
    end_at_work(w, droid, state, error).map(|_| true)
}
