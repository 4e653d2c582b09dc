//! The write buffer: everything that the writer holds in memory. For each table it has the rows of
//! the running command, the rows of the batch's accepted commands, and the cache of rows from
//! earlier batches (see [`table_cache`](super::table_cache)). A refused command drops only its own
//! rows. A failed batch drops everything. So no change is ever undone row by row.
//!
//! Must never: return a row that differs from the one in SQL, unless a newer version waits to be
//! written. Only the writer writes, and it clears a cache whenever SQL may have changed behind it.

use std::sync::Arc;

use ghost_domain::event::NewEvent;
use ghost_domain::ports::Signal;
use ghost_domain::root_tally::RootTally;
use ghost_domain::usage::UsageRow;
use ghost_domain::{
    Agent, AgentId, Ask, Budget, ChannelName, ChatChannel, ChatMember, ChatPost, Conversation, ConversationEntry,
    DeadLetter, Envelope, Event, EventId, HeldSkill, Job, JournalRow, KnowledgeEntry, KnowledgeVersion, LedgerRow,
    MessageId, Schedule, ScheduleRun, StateEntry, StoredAnswer, Task, Timestamp, Turn,
};

use super::internal_rows::{Head, Meta, Numbered, Prompt, TaskHistory, WatchSnapshotRow};
use super::open_turn::OpenTurn;
use super::row::Keyed;
use super::table_cache::{Derived, Log, MailIds, TableCache};

/// The last number assigned in each sequence of the world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    pub(super) messages: i64,
    pub(super) journal: i64,
    pub(super) usage: i64,
    pub(super) task_events: i64,
    pub(super) events: i64,
}

/// An event of the running command. Its sequence number is assigned when the command is accepted.
type CommandEvent = (EventId, Timestamp, NewEvent);

/// A row that has a table cache of its own in the write buffer.
pub(super) trait CachedRow: Keyed {
    /// The table cache of this row type.
    fn table(buffer: &WriteBuffer) -> &TableCache<Self>;
    /// The table cache of this row type, to change it.
    fn table_mut(buffer: &mut WriteBuffer) -> &mut TableCache<Self>;
}

macro_rules! cached_rows {
    ($($table:ident: $row:ty),+ $(,)?) => {$(
        impl CachedRow for $row {
            fn table(buffer: &WriteBuffer) -> &TableCache<Self> {
                &buffer.$table
            }

            fn table_mut(buffer: &mut WriteBuffer) -> &mut TableCache<Self> {
                &mut buffer.$table
            }
        }
    )+};
}

cached_rows! {
    agents: Agent,
    meta: Meta,
    asks: Ask,
    budgets: Budget,
    chat_channels: ChatChannel,
    chat_members: ChatMember,
    conversations: Conversation,
    entries: ConversationEntry,
    dead_letters: DeadLetter,
    jobs: Job,
    knowledge: KnowledgeEntry,
    knowledge_versions: KnowledgeVersion,
    calls: LedgerRow,
    mail: Envelope,
    heads: Head,
    requests: StoredAnswer,
    roots: RootTally,
    schedules: Schedule,
    schedule_runs: ScheduleRun,
    snapshots: WatchSnapshotRow,
    state: StateEntry,
    skills: HeldSkill,
    tasks: Task,
    turns: Turn,
    prompts: Prompt,
}

/// The write buffer. See the module header.
pub(super) struct WriteBuffer {
    pub(super) meta: TableCache<Meta>,
    pub(super) agents: TableCache<Agent>,
    pub(super) skills: TableCache<HeldSkill>,
    pub(super) jobs: TableCache<Job>,
    pub(super) mail: TableCache<Envelope>,
    pub(super) heads: TableCache<Head>,
    pub(super) asks: TableCache<Ask>,
    pub(super) turns: TableCache<Turn>,
    pub(super) prompts: TableCache<Prompt>,
    pub(super) budgets: TableCache<Budget>,
    pub(super) calls: TableCache<LedgerRow>,
    pub(super) requests: TableCache<StoredAnswer>,
    pub(super) dead_letters: TableCache<DeadLetter>,
    pub(super) tasks: TableCache<Task>,
    pub(super) chat_channels: TableCache<ChatChannel>,
    pub(super) chat_members: TableCache<ChatMember>,
    pub(super) conversations: TableCache<Conversation>,
    pub(super) entries: TableCache<ConversationEntry>,
    pub(super) knowledge: TableCache<KnowledgeEntry>,
    pub(super) knowledge_versions: TableCache<KnowledgeVersion>,
    pub(super) state: TableCache<StateEntry>,
    pub(super) roots: TableCache<RootTally>,
    pub(super) schedules: TableCache<Schedule>,
    pub(super) schedule_runs: TableCache<ScheduleRun>,
    pub(super) snapshots: TableCache<WatchSnapshotRow>,
    pub(super) journal: Log<JournalRow>,
    pub(super) usage: Log<Numbered<UsageRow>>,
    pub(super) task_events: Log<TaskHistory>,
    pub(super) chat_posts: Log<ChatPost>,
    /// Events of accepted commands, with sequence numbers. A flush keeps them, because they are
    /// published after COMMIT.
    pub(super) events: Vec<Event>,
    /// How many of `events` are in SQL.
    pub(super) events_written: usize,
    pub(super) command_events: Vec<CommandEvent>,
    pub(super) signals: Vec<Signal>,
    pub(super) command_signals: Vec<Signal>,
    /// Number of pending mails in each inbox.
    pub(super) inbox_depths: Derived<AgentId, u32>,
    /// Number of pending mails in the world.
    pub(super) pending_total: Derived<(), u64>,
    /// The open turn of each agent that continues with its own work (not a turn of an operator).
    pub(super) open_turns: Derived<AgentId, OpenTurn>,
    /// Members of each channel, in order; `None` if they may have changed.
    pub(super) channel_members: Derived<ChannelName, Option<Arc<[AgentId]>>>,
    /// Channels of each agent, in order; `None` if they may have changed.
    pub(super) agent_channels: Derived<AgentId, Option<Arc<[ChannelName]>>>,
    /// The last sequence of a post in each channel.
    pub(super) last_posts: Derived<ChannelName, i64>,
    pub(super) mail_ids: MailIds,
    pub(super) counters: Counters,
    counters_at_command: Counters,
    counters_at_batch: Counters,
}

/// Makes the same call on every table cache, log and derived fact.
macro_rules! every {
    ($buffer:ident, $call:ident) => {
        $buffer.meta.$call();
        $buffer.agents.$call();
        $buffer.skills.$call();
        $buffer.jobs.$call();
        $buffer.mail.$call();
        $buffer.heads.$call();
        $buffer.asks.$call();
        $buffer.turns.$call();
        $buffer.prompts.$call();
        $buffer.budgets.$call();
        $buffer.calls.$call();
        $buffer.requests.$call();
        $buffer.dead_letters.$call();
        $buffer.tasks.$call();
        $buffer.chat_channels.$call();
        $buffer.chat_members.$call();
        $buffer.conversations.$call();
        $buffer.entries.$call();
        $buffer.knowledge.$call();
        $buffer.knowledge_versions.$call();
        $buffer.state.$call();
        $buffer.roots.$call();
        $buffer.schedules.$call();
        $buffer.schedule_runs.$call();
        $buffer.snapshots.$call();
        $buffer.journal.$call();
        $buffer.usage.$call();
        $buffer.task_events.$call();
        $buffer.chat_posts.$call();
        $buffer.inbox_depths.$call();
        $buffer.pending_total.$call();
        $buffer.open_turns.$call();
        $buffer.channel_members.$call();
        $buffer.agent_channels.$call();
        $buffer.last_posts.$call();
        $buffer.mail_ids.$call();
    };
}

impl WriteBuffer {
    /// An empty buffer. `counters` are the last numbers in the database, `newest` is the largest
    /// mail id in it.
    pub(super) fn new(counters: Counters, newest: Option<MessageId>) -> Self {
        Self {
            meta: TableCache::new(),
            agents: TableCache::new(),
            skills: TableCache::new(),
            jobs: TableCache::new(),
            mail: TableCache::new(),
            heads: TableCache::new(),
            asks: TableCache::new(),
            turns: TableCache::new(),
            prompts: TableCache::new(),
            budgets: TableCache::new(),
            calls: TableCache::new(),
            requests: TableCache::new(),
            dead_letters: TableCache::new(),
            tasks: TableCache::new(),
            chat_channels: TableCache::new(),
            chat_members: TableCache::new(),
            conversations: TableCache::new(),
            entries: TableCache::new(),
            knowledge: TableCache::new(),
            knowledge_versions: TableCache::new(),
            state: TableCache::new(),
            roots: TableCache::new(),
            schedules: TableCache::new(),
            schedule_runs: TableCache::new(),
            snapshots: TableCache::new(),
            journal: Log::new(),
            usage: Log::new(),
            task_events: Log::new(),
            chat_posts: Log::new(),
            events: Vec::new(),
            events_written: 0,
            command_events: Vec::new(),
            signals: Vec::new(),
            command_signals: Vec::new(),
            inbox_depths: Derived::new(3_584),
            pending_total: Derived::new(1),
            open_turns: Derived::new(3_584),
            channel_members: Derived::new(64),
            agent_channels: Derived::new(3_584),
            last_posts: Derived::new(512),
            mail_ids: MailIds::new(newest),
            counters,
            counters_at_command: counters,
            counters_at_batch: counters,
        }
    }

    /// Moves the rows of the accepted command to the batch, and numbers its events.
    pub(super) fn accept(&mut self) {
        every!(self, accept);
        self.signals.append(&mut self.command_signals);
        for (event_id, ts, new) in self.command_events.drain(..) {
            self.counters.events += 1;
            self.events.push(Event {
                seq: self.counters.events,
                event_id,
                ts,
                kind: new.kind,
                agent_id: new.agent_id,
                channel: new.channel,
                correlation_id: new.correlation_id,
                payload: new.payload.into(),
            });
        }
        self.counters_at_command = self.counters;
    }

    /// Drops the rows, events and signals of the refused command.
    pub(super) fn reject(&mut self) {
        every!(self, reject);
        self.command_events.clear();
        self.command_signals.clear();
        self.counters = self.counters_at_command;
    }

    /// Updates the number of pending mails in the world, if it is known.
    pub(super) fn update_pending_total(&mut self, was_pending: bool, is_pending: bool) {
        let Some(total) = self.pending_total.get(&()).copied() else { return };
        match (was_pending, is_pending) {
            (false, true) => self.pending_total.put((), total.saturating_add(1)),
            (true, false) => self.pending_total.put((), total.saturating_sub(1)),
            _ => {}
        }
    }

    /// Ends a committed batch. Returns the events and signals to publish.
    pub(super) fn committed(&mut self) -> (Vec<Event>, Vec<Signal>) {
        self.counters_at_batch = self.counters;
        self.events_written = 0;
        (std::mem::take(&mut self.events), std::mem::take(&mut self.signals))
    }

    /// Ends a failed batch: drops everything, including the caches.
    pub(super) fn abandoned(&mut self) {
        let ids = self.mail_ids.without_sets();
        *self = Self { mail_ids: ids, ..Self::new(self.counters_at_batch, None) };
    }
}
