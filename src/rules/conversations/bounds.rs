//! What a conversation and one message in it may hold.
//!
//! Must never: write anything.

use ghost_domain::{Code, Conversation, Refusal};
use ghost_store::Reads;
use serde_json::json;

use crate::{Result, RuleContext};

/// Refuses to make a conversation longer that has twice the entries that are kept of one: something at its beginning, such as
/// a dead letter, keeps retention from it, and would for ever. What turns end with and notes still have room. They are few
/// where nothing more is heard, and the step that they belong to must not fail.
pub(super) async fn check_room(r: &mut dyn Reads, ctx: &RuleContext, conversation: &Conversation) -> Result<()> {
    let most = i64::from(ctx.limits().conversation_entries_max).saturating_mul(2);
    if conversation.last_seq < most {
        return Ok(());
    }
    let id = conversation.conversation_id;
    let first = r.conversation_entries(id, 0, 1).await?.into_iter().next();
    let count = first.map_or(0, |first| conversation.last_seq.saturating_sub(first.seq).saturating_add(1));
    if count < most {
        return Ok(());
    }
    let what = format!("conversation {id} has {count} entries, twice what is kept of one");
    Err(Refusal::new(Code::RateLimited, what)
        .hint(
            "old entries go within the hour unless a dead letter or a delivery holds them: the operator looks with \
             `ghostctl dead list` and `ghostctl conversation show`; else go on in another conversation",
        )
        .details(json!({ "limit": "conversation_entries_max" })))
}

/// Refuses more files than one message may have.
pub(super) fn check_count(ctx: &RuleContext, count: usize) -> Result<()> {
    let most = ctx.limits().attachments_max;
    if count > most as usize {
        return Err(Refusal::new(Code::TooLarge, format!("{count} files are attached; at most {most} are taken"))
            .hint("send the rest with another message")
            .details(json!({ "limit": "attachments_max" })));
    }
    Ok(())
}
