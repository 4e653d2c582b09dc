//! The text of a schedule's mail: a reminder that says what was set, when, by whom and why, and how
//! late it is, with what its agent last heard and said. That is read when the reminder goes off, not when it was
//! set.

use ghost_domain::reply_tokens::{ANNOUNCE_SKIP, read_announcement};
use ghost_domain::schedule::words::duration_text;

use super::runs::Run;
use crate::prelude::*;
use crate::sessions;

/// The facts about a run that its mail mentions.
pub(super) struct Moment<'t> {
    /// The run.
    pub(super) run: Run,
    /// The known reason for the delay. `None` means that the daemon was not running at the time.
    pub(super) held: Option<&'t str>,
    /// The party that set it off by hand, if any.
    pub(super) by_hand: Option<&'t Party>,
    /// For a watch: the changes. For a heartbeat: the prompt.
    pub(super) report: Option<&'t str>,
    /// What its agent last heard and said; may be empty.
    pub(super) lately: &'t str,
    /// The age from which the mail warns that the schedule was set long ago.
    pub(super) old: Duration,
}

/// Returns the subject and the body.
pub(super) fn mail(schedule: &Schedule, moment: &Moment<'_>) -> (String, String) {
    let name = &schedule.name;
    let (title, what) = match schedule.kind {
        ScheduleKind::Timer => (format!("Timer {name}"), format!("Reminder: the timer `{name}` has gone off.")),
        ScheduleKind::Cron => {
            let rule = rule(&schedule.when);
            let what = match schedule.mode {
                JobMode::Mail { .. } => format!("Reminder: the cron job `{name}` ({rule}) is due."),
                JobMode::OwnTurn(_) => format!(
                    "The cron job `{name}` ({rule}) runs now, in a turn of its own: nothing of your other turns is \
                     recalled here."
                ),
            };
            (format!("Cron job {name}"), what)
        }
        ScheduleKind::Watch => {
            let path = match &schedule.when {
                When::Change { path, .. } if !path.is_empty() => path.as_str(),
                _ => "the workspace",
            };
            (format!("Watch {name}"), format!("Files that the watch `{name}` watches have changed ({path})."))
        }
        ScheduleKind::Heartbeat => {
            let prompt = moment.report.unwrap_or(LOOK_AROUND).trim_end();
            return ("Heartbeat".to_owned(), format!("{prompt}\n\n{ANSWER}"));
        }
    };
    let mut lines = vec![what];
    if let Some(by) = moment.by_hand {
        lines.push(format!("It was set off by hand by {by}, in addition to its own times."));
    } else if schedule.kind != ScheduleKind::Watch {
        lines.push(format!("It was due at {}.", moment.run.slot_at));
    }
    let ago = moment.run.now.since(schedule.created_at);
    let age = if ago >= Duration::from_secs(60) { format!(", {} ago", rounded(ago)) } else { String::new() };
    let setter = match &schedule.creator {
        Party::Agent(agent_id) if *agent_id == schedule.agent_id => "you".to_owned(),
        other => other.to_string(),
    };
    lines.push(format!("Set by {setter} at {}{age}.", schedule.created_at));
    if ago >= moment.old && schedule.kind != ScheduleKind::Watch {
        lines.push("That is long ago: check whether it is still valid before you act on it.".to_owned());
    }
    if moment.run.late {
        let lag = moment.run.now.since(moment.run.slot_at);
        let down = "the world was not running or was paused at the time, or its clock was moved";
        let why = moment.held.unwrap_or(down);
        lines.push(match schedule.kind {
            ScheduleKind::Watch => "This may have happened while the world was not running.".to_owned(),
            _ => format!("It is late by {}: {why}.", rounded(lag)),
        });
    }
    if moment.run.missed > 0 {
        lines.push(format!("{} earlier slots passed without a run; this one stands for them too.", moment.run.missed));
    }
    if let Some(report) = moment.report {
        lines.push(format!("Changes:\n{report}"));
    }
    if !schedule.message.trim().is_empty() {
        lines.push(format!("Message:\n{}", schedule.message.trim_end()));
    }
    if !moment.lately.is_empty() {
        lines.push(format!(
            "What you last heard and said, oldest first. This is finished work, shown only as context:\n{}",
            moment.lately
        ));
    }
    lines.extend(schedule.mode.own_turn().and_then(|turn| target_line(&turn.target)));
    let title = if moment.run.late { format!("{title} (late)") } else { title };
    (title, lines.join("\n"))
}

/// Says where the last text of a job's own turn goes.
fn target_line(target: &Target) -> Option<String> {
    let to = match target {
        Target::Nowhere => return None,
        Target::Last => "sent to your last conversation with someone outside".to_owned(),
        Target::Conversation(conversation_id) => format!("sent to the conversation {conversation_id}"),
        Target::Channel(channel) => format!("posted in the chat channel {channel}"),
        Target::Webhook { webhook, thread } => format!("sent to the webhook {webhook}/{thread}"),
    };
    Some(format!(
        "The last text of this turn is {to}. If there is nothing to report, make {ANNOUNCE_SKIP} your whole answer."
    ))
}

/// The prompt of a heartbeat if the archetype has none.
const LOOK_AROUND: &str = "Look around: is there anything that needs your attention now?";
/// The answer that a heartbeat asks for; appended to its prompt.
const ANSWER: &str = "If nothing of this needs attention, answer with exactly HEARTBEAT_OK. \
    If something does, answer with what it is, without that word.";

/// Describes a rule in a few words.
fn rule(when: &When) -> String {
    match when {
        When::At { .. } | When::After { .. } => format!("once, at {}", when.once_at().unwrap_or_default()),
        When::Every { every_ms, .. } => format!("every {}", duration_text(Duration::from_millis(*every_ms))),
        When::Cron { expression, zone } => format!("{expression} in {}", zone.as_deref().unwrap_or("UTC")),
        When::Change { path, .. } => format!("changes of {path}"),
    }
}

/// A duration in whole seconds, or in whole minutes from an hour on.
fn rounded(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let kept = if seconds >= 3_600 { seconds - seconds % 60 } else { seconds };
    if kept == 0 { "less than a second".to_owned() } else { duration_text(Duration::from_secs(kept)) }
}

/// Returns what the agent last heard and said in the session of the reminder, in turns over mail, one line each, oldest
/// first, within `limits.reminder_messages`, `reminder_message_chars` and `reminder_chars`. Empty if there is nothing.
pub(super) fn lately(
    w: &mut StoreTx,
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
            let chars = limits.reminder_message_chars as usize;
            let text = one_line(prefix_bytes(text, chars * 8));
            if text.is_empty() {
                continue;
            }
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
