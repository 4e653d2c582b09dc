//! The end of approvals, and the questions that a running call puts to an operator: they end with the call.
//!
//! Nothing here may decide about an approval.

use ghost_domain::approval::SHOWN_MAX;

use crate::prelude::*;

/// Takes back the questions of a call that has ended; with `None`, those of all calls. The caller writes the turn.
pub(crate) fn close_questions(w: &mut Tx, turn: &mut Turn, of: Option<&str>) -> Result<()> {
    let mut left = Vec::new();
    for approval_id in std::mem::take(&mut turn.questions) {
        match w.approval_get(approval_id)? {
            Some(approval) if of.is_some_and(|id| id != approval.provider_call_id) => left.push(approval_id),
            Some(approval) if approval.status == ApprovalStatus::Pending => {
                close(w, Approval { status: ApprovalStatus::Cancelled, ..approval })?;
            }
            // Nobody waits for it any more.
            _ => {}
        }
    }
    turn.questions = left;
    Ok(())
}

/// Takes back the questions of a turn whose calls were interrupted: their programs are gone.
pub(crate) fn end_all(w: &mut Tx, turn: &mut Turn) -> Result<()> {
    if !turn.questions.is_empty() {
        close_questions(w, turn, None)?;
        w.turn_put(turn)?;
    }
    Ok(())
}

/// Closes an approval.
pub(crate) fn close(w: &mut Tx, mut approval: Approval) -> Result<Approval> {
    approval.closed_at = Some(w.ctx.now());
    w.approval_put(&approval)?;
    emit(w, EventKind::ApprovalClosed, &approval)?;
    w.signal(Signal::ApprovalClosed(approval.agent_id.clone()));
    Ok(approval)
}

/// Writes an event of an approval.
pub(crate) fn emit(w: &mut Tx, kind: EventKind, approval: &Approval) -> Result<()> {
    w.emit(event(w.ctx, kind, approval))
}

/// An event of an approval.
pub(crate) fn event(ctx: &Context, kind: EventKind, approval: &Approval) -> NewEvent {
    let payload = json!({
        "approval_id": approval.approval_id, "status": approval.status, "turn_id": approval.turn_id,
        "conversation_id": approval.conversation_id, "tool": approval.plan.tool,
        "summary": ctx.excerpt(&approval.plan.summary(), SHOWN_MAX), "reason": ctx.excerpt(&approval.reason, 400),
        "expires_at_ms": approval.expires_at, "always": approval.always, "decided_by": approval.decided_by,
    });
    NewEvent::new(kind, payload).agent(&approval.agent_id).correlation(approval.turn_id)
}
