//! The tools for mail between agents: send, ask, broadcast, and read the inbox. The sender is always the caller.

use std::time::Duration;

use ghost_domain::mail::session_of;
use ghost_domain::{AgentId, Ask, Envelope, FilePlan, Kind, Step};
use ghost_operations::asks::{self, WaitingCall};
use ghost_operations::mail::{self, Broadcast, NewMessage};

use super::common::*;
use super::places::only;
use crate::effect::{FileWork, Typed, ask, choose, file, world};
use crate::workspace::sha256_hex;

/// The largest number of characters in a subject.
const SUBJECT_MAX: usize = 200;
/// The longest timeout of an ask, in seconds.
const ASK_SECONDS_MAX: u32 = 86_400;
/// The largest number of agents that a broadcast may exclude by name.
const EXCLUDE_MAX: usize = 200;
/// The largest number of characters in the name of a file in an inbox.
const FILE_NAME_MAX: usize = 128;
/// A file with at most this many characters is also included in the message.
const INLINE_CHARS: usize = 2_000;

params! {
    pub(super) struct SendParams {
        /// The agent that gets the message.
        to: String,
        /// The text of the message, or the content of the file.
        content: String,
        /// Put the content into a file of this name in the receiver's inbox directory instead.
        filename: Option<String>,
        /// A short line above the text.
        subject: Option<String>,
        /// Whether it wakes the receiver.
        #[serde(default = "default_true")]
        wake: bool,
        /// Wait so many seconds for an answer, as syscall.ask does.
        timeout_seconds: Option<u32>,
    }
}

fn default_true() -> bool {
    true
}

params! {
    pub(super) struct AskParams {
        /// The agent to ask.
        agent_id: String,
        /// The question.
        message: String,
        /// Seconds to wait for the answer.
        timeout_seconds: Option<u32>,
        /// What the other agent needs to know to answer.
        context: Option<String>,
    }

    pub(super) struct BroadcastParams {
        /// The text of the message.
        message: String,
        /// Agents that do not get the message.
        #[serde(default)]
        exclude: Vec<String>,
        /// Only agents of this archetype get the message.
        archetype: Option<String>,
    }
}

/// `syscall.message.send`. Its kind of effect depends on its arguments.
pub(super) fn send() -> Typed<SendParams> {
    let (plain, file, ask) = (world(send_plain).run, file(prepare_file, record_file).run, ask(send_and_wait).run);
    choose(move |arguments| {
        let waits = arguments.get("timeout_seconds").and_then(Value::as_u64).is_some_and(|seconds| seconds > 0);
        let names_file = arguments.get("filename").is_some_and(Value::is_string);
        match (waits, names_file) {
            (true, false) => ask.clone(),
            (false, true) => file.clone(),
            // This one refuses both at once, before it has any effect.
            _ => plain.clone(),
        }
    })
}

impl SendParams {
    fn subject(&self) -> Option<String> {
        let subject = ghost_domain::text::one_line(self.subject.as_deref()?);
        (!subject.is_empty()).then(|| clip(&subject, SUBJECT_MAX))
    }
}

fn send_plain(call: &CallContext, params: SendParams, w: &mut Tx) -> Result<Output> {
    not_blank("content", &params.content)?;
    if params.filename.is_some() {
        return Err(refusal!(InvalidArguments, "filename and timeout_seconds exclude each other")
            .hint("send the file first, then ask about it"));
    }
    let to = agent_id(w, &params.to)?;
    let (subject, bytes) = (params.subject(), params.content.len());
    let new_message = NewMessage {
        subject,
        wake: params.wake,
        ..NewMessage::new(&to, call.party(), Kind::Message, params.content, call.chain())
    };
    let envelope = mail::deliver(w, new_message)?;
    let content = json!({ "message_id": envelope.message_id, "sent_to": to, "bytes": bytes });
    Ok(with_wait(w, call, &to, content)?.into())
}

/// Sends a message with a file. This is the only way to put a file into another agent's directory
async fn prepare_file(call: &CallContext, params: &SendParams) -> Result<FileWork> {
    not_blank("content", &params.content)?;
    let limits = call.services.ctx.limits();
    if params.content.len() > limits.file_bytes as usize {
        return Err(refusal!(
            TooLarge,
            "the file has {} bytes; at most {} are taken",
            params.content.len(),
            limits.file_bytes
        )
        .hint("write it to the workspace in parts and send the paths"));
    }
    let name = file_name(params.filename.as_deref().unwrap_or_default())?;
    let named = params.to.clone();
    let to = call.services.read(move |r| agent_of(r, &named)).await?.agent_id;
    let path = WorkspacePath::parse(&format!("agents/{to}/inbox/{name}"), false)?;
    let before = call.services.workspace.hash(&path).await?;
    let after = sha256_hex(params.content.as_bytes());
    if before.as_ref().is_some_and(|before| *before != after) {
        return Err(refusal!(Conflict, "{to} has another file `{name}` in its inbox")
            .hint("nothing was sent; choose another filename"));
    }
    // A message that would be refused at delivery is refused before the file is written.
    let new_message = file_message(call, params, &to, path.as_str());
    call.services.read(move |r| mail::would_deliver(r, &new_message)).await?;
    let plan = FilePlan { path: path.as_str().to_owned(), before, after: Some(after), grant_id: None };
    Ok(FileWork::one(plan, params.content.clone().into_bytes()))
}

fn record_file(call: &CallContext, params: SendParams, plans: &[FilePlan], w: &mut Tx) -> Result<Output> {
    let plan = only(plans)?;
    let to = agent_id(w, &params.to)?;
    let bytes = params.content.len();
    let new_message = file_message(call, &params, &to, &plan.path);
    let envelope = mail::deliver(w, new_message)?;
    let content = json!({ "message_id": envelope.message_id, "sent_to": to, "path": plan.path, "bytes": bytes });
    Ok(with_wait(w, call, &to, content)?.into())
}

/// Adds to the result of a send why the message waits, if its receiver is stopped or has failed.
fn with_wait(r: &mut Tx, call: &CallContext, to: &AgentId, mut content: Value) -> Result<Value> {
    let receiver = r.agent_get(to)?;
    if let Some(why) = receiver.and_then(|receiver| mail::why_mail_waits(&call.services.ctx, &receiver)) {
        content["waits"] = why.into();
    }
    Ok(content)
}

/// The message about a file at `path`.
fn file_message(call: &CallContext, params: &SendParams, to: &AgentId, path: &str) -> NewMessage {
    let bytes = params.content.len();
    let body = if params.content.chars().count() <= INLINE_CHARS {
        format!("File for you: {path}\n\n{}", params.content)
    } else {
        format!("File for you ({bytes} bytes): {path}\n\nIt begins:\n{}", clip(&params.content, 500))
    };
    NewMessage {
        subject: params.subject(),
        wake: params.wake,
        attachments: vec![path.to_owned()],
        ..NewMessage::new(to, call.party(), Kind::Message, body, call.chain())
    }
}

/// Makes a file name that is safe in any directory. Letters, digits, dot, underscore and
/// hyphen stay; other characters become underscores.
fn file_name(given: &str) -> Result<String> {
    let clean: String = given
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '_' })
        .collect();
    if clean.bytes().all(|byte| byte == b'.') {
        return Err(refusal!(InvalidArguments, "`{}` is not a file name", clip(given, 80))
            .hint("give a name, for example notes.md"));
    }
    // A long name is refused, not truncated: a truncated name loses its extension, and two names
    // could become equal.
    if clean.len() > FILE_NAME_MAX {
        return Err(refusal!(TooLarge, "filename has {} characters; at most {FILE_NAME_MAX} are taken", clean.len())
            .hint("nothing was sent; choose a shorter filename"));
    }
    Ok(clean)
}

fn open_ask(call: &CallContext, w: &mut Tx, target: &str, body: String, seconds: Option<u32>) -> Result<Ask> {
    let (default, hint) = (call.services.ctx.limits().ask_seconds, "to send without waiting, use syscall.message.send");
    let seconds = within("timeout_seconds", seconds, default, ASK_SECONDS_MAX, hint)?;
    let target: AgentId = agent_id(w, target)?;
    let waiting = WaitingCall {
        agent_id: call.caller.agent_id.clone(),
        turn_id: call.turn_id,
        call_id: call.call_id,
        provider_call_id: call.provider_call_id.clone(),
    };
    let timeout = Duration::from_secs(u64::from(seconds));
    asks::open(w, call.party(), Some(waiting), &target, body, timeout, call.chain())
}

fn send_and_wait(call: &CallContext, params: SendParams, w: &mut Tx) -> Result<Ask> {
    not_blank("content", &params.content)?;
    let body = match params.subject() {
        Some(subject) => format!("{subject}\n\n{}", params.content),
        None => params.content,
    };
    open_ask(call, w, &params.to, body, params.timeout_seconds)
}

/// `syscall.ask`.
pub(super) fn ask_agent(call: &CallContext, params: AskParams, w: &mut Tx) -> Result<Ask> {
    not_blank("message", &params.message)?;
    let body = match params.context.as_deref().filter(|context| !context.trim().is_empty()) {
        Some(context) => format!("{}\n\nContext:\n{context}", params.message),
        None => params.message,
    };
    open_ask(call, w, &params.agent_id, body, params.timeout_seconds)
}

/// `syscall.broadcast`.
pub(super) fn broadcast(call: &CallContext, params: BroadcastParams, w: &mut Tx) -> Result<Output> {
    not_blank("message", &params.message)?;
    if params.exclude.len() > EXCLUDE_MAX {
        return Err(refusal!(InvalidArguments, "exclude may name {EXCLUDE_MAX} agents at most")
            .hint("send to an archetype, or to single agents, instead"));
    }
    let exclude = agent_ids(w, &params.exclude)?;
    // `broadcast` sets the receiver of each copy.
    let new_message =
        NewMessage::new(&call.caller.agent_id, call.party(), Kind::Broadcast, params.message, call.chain());
    let unreadable =
        |error: serde_json::Error| refusal!(Internal, "the progress of the broadcast is unreadable: {error}");
    let so_far: Option<Broadcast> =
        call.progress.clone().map(serde_json::from_value).transpose().map_err(unreadable)?;
    let archetype = params.archetype.as_deref();
    let result = mail::broadcast(w, &new_message, &exclude, archetype, so_far)?;
    if result.rest.is_some() {
        let progress = serde_json::to_value(result).map_err(unreadable)?;
        return Ok(Output { progress: Some(progress), ..Output::default() });
    }
    let note = (result.delivered == 0).then_some("no agent matches: see syscall.agent.list");
    let more = (result.more_skipped > 0).then_some(result.more_skipped);
    let content =
        json!({ "delivered": result.delivered, "skipped": result.skipped, "more_skipped": more, "note": note });
    Ok(without_nulls(content).into())
}

/// The default and the largest number of messages.
const LIMIT_DEFAULT: u32 = 20;
const LIMIT_MAX: u32 = 100;
/// The largest result, in bytes of JSON, so that the model gets all mail that it takes.
const TAKE_BYTES: usize = 96 * 1024;

params! {
    pub(super) struct InboxParams {
        /// The largest number of messages, 1 to 100.
        limit: Option<u32>,
        /// Take only new mail. With false, your newest mail is shown again whatever its state, and none is taken.
        #[serde(default = "default_true")]
        unread_only: bool,
    }
}

pub(super) fn read_inbox(call: &CallContext, params: InboxParams, w: &mut Tx) -> Result<Output> {
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
    // Mail of other sessions is not for this turn.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // covers: MSG-07
    #[test]
    fn unsafe_characters_in_file_names_become_underscores() {
        assert_eq!(file_name("../a b/ü.md").unwrap(), ".._a_b__.md");
        assert!(file_name("..").is_err() && file_name("").is_err());
    }

    proptest! {
        #[test]
        fn a_cleaned_name_is_one_component(given in ".{0,200}") {
            if let Ok(name) = file_name(&given) {
                prop_assert!(WorkspacePath::parse(&name, false).unwrap().as_str() == name && !name.contains('/'));
            }
        }
    }
}
