//! The mail of a schedule: it reads as a reminder that says what was set, when, by whom and why, and how late it is
//! (SCHED-07).

use std::time::Duration;

use ghost_domain::reply_tokens::ANNOUNCE_SKIP;
use ghost_domain::schedule::options::LAST;
use ghost_domain::schedule::words::duration_text;
use ghost_domain::schedule::{Deliver, JobOptions, Payload, When};
use ghost_domain::{Party, Schedule, ScheduleKind, Timestamp};

/// What is known of a run when its mail is written.
pub(super) struct Moment<'t> {
    /// The slot that it stands for.
    pub(super) slot_at: Timestamp,
    /// Now.
    pub(super) now: Timestamp,
    /// Whether it is late.
    pub(super) late: bool,
    /// What kept it from going off in its time, if that is known; else nobody was there to run it.
    pub(super) held: Option<&'t str>,
    /// Slots that passed unseen before it.
    pub(super) missed: u32,
    /// Who set it off by hand, if someone did.
    pub(super) by_hand: Option<&'t Party>,
    /// What changed, for a watch; what to look at, for a heartbeat.
    pub(super) report: Option<&'t str>,
    /// What its agent last heard and said; empty if there is nothing.
    pub(super) lately: &'t str,
    /// How long ago is long.
    pub(super) old: Duration,
}

/// The subject and the body.
pub(super) fn mail(schedule: &Schedule, moment: &Moment<'_>) -> (String, String) {
    if schedule.kind == ScheduleKind::Heartbeat {
        return ("Heartbeat".to_owned(), moment.report.unwrap_or(LOOK_AROUND).to_owned());
    }
    let name = &schedule.name;
    let (title, what) = match schedule.kind {
        ScheduleKind::Timer => (format!("Timer {name}"), format!("Reminder: the timer `{name}` has gone off.")),
        ScheduleKind::Cron => {
            let rule = rule(&schedule.when);
            let what = match schedule.options.payload {
                Payload::SystemEvent => format!("Reminder: the cron job `{name}` ({rule}) is due."),
                Payload::AgentTurn => format!(
                    "The cron job `{name}` ({rule}) runs now, in a turn of its own: nothing of your other turns is recalled here."
                ),
            };
            (format!("Cron job {name}"), what)
        }
        ScheduleKind::Watch => {
            let path = match &schedule.when {
                When::Change { path, .. } if !path.is_empty() => path.as_str(),
                _ => "the workspace",
            };
            (format!("Watch {name}"), format!("What the watch `{name}` looks at has changed ({path})."))
        }
        ScheduleKind::Heartbeat => (String::new(), String::new()),
    };
    let mut lines = vec![what];
    if let Some(by) = moment.by_hand {
        lines.push(format!("It was set off by hand by {by}, besides its own time."));
    } else if schedule.kind != ScheduleKind::Watch {
        lines.push(format!("It was due at {}.", moment.slot_at));
    }
    let ago = moment.now.since(schedule.created_at);
    let age = if ago >= Duration::from_secs(60) { format!(", {} ago", rough(ago)) } else { String::new() };
    let setter = match &schedule.creator {
        Party::Agent(agent_id) if *agent_id == schedule.agent_id => "you".to_owned(),
        other => other.to_string(),
    };
    lines.push(format!("Set by {setter} at {}{age}.", schedule.created_at));
    if ago >= moment.old && schedule.kind != ScheduleKind::Watch {
        lines.push("That is long ago: see whether it still holds before you act on it.".to_owned());
    }
    if moment.late {
        let lag = moment.now.since(moment.slot_at);
        let why = match moment.held {
            Some(why) => why.to_owned(),
            None => "the world was not running or was paused at the time, or its clock was moved".to_owned(),
        };
        lines.push(match schedule.kind {
            ScheduleKind::Watch => "This may have happened while the world was not running.".to_owned(),
            _ => format!("It is late by {}: {why}.", rough(lag)),
        });
    }
    if moment.missed > 0 {
        lines.push(format!("{} earlier slots passed without a run; this one stands for them too.", moment.missed));
    }
    if let Some(report) = moment.report {
        lines.push(format!("Changes:\n{report}"));
    }
    if !schedule.message.trim().is_empty() {
        lines.push(format!("Message:\n{}", schedule.message.trim_end()));
    }
    if !moment.lately.is_empty() {
        lines.push(format!(
            "What you last heard and said, oldest first. It is over, and here only so that you know where you are:\n{}",
            moment.lately
        ));
    }
    if let Some(way) = way_out(&schedule.options) {
        lines.push(way);
    }
    let title = if moment.late { format!("{title} (late)") } else { title };
    (title, lines.join("\n"))
}

/// What becomes of the last text of a turn of its own.
fn way_out(options: &JobOptions) -> Option<String> {
    let to = match (options.deliver, options.to.as_str()) {
        (Deliver::None, _) => return None,
        (Deliver::Announce, LAST) => "sent to your last conversation with someone outside".to_owned(),
        (Deliver::Announce, to) if to.parse::<ghost_domain::ConversationId>().is_ok() => {
            format!("sent to the conversation {to}")
        }
        (Deliver::Announce, to) => format!("posted in the chat channel {to}"),
        (Deliver::Webhook, to) => format!("sent to the webhook {to}"),
    };
    Some(format!("Your last words are {to}. If there is nothing to tell, make {ANNOUNCE_SKIP} your whole answer."))
}

/// What an agent is asked to do at a heartbeat when its archetype does not say.
const LOOK_AROUND: &str = "Look around: is there anything that needs your attention now? \
    If not, answer with exactly HEARTBEAT_OK. If there is, answer with what it is, without that word.";

/// A rule in a few words.
fn rule(when: &When) -> String {
    match when {
        When::At { at } => format!("once, at {at}"),
        When::Every { every_ms, .. } => format!("every {}", duration_text(Duration::from_millis(*every_ms))),
        When::Cron { expression, zone } => format!("{expression} in {}", zone.as_deref().unwrap_or("UTC")),
        When::Change { path, .. } => format!("changes of {path}"),
    }
}

/// A duration without what nobody wants to read: whole seconds, and minutes beyond an hour.
fn rough(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let kept = if seconds >= 3_600 { seconds - seconds % 60 } else { seconds };
    if kept == 0 { "less than a second".to_owned() } else { duration_text(Duration::from_secs(kept)) }
}
