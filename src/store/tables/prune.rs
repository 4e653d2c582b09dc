//! Retention: deletes old rows. All other deletes name their row: skills, chat members, schedules,
//! old versions.
//!
//! Retention must never delete a row that an open turn, a waiting message, a held dead letter or an
//! unfinished task needs. It must never let a sequence decrease.

use ghost_domain::{Agent, AgentId, Timestamp};

use super::counts;
use super::families::Family;
use super::messages::HELD;
use super::prelude::*;
use super::talk::CONVERSATIONS;
use super::turns::{PROMPT_USE, ROOTS_OUT, TURN_OUT};

/// Deletes the oldest `$2` rows that a condition finds: by table, key, condition, order, and the index that is read.
macro_rules! oldest {
    ($table:literal, $key:literal, $old:literal, $order:literal $(, $index:literal)?) => {
        sql!(
            "DELETE FROM ", $table, " WHERE (", $key, ") IN (SELECT ", $key, " FROM ", $table, $($index,)?
            " WHERE ", $old, " ORDER BY ", $order, " {limit $2})"
        )
    };
}

/// Only the oldest events are deleted, so that the rest of the feed has no gap: up to the first row
/// that is too young.
const EVENTS: Sql = sql!(
    "DELETE FROM events WHERE seq IN (SELECT seq FROM events ORDER BY seq {limit $2}) AND seq < coalesce(\
    (SELECT min(seq) FROM (SELECT seq, ts FROM events ORDER BY seq {limit $2}) AS oldest WHERE ts >= $1), 9223372036854775807)"
);

/// Prompt parts that no journal names. The journals are only searched if a part has not been used
/// for long, and only steps up to that age: the time of the last use has a precision of a day
/// ([`PROMPT_USE`]), so no later step names the part.
const PROMPTS: Sql = sql!(
    "DELETE FROM prompts WHERE hash IN (SELECT hash FROM prompts WHERE at < $1 \
    AND hash NOT IN (SELECT system_hash FROM journal{index journal_briefed} WHERE system_hash IS NOT NULL AND seq < $3) \
    AND hash NOT IN (SELECT briefing_hash FROM journal{index journal_briefed} WHERE system_hash IS NOT NULL AND seq < $3) \
    ORDER BY at, hash {limit $2})"
);

/// Messages that are consumed or dead, whose turn has ended, and that no held dead letter names. A
/// turn that no longer exists ended long ago.
const MESSAGES: Sql = sql!(
    "DELETE FROM messages WHERE seq IN (SELECT m.seq FROM messages AS m \
    LEFT JOIN turns AS t ON t.turn_id = m.turn_id \
    WHERE m.state IN ('consumed', 'dead') AND m.created_at < $1 \
    AND (t.turn_id IS NULL OR (t.status <> 'open' AND t.ended_at < $1)) \
    AND NOT EXISTS (SELECT 1 FROM dead_letter_mail AS h JOIN dead_letters AS d ON d.dead_letter_id = h.dead_letter_id \
    WHERE h.message_id = m.message_id AND d.status = 'held') ORDER BY m.created_at, m.seq {limit $2})"
);

const ASKS: Sql = oldest!("asks", "ask_id", "status <> 'open' AND closed_at < $1", "closed_at, ask_id");
const APPROVALS: Sql = oldest!(
    "approvals",
    "approval_id",
    "status <> 'pending' AND always = 0 AND closed_at < $1",
    "closed_at, approval_id"
);
const LEDGER: Sql =
    oldest!("ledger", "call_id", "ended_at IS NOT NULL AND ended_at < $1", "ended_at, started_at, call_id");
const REQUESTS: Sql = oldest!("requests", "principal, request_id", "at < $1", "at, principal, request_id");

/// Accounts of roots to which nothing can be charged any more. The query runs only if an account is
/// old enough. It reads the few open rows by their partial indexes, the jobs, the schedules, and
/// the tasks of that root.
const ROOT_BUDGETS: Sql = sql!(
    "DELETE FROM budgets WHERE scope IN (SELECT scope FROM budgets{index budgets_roots} \
    WHERE root_id IS NOT NULL AND updated_at < $1 AND reserved = 0 AND root_id NOT IN (\
    SELECT root_id FROM turns WHERE status = 'open' \
    UNION ALL SELECT root_id FROM jobs WHERE finished_at IS NULL \
    UNION ALL SELECT root_id FROM schedules \
    UNION ALL SELECT root_id FROM messages WHERE state = 'pending' \
    UNION ALL SELECT m.root_id FROM turns AS t JOIN messages AS m ON m.turn_id = t.turn_id WHERE t.status = 'open' \
    UNION ALL SELECT t.root_id FROM dead_letters AS d \
    JOIN turns AS t ON t.turn_id = d.turn_id WHERE d.status = 'held' \
    UNION ALL SELECT m.root_id FROM dead_letters AS d JOIN dead_letter_mail AS h ON h.dead_letter_id = d.dead_letter_id \
    JOIN messages AS m ON m.message_id = h.message_id WHERE d.status = 'held') \
    AND NOT EXISTS (SELECT 1 FROM tasks AS w WHERE w.root_id = budgets.root_id) \
    ORDER BY updated_at, scope {limit $2})"
);

/// Tombstones, except those of direct and indirect creators of living agents. Creators are searched
/// only if a tombstone is old enough.
const TOMBSTONES: Sql = sql!(
    "WITH RECURSIVE creators (party) AS (\
    SELECT owner FROM agents WHERE deleted_at IS NULL \
    UNION SELECT a.owner FROM creators AS c JOIN agents AS a ON a.agent_id = substr(c.party, 7) \
    WHERE substr(c.party, 1, 6) = 'agent:') \
    SELECT record FROM agents{index agents_gone} WHERE deleted_at IS NOT NULL AND deleted_at < $1 \
    AND ('agent:' || agent_id) NOT IN (SELECT party FROM creators WHERE party IS NOT NULL) \
    ORDER BY deleted_at, agent_id {limit $2}"
);
const TOMBSTONES_OUT: Sql = sql!("DELETE FROM agents WHERE agent_id {in $1}");

const INBOXES_OUT: Sql = sql!("DELETE FROM inboxes WHERE pending = 0 AND agent_id {in $1}");

/// Accounts of deleted agents without a limit, and of agents without even a tombstone.
const AGENT_BUDGETS: Sql = sql!(
    "DELETE FROM budgets WHERE scope IN (SELECT b.scope FROM budgets AS b \
    LEFT JOIN agents AS a ON a.agent_id = substr(b.scope, 7, length(b.scope) - 6 - \
    CASE WHEN substr(b.scope, length(b.scope) - 3) = '/day' THEN 4 ELSE 0 END) \
    WHERE b.scope > 'agent:' AND b.scope < 'agent;' AND b.updated_at < $1 AND b.reserved = 0 \
    AND (a.agent_id IS NULL OR (a.deleted_at IS NOT NULL AND b.limited = 0)) \
    ORDER BY b.updated_at, b.scope {limit $2})"
);

/// In each channel only the oldest chat messages are deleted, up to the first message that is too
/// young. The query steps through the channels by key, and only if a message is old enough. In each
/// channel it reads only the messages to delete and the first one to keep: a condition keeps the order of the subquery under
/// it, and another ORDER BY would read all of that. The first one to keep is materialized: PostgreSQL would look for it again
/// for each message.
const CHAT_POSTS: Sql = sql!(
    "DELETE FROM chat_posts WHERE (channel, seq) IN (\
    WITH RECURSIVE names (channel) AS (\
    SELECT min(channel) FROM chat_posts WHERE EXISTS (SELECT 1 FROM chat_posts WHERE ts < $1) \
    UNION ALL SELECT (SELECT min(p.channel) FROM chat_posts AS p WHERE p.channel > names.channel) FROM names \
    WHERE names.channel IS NOT NULL), \
    kept (channel, seq) AS MATERIALIZED (SELECT n.channel, coalesce((\
    SELECT seq FROM (SELECT seq, ts FROM chat_posts AS o WHERE o.channel = n.channel ORDER BY seq {limit $2}) AS oldest \
    WHERE ts >= $1 LIMIT 1), 9223372036854775807) FROM names AS n) \
    SELECT p.channel, p.seq FROM kept AS k CROSS JOIN chat_posts AS p WHERE p.channel = k.channel AND p.seq < k.seq \
    ORDER BY p.channel, p.seq {limit $2})"
);
const KNOWLEDGE: Sql = oldest!(
    "knowledge",
    "entry_id",
    "deleted = 1 AND updated_at < $1 AND creator <> 'system'",
    "updated_at, entry_id",
    "{index knowledge_gone}"
);
const SCHEDULE_RUNS: Sql = oldest!("schedule_runs", "schedule_id, run", "fired_at < $1", "fired_at, schedule_id, run");
const SESSIONS: Sql =
    oldest!("sessions", "agent_id, conversation_id", "ended_at < $1", "ended_at, agent_id, conversation_id");
const GRANTS: Sql = oldest!("acl_grants", "grant_id", "expires_at < $1", "expires_at, grant_id");
const DROIDS: Sql = oldest!("droids", "droid_id", "ended_at IS NOT NULL AND ended_at < $1", "ended_at, droid_id");
const ROOTS: Sql = oldest!("roots", "root_id", "updated_at < $1", "updated_at, root_id");

/// Ended turns without a held dead letter or waiting mail: messages of a retried dead letter wait for an ended turn, which
/// continues from its journal.
macro_rules! turn_ids {
    ($of:literal, $and:literal) => {
        sql!(
            "SELECT turn_id FROM turns AS t WHERE ", $of, "status <> 'open' AND ended_at < $1 \
            AND NOT EXISTS (SELECT 1 FROM dead_letters AS d WHERE d.status = 'held' AND d.turn_id = t.turn_id) \
            AND NOT EXISTS (SELECT 1 FROM messages AS m WHERE m.turn_id = t.turn_id AND m.state IN ('pending', 'taken')) ",
            $and, "ORDER BY ended_at, turn_id {limit $2}"
        )
    };
}

/// The queries named `.._IDS` return ids of rows that have child rows; several deletes use these ids.
const TURN_IDS: Sql = turn_ids!(
    "",
    "AND (source = 'cron' OR NOT EXISTS (SELECT 1 FROM turns AS o{index turns_open} WHERE o.status = 'open' \
    AND o.agent_id = t.agent_id AND o.log_from <= t.ended_at)) "
);
/// Turns of cron jobs only, by their partial index.
const CRON_TURN_IDS: Sql = turn_ids!("source = 'cron' AND ", "");
const DEAD_LETTER_IDS: Sql = sql!(
    "SELECT id FROM (\
    SELECT dead_letter_id AS id, resolved_at AS ended_at FROM dead_letters{index dead_letters_resolved} \
    WHERE status <> 'held' AND resolved_at < $1 \
    UNION ALL SELECT dead_letter_id, created_at FROM dead_letters AS d{index dead_letters_status} \
    WHERE status = 'held' AND created_at < $1 AND NOT EXISTS (SELECT 1 FROM agents AS a WHERE a.agent_id = d.agent_id)) AS old \
    ORDER BY ended_at, id {limit $2}"
);
const TASK_IDS: Sql = sql!(
    "SELECT task_id FROM tasks AS t WHERE ended = 1 AND updated_at < $1 \
    AND NOT EXISTS (SELECT 1 FROM task_deps AS d JOIN tasks AS u ON u.task_id = d.task_id \
    WHERE d.depends_on = t.task_id AND u.ended = 0) ORDER BY updated_at, task_id {limit $2}"
);

const CONVERSATION_IDS: Sql = sql!(
    "SELECT conversation_id FROM conversations AS c WHERE updated_at < $1 \
    AND NOT EXISTS (SELECT 1 FROM conversation_entries AS e WHERE e.conversation_id = c.conversation_id \
    AND (e.delivery IN ('draft', 'pending') \
    OR EXISTS (SELECT 1 FROM turns AS t WHERE t.turn_id = e.turn_id AND t.status = 'open') \
    OR EXISTS (SELECT 1 FROM messages AS m \
    WHERE m.message_id = e.message_id AND m.state <> 'consumed'))) \
    ORDER BY updated_at, conversation_id {limit $2}"
);

/// The oldest history rows of tasks that have too many. Reads only tasks that changed after a
/// position in the history.
const TASK_EVENTS: Sql = sql!(
    "DELETE FROM task_events WHERE seq IN (\
    WITH kept (task_id, seq) AS MATERIALIZED (SELECT t.task_id, (SELECT seq FROM task_events AS k \
    WHERE k.task_id = t.task_id ORDER BY seq DESC LIMIT 1 OFFSET $1) \
    FROM (SELECT DISTINCT task_id FROM task_events WHERE seq > $3) AS t) \
    SELECT e.seq FROM kept AS k CROSS JOIN task_events AS e WHERE e.task_id = k.task_id AND e.seq < k.seq \
    ORDER BY e.task_id, e.seq {limit $2})"
);

/// The position up to which the history of tasks was deleted, and the length that was kept. A task
/// that has not changed since then is not longer.
const TASK_EVENTS_CUT: Sql = sql!(
    "SELECT (SELECT value FROM counters WHERE name = 'task_events_cut'), \
    (SELECT value FROM counters WHERE name = 'task_events_cut_to')"
);

/// In each active conversation only the oldest entries are deleted, up to the first one that must
/// stay. The query reads only conversations that have an entry which is old enough, or more entries
/// than they keep.
const CONVERSATION_ENTRIES: Sql = sql!(
    "DELETE FROM conversation_entries WHERE (conversation_id, seq) IN (\
    WITH ripe (id, kept) AS (SELECT c.conversation_id, (SELECT max(seq) FROM conversation_entries AS m \
    WHERE m.conversation_id = c.conversation_id) - $3 FROM conversations AS c \
    WHERE c.conversation_id IN (SELECT conversation_id FROM conversation_entries WHERE at < $1) \
    OR (SELECT max(seq) FROM conversation_entries AS m WHERE m.conversation_id = c.conversation_id) - $3 \
    >= (SELECT min(seq) FROM conversation_entries AS m WHERE m.conversation_id = c.conversation_id)), \
    stays (id, seq) AS MATERIALIZED (SELECT r.id, (\
    SELECT coalesce(min(CASE WHEN (o.at >= $1 AND o.seq > r.kept) OR o.delivery IN ('draft', 'pending') \
    OR EXISTS (SELECT 1 FROM turns AS t WHERE t.turn_id = o.turn_id AND t.status = 'open') \
    OR EXISTS (SELECT 1 FROM messages AS m \
    WHERE m.message_id = o.message_id AND m.state <> 'consumed') \
    THEN o.seq END), max(o.seq) + 1) FROM (\
    SELECT seq, at, delivery, turn_id, message_id FROM conversation_entries AS p WHERE p.conversation_id = r.id \
    ORDER BY seq {limit $2}) AS o) FROM ripe AS r) \
    SELECT e.conversation_id, e.seq FROM stays AS s CROSS JOIN conversation_entries AS e \
    WHERE e.conversation_id = s.id AND e.seq < s.seq ORDER BY e.conversation_id, e.seq {limit $2})"
);

/// The agents of the held dead letters of a list of ids.
const HELD_OF: Sql = sql!("SELECT agent_id FROM dead_letters WHERE status = 'held' AND dead_letter_id {ids $1}");

/// The deletes for a list of ids. The count of the last one is the result.
const TURNS_OUT: [Sql; 3] = [sql!("DELETE FROM journal WHERE turn_id {ids $1}"), ROOTS_OUT, TURN_OUT];
const CRON_TURNS_OUT: [Sql; 4] = [
    sql!("DELETE FROM messages WHERE turn_id {ids $1} AND kind = 'cron_turn' AND state = 'consumed'"),
    TURNS_OUT[0],
    TURNS_OUT[1],
    TURNS_OUT[2],
];
const DEAD_LETTERS_OUT: [Sql; 2] = [
    sql!("DELETE FROM dead_letter_mail WHERE dead_letter_id {ids $1}"),
    sql!("DELETE FROM dead_letters WHERE dead_letter_id {ids $1}"),
];
const TASKS_OUT: [Sql; 3] = [
    sql!("DELETE FROM task_deps WHERE task_id {ids $1}"),
    sql!("DELETE FROM task_events WHERE task_id {ids $1}"),
    sql!("DELETE FROM tasks WHERE task_id {ids $1}"),
];
const CONVERSATIONS_OUT: [Sql; 2] = [
    sql!("DELETE FROM conversation_entries WHERE conversation_id {ids $1}"),
    sql!("DELETE FROM conversations WHERE conversation_id {ids $1}"),
];

impl Tx {
    /// Deletes at most `limit` rows that are older than `before`.
    fn delete_old(&mut self, sql: Sql, before: Timestamp, limit: u32) -> Result<u64> {
        self.execute(sql, args![before, limit])
    }

    /// Deletes the rows that the query `ids` finds, with their child rows. Returns the number of
    /// deleted parent rows.
    fn delete_families(&mut self, ids: Sql, deletes: &[Sql], before: Timestamp, limit: u32) -> Result<u64> {
        let found = self.old_ids(ids, before, limit)?;
        self.delete_ids(&found, deletes)
    }

    /// The ids that a query of rows older than `before` finds.
    fn old_ids(&mut self, ids: Sql, before: Timestamp, limit: u32) -> Result<Vec<String>> {
        self.rows(ids, args![before, limit], |row| Ok(get::<uuid::Uuid>("prune", row, 0)?.simple().to_string()))
    }

    /// Deletes rows by their ids, with their child rows. Returns what the last statement deleted.
    fn delete_ids(&mut self, found: &[String], deletes: &[Sql]) -> Result<u64> {
        if found.is_empty() {
            return Ok(0);
        }
        let found = to_json("prune", "ids", &found)?;
        let mut deleted = 0;
        for sql in deletes {
            deleted = self.execute(*sql, args![&found])?;
        }
        Ok(deleted)
    }

    /// Deletes dead letters. Those that are held belong to agents without even a tombstone.
    fn delete_dead_letters(&mut self, before: Timestamp, limit: u32) -> Result<u64> {
        let found = self.old_ids(DEAD_LETTER_IDS, before, limit)?;
        let held =
            self.rows(HELD_OF, args![to_json("prune", "ids", &found)?], |row| get::<AgentId>("prune", row, 0))?;
        for agent_id in held {
            self.change_count(&counts::of(HELD, &agent_id), -1)?;
        }
        self.delete_ids(&found, &DEAD_LETTERS_OUT)
    }

    /// Deletes prompt parts that no journal names.
    fn delete_prompts(&mut self, before: Timestamp, limit: u32) -> Result<u64> {
        if self.row(sql!("SELECT at FROM prompts WHERE at < $1 LIMIT 1"), args![before], |_| Ok(()))?.is_none() {
            return Ok(0);
        }
        let until = self.first_step_since(before.plus(PROMPT_USE))?;
        self.execute(PROMPTS, args![before, limit, until])
    }

    /// The sequence of the first journal step made at `at` or later, or one past the last step if
    /// there is none. A binary search, because steps are in order of time.
    fn first_step_since(&mut self, at: Timestamp) -> Result<i64> {
        let (mut low, mut high) = (0, self.batch()?.counters.journal + 1);
        while low < high {
            let middle = low + (high - low) / 2;
            let sql = sql!("SELECT seq, at FROM journal WHERE seq >= $1 ORDER BY seq LIMIT 1");
            let found: Option<(i64, i64)> =
                self.row(sql, args![middle], |row| Ok((get("journal", row, 0)?, get("journal", row, 1)?)))?;
            match found {
                Some((seq, made)) if made < at.0 => low = seq + 1,
                _ => high = middle,
            }
        }
        Ok(low)
    }

    /// Deletes tombstones and raises the incarnation floor to theirs.
    fn delete_tombstones(&mut self, before: Timestamp, limit: u32) -> Result<u64> {
        let old: Vec<Agent> = self.list(TOMBSTONES, args![before, limit])?;
        let Some(highest) = old.iter().map(|agent| agent.incarnation).max() else { return Ok(0) };
        self.agent_incarnation_raise(highest)?;
        let ids: Vec<&str> = old.iter().map(|agent| agent.agent_id.as_str()).collect();
        let ids = to_json(Agent::TABLE, "ids", &ids)?;
        let deleted = self.execute(TOMBSTONES_OUT, args![&ids])?;
        self.execute(INBOXES_OUT, args![&ids])?;
        Ok(deleted)
    }

    /// Stores the last number of a sequence, so that it continues from there even if its last rows
    /// are deleted.
    pub(super) fn keep_counter(&mut self, name: &str, value: i64) -> Result<()> {
        let sql = sql!(
            "INSERT INTO counters (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
        );
        self.execute(sql, args![name, value]).map(drop)
    }

    /// Deletes entries of conversations, at most `limit`, by conversation in order of id. In each
    /// conversation it deletes from the start up to the first entry that must stay, so that the
    /// rest has no gap. The sequence of the conversation continues. Returns how many entries were
    /// deleted.
    ///
    /// These entries must stay:
    ///
    /// - entries not older than `before`, if they are among the newest `keep` of their
    ///   conversation;
    /// - drafts and entries that wait for delivery;
    /// - entries of an open turn;
    /// - entries whose mail is not consumed: it waits, a turn has taken it, or it is dead.
    pub fn prune_conversation_entries(&mut self, before: Timestamp, keep: u32, limit: u32) -> Result<u64> {
        self.execute(CONVERSATION_ENTRIES, args![before, limit, keep])
    }

    /// Deletes the oldest history rows of tasks that have more than `keep` (at least 1), at most
    /// `limit`, by task in order of id. Returns how many rows were deleted.
    pub fn prune_task_events(&mut self, keep: u32, limit: u32) -> Result<u64> {
        let keep = keep.max(1);
        let (cut, cut_to): (Option<i64>, Option<i64>) = self
            .row(TASK_EVENTS_CUT, args![], |row| Ok((get("counters", row, 0)?, get("counters", row, 1)?)))?
            .unwrap_or_default();
        // With another length, every task must be read once.
        let cut = cut.filter(|_| cut_to == Some(i64::from(keep))).unwrap_or(0);
        let last = self.batch()?.counters.task_events;
        if cut == last {
            return Ok(0);
        }
        let deleted = self.execute(TASK_EVENTS, args![i64::from(keep) - 1, limit, cut])?;
        if deleted < u64::from(limit) {
            self.keep_counter("task_events_cut", last)?;
            self.keep_counter("task_events_cut_to", i64::from(keep))?;
        }
        Ok(deleted)
    }

    /// Deletes rows of a family that ended before `before`, at most `limit`, oldest first unless
    /// the comment of the family says otherwise. Returns the number of deleted rows.
    pub fn prune(&mut self, family: Family, before: Timestamp, limit: u32) -> Result<u64> {
        let deleted = match family {
            Family::Events => self.delete_old(EVENTS, before, limit)?,
            Family::Turns => {
                let deleted = self.delete_families(TURN_IDS, &TURNS_OUT, before, limit)?;
                let room = limit - u32::try_from(deleted).unwrap_or(limit).min(limit);
                let prompts = self.delete_prompts(before, room)?;
                let room = room - u32::try_from(prompts).unwrap_or(room).min(room);
                deleted + prompts + self.delete_old(SESSIONS, before, room)?
            }
            Family::CronTurns => self.delete_families(CRON_TURN_IDS, &CRON_TURNS_OUT, before, limit)?,
            Family::Messages => self.delete_old(MESSAGES, before, limit)?,
            Family::Asks => self.delete_old(ASKS, before, limit)?,
            Family::Approvals => self.delete_old(APPROVALS, before, limit)?,
            Family::Ledger => self.delete_old(LEDGER, before, limit)?,
            Family::Usage => self.usage_prune(before, limit)?,
            Family::Requests => self.delete_old(REQUESTS, before, limit)?,
            Family::DeadLetters => self.delete_dead_letters(before, limit)?,
            Family::Tasks => self.delete_families(TASK_IDS, &TASKS_OUT, before, limit)?,
            Family::RootBudgets => self.delete_old(ROOT_BUDGETS, before, limit)?,
            Family::AgentBudgets => self.delete_old(AGENT_BUDGETS, before, limit)?,
            Family::Agents => self.delete_tombstones(before, limit)?,
            Family::ChatPosts => self.delete_old(CHAT_POSTS, before, limit)?,
            Family::Conversations => {
                let deleted = self.delete_families(CONVERSATION_IDS, &CONVERSATIONS_OUT, before, limit)?;
                self.change_count(CONVERSATIONS, -i64::try_from(deleted).unwrap_or(i64::MAX))?;
                deleted
            }
            Family::Knowledge => self.delete_old(KNOWLEDGE, before, limit)?,
            Family::ScheduleRuns => self.delete_old(SCHEDULE_RUNS, before, limit)?,
            Family::Grants => self.delete_old(GRANTS, before, limit)?,
            Family::Droids => self.delete_old(DROIDS, before, limit)?,
            Family::Roots => self.delete_old(ROOTS, before, limit)?,
        };
        let counters = self.batch()?.counters;
        let sequences: &[(&str, i64)] = match family {
            Family::Events => &[("events", counters.events)],
            Family::Turns => &[("journal", counters.journal)],
            Family::CronTurns => &[("journal", counters.journal), ("messages", counters.messages)],
            Family::Messages => &[("messages", counters.messages)],
            Family::Usage => &[("usage", counters.usage)],
            Family::Tasks => &[("task_events", counters.task_events)],
            _ => &[],
        };
        for (name, last) in sequences {
            self.keep_counter(name, *last)?;
        }
        Ok(deleted)
    }
}
