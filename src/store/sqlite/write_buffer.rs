//! The write buffer: everything that the writer holds in memory. For each table it has the rows of
//! the running command, the rows of the batch's accepted commands, and the cache of rows from
//! earlier batches (see [`table_cache`](super::table_cache)). A refused command drops only its own
//! rows. A failed batch drops everything. So no change is ever undone row by row.
//!
//! A row that the buffer returns equals the one in SQL, unless a newer version waits to be written.
//! Only the writer writes, and it clears a cache whenever SQL may have changed behind it.

use ghost_domain::event::NewEvent;
use ghost_domain::ports::Signal;
use ghost_domain::{Event, EventId, MessageId, Timestamp};

use super::facts::{Facts, MailIds};
use super::flush::{FlushError, FlushTarget, write_rows};
use super::table_cache::Owner;
use super::table_list::{Tables, table_set};

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

/// The write buffer. See the module header.
pub(super) struct WriteBuffer {
    pub(super) tables: Tables,
    pub(super) facts: Facts,
    /// Rows that the running command has written since its last spill.
    pub(super) command_rows: usize,
    /// Events of accepted commands, with sequence numbers. A flush keeps them, because they are
    /// published after COMMIT.
    events: Vec<Event>,
    /// How many of `events` are in SQL.
    events_written: usize,
    pub(super) command_events: Vec<CommandEvent>,
    signals: Vec<Signal>,
    pub(super) command_signals: Vec<Signal>,
    pub(super) counters: Counters,
    counters_at_command: Counters,
    counters_at_batch: Counters,
}

impl WriteBuffer {
    /// An empty buffer. `counters` are the last numbers in the database, `newest` is the largest
    /// mail id in it.
    pub(super) fn new(counters: Counters, newest: Option<MessageId>) -> Self {
        Self::with(counters, MailIds::new(newest))
    }

    fn with(counters: Counters, mail_ids: MailIds) -> Self {
        Self {
            tables: Tables::new(),
            facts: Facts::new(mail_ids),
            command_rows: 0,
            events: Vec::new(),
            events_written: 0,
            command_events: Vec::new(),
            signals: Vec::new(),
            command_signals: Vec::new(),
            counters,
            counters_at_command: counters,
            counters_at_batch: counters,
        }
    }

    /// Moves the rows of the accepted command to the batch, and numbers its events.
    pub(super) fn accept(&mut self) {
        self.command_rows = 0;
        self.tables.accept();
        self.facts.accept();
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
        self.command_rows = 0;
        self.tables.reject();
        self.facts.reject();
        self.command_events.clear();
        self.command_signals.clear();
        self.counters = self.counters_at_command;
    }

    /// Whether any table of `set` has pending rows. Events of the running command never count, because
    /// they have no sequence number yet.
    pub(super) fn has(&self, set: u64, owner: Owner) -> bool {
        let events = set & table_set::EVENTS != 0 && owner == Owner::Batch;
        self.tables.has(set, owner) || (events && self.events_written < self.events.len())
    }

    /// Writes the pending rows of the tables of `set`.
    pub(super) fn flush(&mut self, out: &mut FlushTarget<'_>, set: u64, owner: Owner) -> Result<(), FlushError> {
        self.tables.flush(out, set, owner)?;
        if set & table_set::EVENTS != 0 && owner == Owner::Batch {
            let rows: Vec<_> = self.events.get(self.events_written..).unwrap_or_default().iter().collect();
            write_rows(out, &rows)?;
            self.events_written = self.events.len();
        }
        Ok(())
    }

    /// Ends a committed batch. Returns the events and signals to publish.
    pub(super) fn committed(&mut self) -> (Vec<Event>, Vec<Signal>) {
        self.counters_at_batch = self.counters;
        self.events_written = 0;
        (std::mem::take(&mut self.events), std::mem::take(&mut self.signals))
    }

    /// Ends a failed batch: drops everything, including the caches.
    pub(super) fn abandoned(&mut self) {
        *self = Self::with(self.counters_at_batch, self.facts.mail_ids.without_sets());
    }
}
