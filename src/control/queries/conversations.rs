//! Queries about conversations.

use ghost_domain::{
    AgentId, Code, Conversation, ConversationEntry, ConversationId, Direction, MailState, Refusal, Turn, TurnId,
    TurnStatus,
};
use ghost_operations::conversations;
use ghost_world::World;

/// How many entries back the newest incoming message is searched.
const LOOK_BACK: i64 = 200;

/// One conversation with at most `limit` entries after `after`.
pub async fn conversation(
    world: &World,
    id: ConversationId,
    after: i64,
    limit: u32,
) -> Result<(Conversation, Vec<ConversationEntry>), Refusal> {
    world
        .store()
        .read(move |r| {
            let conversation = conversations::get(r, id)?;
            let entries = match after < conversation.last_seq {
                true => r.conversation_entries(id, after, limit)?,
                false => Vec::new(),
            };
            // A client that starts at 0 gets the entries that are still stored. A client that
            // resumes after an entry must not miss one.
            if let Some(first) = entries.first().map(|entry| entry.seq).filter(|first| after > 0 && *first > after + 1)
            {
                return Err(no_longer_kept(id, after, first));
            }
            Ok::<_, Refusal>((conversation, entries))
        })
        .await
}

/// The refusal for a sequence number past the end of the conversation.
pub fn beyond_the_end(conversation: &Conversation, after: i64) -> Refusal {
    let last = conversation.last_seq;
    Refusal::new(
        Code::CursorAhead,
        format!("conversation {} has reached {last}, not {after}", conversation.conversation_id),
    )
    .hint("continue after the seq of an entry that you have received, or after 0")
    .details(serde_json::json!({ "field": "after_seq", "last_seq": last }))
}

/// The refusal for a sequence number whose following entries retention has deleted.
fn no_longer_kept(id: ConversationId, after: i64, first: i64) -> Refusal {
    Refusal::new(
        Code::CursorExpired,
        format!("the entries after {after} in conversation {id} are no longer stored; the oldest stored entry is {first}"),
    )
    .hint("start after 0 to get the stored entries; limits.conversation_days and limits.conversation_entries_max limit them")
    .details(serde_json::json!({ "field": "after_seq", "first_seq": first }))
}

/// The state of the turn that handles the newest incoming message.
pub enum Answering {
    /// The turn is open.
    UnderWay(TurnId),
    /// The turn has ended.
    Over(Box<Turn>),
}

/// The sequence number of the newest incoming message, or 0, and the turn that took it, if any.
pub async fn answering(world: &World, id: ConversationId) -> Result<(i64, Option<Answering>), Refusal> {
    world
        .store()
        .read(move |r| {
            let conversation = conversations::get(r, id)?;
            let entries = r.conversation_entries(id, conversation.last_seq.saturating_sub(LOOK_BACK), u32::MAX)?;
            let Some(last) = entries.into_iter().rev().find(|entry| entry.direction == Direction::In) else {
                return Ok((0, None));
            };
            let taken = r.message_get(last.message_id)?.filter(|mail| mail.state != MailState::Pending);
            let turn = match taken.and_then(|mail| mail.turn_id) {
                Some(turn_id) => r.turn_get(turn_id)?,
                None => None,
            };
            let state = turn.map(|turn| match turn.status {
                TurnStatus::Open => Answering::UnderWay(turn.turn_id),
                _ => Answering::Over(Box::new(turn)),
            });
            Ok::<_, Refusal>((last.seq, state))
        })
        .await
}

/// Why this agent does not answer now, or `None` if it does.
pub async fn unanswerable(world: &World, agent_id: &AgentId) -> Result<Option<Refusal>, Refusal> {
    let agent_id = agent_id.clone();
    world
        .read(move |r| {
            Ok::<_, Refusal>(match r.agent_get(&agent_id)?.filter(|agent| !agent.is_deleted()) {
                Some(agent) => ghost_operations::asks::unanswerable(r.ctx, &agent),
                None => {
                    Some(Refusal::new(Code::Conflict, format!("{agent_id} was deleted and no longer answers")).hint(
                        "an operator can give the conversation to another agent: `ghostctl conversation handoff`",
                    ))
                }
            })
        })
        .await
}

/// The turn, if it has ended.
pub async fn ended_turn(world: &World, turn_id: TurnId) -> Result<Option<Turn>, Refusal> {
    let turn = world.store().read(move |r| r.turn_get(turn_id)).await;
    Ok(turn.map_err(Refusal::from)?.filter(|turn| turn.status != TurnStatus::Open))
}

/// The code and text of the refusal that a turn ended with, if it did not finish. The reason of a
/// failed turn, or of one at its bound, has the form `code: text (hint)`, truncated if it is very long.
pub fn why_ended(status: TurnStatus, reason: Option<&str>) -> Option<(Code, &str)> {
    match status {
        TurnStatus::Failed | TurnStatus::TimedOut => {
            let (code, words) = reason?.split_once(": ")?;
            Some((code.parse().ok()?, words))
        }
        TurnStatus::Cancelled => Some((Code::Cancelled, reason.unwrap_or_default())),
        // The turn is a dead letter: it gets no answer until an operator retries it.
        TurnStatus::Dead => Some((Code::Unavailable, reason.unwrap_or_default())),
        TurnStatus::Open | TurnStatus::Finished | TurnStatus::Split => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_of_an_unfinished_turn_is_found() {
        let spent = Refusal::new(Code::BudgetExhausted, "agent:ada has 0 tokens left").hint("raise it").to_string();
        let words = "agent:ada has 0 tokens left (raise it)";
        assert_eq!(why_ended(TurnStatus::Failed, Some(&spent)), Some((Code::BudgetExhausted, words)));
        for nothing in [None, Some("no code here"), Some("other: words")] {
            assert_eq!(why_ended(TurnStatus::Failed, nothing), None);
        }
        let by = "by operator:uid-0";
        assert_eq!(why_ended(TurnStatus::Cancelled, Some(by)), Some((Code::Cancelled, by)));
        assert_eq!(why_ended(TurnStatus::Dead, None), Some((Code::Unavailable, "")));
        assert_eq!(why_ended(TurnStatus::Finished, Some(&spent)), None);
    }
}
