//! What the writer knows and has not written yet, in layers: the running command's own rows, the rows of the batch's
//! accepted commands, and what is remembered from earlier batches. A refusal drops the first layer, a failed batch
//! drops them all, so nothing is ever undone piece by piece.
//!
//! Must never: answer from a layer that SQL could contradict. The writer is the only one that writes, and what it
//! remembers is dropped wholesale whenever that could stop being exact.

use std::sync::Arc;

use ghost_domain::event::NewEvent;
use ghost_domain::ports::Signal;
use ghost_domain::storm::RootTally;
use ghost_domain::usage::UsageRow;
use ghost_domain::{
    Agent, AgentId, Ask, Budget, ChannelName, ChatChannel, ChatMember, ChatPost, Conversation, ConversationEntry,
    DeadLetter, Envelope, Event, EventId, HeldSkill, Job, JournalRow, KnowledgeEntry, KnowledgeVersion, LedgerRow,
    MessageId, Schedule, ScheduleRun, StateEntry, StoredAnswer, Task, Timestamp, Turn,
};

use super::nameless::{Head, Meta, Numbered, Prompt, Seen, TaskHistory};
use super::open_turn::OpenTurn;
use super::row::Keyed;
use super::shelf::{Ids, Known, Log, Shelf};

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
pub(super) trait Shelved: Keyed {
    /// Its shelf.
    fn shelf(layers: &Layers) -> &Shelf<Self>;
    /// Its shelf, to change it.
    fn shelf_mut(layers: &mut Layers) -> &mut Shelf<Self>;
}

macro_rules! shelved {
    ($($shelf:ident: $row:ty),+ $(,)?) => {$(
        impl Shelved for $row {
            fn shelf(layers: &Layers) -> &Shelf<Self> {
                &layers.$shelf
            }

            fn shelf_mut(layers: &mut Layers) -> &mut Shelf<Self> {
                &mut layers.$shelf
            }
        }
    )+};
}

shelved! {
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
pub(super) struct Layers {
    pub(super) meta: Shelf<Meta>,
    pub(super) agents: Shelf<Agent>,
    pub(super) skills: Shelf<HeldSkill>,
    pub(super) jobs: Shelf<Job>,
    pub(super) mail: Shelf<Envelope>,
    pub(super) heads: Shelf<Head>,
    pub(super) asks: Shelf<Ask>,
    pub(super) turns: Shelf<Turn>,
    pub(super) prompts: Shelf<Prompt>,
    pub(super) budgets: Shelf<Budget>,
    pub(super) calls: Shelf<LedgerRow>,
    pub(super) requests: Shelf<StoredAnswer>,
    pub(super) dead_letters: Shelf<DeadLetter>,
    pub(super) tasks: Shelf<Task>,
    pub(super) chat_channels: Shelf<ChatChannel>,
    pub(super) chat_members: Shelf<ChatMember>,
    pub(super) conversations: Shelf<Conversation>,
    pub(super) entries: Shelf<ConversationEntry>,
    pub(super) knowledge: Shelf<KnowledgeEntry>,
    pub(super) knowledge_versions: Shelf<KnowledgeVersion>,
    pub(super) state: Shelf<StateEntry>,
    pub(super) roots: Shelf<RootTally>,
    pub(super) schedules: Shelf<Schedule>,
    pub(super) schedule_runs: Shelf<ScheduleRun>,
    pub(super) snapshots: Shelf<Seen>,
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
    ($layers:ident, $call:ident) => {
        $layers.meta.$call();
        $layers.agents.$call();
        $layers.skills.$call();
        $layers.jobs.$call();
        $layers.mail.$call();
        $layers.heads.$call();
        $layers.asks.$call();
        $layers.turns.$call();
        $layers.prompts.$call();
        $layers.budgets.$call();
        $layers.calls.$call();
        $layers.requests.$call();
        $layers.dead_letters.$call();
        $layers.tasks.$call();
        $layers.chat_channels.$call();
        $layers.chat_members.$call();
        $layers.conversations.$call();
        $layers.entries.$call();
        $layers.knowledge.$call();
        $layers.knowledge_versions.$call();
        $layers.state.$call();
        $layers.roots.$call();
        $layers.schedules.$call();
        $layers.schedule_runs.$call();
        $layers.snapshots.$call();
        $layers.journal.$call();
        $layers.usage.$call();
        $layers.task_events.$call();
        $layers.chat_posts.$call();
        $layers.depths.$call();
        $layers.waiting.$call();
        $layers.open_turns.$call();
        $layers.rosters.$call();
        $layers.joined.$call();
        $layers.last_posts.$call();
        $layers.mail_ids.$call();
    };
}

impl Layers {
    /// Empty layers over a database whose sequences stand at `counters` and whose largest id of mail is `newest`.
    pub(super) fn new(counters: Counters, newest: Option<MessageId>) -> Self {
        Self {
            meta: Shelf::new(),
            agents: Shelf::new(),
            skills: Shelf::new(),
            jobs: Shelf::new(),
            mail: Shelf::new(),
            heads: Shelf::new(),
            asks: Shelf::new(),
            turns: Shelf::new(),
            prompts: Shelf::new(),
            budgets: Shelf::new(),
            calls: Shelf::new(),
            requests: Shelf::new(),
            dead_letters: Shelf::new(),
            tasks: Shelf::new(),
            chat_channels: Shelf::new(),
            chat_members: Shelf::new(),
            conversations: Shelf::new(),
            entries: Shelf::new(),
            knowledge: Shelf::new(),
            knowledge_versions: Shelf::new(),
            state: Shelf::new(),
            roots: Shelf::new(),
            schedules: Shelf::new(),
            schedule_runs: Shelf::new(),
            snapshots: Shelf::new(),
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
