//! How many rows a limit counts. Each count is a row of `counters`, which changes in the command that adds, changes or
//! deletes a counted row. So a limit costs one read, however many rows there are, and commands of several writers that
//! must agree on a limit meet at one row.
//!
//! A command must never count rows.

use ghost_domain::AgentId;

use super::prelude::*;

/// The name of a count of one agent.
pub(super) fn of(name: &str, agent_id: &AgentId) -> String {
    format!("{name}/{agent_id}")
}

impl Tx {
    /// Writes a row of which some are counted. `stored` finds the name of the count that the row with this key belongs to
    /// before, if it is counted; `count` is the name after.
    pub(super) fn put_counted<R: Row + Keyed>(
        &mut self,
        row: &R,
        key: &R::Key,
        stored: Sql,
        count: Option<&str>,
    ) -> Result<()> {
        let mut args = args![];
        R::bind_key(key, &mut args);
        let before = self.row(stored, args, |row| get::<String>(R::TABLE, row, 0))?;
        self.put(row)?;
        if before.as_deref() == count {
            return Ok(());
        }
        if let Some(name) = &before {
            self.change_count(name, -1)?;
        }
        count.map_or(Ok(()), |name| self.change_count(name, 1))
    }

    /// Adds to a count, and to that of the world if it is an agent's. A count of 0 leaves no row.
    pub(super) fn change_count(&mut self, name: &str, change: i64) -> Result<()> {
        if change == 0 {
            return Ok(());
        }
        let world = name.split_once('/').map(|(world, _)| world);
        for name in [Some(name), world].into_iter().flatten() {
            if change > 0 {
                let sql = sql!(
                    "INSERT INTO counters (name, value) VALUES ($1, $2) \
                    ON CONFLICT (name) DO UPDATE SET value = counters.value + excluded.value"
                );
                self.execute(sql, args![name, change.abs()])?;
                continue;
            }
            // A count that is wrong must not refuse commands.
            let sql =
                sql!("UPDATE counters SET value = CASE WHEN value > $2 THEN value - $2 ELSE 0 END WHERE name = $1");
            self.execute(sql, args![name, change.abs()])?;
            self.execute(sql!("DELETE FROM counters WHERE name = $1 AND value = 0"), args![name])?;
        }
        Ok(())
    }

    /// The value of a count.
    pub(super) fn counted(&mut self, name: &str) -> Result<u32> {
        self.count("counters", sql!("SELECT value FROM counters WHERE name = $1"), args![name])
    }

    /// The counts that differ from the rows that they count: name, stored value, rows. It reads whole tables.
    pub fn wrong_counts(&mut self) -> Result<Vec<(String, i64, i64)>> {
        // A macro, because the compiler joins literals only.
        macro_rules! counted_rows {
            () => {
                "SELECT 'agents_dynamic' AS name, count(*) AS value FROM agents \
                WHERE kind = 'dynamic' AND deleted_at IS NULL \
                UNION ALL SELECT 'chat_channels', count(*) FROM chat_channels \
                UNION ALL SELECT 'conversations', count(*) FROM conversations \
                UNION ALL SELECT 'knowledge', count(*) FROM knowledge WHERE deleted = 0 \
                UNION ALL SELECT 'state_keys', count(*) FROM shared_state \
                UNION ALL SELECT 'approvals_pending', count(*) FROM approvals WHERE status = 'pending' \
                UNION ALL SELECT 'asks_open', count(*) FROM asks WHERE status = 'open' \
                UNION ALL SELECT 'tasks_open', count(*) FROM tasks WHERE ended = 0 \
                UNION ALL SELECT 'schedules', count(*) FROM schedules \
                UNION ALL SELECT 'schedules/' || agent_id || '/' || kind, count(*) FROM schedules \
                GROUP BY agent_id, kind \
                UNION ALL SELECT 'dead_letters_held', count(*) FROM dead_letters WHERE status = 'held' \
                UNION ALL SELECT 'dead_letters_held/' || agent_id, count(*) FROM dead_letters WHERE status = 'held' \
                GROUP BY agent_id \
                UNION ALL SELECT 'droids_live', count(*) FROM droids WHERE ended_at IS NULL \
                UNION ALL SELECT 'droids_live/' || parent_id, count(*) FROM droids WHERE ended_at IS NULL \
                GROUP BY parent_id"
            };
        }
        let sql = sql!(
            "SELECT r.name, coalesce(c.value, 0), r.value FROM (",
            counted_rows!(),
            ") AS r LEFT JOIN counters AS c ON c.name = r.name WHERE coalesce(c.value, 0) <> r.value \
            UNION ALL SELECT c.name, c.value, 0 FROM counters AS c WHERE replace(c.name, '/', '') <> c.name \
            AND c.value <> 0 AND c.name NOT IN (SELECT r.name FROM (",
            counted_rows!(),
            ") AS r)"
        );
        self.rows(sql, args![], |row| {
            Ok((get("counters", row, 0)?, get("counters", row, 1)?, get("counters", row, 2)?))
        })
    }
}
