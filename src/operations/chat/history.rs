//! Reads past chat messages. A cursor before the oldest kept message or after the newest
//! one is refused, so that a gap is never mistaken for silence.

use super::channel::{channel_named, not_a_member};
use crate::prelude::*;

/// The default number of chat messages.
pub const HISTORY_DEFAULT: u32 = 50;
/// Maximum chat messages of one query.
pub const HISTORY_MAX: u32 = 500;

/// A query for chat messages.
#[derive(Clone, Debug)]
pub struct HistoryQuery {
    /// Name of the channel.
    pub channel: ChannelName,
    /// Maximum chat messages to return.
    pub limit: u32,
    /// Only messages before this sequence.
    pub before_seq: Option<i64>,
    /// Only messages after this sequence.
    pub after_seq: Option<i64>,
}

/// Returns chat messages in order of sequence: the newest ones, the newest before `before_seq`, or
/// the oldest after `after_seq`. Members, the creator and operators may read.
///
/// # Errors
/// `invalid_arguments` for a limit out of range, `cursor_ahead` for a cursor beyond the newest
/// message, `cursor_expired` for a cursor before the oldest kept message.
pub fn history(r: &mut StoreTx, reader: &Party, query: &HistoryQuery) -> Result<Vec<ChatPost>> {
    if !(1..=HISTORY_MAX).contains(&query.limit) {
        return Err(refusal!(InvalidArguments, "limit is {}; it must be 1 to {HISTORY_MAX}", query.limit)
            .hint("read on with before_seq or after_seq")
            .details(json!({ "field": "limit" })));
    }
    let channel = channel_named(r, &query.channel)?;
    let member = reader.agent().map(|agent_id| r.chat_member_get(&channel.channel, agent_id)).transpose()?.flatten();
    if !channel.admits(reader, member.is_some()) {
        return Err(not_a_member(&channel, reader, "read it"));
    }
    let last = channel.last_seq;
    for (field, cursor, least, most) in
        [("before_seq", query.before_seq, 1, last.saturating_add(1)), ("after_seq", query.after_seq, 0, last)]
    {
        let Some(cursor) = cursor else { continue };
        if cursor < least {
            return Err(refusal!(InvalidArguments, "{field} is {cursor}; it must be {least} or more")
                .hint(format!("the newest post is {last}"))
                .details(json!({ "field": field, "last_seq": last })));
        }
        if cursor > most {
            let name = &channel.channel;
            return Err(refusal!(CursorAhead, "{field} is {cursor}, and the newest post of #{name} is {last}")
                .hint("use a sequence that you got from this channel")
                .details(json!({ "field": field, "last_seq": last })));
        }
    }
    let (after, before) = (query.after_seq.unwrap_or(0), query.before_seq.unwrap_or(last.saturating_add(1)));
    // With `after_seq` alone it reads forwards, otherwise backwards, so that messages next to the
    // cursor come first.
    let end = match (query.after_seq, query.before_seq) {
        (Some(after), None) => before.min(after.saturating_add(i64::from(query.limit)).saturating_add(1)),
        _ => before,
    };
    let posts = match end.saturating_sub(after) > 1 {
        true => r.chat_posts(&channel.channel, after, end, query.limit)?,
        false => return Ok(Vec::new()),
    };
    let pruned = match (query.after_seq, query.before_seq) {
        (Some(after), _) if !is_kept(r, &channel, after + 1)? => Some("after_seq"),
        (None, Some(_)) if posts.is_empty() => Some("before_seq"),
        _ => None,
    };
    let Some(field) = pruned else { return Ok(posts) };
    let oldest = oldest_kept(r, &channel)?;
    let kept =
        oldest.map_or_else(|| "none are kept".to_owned(), |oldest| format!("the oldest that is kept is {oldest}"));
    Err(refusal!(CursorExpired, "{field} points to posts of #{} that are no longer kept", channel.channel)
        .hint(format!("{kept}; limits.chat_days says for how long"))
        .details(json!({ "field": field, "oldest_seq": oldest, "last_seq": last })))
}

fn is_kept(r: &mut StoreTx, channel: &ChatChannel, seq: i64) -> Result<bool> {
    Ok(!r.chat_posts(&channel.channel, seq - 1, seq.saturating_add(1), 1)?.is_empty())
}

/// Finds the oldest kept message. Pruning deletes the oldest first, so a binary search works.
fn oldest_kept(r: &mut StoreTx, channel: &ChatChannel) -> Result<Option<i64>> {
    let (mut gone, mut kept) = (0, channel.last_seq);
    if kept == 0 || !is_kept(r, channel, kept)? {
        return Ok(None);
    }
    while kept - gone > 1 {
        let middle = gone + (kept - gone) / 2;
        match is_kept(r, channel, middle)? {
            true => kept = middle,
            false => gone = middle,
        }
    }
    Ok(Some(kept))
}
