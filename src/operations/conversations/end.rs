//! Ends a conversation for an operator: no agent can speak in it until a message from outside opens it again (MSG-12).

use super::log::{NewEntry, append, get};
use crate::prelude::*;

/// Ends a conversation, with a note in it. Replies of open turns and to pending mail are not sent: a note stands there
/// instead.
///
/// # Errors
/// `NotFound`; `Conflict` if it has ended already.
pub fn end(
    w: &mut Tx,
    ctx: &Context,
    by: &Party,
    conversation_id: ConversationId,
    reason: Option<&str>,
) -> Result<Conversation> {
    let mut conversation = get(w, conversation_id)?;
    if let Some(at) = conversation.ended_at {
        return Err(refusal!(Conflict, "conversation {conversation_id} ended at {}", at.rfc3339())
            .hint("a message from outside opens it again"));
    }
    conversation.ended_at = Some(ctx.now());
    let text = match reason.map(str::trim).filter(|reason| !reason.is_empty()) {
        Some(reason) => format!("{by} ends this conversation: {reason}"),
        None => format!("{by} ends this conversation"),
    };
    append(w, ctx, &mut conversation, NewEntry::new(Direction::Note, by.clone(), text))?;
    Ok(conversation)
}
