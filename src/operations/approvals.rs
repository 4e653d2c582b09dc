//! Approvals: calls that wait for an operator. The request, its answer and the events are records, so
//! a call waits over restarts. The call itself runs in its turn, after the answer.
//!
//! These rules must never let an agent or a person outside answer, and never let an answer hold for another plan than
//! the one that was shown.

use ghost_domain::approval::SHOWN_MAX;
use serde_json::Map;

use crate::conversations::{self, Received};
use crate::prelude::*;
use crate::questions::{close, emit, event};

/// Bytes of an operator's note.
const NOTE_BYTES: usize = 2_000;

/// A call that needs an approval.
#[derive(Clone, Debug)]
pub struct NewApproval {
    /// The provider's id of the call.
    pub provider_call_id: String,
    /// What the call would do.
    pub plan: ApprovalPlan,
    /// Why it needs an approval.
    pub reason: String,
    /// How long it waits.
    pub expires: Duration,
}

/// An operator's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The call may run.
    Approve {
        /// Whether the same plan of the same agent runs later without asking again.
        always: bool,
    },
    /// The program that asks gets these fields, as its form wants them.
    Fill(Map<String, Value>),
    /// The call may not run.
    Deny,
}

/// Requests an approval and journals that the call waits for it. If an operator has approved the same plan for good, the
/// answer is that approval, and nothing is written.
///
/// # Errors
/// `RateLimited` if too many calls wait in this world.
pub fn request(w: &mut Tx, turn: &Turn, new: NewApproval) -> Result<Approval> {
    let digest = new.plan.digest(&turn.agent_id);
    if let Some(standing) = w.approval_standing(&turn.agent_id, &digest)? {
        return Ok(standing);
    }
    let full = |limit: &str, count: u32, most: u32, what: &str| {
        let hint = "do it without this call, or wait until an operator has answered the others";
        at_most(limit, count, most, what, hint)
            .map_err(|refusal| refusal.details(json!({ "limit": limit, "value": most })))
    };
    let (pending, most) = (w.approval_count_pending()?, w.ctx.limits().approvals_pending_max);
    full("approvals_pending_max", pending, most, "calls wait for an operator")?;
    let (agent_id, most) = (&turn.agent_id, w.ctx.limits().approvals_per_agent);
    let pending = Some(ApprovalStatus::Pending);
    let filter = ApprovalFilter { agent_id: Some(agent_id.clone()), status: pending, ..ApprovalFilter::default() };
    let own = u32::try_from(w.approval_list(&filter, None, most)?.len()).unwrap_or(u32::MAX);
    full("approvals_per_agent", own, most, &format!("calls of {agent_id} wait for an operator"))?;
    let now = w.ctx.now();
    let call = (new.provider_call_id, new.plan);
    let blank = Approval::new(ApprovalId(w.ctx.id()), turn, call, now, now.plus(new.expires));
    let approval = Approval { digest, reason: new.reason, ..blank };
    w.approval_put(&approval)?;
    let step = Step::ApprovalRequested { approval_id: approval.approval_id, id: approval.provider_call_id.clone() };
    w.journal_append(turn.turn_id, &step, now)?;
    emit(w, EventKind::ApprovalRequested, &approval)?;
    if let Some(conversation_id) = approval.conversation_id {
        let what = w.ctx.excerpt(&approval.plan.summary(), SHOWN_MAX);
        let how = match approval.plan.is_shown_whole() {
            true => format!("an approver answers with `/approve {} allow-once` or `deny`", approval.approval_id),
            false => format!("this is only its beginning; see `ghostctl approval show {}`", approval.approval_id),
        };
        let text = format!("{} waits for an approval ({how}): {what}", approval.agent_id);
        conversations::note(w, conversation_id, (Party::System, Some(turn.turn_id)), &text)?;
    }
    Ok(approval)
}

/// Asks an operator in the middle of a running call, for what the call's program wants to do next. No answer holds for later
/// ones: what a program says it would do is not what it does.
///
/// # Errors
/// Those of [`request`].
pub fn ask(w: &mut Tx, turn: &mut Turn, mut new: NewApproval) -> Result<Approval> {
    new.plan.once_only = Some("a program asks in the middle of its run".to_owned());
    let approval = request(w, turn, new)?;
    turn.questions.push(approval.approval_id);
    w.turn_put(turn)?;
    Ok(approval)
}

/// An answer that was typed in a conversation: `/approve <id> allow-once|allow-always|deny [note]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApproveCommand {
    /// The id as it was typed; its beginning is enough.
    pub typed_id: String,
    /// The answer.
    pub decision: Decision,
    /// The words after the answer.
    pub note: Option<String>,
}

impl ApproveCommand {
    /// Reads a message. `None` if it is no such command.
    #[must_use]
    pub fn read(content: &str) -> Option<Result<Self>> {
        let mut words = content.split_whitespace();
        if words.next() != Some("/approve") {
            return None;
        }
        let wrong = || {
            refusal!(InvalidArguments, "`/approve` needs an id and an answer")
                .hint("write /approve ID allow-once, /approve ID allow-always or /approve ID deny [note]")
        };
        let (Some(typed_id), Some(answer)) = (words.next(), words.next()) else { return Some(Err(wrong())) };
        let decision = match answer {
            "allow-once" => Decision::Approve { always: false },
            "allow-always" => Decision::Approve { always: true },
            "deny" => Decision::Deny,
            _ => return Some(Err(wrong())),
        };
        let note = words.collect::<Vec<_>>().join(" ");
        let note = (!note.is_empty()).then_some(note);
        Some(Ok(Self { typed_id: typed_id.to_owned(), decision, note }))
    }
}

/// Answers a request from within a conversation. Only a principal that the world file lists may do so, and only in a
/// conversation over the control plane, whose speakers are authenticated. The log gets a note; the agent gets no message.
///
/// # Errors
/// Those of [`decide`], and `PolicyDenied` if the world file lists no approvers.
pub fn decide_in_conversation(
    w: &mut Tx,
    by: &Party,
    approvers: &BTreeSet<String>,
    conversation_id: ConversationId,
    (approval_id, decision, note): (ApprovalId, Decision, Option<String>),
) -> Result<Received> {
    let conversation = conversations::get(w, conversation_id)?;
    if approvers.is_empty() || conversation.adapter != CONTROL {
        return Err(refusal!(PolicyDenied, "approvals cannot be answered in this conversation")
            .hint("name your principal under `approvals.approvers` in the world file, or use `ghostctl approval`"));
    }
    let shown = named(w, approval_id)?.plan.is_shown_whole();
    if !shown && decision != Decision::Deny {
        let hint =
            format!("see it with `ghostctl approval show {approval_id}`, and approve it with `ghostctl approval`");
        return Err(refusal!(PolicyDenied, "this request is not shown whole here").hint(hint));
    }
    let approval = decide(w, by, approvers, approval_id, decision, note)?;
    let always = if approval.always { ", also for later calls" } else { "" };
    let text = format!("{by}: {}{always}: {}", approval.status.as_str(), approval.plan.summary());
    let noted = conversations::note(w, conversation_id, (by.clone(), None), &text)?;
    let noted = noted.map(|(conversation, entry)| Received { conversation, entry });
    noted.ok_or_else(|| Refusal::not_found("conversation", &conversation_id.to_string(), None))
}

/// Answers a request. `approvers` are the only principals that may, unless it is empty.
///
/// # Errors
/// `PolicyDenied` if `by` may not answer, `NotFound`, and `Conflict` if the request is closed.
pub fn decide(
    w: &mut Tx,
    by: &Party,
    approvers: &BTreeSet<String>,
    approval_id: ApprovalId,
    decision: Decision,
    note: Option<String>,
) -> Result<Approval> {
    may_answer(by, approvers)?;
    let mut approval = named(w, approval_id)?;
    if approval.status != ApprovalStatus::Pending {
        let who = approval.decided_by.as_ref().map(|who| format!(" by {who}")).unwrap_or_default();
        return Err(refusal!(Conflict, "this approval is {} already{who}", approval.status.as_str())
            .hint("`ghostctl approval list` shows what waits"));
    }
    if !approval.is_open(w.ctx.now()) {
        return Err(refusal!(Conflict, "this request has expired; its call does not run")
            .hint("the agent may make the call again"));
    }
    if let Some(note) = note.as_ref().filter(|note| note.len() > NOTE_BYTES) {
        return Err(refusal!(TooLarge, "the note has {} bytes; at most {NOTE_BYTES} are taken", note.len())
            .hint("write a shorter note, or send the agent a message"));
    }
    if decision == (Decision::Approve { always: true })
        && let Some(why) = &approval.plan.once_only
    {
        return Err(refusal!(InvalidArguments, "this call can be approved once only: {why}")
            .hint("approve it without `--always`"));
    }
    if w.turn_get(approval.turn_id)?.is_none_or(|turn| turn.status != TurnStatus::Open) {
        return Err(refusal!(Conflict, "the turn of this call has ended, so it does not run any more")
            .hint("the agent may make the call again"));
    }
    approval.fields = filled(&approval.plan, &decision)?;
    (approval.status, approval.always) = match decision {
        Decision::Approve { always } => (ApprovalStatus::Approved, always),
        Decision::Fill(_) => (ApprovalStatus::Approved, false),
        Decision::Deny => (ApprovalStatus::Denied, false),
    };
    approval.decided_by = Some(by.clone());
    approval.note = note.filter(|note| !note.trim().is_empty());
    close(w, approval)
}

/// The fields of an answer, with the defaults of the form; `None` for a request without a form, and for a denial.
fn filled(plan: &ApprovalPlan, decision: &Decision) -> Result<Option<Map<String, Value>>> {
    let (schema, mut fields) = match (&plan.form, decision) {
        (_, Decision::Deny) | (None, Decision::Approve { .. }) => return Ok(None),
        (None, Decision::Fill(_)) => {
            return Err(refusal!(InvalidArguments, "this request has no form").hint("answer without fields"));
        }
        (Some(schema), Decision::Approve { .. }) => (schema, Map::new()),
        (Some(schema), Decision::Fill(given)) => (schema, given.clone()),
    };
    form::read(schema, &mut fields);
    form::fill(schema, &mut fields);
    match form::problem(schema, &fields) {
        None => Ok(Some(fields)),
        Some(problem) => Err(refusal!(InvalidArguments, "the answer does not fit: {problem}")
            .hint("`ghostctl approval show` has the form; answer with `--field NAME=VALUE` for each field")),
    }
}

/// Ends an approval for good: the same plan asks again. A call that runs already is not stopped.
///
/// # Errors
/// `PolicyDenied` if `by` may not answer, `NotFound`, and `Conflict` if it holds for one call only.
pub fn revoke(w: &mut Tx, by: &Party, approvers: &BTreeSet<String>, approval_id: ApprovalId) -> Result<Approval> {
    may_answer(by, approvers)?;
    let mut approval = named(w, approval_id)?;
    if !approval.always {
        return Err(refusal!(Conflict, "this approval holds for one call only, so nothing is left to revoke")
            .hint("`ghostctl approval list --always` shows those that hold for later calls"));
    }
    approval.always = false;
    w.approval_put(&approval)?;
    let mut event = event(w.ctx, EventKind::ApprovalRevoked, &approval);
    event.payload["revoked_by"] = json!(by);
    w.emit(event)?;
    Ok(approval)
}

/// Closes a request that nobody has answered in time. Does nothing if it is closed or not due.
pub fn expire(w: &mut Tx, approval_id: ApprovalId) -> Result<()> {
    let approval = w.approval_get(approval_id)?.filter(|approval| approval.status == ApprovalStatus::Pending);
    approval.map_or(Ok(()), |approval| expire_if_due(w, approval))
}

fn expire_if_due(w: &mut Tx, approval: Approval) -> Result<()> {
    if approval.expires_at <= w.ctx.now() {
        close(w, Approval { status: ApprovalStatus::Expired, ..approval })?;
    }
    Ok(())
}

/// Closes all requests whose time is over: their turns may not run any more.
pub fn expire_due(w: &mut Tx) -> Result<()> {
    pending(w)?.into_iter().try_for_each(|approval| expire_if_due(w, approval))
}

/// All requests that wait for an operator; `limits.approvals_pending_max` bounds them.
pub(crate) fn pending(r: &mut StoreTx) -> Result<Vec<Approval>> {
    all(r, &ApprovalFilter { status: Some(ApprovalStatus::Pending), ..ApprovalFilter::default() })
}

fn all(r: &mut StoreTx, filter: &ApprovalFilter) -> Result<Vec<Approval>> {
    read_all(|last: Option<&Approval>| {
        r.approval_list(filter, last.map(|last| (last.requested_at, last.approval_id)), PAGE_MAX)
    })
}

/// Closes the requests that a turn still waits for when it ends.
pub(crate) fn cancel(w: &mut Tx, turn_id: TurnId) -> Result<()> {
    for approval in w.approvals_pending_of_turn(turn_id)? {
        close(w, Approval { status: ApprovalStatus::Cancelled, ..approval })?;
    }
    Ok(())
}

/// Ends the standing approvals of a deleted agent, so that a later agent with its id has none of them.
pub(crate) fn end_standing(w: &mut StoreTx, agent_id: &AgentId) -> Result<()> {
    let filter = ApprovalFilter { agent_id: Some(agent_id.clone()), always: true, ..ApprovalFilter::default() };
    for approval in all(w, &filter)? {
        w.approval_put(&Approval { always: false, ..approval })?;
    }
    Ok(())
}

/// The refusal that the model gets if its call may not run; `None` if it may.
#[must_use]
pub fn refusal(approval: &Approval) -> Option<Refusal> {
    let what = &approval.plan.tool;
    Some(match approval.status {
        ApprovalStatus::Approved => return None,
        ApprovalStatus::Denied => {
            let note = approval.note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
            refusal!(ApprovalDenied, "an operator denied this call of {what}{note}")
                .hint("nothing was run; do not try the same call again")
        }
        ApprovalStatus::Pending | ApprovalStatus::Expired => {
            let waited = approval.expires_at.since(approval.requested_at).as_secs();
            refusal!(Timeout, "no operator answered within {waited} s, so this call of {what} did not run")
                .hint("do it in another way, or say what you need approved")
        }
        ApprovalStatus::Cancelled => refusal!(Cancelled, "the turn of this call ended, so it did not run"),
    })
}

fn may_answer(by: &Party, approvers: &BTreeSet<String>) -> Result<()> {
    match by {
        Party::Operator(name) if approvers.is_empty() || approvers.contains(name) => Ok(()),
        _ => Err(refusal!(PolicyDenied, "{by} may not answer approvals")
            .hint("the world file lists who may under `approvals.approvers`")),
    }
}

fn named(w: &mut StoreTx, approval_id: ApprovalId) -> Result<Approval> {
    w.approval_get(approval_id)?.ok_or_else(|| {
        refusal!(NotFound, "there is no approval {approval_id}").hint("`ghostctl approval list` shows them")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_read_and_a_wrong_one_is_refused() {
        let read = |text: &str| ApproveCommand::read(text);
        let command = |decision, note: Option<&str>| ApproveCommand {
            typed_id: "0197".into(),
            decision,
            note: note.map(str::to_owned),
        };
        let once = Decision::Approve { always: false };
        assert_eq!(read("/approve 0197 allow-once"), Some(Ok(command(once, None))));
        let always = Decision::Approve { always: true };
        assert_eq!(read("  /approve 0197  allow-always "), Some(Ok(command(always, None))));
        assert_eq!(read("/approve 0197 deny use the fork"), Some(Ok(command(Decision::Deny, Some("use the fork")))));
        for wrong in ["/approve", "/approve 0197", "/approve 0197 yes"] {
            assert_eq!(read(wrong).unwrap().unwrap_err().code, Code::InvalidArguments, "{wrong}");
        }
        for other in ["please /approve 0197 deny", "/approved 0197 deny", "hello"] {
            assert_eq!(read(other), None, "{other}");
        }
    }
}
