//! All tables of one world, their indexes, and the counters that assign sequence numbers.

use std::sync::Arc;

use ghost_domain::root_tally::RootTally;
use ghost_domain::{
    Agent, AgentId, Approval, ApprovalId, Artifact, Ask, AskId, Budget, CallId, ChannelName, ChatChannel, ChatMember,
    ChatPost, Conversation, ConversationEntry, ConversationId, DeadLetter, DeadLetterId, Droid, Envelope, Event, Grant,
    GrantId, HeldSkill, Job, JournalRow, KnowledgeEntry, KnowledgeVersion, LedgerRow, MessageId, Party, RequestId,
    RootId, Schedule, ScheduleId, ScheduleRun, SessionStart, StateEntry, StoredAnswer, Task, TaskEvent, TaskId,
    Timestamp, Turn, TurnId, UsageRow, WatchSnapshot,
};

use super::table::{Journaled, Table};

/// Two names, as texts. The empty text comes before every name, so a range can begin with it.
pub(super) type Pair = (Arc<str>, Arc<str>);

/// A prompt part, and the time of its last use.
#[derive(Debug)]
pub(super) struct Prompt {
    pub(super) text: String,
    pub(super) at: Timestamp,
}

/// The last number assigned in each sequence. After a commit they never decrease.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    pub(super) event: i64,
    pub(super) message: i64,
    pub(super) journal: i64,
    pub(super) usage: i64,
    pub(super) task_event: i64,
}

/// All tables of a world. A table named `a_by_b` is an index: it changes together with table `a`.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) counters: Counters,
    committed: Counters,
    pub(super) agents: Table<AgentId, Agent>,
    pub(super) meta: Table<String, String>,
    pub(super) approvals: Table<ApprovalId, Approval>,
    pub(super) asks: Table<AskId, Ask>,
    pub(super) asks_by_open: Table<(Timestamp, AskId), ()>,
    /// By the text of the scope, because lists are in this order.
    pub(super) budgets: Table<String, Budget>,
    pub(super) usage: Table<i64, UsageRow>,
    pub(super) dead_letters: Table<DeadLetterId, DeadLetter>,
    pub(super) events: Table<i64, Event>,
    pub(super) jobs: Table<String, Job>,
    pub(super) ledger: Table<CallId, LedgerRow>,
    pub(super) ledger_by_start: Table<(Timestamp, CallId), ()>,
    pub(super) messages: Table<i64, Envelope>,
    pub(super) messages_by_id: Table<MessageId, i64>,
    pub(super) messages_by_receiver: Table<(AgentId, i64), ()>,
    pub(super) messages_by_pending: Table<(AgentId, i64), ()>,
    pub(super) messages_by_turn: Table<(TurnId, i64), ()>,
    pub(super) requests: Table<(Party, RequestId), StoredAnswer>,
    pub(super) skills: Table<(AgentId, String), HeldSkill>,
    pub(super) tasks: Table<TaskId, Task>,
    pub(super) task_events: Table<(TaskId, i64), TaskEvent>,
    pub(super) turns: Table<TurnId, Turn>,
    pub(super) turns_by_open: Table<(Timestamp, TurnId), ()>,
    pub(super) journal: Table<(TurnId, i64), JournalRow>,
    pub(super) prompts: Table<String, Prompt>,
    pub(super) sessions: Table<(AgentId, Option<ConversationId>), SessionStart>,
    pub(super) chat_channels: Table<ChannelName, ChatChannel>,
    /// By channel and member.
    pub(super) chat_members: Table<Pair, ChatMember>,
    /// By member and channel.
    pub(super) chat_members_by_agent: Table<Pair, ()>,
    pub(super) chat_posts: Table<(ChannelName, i64), ChatPost>,
    pub(super) conversations: Table<ConversationId, Conversation>,
    pub(super) conversations_by_thread: Table<(String, String), ConversationId>,
    pub(super) conversation_entries: Table<(ConversationId, i64), ConversationEntry>,
    pub(super) conversation_entries_by_due: Table<(Timestamp, ConversationId, i64), ()>,
    pub(super) conversation_entries_by_turn: Table<(TurnId, ConversationId, i64), ()>,
    pub(super) knowledge: Table<String, KnowledgeEntry>,
    pub(super) knowledge_versions: Table<(String, i64), KnowledgeVersion>,
    pub(super) state: Table<String, StateEntry>,
    pub(super) roots: Table<RootId, RootTally>,
    pub(super) schedules: Table<ScheduleId, Schedule>,
    /// By agent, kind as text, and name, because lists are in this order.
    pub(super) schedules_by_name: Table<(Arc<str>, &'static str, String), ScheduleId>,
    pub(super) schedules_by_due: Table<(Timestamp, ScheduleId), ()>,
    pub(super) schedule_runs: Table<(ScheduleId, i64), ScheduleRun>,
    pub(super) schedule_runs_by_message: Table<(MessageId, ScheduleId, i64), ()>,
    pub(super) watch_snapshots: Table<ScheduleId, WatchSnapshot>,
    pub(super) grants: Table<GrantId, Grant>,
    pub(super) droids: Table<AgentId, Droid>,
    /// By path.
    pub(super) artifacts: Table<String, Artifact>,
}

impl Tables {
    fn each(&mut self) -> [&mut dyn Journaled; 48] {
        [
            &mut self.agents,
            &mut self.meta,
            &mut self.approvals,
            &mut self.asks,
            &mut self.asks_by_open,
            &mut self.budgets,
            &mut self.usage,
            &mut self.dead_letters,
            &mut self.events,
            &mut self.jobs,
            &mut self.ledger,
            &mut self.ledger_by_start,
            &mut self.messages,
            &mut self.messages_by_id,
            &mut self.messages_by_receiver,
            &mut self.messages_by_pending,
            &mut self.messages_by_turn,
            &mut self.requests,
            &mut self.skills,
            &mut self.tasks,
            &mut self.task_events,
            &mut self.turns,
            &mut self.turns_by_open,
            &mut self.journal,
            &mut self.prompts,
            &mut self.sessions,
            &mut self.chat_channels,
            &mut self.chat_members,
            &mut self.chat_members_by_agent,
            &mut self.chat_posts,
            &mut self.conversations,
            &mut self.conversations_by_thread,
            &mut self.conversation_entries,
            &mut self.conversation_entries_by_due,
            &mut self.conversation_entries_by_turn,
            &mut self.knowledge,
            &mut self.knowledge_versions,
            &mut self.state,
            &mut self.roots,
            &mut self.schedules,
            &mut self.schedules_by_name,
            &mut self.schedules_by_due,
            &mut self.schedule_runs,
            &mut self.schedule_runs_by_message,
            &mut self.watch_snapshots,
            &mut self.grants,
            &mut self.droids,
            &mut self.artifacts,
        ]
    }

    /// Whether the running command has written anything.
    pub(super) fn changed(&mut self) -> bool {
        self.each().iter().any(|table| table.changed())
    }

    /// Keeps the writes of the command.
    pub(super) fn commit(&mut self) {
        self.committed = self.counters;
        for table in self.each() {
            table.commit();
        }
    }

    /// Undoes the writes of the command. Numbers that it took are assigned again.
    pub(super) fn undo(&mut self) {
        self.counters = self.committed;
        for table in self.each() {
            table.undo();
        }
    }
}

/// Adds one to a counter and gives the new value.
pub(super) fn next(counter: &mut i64) -> i64 {
    *counter += 1;
    *counter
}
