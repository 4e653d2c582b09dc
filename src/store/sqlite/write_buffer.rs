//! What the writer knows and has not written yet, in layers: the running command's own rows, the rows of the batch's
//! accepted commands, and what is remembered from earlier batches. A refusal drops the first layer, a failed batch
//! drops them all, so nothing is ever undone piece by piece.
//!
//! Must never: answer from a layer that SQL could contradict. The writer is the only one that writes, and what it
//! remembers is dropped wholesale whenever that could stop being exact.

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

use super::internal_rows::{Head, Meta, Numbered, Prompt, Seen, TaskHistory};
use super::open_turn::OpenTurn;
use super::row::Keyed;
use super::table_cache::{Ids, Known, Log, TableCache};

/// The sequences of the world: the last number given out in each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    pub(super) messages: i64,
    pub(super) journal: i64,
    pub(super) usage: i64,
    pub(super) task_events: i64,
    pub(super) events: i64,
}

/// An event whose command is still running: it has no place yet.
type Stated = (EventId, Timestamp, NewEvent);

/// A row that has a shelf of its own among the layers.
pub(super) trait CachedRow: Keyed {
    /// Its shelf.
    fn table(buffer: &WriteBuffer) -> &TableCache<Self>;
    /// Its shelf, to change it.
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
    snapshots: Seen,
    state: StateEntry,
    skills: HeldSkill,
    tasks: Task,
    turns: Turn,
    prompts: Prompt,
}

/// All layers of all tables.
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
    pub(super) snapshots: TableCache<Seen>,
    pub(super) journal: Log<JournalRow>,
    pub(super) usage: Log<Numbered<UsageRow>>,
    pub(super) task_events: Log<TaskHistory>,
    pub(super) chat_posts: Log<ChatPost>,
    /// Events of accepted commands, numbered. Not cleared by a flush: they are published after COMMIT.
    pub(super) events: Vec<Event>,
    /// How many of `events` are in SQL.
    pub(super) events_written: usize,
    pub(super) stated: Vec<Stated>,
    pub(super) signals: Vec<Signal>,
    pub(super) own_signals: Vec<Signal>,
    /// Pending mail by inbox.
    pub(super) depths: Known<AgentId, u32>,
    /// Pending mail in the whole world.
    pub(super) waiting: Known<(), u64>,
    /// The open turn that mail opened, by agent.
    pub(super) open_turns: Known<AgentId, OpenTurn>,
    /// Who is in a channel, in order; `None` where that may have changed.
    pub(super) rosters: Known<ChannelName, Option<Arc<[AgentId]>>>,
    /// The channels that an agent is in, in order; `None` where that may have changed.
    pub(super) joined: Known<AgentId, Option<Arc<[ChannelName]>>>,
    /// The largest sequence of a post, by channel.
    pub(super) last_posts: Known<ChannelName, i64>,
    pub(super) mail_ids: Ids,
    pub(super) counters: Counters,
    at_command: Counters,
    at_batch: Counters,
}

/// Runs the same call on every shelf, every log, and all that is known besides.
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
        $buffer.depths.$call();
        $buffer.waiting.$call();
        $buffer.open_turns.$call();
        $buffer.rosters.$call();
        $buffer.joined.$call();
        $buffer.last_posts.$call();
        $buffer.mail_ids.$call();
    };
}

impl WriteBuffer {
    /// Empty layers over a database whose sequences stand at `counters` and whose largest id of mail is `newest`.
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
            stated: Vec::new(),
            signals: Vec::new(),
            own_signals: Vec::new(),
            depths: Known::new(3_584),
            waiting: Known::new(1),
            open_turns: Known::new(3_584),
            rosters: Known::new(64),
            joined: Known::new(3_584),
            last_posts: Known::new(512),
            mail_ids: Ids::new(newest),
            counters,
            at_command: counters,
            at_batch: counters,
        }
    }

    /// Makes the running command's rows the batch's.
    pub(super) fn accept(&mut self) {
        every!(self, accept);
        self.signals.append(&mut self.own_signals);
        for (event_id, ts, new) in self.stated.drain(..) {
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
        self.at_command = self.counters;
    }

    /// Drops the running command's rows.
    pub(super) fn reject(&mut self) {
        every!(self, reject);
        self.stated.clear();
        self.own_signals.clear();
        self.counters = self.at_command;
    }

    /// Keeps the count of pending mail in the world exact, once it is known.
    pub(super) fn waiting_moves(&mut self, was_pending: bool, is_pending: bool) {
        let Some(waiting) = self.waiting.get(&()).copied() else { return };
        match (was_pending, is_pending) {
            (false, true) => self.waiting.put((), waiting.saturating_add(1)),
            (true, false) => self.waiting.put((), waiting.saturating_sub(1)),
            _ => {}
        }
    }

    /// Ends a batch that was committed: gives what is to be published.
    pub(super) fn committed(&mut self) -> (Vec<Event>, Vec<Signal>) {
        self.at_batch = self.counters;
        self.events_written = 0;
        (std::mem::take(&mut self.events), std::mem::take(&mut self.signals))
    }

    /// Ends a batch that failed: nothing of it stands, nothing is remembered.
    pub(super) fn abandoned(&mut self) {
        let ids = self.mail_ids.settle();
        *self = Self { mail_ids: ids, ..Self::new(self.at_batch, None) };
    }
}
