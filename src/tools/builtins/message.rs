//! `message` (BI-38): actions in the conversation that the turn came from, besides replying. The
//! adapter of the conversation declares which actions it supports. `send` is the same as
//! `syscall.channel.send` (BI-37).
//!
//! This tool must never reach a conversation other than the turn's own (MSG-11).

use ghost_domain::text::clip;
use ghost_domain::{ActionKind, Code, Conversation, Refusal};
use ghost_operations::Tx;
use ghost_operations::conversations::{self as rules, AllowedActions, ChannelAction};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::channel::{channel, send_with_files};
use crate::context::CallContext;
use crate::effect::Output;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
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

fn missing(field: &str, action: ActionKind) -> Refusal {
    Refusal::new(Code::InvalidArguments, format!("{action} needs {field}"))
        .hint(format!("give {field}"))
        .details(json!({ "field": field }))
}

/// Refuses arguments that the action does not use: they are a sign of a mistake.
fn check_unused(params: &MessageParams) -> Result<(), Refusal> {
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
            return Err(Refusal::new(Code::InvalidArguments, format!("{action} does not use {field}"))
                .hint(format!("leave {field} out, or choose the action that it belongs to"))
                .details(json!({ "field": field })));
        }
    }
    Ok(())
}

fn deed(params: MessageParams) -> Result<ChannelAction, Refusal> {
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
fn check_to(conversation: &Conversation, to: Option<&str>) -> Result<(), Refusal> {
    let is_own = |to: &str| {
        to == conversation.thread
            || to == conversation.conversation_id.to_string()
            || to == conversation.party.to_string()
    };
    match to {
        None => Ok(()),
        Some(to) if is_own(to) => Ok(()),
        Some(to) => Err(Refusal::new(
            Code::AccessDenied,
            format!("`{}` is not the conversation that this turn comes from", clip(to, 80)),
        )
        .hint("leave `to` out; to tell another agent something, use syscall.message.send")
        .details(json!({ "field": "to" }))),
    }
}

/// `message`.
pub(super) fn message(call: &CallContext, params: MessageParams, w: &mut Tx) -> Result<Output, Refusal> {
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
