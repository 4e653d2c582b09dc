//! The tables of the database, each listed once: its name, its row type and how much of it the
//! writer caches. The order is the order of flushing.
//!
//! A table that refers to another one must stand below it.

use ghost_domain::root_tally::RootTally;
use ghost_domain::usage::UsageRow;
use ghost_domain::{
    Agent, Approval, Artifact, Ask, Budget, ChatChannel, ChatMember, ChatPost, Conversation, ConversationEntry,
    DeadLetter, Droid, Envelope, Grant, HeldSkill, Job, JournalRow, KnowledgeEntry, KnowledgeVersion, LedgerRow,
    Schedule, ScheduleRun, SessionStart, StateEntry, StoredAnswer, Task, Turn,
};

use super::flush::{FlushError, FlushTarget, write_log, write_table};
use super::internal_rows::{Head, Meta, Numbered, Prompt, TaskHistory, WatchSnapshotRow};
use super::row::Keyed;
use super::table_cache::{Flushable as _, Log, Owner, TableCache};

/// A row type whose table has keys.
pub(super) trait CachedRow: Keyed {
    /// The set that contains only its table.
    const SET: u64;
    /// Its table cache.
    fn table(tables: &Tables) -> &TableCache<Self>;
    /// Its table cache, to change it.
    fn table_mut(tables: &mut Tables) -> &mut TableCache<Self>;
}

macro_rules! tables {
    (
        keyed { $($set:ident $table:ident: $row:ty [$rows:literal, $absent:literal],)+ }
        logs { $($log_set:ident $log:ident: $log_row:ty,)+ }
    ) => {
        /// Sets of tables, one bit for each. They say which tables must be flushed before a query.
        pub(in crate::sqlite) mod table_set {
            // The variants have the names of the constants, from which this macro makes them.
            #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
            enum Bit { $($set,)+ $($log_set,)+ EVENTS, COUNT }
            $(pub(in crate::sqlite) const $set: u64 = 1 << Bit::$set as u64;)+
            $(pub(in crate::sqlite) const $log_set: u64 = 1 << Bit::$log_set as u64;)+
            /// The table of events, which the write buffer keeps beside the others.
            pub(in crate::sqlite) const EVENTS: u64 = 1 << Bit::EVENTS as u64;
            pub(in crate::sqlite) const ALL: u64 = (1 << Bit::COUNT as u64) - 1;
        }

        /// All tables but that of events.
        pub(super) struct Tables {
            $(pub(super) $table: TableCache<$row>,)+
            $(pub(super) $log: Log<$log_row>,)+
        }

        impl Tables {
            /// Empty ones.
            pub(super) fn new() -> Self {
                Self { $($table: TableCache::new($rows, $absent),)+ $($log: Log::new(),)+ }
            }

            /// Moves the rows of the accepted command to the batch.
            pub(super) fn accept(&mut self) {
                $(self.$table.accept();)+
                $(self.$log.accept();)+
            }

            /// Drops rows of the running command that SQL has.
            pub(super) fn spill(&mut self) {
                $(self.$table.spill();)+
            }

            /// Drops the rows of the refused command.
            pub(super) fn reject(&mut self) {
                $(self.$table.reject();)+
                $(self.$log.reject();)+
            }

            /// Whether any table of `set` has pending rows.
            pub(super) fn has(&self, set: u64, owner: Owner) -> bool {
                false
                    $(|| (set & table_set::$set != 0 && self.$table.has_rows(owner)))+
                    $(|| (set & table_set::$log_set != 0 && self.$log.has_rows(owner)))+
            }

            /// Writes the pending rows of the tables of `set`.
            pub(super) fn flush(
                &mut self,
                out: &mut FlushTarget<'_>,
                set: u64,
                owner: Owner,
            ) -> Result<(), FlushError> {
                // A head is a part of the row of its mail, so the mail must be in SQL.
                let set = if set & table_set::HEADS != 0 { set | table_set::MAIL } else { set };
                $(if set & table_set::$set != 0 {
                    write_table(out, &mut self.$table, owner)?;
                })+
                $(if set & table_set::$log_set != 0 {
                    write_log(out, &mut self.$log, owner)?;
                })+
                Ok(())
            }
        }

        $(impl CachedRow for $row {
            const SET: u64 = table_set::$set;

            fn table(tables: &Tables) -> &TableCache<Self> {
                &tables.$table
            }

            fn table_mut(tables: &mut Tables) -> &mut TableCache<Self> {
                &mut tables.$table
            }
        })+
    };
}

// In brackets: how many rows, and how many keys without a row, a generation of the cache holds. A cache
// has two generations.
tables! {
    keyed {
        // The creation of an agent looks for a floor that few worlds have.
        META meta: Meta [256, 64],
        // Enough for the agents at work, not for all agents: a record takes more memory than everything
        // else that a sleeping agent needs.
        AGENTS agents: Agent [896, 0],
        SKILLS skills: HeldSkill [0, 0],
        JOBS jobs: Job [0, 0],
        MAIL mail: Envelope [0, 0],
        HEADS heads: Head [16_384, 0],
        APPROVALS approvals: Approval [0, 0],
        ASKS asks: Ask [4_096, 0],
        TURNS turns: Turn [4_096, 0],
        // A text has tens of kilobytes. 64 are enough for the archetypes of a world.
        PROMPTS prompts: Prompt [64, 0],
        // Read when an agent has forgotten its log, written when the log is cut.
        SESSIONS sessions: SessionStart [0, 0],
        // A root without a paid call has no account. A root without a limit looks for its account at each
        // call.
        BUDGETS budgets: Budget [8_192, 4_096],
        CALLS calls: LedgerRow [4_096, 0],
        REQUESTS requests: StoredAnswer [0, 0],
        DEAD_LETTERS dead_letters: DeadLetter [0, 0],
        TASKS tasks: Task [1_024, 0],
        CHAT_CHANNELS chat_channels: ChatChannel [512, 0],
        CHAT_MEMBERS chat_members: ChatMember [4_096, 0],
        CONVERSATIONS conversations: Conversation [512, 0],
        // Entries are only read in ranges.
        ENTRIES entries: ConversationEntry [0, 0],
        KNOWLEDGE knowledge: KnowledgeEntry [0, 0],
        KNOWLEDGE_VERSIONS knowledge_versions: KnowledgeVersion [0, 0],
        // Values may be large, and a caller that reads one usually reads it again only to change it.
        STATE state: StateEntry [0, 0],
        // The first count of every root looks for a row that does not exist.
        ROOTS roots: RootTally [2_048, 2_048],
        SCHEDULES schedules: Schedule [512, 0],
        SCHEDULE_RUNS schedule_runs: ScheduleRun [0, 0],
        GRANTS grants: Grant [0, 0],
        // Only those that have not ended, each with its task and its last answer.
        DROIDS droids: Droid [128, 0],
        ARTIFACTS artifacts: Artifact [0, 0],
        // A snapshot may name thousands of files.
        SNAPSHOTS snapshots: WatchSnapshotRow [0, 0],
    }
    logs {
        JOURNAL journal: JournalRow,
        USAGE usage: Numbered<UsageRow>,
        TASK_EVENTS task_events: TaskHistory,
        CHAT_POSTS chat_posts: ChatPost,
    }
}
