//! What an agent last heard and said, for a reminder that would otherwise come out of nothing (SCHED-07). Taken when the
//! reminder goes off, so that it is of that moment and not of when it was set.

use ghost_domain::reply_tokens::read_announcement;
use ghost_domain::text::{clip, one_line, prefix_bytes};
use ghost_domain::{AgentId, Limits, TurnStatus};
use ghost_store::Writes;
use ghost_store::tables::TurnFilter;

use crate::Result;

/// What the agent last heard and said in its ongoing conversation, oldest first, a line each, within
/// `limits.reminder_messages`, `reminder_message_chars` and `reminder_chars`. Empty if there is nothing.
pub(super) async fn lately(w: &mut dyn Writes, limits: &Limits, agent_id: &AgentId) -> Result<String> {
    let most = limits.reminder_messages;
    if most == 0 {
        return Ok(String::new());
    }
    let filter = TurnFilter {
        agent_id: Some(agent_id.clone()),
        status: Some(TurnStatus::Finished),
        source: Some("mail"),
        limit: most,
        ..TurnFilter::default()
    };
    let mut lines = Vec::new();
    let mut left = limits.reminder_chars as usize;
    'all: for turn in w.turn_list(&filter).await? {
        let said = turn.text.as_deref().and_then(read_announcement).unwrap_or_default();
        for (who, text) in [("you said", said.as_str()), ("you heard", turn.about.as_str())] {
            // A text of megabytes is not gone through for the sake of its first words.
            let text = one_line(prefix_bytes(text, limits.reminder_message_chars as usize * 8));
            if text.is_empty() {
                continue;
            }
            let chars = limits.reminder_message_chars as usize;
            // The mark of a cut is a character as well.
            let text = if text.chars().count() > chars { clip(&text, chars - 1) } else { text };
            let size = text.chars().count();
            if size > left || lines.len() >= most as usize {
                break 'all;
            }
            left -= size;
            lines.push(format!("- {who}: {text}"));
        }
    }
    lines.reverse();
    Ok(lines.join("\n"))
}
