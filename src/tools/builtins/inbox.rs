//! `syscall.inbox.read` (BI-33): reads the agent's own inbox. Mail that is read joins the turn and
//! is consumed when the turn ends.

use ghost_domain::mail::session_of;
use ghost_domain::{Envelope, Refusal, Step};
use ghost_operations::Tx;
use ghost_operations::mail;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::common::{fitting, within, without_nulls};
use crate::context::CallContext;
use crate::effect::Output;

/// The default and the largest number of messages.
const LIMIT_DEFAULT: u32 = 20;
const LIMIT_MAX: u32 = 100;
/// The largest result, in bytes of JSON, so that the model gets all mail that it takes.
const TAKE_BYTES: usize = 96 * 1024;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadParams {
    /// The largest number of messages, 1 to 100.
    limit: Option<u32>,
    /// Take only new mail. With false, your newest mail is shown again whatever its state, and none is taken.
    #[serde(default = "default_true")]
    unread_only: bool,
}

fn default_true() -> bool {
    true
}

pub(super) fn read_inbox(call: &CallContext, params: ReadParams, w: &mut Tx) -> Result<Output, Refusal> {
    let limit = within("limit", params.limit, LIMIT_DEFAULT, LIMIT_MAX, "read again for more")?;
    let own = &call.caller.agent_id;
    // A call by an operator takes no mail. The mail would be consumed at the end of the
    // operator's turn, unseen by the agent. An operator sees the mail of all sessions.
    let operator = w.turn_get(call.turn_id)?.is_some_and(|turn| turn.source == "operator");
    if operator {
        let mail = match params.unread_only {
            true => w.inbox_pending(own, limit)?,
            false => w.messages_recent(own, limit)?,
        };
        let remaining = w.inbox_depth(own)?;
        return Ok(shown(mail.iter(), remaining));
    }
    // Mail of other sessions is not for this turn (LOOP-01).
    let of_session = |envelope: &&Envelope| session_of(envelope) == call.conversation_id;
    let pending = w.inbox_pending(own, mail::join_window(limit))?;
    if !params.unread_only {
        let recent = w.messages_recent(own, mail::join_window(limit))?;
        let remaining = u32::try_from(pending.iter().filter(of_session).count()).unwrap_or(u32::MAX);
        return Ok(shown(recent.iter().filter(of_session).take(limit as usize), remaining));
    }
    // Messages are counted in the order in which `join` takes them, so that `join` takes no
    // more than the result can show.
    let joinable = pending.iter().filter(|envelope| mail::joinable(&call.services.ctx, call.chain(), envelope));
    let (taken, _) = fitting(joinable.take(limit as usize).map(envelope_json), TAKE_BYTES);
    let count = u32::try_from(taken.len()).unwrap_or(limit);
    let joined = mail::join(w, own, call.turn_id, count)?;
    if !joined.mail.is_empty() {
        let messages = joined.mail.iter().map(|mail| mail.message_id).collect();
        w.journal_append(call.turn_id, &Step::MailJoined { messages }, call.services.ctx.now())?;
    }
    Ok(shown(joined.mail.iter(), joined.remaining))
}

fn shown<'m>(mail: impl Iterator<Item = &'m Envelope>, remaining: u32) -> Output {
    let (messages, all) = fitting(mail.map(envelope_json), TAKE_BYTES);
    let content = json!({ "messages": messages, "remaining": remaining });
    Output::cut(content, !all)
}

fn envelope_json(mail: &Envelope) -> Value {
    let attachments = (!mail.attachments.is_empty()).then_some(&mail.attachments);
    without_nulls(json!({
        "message_id": mail.message_id, "from": mail.from, "kind": mail.kind, "subject": mail.subject,
        "body": mail.body, "attachments": attachments, "sent_at": mail.created_at.rfc3339(), "state": mail.state,
    }))
}
