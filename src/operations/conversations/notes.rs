//! Notes: entries that people and programs read in a conversation's log, and that no model gets and no adapter delivers.

use super::log::{NewEntry, append};
use crate::prelude::*;

/// Characters of a note.
const NOTE_MAX: usize = 1_000;

/// Adds a note to a conversation. `None` if the conversation no longer exists.
pub(crate) fn note(
    w: &mut Tx,
    ctx: &Context,
    conversation_id: ConversationId,
    (from, turn_id): (Party, Option<TurnId>),
    text: &str,
) -> Result<Option<(Conversation, ConversationEntry)>> {
    let Some(mut conversation) = w.conversation_get(conversation_id)? else { return Ok(None) };
    let text = ctx.excerpt(text, NOTE_MAX);
    let line = NewEntry { turn_id, ..NewEntry::new(Direction::Note, from, text) };
    let entry = append(w, ctx, &mut conversation, line)?;
    Ok(Some((conversation, entry)))
}
