//! The tools for the outside channel: the actions of an agent in the conversation that its turn came from. The registry is
//! bound to the conversation, and no argument names it: another one is never reached.

use async_trait::async_trait;
use ghost_config::plan::Plan;
use ghost_domain::conversation::{is_file_name, is_mime_type, mime_of};
use ghost_domain::{ActionKind, ApprovalPlan, Attachment, BoundFile, ChannelContext, Conversation};
use ghost_operations::conversations::{self as rules, AllowedActions, ChannelAction, Handover, Post};

use super::common::*;
use super::places::{Scope, resolve};
use crate::context::Caller;
use crate::tool::{Approvable, Need, acts_in_its_conversation};

/// The largest number of files in one call. The limit of a message is a setting of the world.
const PATHS_MAX: usize = 64;

params! {
    pub(super) struct SendParams {
        /// The text of the message.
        content: String,
        /// message_id of the message that this one answers, if it is to be shown as an answer.
        reply_to: Option<String>,
    }

    pub(super) struct SendOutParams {
        /// The text of the message.
        content: String,
        /// Files to send with it, relative to the shared root, such as output/reports/may.md.
        #[serde(default)]
        attachments: Vec<String>,
    }

    pub(super) struct AttachParams {
        /// The file to attach, relative to the scope.
        path: String,
        /// The file name that the other side sees; the file's own name if absent.
        name: Option<String>,
        /// The media type, such as text/markdown; derived from the name if absent.
        mime_type: Option<String>,
        /// `agent`: your own directory (the default); `world`: the shared root.
        #[serde(default)]
        scope: Scope,
    }

    pub(super) struct HandoffParams {
        /// The agent that answers from now on.
        agent_id: String,
        /// The reason for the handoff.
        reason: Option<String>,
        /// What the other agent needs to know to continue: the question, the findings, the open points.
        summary: Option<String>,
    }
}

/// The conversation that the call's turn came from. Registries without a conversation do not
/// contain these tools, so the refusal is only a safeguard.
pub(super) fn channel(call: &CallContext) -> Result<ChannelContext> {
    call.caller.channel.ok_or_else(|| {
        refusal!(AccessDenied, "this turn does not come from a conversation with someone outside")
            .hint("to tell another agent something, use syscall.message.send")
    })
}

/// Makes an attachment of a workspace file. It reads only the file's size, so it may run in a
/// transaction.
fn attachment(
    call: &CallContext,
    path: &WorkspacePath,
    name: Option<&str>,
    mime_type: Option<&str>,
) -> Result<Attachment> {
    let bytes = call.services.workspace.size_now(path)?;
    let limit = call.services.ctx.limits().attachment_bytes;
    if bytes > u64::from(limit) {
        return Err(refusal!(
            TooLarge,
            "`{}` has {bytes} bytes; at most {limit} are attached",
            clip(path.as_str(), 120)
        )
        .hint("attach a smaller file, or a part of it")
        .details(json!({ "limit": "attachment_bytes" })));
    }
    let own_name = path.as_str().rsplit('/').next().unwrap_or_default();
    let name = name.unwrap_or(own_name);
    if !is_file_name(name) {
        return Err(refusal!(InvalidArguments, "`{}` is not a file name", clip(name, 80))
            .hint("give name as 1 to 128 characters without a slash, for example report.md"));
    }
    let mime_type = mime_type.unwrap_or_else(|| mime_of(name));
    if !is_mime_type(mime_type) {
        return Err(refusal!(InvalidArguments, "`{}` is not a media type", clip(mime_type, 80))
            .hint("give mime_type, for example text/markdown, or omit it"));
    }
    Ok(Attachment { path: path.as_str().to_owned(), name: name.to_owned(), mime_type: mime_type.to_owned(), bytes })
}

/// Binds an approval of a tool that sends files to what they hold: whoever writes one while the call waits must not choose
/// what goes out.
pub(super) struct SentFiles {
    /// Name of the tool.
    pub(super) tool: &'static str,
}

#[async_trait]
impl Approvable for SentFiles {
    fn need(&self, _: &Plan, _: &Caller, _: &Value) -> Need {
        Need::Nothing
    }

    async fn plan(&self, call: &CallContext, arguments: &Value) -> Result<ApprovalPlan> {
        let list = arguments.get("attachments").and_then(Value::as_array).into_iter().flatten();
        let listed = list.filter_map(Value::as_str).map(|path| WorkspacePath::parse(path, false));
        let one = arguments.get("path").and_then(Value::as_str).map(|path| {
            let scope = arguments.get("scope").map(Scope::deserialize).and_then(Result::ok).unwrap_or_default();
            resolve(call, path, scope, false)
        });
        let mut files = Vec::new();
        for path in listed.chain(one).take(PATHS_MAX) {
            let path = path?;
            // A file that is not there is refused by the call itself.
            if let Some(sha256) = call.services.workspace.hash(&path).await? {
                files.push(BoundFile { path: path.as_str().to_owned(), sha256 });
            }
        }
        let (tool, arguments) = (self.tool.to_owned(), arguments.clone());
        let once_only = Some(acts_in_its_conversation(self.tool));
        Ok(ApprovalPlan { tool, arguments, files, once_only, ..ApprovalPlan::default() })
    }
}

/// Sends a message in the conversation. Besides its reply, this is an agent's only way to do so
fn post(call: &CallContext, post: Post, w: &mut Tx) -> Result<Output> {
    not_blank("content", &post.content)?;
    let conversation_id = channel(call)?.conversation_id;
    let entry = rules::post(w, &call.caller.agent_id, call.turn_id, conversation_id, post)?;
    Ok(json!({
        "message_id": entry.message_id, "conversation_id": conversation_id, "delivery": entry.delivery,
    })
    .into())
}

/// `channel.send`: sends a separate message in the thread that the turn came from.
pub(super) fn send(call: &CallContext, params: SendParams, w: &mut Tx) -> Result<Output> {
    let post = Post { content: params.content, attachments: Vec::new(), reply_to: params.reply_to };
    self::post(call, post, w)
}

/// `syscall.channel.send`: like [`send`], with files.
pub(super) fn send_out(call: &CallContext, params: SendOutParams, w: &mut Tx) -> Result<Output> {
    send_with_files(call, params.content, &params.attachments, w)
}

/// Sends a message with files. Serves `syscall.channel.send` and `message`.
pub(super) fn send_with_files(call: &CallContext, content: String, paths: &[String], w: &mut Tx) -> Result<Output> {
    channel(call)?;
    if paths.len() > PATHS_MAX {
        return Err(refusal!(InvalidArguments, "attachments may name {PATHS_MAX} files at most")
            .hint("send the rest with another message"));
    }
    let mut attachments = Vec::with_capacity(paths.len());
    for path in paths {
        attachments.push(attachment(call, &WorkspacePath::parse(path, false)?, None, None)?);
    }
    post(call, Post { content, attachments, reply_to: None }, w)
}

/// `channel.file_attach`: attaches a file to the reply that ends the turn.
pub(super) fn attach(call: &CallContext, params: AttachParams, w: &mut Tx) -> Result<Output> {
    let channel = channel(call)?;
    if !channel.replies {
        return Err(refusal!(
            Conflict,
            "this turn does not end with a reply to the conversation, so no file can be attached"
        )
        .hint("send the file with a message of its own: syscall.channel.send with attachments"));
    }
    let path = resolve(call, &params.path, params.scope, false)?;
    let file = attachment(call, &path, params.name.as_deref(), params.mime_type.as_deref())?;
    let bytes = file.bytes;
    let own = &call.caller.agent_id;
    let new_message = rules::attach(w, own, call.turn_id, channel.conversation_id, file)?;
    Ok(json!({ "attachment_id": new_message.message_id, "bytes": bytes, "path": path.as_str() }).into())
}

/// `channel.handoff` and `syscall.channel.handoff`: hands the conversation to another agent.
pub(super) fn handoff(call: &CallContext, params: HandoffParams, w: &mut Tx) -> Result<Output> {
    let conversation_id = channel(call)?.conversation_id;
    let handover = Handover {
        to: agent_id(w, &params.agent_id)?,
        reason: params.reason,
        summary: params.summary,
        chain: call.chain(),
    };
    let conversation = rules::handoff(w, &call.party(), conversation_id, handover)?;
    Ok(json!({ "conversation_id": conversation_id, "new_owner": conversation.owner }).into())
}

params! {
    pub(super) struct MessageParams {
        /// The action. The turn's channel note lists the supported ones.
        action: ActionKind,
        /// The conversation. May be absent: only the conversation that this turn came from can be reached.
        to: Option<String>,
        /// The text for send, the question for poll, the first text for thread.
        message: Option<String>,
        /// The message to act on. For delete one of your own, for pin any. For react the newest message from outside if
        /// absent. For thread the message that the thread starts from, if any.
        message_id: Option<String>,
        /// For react: one emoji.
        emoji: Option<String>,
        /// For react and pin: remove the reaction or the pin.
        #[serde(default)]
        remove: bool,
        /// For poll: 2 to 10 answers to choose from.
        #[serde(default)]
        options: Vec<String>,
        /// For send: files to send with it, relative to the shared root.
        #[serde(default)]
        attachments: Vec<String>,
    }
}

fn missing(field: &str, action: ActionKind) -> Refusal {
    refusal!(InvalidArguments, "{action} needs {field}")
        .hint(format!("give {field}"))
        .details(json!({ "field": field }))
}

/// Refuses arguments that the action does not use: they are a sign of a mistake.
fn check_unused(params: &MessageParams) -> Result<()> {
    let (text, id, emoji, remove, options, files) = match params.action {
        ActionKind::Send => (true, false, false, false, false, true),
        ActionKind::Delete => (false, true, false, false, false, false),
        ActionKind::React => (false, true, true, true, false, false),
        ActionKind::Poll => (true, false, false, false, true, false),
        ActionKind::Pin => (false, true, false, true, false, false),
        ActionKind::Thread => (true, true, false, false, false, false),
    };
    for (field, given, used) in [
        ("message", params.message.is_some(), text),
        ("message_id", params.message_id.is_some(), id),
        ("emoji", params.emoji.is_some(), emoji),
        ("remove", params.remove, remove),
        ("options", !params.options.is_empty(), options),
        ("attachments", !params.attachments.is_empty(), files),
    ] {
        if given && !used {
            let action = params.action;
            return Err(refusal!(InvalidArguments, "{action} does not use {field}")
                .hint(format!("leave {field} out, or choose the action that it belongs to"))
                .details(json!({ "field": field })));
        }
    }
    Ok(())
}

fn deed(params: MessageParams) -> Result<ChannelAction> {
    let kind = params.action;
    let text = params.message.ok_or_else(|| missing("message", kind));
    let id = params.message_id;
    Ok(match params.action {
        ActionKind::Delete => ChannelAction::Delete { message_id: id.ok_or_else(|| missing("message_id", kind))? },
        ActionKind::React => {
            let emoji = params.emoji.ok_or_else(|| missing("emoji", kind))?;
            ChannelAction::React { message_id: id, emoji, remove: params.remove }
        }
        ActionKind::Poll => ChannelAction::Poll { question: text?, options: params.options },
        ActionKind::Pin => {
            ChannelAction::Pin { message_id: id.ok_or_else(|| missing("message_id", kind))?, remove: params.remove }
        }
        ActionKind::Thread => ChannelAction::Thread { message_id: id, text: text? },
        // The caller handles `send` itself.
        ActionKind::Send => return Err(missing("message", kind)),
    })
}

/// Refuses a receiver other than the conversation of the turn.
fn check_to(conversation: &Conversation, to: Option<&str>) -> Result<()> {
    let is_own = |to: &str| {
        to == conversation.thread
            || to == conversation.conversation_id.to_string()
            || to == conversation.party.to_string()
    };
    match to {
        None => Ok(()),
        Some(to) if is_own(to) => Ok(()),
        Some(to) => Err(refusal!(AccessDenied, "`{}` is not the conversation that this turn comes from", clip(to, 80))
            .hint("leave `to` out; to tell another agent something, use syscall.message.send")
            .details(json!({ "field": "to" }))),
    }
}

/// `message`.
pub(super) fn message(call: &CallContext, params: MessageParams, w: &mut Tx) -> Result<Output> {
    let conversation_id = channel(call)?.conversation_id;
    check_unused(&params)?;
    let conversation = rules::get(w, conversation_id)?;
    check_to(&conversation, params.to.as_deref())?;
    let plan = call.services.plan();
    let means = AllowedActions {
        actions: plan.channel_actions(&conversation.adapter).to_vec(),
        reactions: plan.reactions_of(&call.caller.archetype),
    };
    rules::check_supported(&conversation, &means.actions, params.action)?;
    if params.action == ActionKind::Send {
        let content = params.message.ok_or_else(|| missing("message", ActionKind::Send))?;
        return send_with_files(call, content, &params.attachments, w);
    }
    let (own, deed) = (&call.caller.agent_id, deed(params)?);
    let entry = rules::act(w, own, call.turn_id, conversation_id, &means, deed)?;
    Ok(json!({
        "message_id": entry.message_id, "conversation_id": conversation_id, "delivery": entry.delivery,
        "action": entry.action,
    })
    .into())
}
