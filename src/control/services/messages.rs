//! The `Messages` service: messages and asks from operators, and dead letters.

use ghost_domain::{
    AgentId, Ask, AskStatus, Code, DeadLetter, DeadLetterId, DeadLetterStatus, Envelope, Kind, Limits, Refusal,
};
use ghost_operations::mail::{Chain, NewMessage, why_mail_waits};
use ghost_operations::{asks, dead_letters, mail};
use ghost_proto::v1;
use ghost_store::Tx;

use crate::control::Control;
use crate::convert;
use crate::convert::input::{self, Position};
use crate::dispatch::{Mutation, Query, Result};
use crate::queries;

/// Largest length of a subject, in characters.
const SUBJECT_MAX: usize = 200;

/// Why the receiver of a message does not take it now. The stored answer of a request has the message only, so a
/// repeated request gets the state of the receiver at its own time.
async fn why_it_waits(cx: &Control, sent: &Envelope) -> Result<Option<String>> {
    let to = sent.to.clone();
    let receiver = cx.world.store().read(move |r| r.agent_get(&to)).await?;
    let waits = receiver.and_then(|receiver| why_mail_waits(cx.world.ctx(), &receiver));
    Ok(waits.map(|why| cx.redactor().redact(&why)))
}

pub(crate) async fn list_dead(cx: Query, request: v1::ListDeadRequest) -> Result<v1::ListDeadResponse> {
    let agent_id = queries::agent_in_filter(&cx.world, "agent_id", request.agent_id.as_deref()).await?;
    let status = match request.status.as_deref() {
        None => Some(DeadLetterStatus::Held),
        Some("all") => None,
        Some(status) => Some(input::parsed("status", status).map_err(|refusal| {
            let hint = refusal.hint.clone().map(|hint| format!("{hint}, all"));
            Refusal { hint, ..refusal }
        })?),
    };
    let after = input::position_of("dead letters", &request.cursor)?.map(|after| (after.at, DeadLetterId(after.id)));
    let read = move |r: &mut Tx, most| r.dead_letter_list(agent_id.as_ref(), status, after, most);
    let position = |row: &DeadLetter| Position { at: row.created_at, id: row.dead_letter_id.0 }.cursor();
    let page = queries::page(&cx.world, request.limit, read, position).await?;
    let (dead_letters, next_cursor) = page.sealed("dead letters", convert::dead_letter);
    Ok(v1::ListDeadResponse { dead_letters, next_cursor, truncated: false })
}

pub(crate) async fn get_dead(cx: Query, request: v1::GetDeadRequest) -> Result<v1::GetDeadResponse> {
    let id: DeadLetterId = input::parsed("dead_letter_id", &request.dead_letter_id)?;
    let read = cx.world.store().read(move |r| {
        let Some(letter) = r.dead_letter_get(id)? else {
            return Err(Refusal::not_found("dead letter", &id.to_string(), None).hint("see `ghostctl dead list`"));
        };
        let mut envelopes = Vec::with_capacity(letter.messages.len());
        // Messages that retention has deleted are omitted.
        for message_id in &letter.messages {
            envelopes.extend(r.message_get(*message_id)?);
        }
        Ok((letter, envelopes))
    });
    let (letter, envelopes) = read.await?;
    let redactor = cx.redactor();
    let mail = envelopes.iter().map(|envelope| convert::envelope(envelope, redactor));
    let (envelopes, truncated) = queries::within_bytes(mail, false);
    Ok(v1::GetDeadResponse { dead_letter: Some(convert::dead_letter(&letter)), envelopes, truncated })
}

fn dead_change(letter: &DeadLetter) -> v1::DeadChange {
    // A dead letter that was already resolved is refused as a conflict, so this is always a change.
    v1::DeadChange { dead_letter: Some(convert::dead_letter(letter)), changed: true }
}

pub(crate) async fn send(cx: Mutation, request: v1::SendRequest) -> Result<v1::SendResponse> {
    let ctx = cx.world.ctx();
    let to: AgentId = input::parsed("agent_id", &request.agent_id)?;
    let body = input::prose("body", &request.body, ctx.limits().message_bytes)?;
    let new_message = NewMessage {
        subject: input::line_if("subject", request.subject.as_deref(), SUBJECT_MAX)?,
        attachments: input::paths("attachments", &request.attachments)?,
        ..NewMessage::new(&to, cx.by.clone(), Kind::Message, body, Chain::root(ctx))
    };
    let sent = cx.once(move |w, _| {
        let sent = mail::deliver(w, new_message)?;
        // As it is stored, with its position in the inbox.
        Ok(w.message_get(sent.message_id)?.unwrap_or(sent))
    });
    let sent = sent.await?;
    let waits = why_it_waits(&cx, &sent).await?;
    Ok(v1::SendResponse {
        message_id: sent.message_id.to_string(),
        seq: sent.seq,
        root_id: sent.root_id.to_string(),
        waits,
    })
}

pub(crate) async fn ask(cx: Mutation, request: v1::AskRequest) -> Result<v1::AskResponse> {
    let ctx = cx.world.ctx();
    let limits = ctx.limits();
    let target: AgentId = input::parsed("agent_id", &request.agent_id)?;
    let body = input::prose("body", &request.body, limits.message_bytes)?;
    let timeout = input::wait("timeout_ms", request.timeout_ms)?;
    let timeout = timeout.unwrap_or_else(|| Limits::seconds(limits.ask_seconds));
    let chain = Chain::root(ctx);
    let opened: Ask = cx.once(move |w, by| asks::open(w, by.clone(), None, &target, body, timeout, chain)).await?;
    let ask = cx.world.wait_for_ask(opened.ask_id).await.map_err(|refusal| match refusal.code {
        Code::NotFound => Refusal::new(Code::NotFound, format!("ask {} is no longer stored", opened.ask_id))
            .hint("its answer was given and has been pruned; ask again with a fresh request_id"),
        _ => refusal,
    })?;
    let refusal = why_unanswered(&ask);
    let error_code = refusal.as_ref().map(|refusal| refusal.code.as_str().to_owned());
    let redact = |text: String| cx.redactor().redact(&text);
    Ok(v1::AskResponse {
        ask_id: ask.ask_id.to_string(),
        status: ask.status.as_str().to_owned(),
        // A late reply stays in the row, but the ask ended without a reply.
        reply: ask.reply.filter(|_| ask.status == AskStatus::Answered).map(redact),
        error_code,
        hint: refusal.as_ref().and_then(|refusal| refusal.hint.clone()).map(redact),
        error: refusal.map(|refusal| refusal.message).map(redact),
        truncated: ask.truncated && ask.status == AskStatus::Answered,
    })
}

pub(crate) async fn retry_dead(cx: Mutation, request: v1::RetryDeadRequest) -> Result<v1::DeadChange> {
    let (id, fresh) = (input::parsed("dead_letter_id", &request.dead_letter_id)?, request.fresh);
    let letter = cx.once(move |w, by| dead_letters::retry(w, by, id, fresh)).await?;
    Ok(dead_change(&letter))
}

pub(crate) async fn drop_dead(cx: Mutation, request: v1::DropDeadRequest) -> Result<v1::DeadChange> {
    let id = input::parsed("dead_letter_id", &request.dead_letter_id)?;
    let letter = cx.once(move |w, by| dead_letters::discard(w, by, id)).await?;
    Ok(dead_change(&letter))
}

/// The refusal that an ask ended with. `None` if it is open or was answered.
fn why_unanswered(ask: &Ask) -> Option<Refusal> {
    let text = ask.error.as_deref().unwrap_or("it ended without an answer");
    match ask.status {
        AskStatus::Open | AskStatus::Answered => None,
        AskStatus::TimedOut => Some(Refusal::new(Code::Timeout, text).hint(
            "the question stays in the agent's inbox, and a late reply is kept: see `ghostctl events --kind ask.late`; a \
             longer timeout waits for it",
        )),
        AskStatus::Failed => {
            let refusal = Refusal::new(ask.code.unwrap_or(Code::Unavailable), text);
            Some(ask.hint.iter().fold(refusal, |refusal, hint| refusal.hint(hint)))
        }
    }
}
