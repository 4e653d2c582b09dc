//! The records of schedules and of their runs, their events, who may change one, and the text of their mail: a reminder that
//! says what was set, when, by whom and why, and how late it is, with what its agent last heard and said.

use ghost_domain::reply_tokens::{ANNOUNCE_SKIP, read_announcement};
use ghost_domain::schedule::words::duration_text;

use crate::prelude::*;
use crate::sessions;

/// The longest note in a run, in characters.
pub(super) const NOTE_MAX: usize = 300;
/// The number of the newest runs that are searched for one that is running or was refused.
const LOOK_BACK: u32 = 32;
/// The note of a one-shot job that waits for another run of it.
pub(super) const WAITS: &str = "a run of it has not ended; it goes off when that has";

/// A slot that is due.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub(super) slot_at: Timestamp,
    pub(super) now: Timestamp,
    pub(super) late: bool,
    pub(super) missed: u32,
    /// Whether it is the only slot. Then a run that a temporary limit refused is tried again,
    /// because no other slot follows.
    pub(super) once: bool,
}

pub(super) fn blank(slot_at: Timestamp, now: Timestamp) -> Run {
    Run { slot_at, now, late: false, missed: 0, once: false }
}

/// Returns the run that records that this slot could not go off earlier, because a limit refused
/// its mail or another run was in progress.
pub(super) fn held(w: &mut StoreTx, schedule: &Schedule, slot_at: Timestamp) -> Result<Option<ScheduleRun>> {
    let runs = w.schedule_runs(schedule.schedule_id, LOOK_BACK)?;
    Ok(runs.into_iter().find(|run| {
        let kept_back = match run.status {
            RunStatus::Refused => true,
            RunStatus::Skipped => run.note.as_deref() == Some(WAITS),
            RunStatus::Queued | RunStatus::Done | RunStatus::Failed => false,
        };
        kept_back && run.slot_at == slot_at
    }))
}

/// Records a run that a limit refused. A watch that is refused again for the same reason adds no
/// run.
pub(super) fn refused(w: &mut Tx, schedule: &mut Schedule, run: Run, refusal: &Refusal) -> Result<ScheduleRun> {
    let note = w.ctx.excerpt(&refusal.to_string(), NOTE_MAX);
    if schedule.kind == ScheduleKind::Watch
        && let Some(last) = w.schedule_runs(schedule.schedule_id, 1)?.into_iter().next()
        && last.status == RunStatus::Refused
        && last.note.as_deref() == Some(note.as_str())
    {
        return Ok(last);
    }
    record(w, schedule, run, RunStatus::Refused, Some(note))
}

/// Returns the run of a cron job whose mail still waits or is being processed. There is at most
/// one.
pub(super) fn under_way(w: &mut StoreTx, schedule: &Schedule) -> Result<Option<ScheduleRun>> {
    let runs = w.schedule_runs(schedule.schedule_id, LOOK_BACK)?;
    let Some(last) = runs.into_iter().find(|run| run.status != RunStatus::Skipped) else { return Ok(None) };
    let (RunStatus::Queued, Some(message_id)) = (last.status, last.message_id) else { return Ok(None) };
    let message_state = w.message_state(message_id)?;
    let waits = message_state.is_some_and(|(state, ..)| matches!(state, MailState::Pending | MailState::Taken));
    Ok(waits.then_some(last))
}

pub(super) fn row(schedule: &Schedule, run: Run, status: RunStatus, note: Option<String>) -> ScheduleRun {
    ScheduleRun {
        schedule_id: schedule.schedule_id,
        run: schedule.runs + 1,
        agent_id: schedule.agent_id.clone(),
        slot_at: run.slot_at,
        fired_at: run.now,
        late: run.late,
        missed: run.missed,
        status,
        message_id: None,
        note,
        own_turn: schedule.mode.own_turn().cloned(),
    }
}

/// Writes a run and the summary of it in the schedule, and deletes runs beyond the limits.
pub(super) fn write(w: &mut Tx, schedule: &mut Schedule, row: &ScheduleRun) -> Result<()> {
    schedule.runs = row.run;
    schedule.last_at = Some(row.fired_at);
    schedule.last_status = Some(row.status);
    w.schedule_run_put(row)?;
    w.schedule_put(schedule)?;
    let limits = w.ctx.limits();
    let (lines, bytes) = (limits.schedule_run_lines, limits.schedule_run_bytes);
    // Trims only sometimes, but then by more, so that the limits hold until the next time.
    let step = (lines / 32).clamp(1, 64);
    if row.run % i64::from(step) == 0 {
        w.schedule_runs_trim(schedule.schedule_id, lines - step, u64::from(bytes - bytes / 16))?;
    }
    Ok(())
}

/// Records a slot that led to no mail.
pub(super) fn record(
    w: &mut Tx,
    schedule: &mut Schedule,
    run: Run,
    status: RunStatus,
    note: Option<String>,
) -> Result<ScheduleRun> {
    let row = row(schedule, run, status, note);
    write(w, schedule, &row)?;
    skipped(w, schedule, &row)?;
    Ok(row)
}

pub(super) fn skipped(w: &mut Tx, schedule: &Schedule, row: &ScheduleRun) -> Result<()> {
    let facts = json!({
        "run": row.run, "slot_at": row.slot_at.rfc3339(), "missed": row.missed, "status": row.status, "why": row.note,
        "next_at": schedule.next_at.map(Timestamp::rfc3339),
    });
    emit(w, schedule, EventKind::ScheduleSkipped, facts)
}

/// Returns a schedule.
///
/// # Errors
/// `NotFound`.
pub fn get(r: &mut StoreTx, schedule_id: ScheduleId) -> Result<Schedule> {
    let hint = "a schedule that is over is deleted; list the schedules to see which exist";
    found(r.schedule_get(schedule_id)?, "schedule", schedule_id, hint)
}

/// Returns all schedules of a kind, of all agents.
pub fn all_of_kind(r: &mut StoreTx, kind: ScheduleKind) -> Result<Vec<Schedule>> {
    read_all(|last: Option<&Schedule>| {
        let after = last.map(|last| (last.agent_id.clone(), last.kind, last.name.clone()));
        r.schedule_list(None, Some(kind), after.as_ref())
    })
}

/// Checks that `by` may change a schedule. An agent may change the schedules that it set for
/// itself, an operator all of them.
pub(super) fn may_change(by: &Party, schedule: &Schedule) -> Result<()> {
    match by.agent() {
        Some(agent_id) if *by != schedule.creator || *agent_id != schedule.agent_id => {
            Err(refusal!(AccessDenied, "{} `{}` was set by {}", schedule.kind, schedule.name, schedule.creator)
                .hint("choose another name for your own schedule, or ask the operator to change this one"))
        }
        _ => Ok(()),
    }
}

/// Writes a new or changed schedule and emits its event.
pub(super) fn save(w: &mut Tx, by: &Party, schedule: &Schedule) -> Result<()> {
    w.schedule_put(schedule)?;
    let facts = json!({
        "when": schedule.when.shown(), "options": (schedule.kind == ScheduleKind::Cron).then_some(&schedule.mode),
        "enabled": schedule.enabled, "next_at": schedule.next_at.map(Timestamp::rfc3339), "by": by,
    });
    w.signal(Signal::Schedules);
    emit(w, schedule, EventKind::ScheduleSet, facts)
}

/// Deletes a schedule and emits its event.
pub(super) fn remove(w: &mut Tx, by: &Party, schedule: &Schedule, why: Option<&str>) -> Result<()> {
    w.schedule_delete(schedule.schedule_id)?;
    w.signal(Signal::Schedules);
    emit(w, schedule, EventKind::ScheduleCancelled, json!({ "by": by, "why": why }))
}

/// Emits an event about a schedule, which it names.
pub(super) fn emit(w: &mut Tx, schedule: &Schedule, kind: EventKind, mut payload: Value) -> Result<()> {
    payload["schedule_id"] = json!(schedule.schedule_id);
    payload["kind"] = json!(schedule.kind);
    payload["name"] = json!(schedule.name);
    w.emit(NewEvent::new(kind, payload).agent(&schedule.agent_id).correlation(schedule.schedule_id))
}

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
pub(super) fn mail_of(schedule: &Schedule, moment: &Moment<'_>) -> (String, String) {
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
    let query = SessionTurns { from, ..SessionTurns::newest(agent_id, conversation_id, "mail", lines_max) };
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
