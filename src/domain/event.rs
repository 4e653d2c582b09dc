//! The event feed: one row for each change, in one order (promise 5 in `docs/design.md`, CP-07).

use std::fmt;
use std::ops::Deref;
use std::sync::OnceLock;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::ids::{AgentId, ChannelName, EventId};
use crate::macros::text_enum;
use crate::time::Timestamp;

text_enum! {
    /// Kind of an event.
    EventKind, "kind of event" {
    /// The daemon started and serves the world.
        WorldStarted = "world.started",
        /// The daemon stops in an orderly way.
        WorldStopped = "world.stopped",
        /// The world was paused: no new turn starts.
        WorldPaused = "world.paused",
        /// The world was resumed: turns start again.
        WorldResumed = "world.resumed",
        /// The world's files were reloaded.
        WorldReloaded = "world.reloaded",
        /// The sweep found mail without a wake-up. This is a bug.
        WorldSweepFound = "world.sweep_found",
        /// A value is near or past a limit, or a setting is dangerous.
        WorldWarning = "world.warning",
        /// The wall clock jumped. What was computed from it was computed again.
        WorldClockJumped = "world.clock_jumped",
        /// An operator confirmed that the clock is right after a jump.
        WorldClockConfirmed = "world.clock_confirmed",
        /// A loop of the daemon, such as maintenance, failed. It starts again after a pause.
        LoopFailed = "loop.failed",
        /// A team crashed more often than its limit allows.
        TeamFailed = "team.failed",
        /// An agent was created.
        AgentCreated = "agent.created",
        /// An agent was started.
        AgentStarted = "agent.started",
        /// An agent was stopped.
        AgentStopped = "agent.stopped",
        /// An agent's actor crashed.
        AgentCrashed = "agent.crashed",
        /// An agent restarted after a crash.
        AgentRestarted = "agent.restarted",
        /// An agent became `failed`.
        AgentFailed = "agent.failed",
        /// An agent was deleted.
        AgentDeleted = "agent.deleted",
        /// An agent's record or configuration changed.
        AgentUpdated = "agent.updated",
        /// A turn started.
        TurnStarted = "turn.started",
        /// A turn continues after a crash or a start of the daemon.
        TurnResumed = "turn.resumed",
        /// A turn ended.
        TurnFinished = "turn.finished",
        /// A model call started.
        ModelStarted = "model.started",
        /// A model call ended.
        ModelFinished = "model.finished",
        /// A model call failed.
        ModelFailed = "model.failed",
        /// A provider refused opaque state of its own earlier answers. The model is asked again
        /// without that state.
        ModelStateDropped = "model.state_dropped",
        /// A tool call started.
        ToolStarted = "tool.started",
        /// Progress of a tool call. Ephemeral.
        ToolProgress = "tool.progress",
        /// A tool call ended.
        ToolFinished = "tool.finished",
        /// A turn waits until a person says what became of a call that the daemon's death cut off.
        ToolUnsettled = "tool.unsettled",
        /// An operator found out what became of a call whose outcome was unknown.
        ToolSettled = "tool.settled",
        /// A turn was parked: a model is down, or a budget is spent.
        TurnParked = "turn.parked",
        /// A model is down. Its turns wait, and one probe at a time tries it.
        ProviderDown = "provider.down",
        /// A model answers again.
        ProviderUp = "provider.up",
        /// A part of a model's answer while it is written. Ephemeral.
        ModelDelta = "model.delta",
        /// Mail was put into an inbox.
        MessageDelivered = "message.delivered",
        /// An ask was answered.
        AskAnswered = "ask.answered",
        /// An ask ended without an answer.
        AskFailed = "ask.failed",
        /// An answer came after its ask had ended.
        AskLate = "ask.late",
        /// A task was created.
        TaskCreated = "task.created",
        /// A task changed.
        TaskUpdated = "task.updated",
        /// A chat channel was created.
        ChatCreated = "chat.created",
        /// The gating or the topic of a channel changed.
        ChatChanged = "chat.changed",
        /// A chat message was written in a channel, gated or not.
        ChatMessage = "chat.message",
        /// An agent joined a channel.
        ChatMemberAdded = "chat.member_added",
        /// An agent left a channel, or was removed.
        ChatMemberRemoved = "chat.member_removed",
        /// A conversation with a person or program outside began.
        ConversationStarted = "conversation.started",
        /// A message was added to a conversation, by either side.
        ConversationMessage = "conversation.message",
        /// A conversation was handed over to another agent.
        ConversationHandedOver = "conversation.handed_over",
        /// A message of an agent was delivered to the outside.
        ConversationDelivered = "conversation.delivered",
        /// The delivery of an agent's message failed permanently.
        ConversationFailed = "conversation.failed",
        /// An operator began a session anew.
        SessionReset = "session.reset",
        /// An entry of knowledge was written or deleted.
        KnowledgeChanged = "knowledge.changed",
        /// A value of the shared state was written.
        StateChanged = "state.changed",
        /// A timer, a cron job or a watch was set or changed.
        ScheduleSet = "schedule.set",
        /// A timer, a cron job or a watch was cancelled or ended.
        ScheduleCancelled = "schedule.cancelled",
        /// A timer, a cron job or a watch ran.
        ScheduleFired = "schedule.fired",
        /// The record of a due schedule cannot be read. The schedule no longer runs.
        ScheduleSetAside = "schedule.set_aside",
        /// A slot passed without a run.
        ScheduleSkipped = "schedule.skipped",
        /// The last text of a cron job's own turn was delivered or not; the payload says which.
        ScheduleDelivered = "schedule.delivered",
        /// A heartbeat had nothing to report.
        HeartbeatQuiet = "heartbeat.quiet",
        /// A heartbeat reported a text.
        HeartbeatAlert = "heartbeat.alert",
        /// A heartbeat was due and did not run.
        HeartbeatSkipped = "heartbeat.skipped",
        /// A limit against endless chains of work was reached. It refused or delayed an action.
        LimitReached = "limit.reached",
        /// Mail became a dead letter.
        DeadLetterHeld = "dead_letter.held",
        /// An operator retried a dead letter.
        DeadLetterRetried = "dead_letter.retried",
        /// An operator dropped a dead letter.
        DeadLetterDropped = "dead_letter.dropped",
        /// The limits of a budget were set.
        BudgetSet = "budget.set",
        /// A call was refused because a budget is spent.
        BudgetExhausted = "budget.exhausted",
        /// An agent acquired a skill.
        SkillAcquired = "skill.acquired",
        /// An agent read the text of a skill.
        SkillActivated = "skill.activated",
        /// A call waits for an operator.
        ApprovalRequested = "approval.requested",
        /// An operator answered, nobody answered in time, or the turn of the call ended.
        ApprovalClosed = "approval.closed",
        /// An approval that held for later calls was revoked.
        ApprovalRevoked = "approval.revoked",
        /// An agent dropped a skill.
        SkillDropped = "skill.dropped",
        /// A file under `output/` was written or changed.
        ArtifactCreated = "artifact.created",
        /// A file under `output/` was removed.
        ArtifactRemoved = "artifact.removed",
        /// A write grant was made.
        GrantCreated = "grant.created",
        /// A write grant was revoked.
        GrantRevoked = "grant.revoked",
        /// A call could write only because of a grant, or ran a command that could.
        GrantUsed = "grant.used",
        /// An agent started a droid.
        DroidSpawned = "droid.spawned",
        /// A droid got guidance or more work.
        DroidSteered = "droid.steered",
        /// A droid ended.
        DroidEnded = "droid.ended",
        /// A main job started.
        JobStarted = "job.started",
        /// A main job finished.
        JobFinished = "job.finished",
    }
}

impl EventKind {
    /// Whether events of this kind are only streamed and never stored.
    pub fn is_ephemeral(self) -> bool {
        matches!(self, Self::ModelDelta | Self::ToolProgress)
    }
}

/// A new event in a transaction. The store adds its sequence number.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEvent {
    /// Kind of the event.
    pub kind: EventKind,
    /// Agent that the event is about.
    pub agent_id: Option<AgentId>,
    /// Chat channel that the event is about.
    pub channel: Option<String>,
    /// Id that connects related events: of a turn, an ask or a root.
    pub correlation_id: Option<String>,
    /// Facts about the event, redacted.
    pub payload: Value,
}

impl NewEvent {
    /// An event without agent, channel and correlation id.
    pub fn new(kind: EventKind, payload: Value) -> Self {
        Self { kind, agent_id: None, channel: None, correlation_id: None, payload }
    }

    /// Sets the agent.
    #[must_use]
    pub fn agent(mut self, agent_id: &AgentId) -> Self {
        self.agent_id = Some(agent_id.clone());
        self
    }

    /// Sets the chat channel.
    #[must_use]
    pub fn channel(mut self, channel: &ChannelName) -> Self {
        self.channel = Some(channel.to_string());
        self
    }

    /// Sets the correlation id.
    #[must_use]
    pub fn correlation(mut self, id: impl ToString) -> Self {
        self.correlation_id = Some(id.to_string());
        self
    }
}

/// A row of the event feed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Sequence number. It rises by one from event to event over the life of the world. An
    /// ephemeral event has the number of the stored event before it.
    pub seq: i64,
    /// Id of the event.
    pub event_id: EventId,
    /// When it happened.
    pub ts: Timestamp,
    /// Kind of the event.
    pub kind: EventKind,
    /// Agent that the event is about.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub agent_id: Option<AgentId>,
    /// Chat channel that the event is about.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub channel: Option<String>,
    /// Id that connects related events: of a turn, an ask or a root.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub correlation_id: Option<String>,
    /// Facts about the event.
    pub payload: EventPayload,
}

/// A filter for events. An empty field filters nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// Only these kinds. A family such as `turn.*` is written as `turn.`.
    pub kinds: Vec<String>,
    /// Only events about this agent.
    pub agent_id: Option<AgentId>,
    /// Only events about this chat channel.
    pub channel: Option<String>,
}

impl EventFilter {
    /// Whether `event` passes the filter.
    pub fn matches(&self, event: &Event) -> bool {
        let kind = event.kind.as_str();
        (self.kinds.is_empty()
            || self
                .kinds
                .iter()
                .any(|wanted| wanted == kind || (wanted.ends_with('.') && kind.starts_with(wanted.as_str()))))
            && self.agent_id.as_ref().is_none_or(|wanted| event.agent_id.as_ref() == Some(wanted))
            && self.channel.as_ref().is_none_or(|wanted| event.channel.as_ref() == Some(wanted))
    }
}

/// The payload of an event. It dereferences to its JSON value.
#[derive(Clone)]
pub struct EventPayload {
    text: OnceLock<Box<str>>,
    value: OnceLock<Value>,
}

impl EventPayload {
    /// A payload from JSON text.
    ///
    /// # Errors
    /// If the text is not JSON.
    pub fn read(text: String) -> Result<Self, serde_json::Error> {
        serde_json::from_str::<IgnoredAny>(&text)?;
        Ok(Self { text: OnceLock::from(text.into_boxed_str()), value: OnceLock::new() })
    }

    /// The payload as JSON.
    pub fn text(&self) -> &str {
        self.text.get_or_init(|| self.deref().to_string().into_boxed_str())
    }

    /// The payload as JSON text alone. What keeps or passes on many payloads does so with one piece of memory each.
    #[must_use]
    pub fn into_text(self) -> Self {
        // Made here, if nobody has asked for it.
        let _ = self.text();
        Self { value: OnceLock::new(), ..self }
    }
}

impl Deref for EventPayload {
    type Target = Value;

    fn deref(&self) -> &Value {
        self.value.get_or_init(|| {
            // Either form exists from the start, and the text is JSON. A text that is nested too
            // deeply for `Value` gives null.
            let text = self.text.get().map_or("null", |text| text);
            serde_json::from_str(text).unwrap_or_default()
        })
    }
}

impl From<Value> for EventPayload {
    fn from(value: Value) -> Self {
        Self { text: OnceLock::new(), value: OnceLock::from(value) }
    }
}

impl PartialEq for EventPayload {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl PartialEq<Value> for EventPayload {
    fn eq(&self, other: &Value) -> bool {
        **self == *other
    }
}

impl fmt::Debug for EventPayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl fmt::Display for EventPayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl Serialize for EventPayload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.deref().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for EventPayload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod payload_tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn payloads_from_a_value_and_from_text_are_equal() {
        let value = json!({ "b": [1, "ä\u{1}"], "a": null });
        let made = EventPayload::from(value.clone());
        let read = EventPayload::read(made.text().to_owned()).unwrap();
        assert_eq!((&*read, read.text(), &read), (&value, value.to_string().as_str(), &made));
        assert_eq!(read["b"][0], 1);
        assert!(EventPayload::read("{\"a\":".into()).is_err() && EventPayload::read("{} {}".into()).is_err());
    }
}
