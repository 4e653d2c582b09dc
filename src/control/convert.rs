//! Domain records as wire messages, with text by agents redacted; and the checks of what requests contain. Nothing is decided
//! here, and no other data is read.

pub(crate) mod input;

use ghost_domain::approval::SHOWN_MAX;
use ghost_domain::redact::Redactor;
use ghost_domain::schedule::{JobMode, JobOptions, Missed, RunStatus};
use ghost_domain::text::clip;
use ghost_domain::transcript::TokenUsage;
use ghost_domain::usage::UsageSum;
use ghost_domain::{
    Action, ActionKind, Activity, Agent, AgentId, AgentKind, AgentStatus, Approval, ApprovalId, ApprovalStatus,
    Artifact, ArtifactId, ArtifactType, AskId, Attachment, BoundFile, Budget, CallId, CallStatus, CallTotals,
    ChannelName, ChatPost, Code, Conversation, ConversationEntry, ConversationId, DeadLetter, DeadLetterId,
    DeadLetterStatus, Delivery, Desired, Direction, Droid, DroidMode, DroidState, Envelope, Event, EventId, EventKind,
    Grant, GrantId, GrantSource, Grantee, JournalRow, Kind, KnowledgeEntry, KnowledgeVersion, LedgerRow, MailState,
    MessageId, Money, Party, Refusal, RootId, Schedule, ScheduleId, ScheduleKind, ScheduleRun, Scope, StateEntry, Task,
    TaskEvent, TaskId, TaskStatus, TextEnum, Timestamp, Turn, TurnId, TurnStatus,
};
use ghost_operations::chat::{ChannelView, Created, Posted, Skipped, shown_name};
use ghost_proto::v1;
use ghost_world::AgentCard;
use serde_json::json;

/// A value of a record as the field of a message has it.
pub(crate) trait Field {
    type Wire;

    fn wire(&self) -> Self::Wire;
}

macro_rules! field {
    ($($of:ty),* => $wire:ty, |$value:ident| $to:expr) => {
        $(impl Field for $of {
            type Wire = $wire;

            fn wire(&self) -> $wire {
                let $value = self;
                $to
            }
        })*
    };
}

macro_rules! plain {
    ($($of:ty),*) => { $(field!($of => $of, |value| value.clone());)* };
}

plain!(String, bool, i32, i64, u32, u64);
field!(Timestamp => i64, |at| at.0);
field!(Money => u64, |money| money.0);
field!(
    AgentId, ApprovalId, ArtifactId, AskId, CallId, ChannelName, ConversationId, DeadLetterId, EventId, GrantId, Grantee,
    MessageId, Party, RootId, ScheduleId, Scope, TaskId, TurnId => String, |id| id.to_string()
);
field!(
    ActionKind, Activity, AgentKind, AgentStatus, ApprovalStatus, ArtifactType, CallStatus, Code, DeadLetterStatus,
    Delivery, Desired, Direction, DroidMode, DroidState, EventKind, GrantSource, Kind, MailState, Missed, RunStatus,
    ScheduleKind, TaskStatus, TurnStatus => String, |word| word.as_str().to_owned()
);
field!(Attachment => v1::Attachment, |file| attachment(file));
field!(BoundFile => v1::BoundFile, |file| message!(BoundFile of file { path, sha256 }));
field!(Skipped => v1::SkippedMember, |skipped| message!(SkippedMember of skipped { agent_id, error_code, reason }));

impl<T: Field> Field for Option<T> {
    type Wire = Option<T::Wire>;

    fn wire(&self) -> Self::Wire {
        self.as_ref().map(Field::wire)
    }
}

impl<T: Field> Field for Vec<T> {
    type Wire = Vec<T::Wire>;

    fn wire(&self) -> Self::Wire {
        self.iter().map(Field::wire).collect()
    }
}

/// Text by an agent.
pub(crate) trait Text {
    fn clean(&self, redactor: &Redactor) -> Self;
}

impl Text for String {
    fn clean(&self, redactor: &Redactor) -> Self {
        redactor.redact(self)
    }
}

impl Text for Option<String> {
    fn clean(&self, redactor: &Redactor) -> Self {
        self.as_deref().map(|text| redactor.redact(text))
    }
}

impl Text for Vec<String> {
    fn clean(&self, redactor: &Redactor) -> Self {
        self.iter().map(|text| redactor.redact(text)).collect()
    }
}

/// The message of a record: its fields of the same names, then those that have other names there, those with text by
/// agents, and what follows no rule.
macro_rules! message {
    ($message:ident of $record:ident { $($same:ident),* $(,)? }
     $(named { $($to:ident: $($from:ident).+),* $(,)? })?
     $(redacted by $redactor:ident { $($text:ident),* $(,)? })?
     $(with { $($rest:tt)* })?) => {
        v1::$message {
            $($same: $record.$same.wire(),)*
            $($($to: $record.$($from).+.wire(),)*)?
            $($($text: $record.$text.clean($redactor),)*)?
            $($($rest)*)?
        }
    };
}
pub(crate) use message;

/// An agent from its row. The activity is set only while the agent runs.
pub(crate) fn agent(agent: &Agent, activity: Option<Activity>) -> v1::Agent {
    let runs = agent.status == AgentStatus::Running && !agent.is_deleted();
    message!(Agent of agent {
        agent_id, incarnation, archetype, name, team, owner, kind, desired, status, status_reason, restarts, node, epoch,
    } named {
        created_at_ms: created_at, updated_at_ms: updated_at, last_active_at_ms: last_active_at, deleted_at_ms: deleted_at,
    } with {
        activity: activity.filter(|_| runs).wire(),
        overrides_json: if agent.overrides.is_null() { String::new() } else { agent.overrides.to_string() },
    })
}

/// An agent from memory, with the fields that only its row has. Where the two differ, memory is newer.
pub(crate) fn agent_card(card: &AgentCard, record: &Agent) -> v1::Agent {
    let desired = match card.status {
        AgentStatus::Running | AgentStatus::Restarting => Desired::Running,
        AgentStatus::Stopping | AgentStatus::Stopped => Desired::Stopped,
        AgentStatus::Failed => record.desired,
    };
    message!(Agent of card { incarnation, kind, status, restarts } named { created_at_ms: created_at } with {
        archetype: card.archetype.as_ref().to_owned(),
        name: card.name.as_ref().to_owned(),
        team: card.team.as_deref().map(str::to_owned),
        desired: desired.wire(),
        status_reason: card.status_reason.as_deref().map(str::to_owned),
        activity: (card.status == AgentStatus::Running).then(|| card.activity.wire()),
        deleted_at_ms: None,
        ..agent(record, None)
    })
}

/// The status of an open turn that is parked.
pub(crate) const PARKED: &str = "parked";

/// A turn. The stored row keeps text by agents unredacted, because resuming the turn needs it.
pub(crate) fn turn(turn: &Turn, redactor: &Redactor) -> v1::Turn {
    let parked = turn.parked.as_ref();
    message!(Turn of turn {
        turn_id, agent_id, incarnation, root_id, other_roots, hop, source, model, rounds, calls, input_tokens,
        output_tokens, unpriced_tokens, crashes, stalled_boots, boot_mark, truncated,
    } named {
        cost_micros: cost, started_at_ms: started_at, ended_at_ms: ended_at,
    } redacted by redactor { text, about } with {
        status: if parked.is_some() { PARKED } else { turn.status.as_str() }.to_owned(),
        reason: parked.map(|parked| &parked.reason).or(turn.reason.as_ref()).map(|reason| redactor.redact(reason)),
        parked_since_ms: parked.map(|parked| parked.since.0),
    })
}

/// A step of a turn's journal. `step` is its JSON, already redacted.
pub(crate) fn journal_row(row: &JournalRow, step: &serde_json::Value) -> v1::JournalRow {
    message!(JournalRow of row { turn_id, seq } named { recorded_at_ms: at } with {
        step: row.step.name().to_owned(),
        step_json: step.to_string(),
    })
}

/// A recorded tool call.
pub(crate) fn ledger_row(row: &LedgerRow) -> v1::LedgerRow {
    message!(LedgerRow of row {
        call_id, agent_id, turn_id, tool, alias, result, status, error_code, duration_ms, bytes_in, bytes_out, tokens,
        truncated,
    } named { arguments_json: arguments, started_at_ms: started_at, cost_micros: cost })
}

/// Sums of tool calls.
pub(crate) fn call_totals(totals: &CallTotals) -> v1::CallTotals {
    message!(CallTotals of totals { tool, status, calls, duration_ms, bytes_in, bytes_out, tokens } named {
        cost_micros: cost,
    })
}

/// A write grant.
pub(crate) fn grant(grant: &Grant, redactor: &Redactor) -> v1::Grant {
    message!(Grant of grant { grant_id, agent_id, prefix, source, created_by } named {
        created_at_ms: created_at, expires_at_ms: expires_at,
    } redacted by redactor { reason })
}

/// An artifact.
pub(crate) fn artifact(artifact: &Artifact) -> v1::Artifact {
    message!(Artifact of artifact { artifact_id, path, agent_id, turn_id, bytes, sha256, droid_id } named {
        r#type: kind, created_at_ms: created_at, updated_at_ms: updated_at,
    })
}

/// A task.
pub(crate) fn task(task: &Task, redactor: &Redactor) -> v1::Task {
    message!(Task of task { task_id, owner, creator, status, priority, depends_on, parent_id, root_id } named {
        due_at_ms: due_at, created_at_ms: created_at, updated_at_ms: updated_at,
    } redacted by redactor { title, description, result })
}

/// An entry of a task's history.
pub(crate) fn task_event(event: &TaskEvent, redactor: &Redactor) -> v1::TaskEvent {
    message!(TaskEvent of event { task_id, by, status, owner } named { changed_at_ms: at } redacted by redactor { note })
}

/// A budget account.
pub(crate) fn budget(budget: &Budget) -> v1::Budget {
    message!(Budget of budget { scope, reserved_tokens, spent_tokens, unpriced_tokens } named {
        limit_tokens: limits.tokens, limit_micros: limits.money, reserved_micros: reserved_money,
        spent_micros: spent_money, updated_at_ms: updated_at,
    } with {
        passed: budget.passed().into_iter().map(str::to_owned).collect(),
    })
}

/// The token counts of model calls.
pub(crate) fn token_usage(usage: TokenUsage) -> v1::TokenUsage {
    message!(TokenUsage of usage { input, output, cache_read, cache_write })
}

/// The usage of one agent and model.
pub(crate) fn usage_sum(sum: &UsageSum) -> v1::UsageSum {
    message!(UsageSum of sum { agent_id, model, calls, estimated_calls, unpriced_tokens } named {
        cost_micros: cost, estimated_micros: estimated_cost,
    } with {
        tokens: Some(token_usage(sum.tokens)),
    })
}

/// An approval without the details of its plan.
pub(crate) fn approval_row(approval: &Approval, redactor: &Redactor) -> v1::Approval {
    message!(Approval of approval {
        approval_id, agent_id, turn_id, conversation_id, status, always, decided_by, digest,
    } named {
        tool: plan.tool, requested_at_ms: requested_at, expires_at_ms: expires_at, closed_at_ms: closed_at,
    } redacted by redactor { reason, note } with {
        summary: clip(&redactor.redact(&approval.plan.summary()), SHOWN_MAX),
        ..v1::Approval::default()
    })
}

/// An approval with the details of its plan.
pub(crate) fn approval(approval: &Approval, redactor: &Redactor) -> v1::Approval {
    let plan = &approval.plan;
    let fields = approval.fields.as_ref().map(|fields| redactor.redact_json(&json!(fields)).to_string());
    message!(Approval of plan { dir, sandbox, once_only, files } redacted by redactor { argv } with {
        arguments_json: redactor.redact_json(&plan.arguments).to_string(),
        env_json: redactor.redact_json(&json!(plan.env)).to_string(),
        form_json: plan.form.as_ref().map(|form| redactor.redact_json(form).to_string()).unwrap_or_default(),
        fields_json: fields.unwrap_or_default(),
        ..approval_row(approval, redactor)
    })
}

/// A timer, a cron job, a watch or a heartbeat.
pub(crate) fn schedule(schedule: &Schedule, redactor: &Redactor) -> v1::Schedule {
    message!(Schedule of schedule {
        schedule_id, kind, agent_id, missed, enabled, last_status, runs, creator, conversation_id,
    } named {
        next_at_ms: next_at, last_at_ms: last_at, created_at_ms: created_at,
    } redacted by redactor { name, message } with {
        when_json: redactor.clean_json(schedule.when.shown()).to_string(),
        options: (schedule.kind == ScheduleKind::Cron).then(|| job_options(&schedule.mode, redactor)),
    })
}

/// How a cron job runs.
fn job_options(mode: &JobMode, redactor: &Redactor) -> v1::JobOptions {
    let options = JobOptions::from(mode.clone());
    message!(JobOptions of options { timeout_seconds, max_rounds, model } with {
        session: options.session.map(TextEnum::as_str).unwrap_or_default().to_owned(),
        payload: options.payload.map(TextEnum::as_str).unwrap_or_default().to_owned(),
        wake: options.wake.map(TextEnum::as_str).unwrap_or_default().to_owned(),
        deliver: options.deliver.map(TextEnum::as_str).unwrap_or_default().to_owned(),
        to: redactor.redact(&options.to.unwrap_or_default()),
    })
}

/// One run of a schedule.
pub(crate) fn schedule_run(run: &ScheduleRun, redactor: &Redactor) -> v1::ScheduleRun {
    message!(ScheduleRun of run { schedule_id, run, agent_id, late, missed, status, message_id } named {
        slot_at_ms: slot_at, fired_at_ms: fired_at,
    } redacted by redactor { note })
}

/// A droid.
pub(crate) fn droid(droid: &Droid, redactor: &Redactor) -> v1::Droid {
    message!(Droid of droid { droid_id, parent_id, mode, state, output_path, root_id } named {
        depth: terms.depth, created_at_ms: created_at, deadline_at_ms: deadline_at, ended_at_ms: ended_at,
        rounds: used.rounds, calls: used.calls, input_tokens: used.input_tokens, output_tokens: used.output_tokens,
        cost_micros: used.cost,
    } redacted by redactor { label, task, result } with {
        tools: droid.terms.tools.iter().cloned().collect(),
        error_json: droid.error.as_ref().map(|error| redactor.redact(&refusal_json(error))),
    })
}

/// A refusal as the JSON `{error, code, hint?, details?}`, as in the trailer.
pub(crate) fn refusal_json(refusal: &Refusal) -> String {
    // A refusal always serializes: its keys are texts.
    serde_json::to_string(refusal).unwrap_or_default()
}

/// A mail envelope.
pub(crate) fn envelope(envelope: &Envelope, redactor: &Redactor) -> v1::Envelope {
    message!(Envelope of envelope {
        message_id, seq, to, from, kind, attachments, ask_id, conversation_id, root_id, hop, wake, state, turn_id, crashes,
    } named { created_at_ms: created_at, read_at_ms: read_at } redacted by redactor { subject, body })
}

/// A dead letter.
pub(crate) fn dead_letter(letter: &DeadLetter) -> v1::DeadLetter {
    message!(DeadLetter of letter { dead_letter_id, agent_id, turn_id, messages, reason, crashes, status } named {
        created_at_ms: created_at, resolved_at_ms: resolved_at,
    })
}

/// An event of the feed.
#[must_use]
pub fn event(event: &Event) -> v1::Event {
    message!(Event of event { seq, event_id, kind, agent_id, channel, correlation_id } named { ts_ms: ts } with {
        payload_json: event.payload.text().to_owned(),
    })
}

/// A channel with the first of its members.
pub(crate) fn channel(view: &ChannelView, redactor: &Redactor) -> v1::Channel {
    let channel = &view.channel;
    message!(Channel of channel { channel, gated, creator, last_seq } named {
        member_count: members, created_at_ms: created_at,
    } redacted by redactor { topic } with {
        members: view.members.wire(),
    })
}

/// The result of creating a channel.
pub(crate) fn created_channel(created: Created, redactor: &Redactor) -> v1::CreateChannelResponse {
    v1::CreateChannelResponse { channel: Some(channel(&created.view, redactor)), advisory: created.advisory }
}

/// A post.
pub(crate) fn chat_message(post: &ChatPost, redactor: &Redactor) -> v1::ChatMessage {
    message!(ChatMessage of post { channel, seq, message_id, reply_to } named { ts_ms: ts } redacted by redactor {
        content,
    } with {
        from: shown_name(&post.from),
        mentions: post.mentioned().map(str::to_owned).collect(),
    })
}

/// The result of a post.
pub(crate) fn posted(posted: &Posted, redactor: &Redactor) -> v1::PostResponse {
    message!(PostResponse of posted { delivered, woken, skipped, held } with {
        message: Some(chat_message(&posted.post, redactor)),
    })
}

/// A conversation.
pub(crate) fn conversation(conversation: &Conversation) -> v1::Conversation {
    message!(Conversation of conversation { conversation_id, adapter, thread, owner, last_seq } named {
        created_at_ms: created_at, updated_at_ms: updated_at, ended_at_ms: ended_at,
    } with {
        party: shown_name(&conversation.party),
    })
}

/// An entry of a conversation.
pub(crate) fn conversation_entry(entry: &ConversationEntry, redactor: &Redactor) -> v1::ConversationEntry {
    message!(ConversationEntry of entry {
        conversation_id, seq, message_id, direction, attachments, reply_to, delivery, attempts, turn_id, deleted,
    } named { at_ms: at } redacted by redactor { content, error } with {
        from: shown_name(&entry.from),
        action: entry.action.as_ref().map(|done| Box::new(action(done, redactor))),
    })
}

fn action(action: &Action, redactor: &Redactor) -> v1::ConversationAction {
    let (emoji, removed) = match action {
        Action::React { emoji, remove, .. } => (Some(redactor.redact(emoji)), *remove),
        Action::Pin { remove, .. } => (None, *remove),
        Action::Delete { .. } | Action::Poll { .. } | Action::Thread { .. } => (None, false),
    };
    let options = match action {
        Action::Poll { options } => options.clean(redactor),
        _ => Vec::new(),
    };
    let message_id = action.message_id().map(str::to_owned);
    v1::ConversationAction { kind: action.kind().wire(), message_id, emoji, removed, options }
}

/// A file of a conversation entry.
pub(crate) fn attachment(file: &Attachment) -> v1::Attachment {
    message!(Attachment of file { path, name, mime_type, bytes })
}

/// An entry. Lists leave its text out.
pub(crate) fn knowledge_entry(entry: &KnowledgeEntry, redactor: &Redactor, with_text: bool) -> v1::KnowledgeEntry {
    message!(KnowledgeEntry of entry { entry_id, readers, writers, version, creator, updated_by, deleted } named {
        created_at_ms: created_at, updated_at_ms: updated_at,
    } redacted by redactor { title, tags } with {
        content: if with_text { redactor.redact(&entry.content) } else { String::new() },
    })
}

/// An earlier version of an entry.
pub(crate) fn knowledge_version(version: &KnowledgeVersion, redactor: &Redactor) -> v1::KnowledgeVersion {
    message!(KnowledgeVersion of version { version, by } named { at_ms: at } redacted by redactor { title, content })
}

/// A value. A value without a secret is sent exactly as it was written, with all digits of its numbers.
pub(crate) fn state_entry(entry: &StateEntry, redactor: &Redactor) -> v1::StateEntry {
    let value = entry.value.value();
    let clean = redactor.redact_json(&value);
    message!(StateEntry of entry { key, version, writer } named { updated_at_ms: updated_at } with {
        value_json: if clean == value { entry.value.to_string() } else { clean.to_string() },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn action_fields_are_redacted() {
        let redactor = Redactor::new(["hush-hush".to_owned()]);
        let poll = action(&Action::Poll { options: vec!["yes".into(), "no hush-hush".into()] }, &redactor);
        assert_eq!((poll.options.len(), poll.options[0].as_str()), (2, "yes"));
        let emoji = ":hush-hush:".to_owned();
        let react = Action::React { message_id: "m".into(), seq: 1, emoji, remove: false };
        let react = action(&react, &redactor);
        for text in [&poll.options[1], react.emoji.as_ref().unwrap()] {
            assert!(!text.contains("hush-hush"), "{text}");
        }
    }
}
