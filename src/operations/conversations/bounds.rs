//! The limits on the size of a conversation and of one message in it.
//!
//! This module must never write to the store.

use crate::prelude::*;

/// Refuses new entries if a conversation has twice the number of entries that retention keeps. An
/// old entry, for example with a dead letter, can block retention for ever. The last text of a turn
/// and notes are still accepted: there are few of them, and the step that writes them must not
/// fail.
pub(super) fn check_room(r: &mut Tx, ctx: &Context, conversation: &Conversation) -> Result<()> {
    let limit = i64::from(ctx.limits().conversation_entries_max).saturating_mul(2);
    if conversation.last_seq < limit {
        return Ok(());
    }
    let id = conversation.conversation_id;
    let first = r.conversation_entries(id, 0, 1)?.into_iter().next();
    let count = first.map_or(0, |first| conversation.last_seq.saturating_sub(first.seq).saturating_add(1));
    if count < limit {
        return Ok(());
    }
    let what = format!("conversation {id} has {count} entries, twice the number that retention keeps");
    Err(Refusal::new(Code::RateLimited, what)
        .hint(
            "old entries are deleted within the hour unless a dead letter or a delivery needs them; an operator \
             can check with `ghostctl dead list` and `ghostctl conversation show`; otherwise continue in another \
             conversation",
        )
        .details(json!({ "limit": "conversation_entries_max" })))
}

/// Refuses a message with too many files.
pub(super) fn check_count(ctx: &Context, count: usize) -> Result<()> {
    let limit = ctx.limits().attachments_max;
    if count > limit as usize {
        return Err(refusal!(TooLarge, "{count} files are attached; the limit is {limit}")
            .hint("send the rest with another message")
            .details(json!({ "limit": "attachments_max" })));
    }
    Ok(())
}
