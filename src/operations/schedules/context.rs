//! The recent exchange of an agent, as context for a reminder (SCHED-07). It is read when the
//! reminder goes off, not when it was set.

use ghost_domain::reply_tokens::read_announcement;

use crate::prelude::*;
use crate::sessions;

/// Returns what the agent last heard and said in the session of the reminder, in turns over mail, one line each, oldest
/// first, within `limits.reminder_messages`, `reminder_message_chars` and `reminder_chars`. Empty if there is nothing.
pub(super) fn lately(
    w: &mut Tx,
    limits: &Limits,
    agent_id: &AgentId,
    conversation_id: Option<ConversationId>,
) -> Result<String> {
    let lines_max = limits.reminder_messages;
    if lines_max == 0 {
        return Ok(String::new());
    }
    let from = Some(sessions::beginning(w, agent_id, conversation_id)?);
    let agent_id = agent_id.clone();
    let query = SessionTurns { agent_id, conversation_id, source: "mail", from, before: None, limit: lines_max };
    let mut lines = Vec::new();
    let mut left = limits.reminder_chars as usize;
    'all: for turn in w.session_turns(&query)? {
        if turn.status != TurnStatus::Finished {
            continue;
        }
        let last_text = turn.text.as_deref().and_then(read_announcement).unwrap_or_default();
        for (who, text) in [("you said", last_text.as_str()), ("you heard", turn.about.as_str())] {
            // Only the beginning of a long text is processed.
            let text = one_line(prefix_bytes(text, limits.reminder_message_chars as usize * 8));
            if text.is_empty() {
                continue;
            }
            let chars = limits.reminder_message_chars as usize;
            // The ellipsis counts as a character.
            let text = if text.chars().count() > chars { clip(&text, chars - 1) } else { text };
            let size = text.chars().count();
            if size > left || lines.len() >= lines_max as usize {
                break 'all;
            }
            left -= size;
            lines.push(format!("- {who}: {text}"));
        }
    }
    lines.reverse();
    Ok(lines.join("\n"))
}
