//! The event feed: one row for everything that happens, in one order (promise 5, CP-07).

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::envelope::text_enum;
use crate::event_payload::EventPayload;
use crate::ids::{AgentId, ChannelName, EventId};
use crate::time::Timestamp;

text_enum! {
    /// What happened.
    EventKind, "kind of event" {
        /// The daemon serves the world.
        WorldStarted = "world.started",
        /// The daemon stops in order.
        WorldStopped = "world.stopped",
        /// No new turns.
        WorldPaused = "world.paused",
        /// Turns again.
        WorldResumed = "world.resumed",
        /// The configuration was reconciled.
        WorldReloaded = "world.reloaded",
        /// The backstop sweep found mail that no wake-up had announced: a defect.
        WorldSweepFound = "world.sweep_found",
        /// Something is near or past a bound, or dangerous as configured.
        WorldWarning = "world.warning",
        /// A loop of the daemon's own, such as the keeper, failed and is begun again after a pause.
        LoopFailed = "loop.failed",
        /// A team passed its restart intensity.
        TeamFailed = "team.failed",
        /// An agent exists.
        AgentCreated = "agent.created",
        /// An agent runs.
        AgentStarted = "agent.started",
        /// An agent is stopped.
        AgentStopped = "agent.stopped",
        /// An agent's actor died.
        AgentCrashed = "agent.crashed",
        /// It is back.
        AgentRestarted = "agent.restarted",
        /// It passed its restart intensity.
        AgentFailed = "agent.failed",
        /// A tombstone stands where it was.
        AgentDeleted = "agent.deleted",
        /// Its record or configuration changed.
        AgentUpdated = "agent.updated",
        /// A turn took mail.
        TurnStarted = "turn.started",
        /// A turn goes on after a crash or a boot.
        TurnResumed = "turn.resumed",
        /// A turn ended.
        TurnFinished = "turn.finished",
        /// A model call began.
        ModelStarted = "model.started",
        /// A model call ended.
        ModelFinished = "model.finished",
        /// A model call failed.
        ModelFailed = "model.failed",
        /// A provider does not take what it attached to its earlier answers: the model is asked again without that.
        ModelStateDropped = "model.state_dropped",
        /// A tool call began.
        ToolStarted = "tool.started",
        /// A tool says how far it is. Ephemeral.
        ToolProgress = "tool.progress",
        /// A tool call ended.
        ToolFinished = "tool.finished",
        /// A turn waits for a model that is down, or for a budget.
        TurnParked = "turn.parked",
        /// A model does not answer: its turns wait, and one call at a time tries it.
        ProviderDown = "provider.down",
        /// A model answers again.
        ProviderUp = "provider.up",
        /// The model writes. Ephemeral.
        ModelDelta = "model.delta",
        /// Mail lies in an inbox.
        MessageDelivered = "message.delivered",
        /// An ask got its answer.
        AskAnswered = "ask.answered",
        /// An ask ended without one.
        AskFailed = "ask.failed",
        /// An answer came after the asker had stopped waiting.
        AskLate = "ask.late",
        /// A task exists.
        TaskCreated = "task.created",
        /// A task changed.
        TaskUpdated = "task.updated",
        /// A chat channel exists.
        ChatCreated = "chat.created",
        /// A channel is gated or no longer, or is about something else.
        ChatChanged = "chat.changed",
        /// Something was posted in a channel, gated or not (CHAT-14).
        ChatMessage = "chat.message",
        /// An agent joined a channel.
        ChatMemberAdded = "chat.member_added",
        /// An agent left a channel, or was removed.
        ChatMemberRemoved = "chat.member_removed",
        /// A conversation with someone outside began.
        ConversationStarted = "conversation.started",
        /// Something was said in a conversation, by either side.
        ConversationMessage = "conversation.message",
        /// A conversation has another owner.
        ConversationHandedOver = "conversation.handed_over",
        /// What an agent said was handed to the outside.
        ConversationDelivered = "conversation.delivered",
        /// What an agent said could not be handed to the outside, and was given up.
        ConversationFailed = "conversation.failed",
        /// An entry of knowledge was written or deleted.
        KnowledgeChanged = "knowledge.changed",
        /// A value of the shared state was written.
        StateChanged = "state.changed",
        /// A timer, a cron job or a watch was set or changed.
        ScheduleSet = "schedule.set",
        /// A timer, a cron job or a watch is gone.
        ScheduleCancelled = "schedule.cancelled",
        /// A timer, a cron job or a watch went off.
        ScheduleFired = "schedule.fired",
        /// A schedule that was due has a record that does not read back; it does not run any more.
        ScheduleSetAside = "schedule.set_aside",
        /// A slot passed without a run.
        ScheduleSkipped = "schedule.skipped",
        /// The last text of a job's own turn was delivered, or could not be, or was not to be.
        ScheduleDelivered = "schedule.delivered",
        /// A heartbeat had nothing to report.
        HeartbeatQuiet = "heartbeat.quiet",
        /// A heartbeat reported something.
        HeartbeatAlert = "heartbeat.alert",
        /// A heartbeat was due and did not run.
        HeartbeatSkipped = "heartbeat.skipped",
        /// A bound against storms refused or held something back.
        StormHeld = "storm.held",
        /// Mail was set aside.
        DeadLetterHeld = "dead_letter.held",
        /// An operator put it back to work.
        DeadLetterRetried = "dead_letter.retried",
        /// An operator gave it up.
        DeadLetterDropped = "dead_letter.dropped",
        /// A limit was set.
        BudgetSet = "budget.set",
        /// A call was refused for a budget.
        BudgetExhausted = "budget.exhausted",
        /// A skill is held.
        SkillAcquired = "skill.acquired",
        /// A skill's document was read.
        SkillActivated = "skill.activated",
        /// A skill is no longer held.
        SkillDropped = "skill.dropped",
        /// A file appeared under `output/`.
        ArtifactCreated = "artifact.created",
        /// A job's input was taken in.
        JobStarted = "job.started",
        /// A job's result is there.
        JobFinished = "job.finished",
    }
}

impl EventKind {
    /// Whether such events are streamed only, with the sequence that they follow, and never stored.
    #[must_use]
    pub fn is_ephemeral(self) -> bool {
        matches!(self, Self::ModelDelta | Self::ToolProgress)
    }
}

/// An event as a transaction states it; the store adds its place in the feed.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEvent {
    /// What happened.
    pub kind: EventKind,
    /// To or by which agent.
    pub agent_id: Option<AgentId>,
    /// In which chat channel.
    pub channel: Option<String>,
    /// What ties it to other events: a turn, an ask, a root.
    pub correlation_id: Option<String>,
    /// The facts, redacted.
    pub payload: Value,
}

impl NewEvent {
    /// An event about nothing in particular yet.
    #[must_use]
    pub fn new(kind: EventKind, payload: Value) -> Self {
        Self { kind, agent_id: None, channel: None, correlation_id: None, payload }
    }

    /// Says which agent it is about.
    #[must_use]
    pub fn agent(mut self, agent_id: &AgentId) -> Self {
        self.agent_id = Some(agent_id.clone());
        self
    }

    /// Says in which chat channel it happened.
    #[must_use]
    pub fn channel(mut self, channel: &ChannelName) -> Self {
        self.channel = Some(channel.to_string());
        self
    }

    /// Ties it to other events.
    #[must_use]
    pub fn correlation(mut self, id: impl ToString) -> Self {
        self.correlation_id = Some(id.to_string());
        self
    }
}

/// A row of the feed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Its place: rises by one from event to event, over the life of the world. For an ephemeral event, the sequence
    /// that it follows.
    pub seq: i64,
    /// Its id.
    pub event_id: EventId,
    /// When.
    pub ts: Timestamp,
    /// What happened.
    pub kind: EventKind,
    /// To or by which agent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub agent_id: Option<AgentId>,
    /// In which chat channel.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub channel: Option<String>,
    /// What ties it to other events.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub correlation_id: Option<String>,
    /// The facts.
    pub payload: EventPayload,
}

/// Which events a reader wants; empty means all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// Of these kinds, or families such as `turn.*` given as `turn.`.
    pub kinds: Vec<String>,
    /// About this agent.
    pub agent_id: Option<AgentId>,
    /// In this channel.
    pub channel: Option<String>,
}

impl EventFilter {
    /// Whether `event` is wanted.
    #[must_use]
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
