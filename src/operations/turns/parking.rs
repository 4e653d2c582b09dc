//! Parked turns: open turns that wait for a model or a budget (docs/design.md, "Outages, breakers
//! and budgets"). Their journal and mail stay as they are.
//!
//! This module must never end a turn or consume mail.

use ghost_domain::turn::{ParkCause, Parked, WaitMode};

use crate::lookup::{taken_mail, working_turn};
use crate::mail::ids;
use crate::prelude::*;

/// The longest stored reason, in characters.
const REASON_MAX: usize = 500;
/// The world fact that stores `limits.root_tokens_max` as it was at the last start or reload.
const ROOT_DEFAULT: &str = "root_tokens_max";

/// Parks a turn that needs a model which is down. `alone` is the number of rounds of attempts that
/// failed while the model answered other turns.
pub fn park_for_model(
    w: &mut Tx,
    turn_id: TurnId,
    (provider, model): (String, String),
    reason: &str,
    alone: u32,
) -> Result<Turn> {
    let turn = working_turn(w, turn_id)?;
    park(w, turn, ParkCause::Model { provider, model }, reason, WaitMode::Blocking, alone)
}

/// Parks a turn whose next call is refused because a budget is spent. If only the budget of its
/// root is spent, its agent continues with other work.
pub(super) fn park_for_budget(w: &mut Tx, mut turn: Turn, scope: &Scope, refusal: &Refusal) -> Result<Turn> {
    let wait_mode = match scope {
        Scope::Root(_) => WaitMode::Background,
        _ => WaitMode::Blocking,
    };
    let cause = ParkCause::Budget { scope: scope.clone() };
    if turn.parked.as_ref().is_none_or(|parked| parked.cause != cause) {
        let payload = json!({
            "turn_id": turn.turn_id, "reason": refusal.message, "details": refusal.details, "root_id": turn.root_id,
        });
        w.emit_of(&turn, EventKind::BudgetExhausted, payload)?;
    }
    if wait_mode == WaitMode::Background {
        leave_to_others(w, &mut turn)?;
    }
    park(w, turn, cause, &refusal.to_string(), wait_mode, 0)
}

/// Returns mail of other roots to the inbox if a turn of a spent root has taken it, so that it gets
/// a turn of its own. If a model has already seen the mail, it stays in this turn.
fn leave_to_others(w: &mut Tx, turn: &mut Turn) -> Result<()> {
    if turn.rounds > 0 || turn.calls > 0 {
        return Ok(());
    }
    let mail = taken_mail(w, turn.turn_id)?;
    let ids = ids(mail.iter().filter(|mail| mail.root_id != turn.root_id));
    if !ids.is_empty() {
        w.message_mark(&ids, MailState::Pending, None, 0)?;
        turn.other_roots.clear();
        w.wake(&turn.agent_id);
    }
    Ok(())
}

fn park(w: &mut Tx, mut turn: Turn, cause: ParkCause, reason: &str, wait_mode: WaitMode, alone: u32) -> Result<Turn> {
    let reason = w.ctx.excerpt(reason, REASON_MAX);
    let again = turn.parked.as_ref().filter(|parked| parked.cause == cause);
    let since = again.map_or(w.ctx.now(), |parked| parked.since);
    // A turn that was retried without success is parked again.
    let fresh = again.is_none_or(|parked| parked.wait_mode != wait_mode);
    let parked = Parked { cause, reason: reason.clone(), since, wait_mode, alone };
    if turn.parked.as_ref() == Some(&parked) {
        return Ok(turn);
    }
    w.journal(turn.turn_id, &Step::Parked { reason: reason.clone() })?;
    if fresh {
        let payload = json!({
            "turn_id": turn.turn_id, "root_id": turn.root_id, "reason": reason, "waits_for": parked.cause,
            "standing": parked.wait_mode,
        });
        w.emit_of(&turn, EventKind::TurnParked, payload)?;
    }
    turn.parked = Some(parked);
    w.turn_put(&turn)?;
    Ok(turn)
}

/// Retries a parked turn at once.
///
/// # Errors
/// `NotFound`; `Conflict` if the turn is not parked.
pub fn retry(w: &mut StoreTx, by: &Party, turn_id: TurnId) -> Result<Turn> {
    let turn = w.turn_get(turn_id)?.ok_or_else(|| Refusal::not_found("turn", &turn_id.to_string(), None))?;
    if turn.status != TurnStatus::Open || turn.parked.is_none() {
        let how = if turn.status == TurnStatus::Open { "under way" } else { turn.status.as_str() };
        return Err(refusal!(Conflict, "turn {turn_id} is {how}, not parked, so {by} cannot retry it").hint(
            match turn.status {
                TurnStatus::Dead => "its mail is in a dead letter: `ghostctl dead list`, then `ghostctl dead retry`",
                TurnStatus::Failed => "`ghostctl turn retry --failed` retries turns that failed for good",
                _ => "`ghostctl turn list --status parked` lists the parked turns",
            },
        ));
    }
    go_on(w, turn)
}

/// Continues the turns that are parked because the budget of this root was spent. Called when the
/// root's limit changes.
pub(crate) fn root_changed(w: &mut StoreTx, root_id: RootId) -> Result<()> {
    for turn in w.turns_open()? {
        if turn.root_id == root_id && turn.is_in_background() {
            go_on(w, turn)?;
        }
    }
    Ok(())
}

/// Continues the turns that are parked because their root has spent the default limit
/// (`limits.root_tokens_max`), if the limit was raised since the last call and the root now has
/// free budget. A root with its own limit does not follow the default.
pub fn follow_root_default(w: &mut Tx) -> Result<()> {
    let (now, before) = (w.ctx.limits().root_tokens_max, w.meta_get(ROOT_DEFAULT)?);
    if before.as_ref() == Some(&now.to_string()) {
        return Ok(());
    }
    w.meta_put(ROOT_DEFAULT, &now.to_string())?;
    let before = before.and_then(|text| text.parse::<u64>().ok());
    // 0 means no limit. An older world has no stored value; its limit may have been raised.
    let raised = before.is_none_or(|before| before > 0 && (now == 0 || now > before));
    if !raised {
        return Ok(());
    }
    let mut roots = BTreeSet::new();
    for turn in w.turns_open()? {
        roots.insert(Scope::Root(turn.root_id));
        let root = match turn.parked.as_ref().map(|parked| &parked.cause) {
            Some(ParkCause::Budget { scope: scope @ Scope::Root(_) }) if turn.is_in_background() => scope.clone(),
            _ => continue,
        };
        let account = w.budget_get(&root)?.unwrap_or_else(|| Budget::open(root, w.ctx.now()));
        if account.limits.tokens.is_none() && account.with_default(now).passed().is_empty() {
            go_on(w, turn)?;
        }
    }
    // Calls that were refused under the old limit, or that wait in its budget queue, try again.
    w.signal(Signal::BudgetsFreed(roots.into_iter().collect()));
    w.signal(Signal::LimitsSet);
    Ok(())
}

fn go_on(w: &mut StoreTx, mut turn: Turn) -> Result<Turn> {
    if turn.is_in_background()
        && let Some(parked) = &mut turn.parked
    {
        parked.wait_mode = WaitMode::Ready;
        w.turn_put(&turn)?;
    }
    w.signal(Signal::TurnRetry { agent_id: turn.agent_id.clone(), turn_id: turn.turn_id });
    Ok(turn)
}

/// Returns why the answer to an ask is delayed: the reason of the parked turn that holds its mail
/// or blocks its agent, or the reason why the target waits for a model.
pub(crate) fn holds_up(r: &mut Tx, ask: &ghost_domain::Ask) -> Result<Option<String>> {
    let taken = match r.message_get(ask.message_id)?.and_then(|mail| mail.turn_id) {
        Some(turn_id) => r.turn_get(turn_id)?.filter(|turn| turn.status == TurnStatus::Open),
        None => None,
    };
    let turn = match taken {
        Some(turn) => Some(turn),
        None => match r.turn_open_of(&ask.target)? {
            Some(turn) => Some(turn),
            None => aside(r, ask)?,
        },
    };
    let parked = turn.and_then(|turn| turn.parked).map(|parked| parked.reason);
    Ok(parked.or_else(|| r.ctx.waiting(&ask.target).map(|wait| wait.reason.to_string())))
}

/// The open turn of an ask's target and root that is parked because the budget of that root is
/// spent.
fn aside(r: &mut StoreTx, ask: &ghost_domain::Ask) -> Result<Option<Turn>> {
    let Some(mail) = r.message_get(ask.message_id)? else { return Ok(None) };
    let open = r.turns_open_of(&mail.to)?;
    Ok(open.into_iter().find(|turn| turn.is_in_background() && turn.root_id == mail.root_id))
}
