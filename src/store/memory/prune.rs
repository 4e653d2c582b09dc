//! Retention in memory. Each family is scanned completely: a simulated world is small and prunes
//! seldom.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ghost_domain::{
    Agent, AgentId, ApprovalStatus, AskStatus, CallStatus, DeadLetterStatus, Envelope, Kind, MailState, MessageId,
    Money, RootId, Scope, Step, TaskId, Timestamp, Turn, TurnId, TurnStatus,
};

use super::session::{Session, bound};
use super::tables::Tables;
use crate::tables::{AgentWrites, Family, PruneWrites, Result};

/// The keys of rows that ended before `before`, oldest first, at most `limit`.
pub(super) fn oldest<K: Ord>(ended: impl Iterator<Item = (Timestamp, K)>, before: Timestamp, limit: usize) -> Vec<K> {
    let mut found: Vec<(Timestamp, K)> = ended.filter(|(at, _)| *at < before).collect();
    found.sort();
    found.truncate(limit);
    found.into_iter().map(|(_, key)| key).collect()
}

impl Tables {
    /// Deletes old events. Only the oldest events are deleted, so that the rest has no gap even if
    /// the clock went backwards.
    fn prune_events(&mut self, before: Timestamp, limit: usize) -> usize {
        let old: Vec<i64> =
            self.events.iter().take_while(|(_, event)| event.ts < before).take(limit).map(|(seq, _)| *seq).collect();
        old.iter().filter(|seq| self.events.remove(seq)).count()
    }

    fn prune_turns(&mut self, before: Timestamp, limit: usize) -> usize {
        let old = self.prune_ended_turns(before, limit, |_| true);
        let prompts = self.prune_prompts(before, limit - old.len());
        old.len() + prompts + self.prune_session_starts(before, limit - old.len() - prompts)
    }

    fn prune_cron_turns(&mut self, before: Timestamp, limit: usize) -> usize {
        let old: BTreeSet<TurnId> =
            self.prune_ended_turns(before, limit, |turn| turn.source == "cron").into_iter().collect();
        let mail = self.messages.iter().filter(|(_, mail)| {
            let done = mail.kind == Kind::CronTurn && mail.state == MailState::Consumed;
            done && mail.turn_id.is_some_and(|turn_id| old.contains(&turn_id))
        });
        let mail: Vec<i64> = mail.map(|(seq, _)| *seq).collect();
        for seq in mail {
            self.message_delete(seq);
        }
        old.len()
    }

    /// Deletes ended turns for which `wanted` is true, with their journals. Returns their ids.
    fn prune_ended_turns(&mut self, before: Timestamp, limit: usize, wanted: fn(&Turn) -> bool) -> Vec<TurnId> {
        // Mail of a retried dead letter waits for an ended turn, which continues from its journal.
        let waits = |mail: &&Envelope| matches!(mail.state, MailState::Pending | MailState::Taken);
        let waiting = self.messages.values().filter(waits).filter_map(|mail| mail.turn_id);
        let needed: BTreeSet<TurnId> = self.held_letters().map(|letter| letter.turn_id).chain(waiting).collect();
        let mut quoted: BTreeMap<AgentId, Timestamp> = BTreeMap::new();
        for turn in self.open_turns() {
            let Some(from) = turn.log_from else { continue };
            quoted.entry(turn.agent_id.clone()).and_modify(|first| *first = from.min(*first)).or_insert(from);
        }
        let is_quoted = |turn: &Turn| quoted.get(&turn.agent_id).is_some_and(|from| turn.log_place().ended_at >= *from);
        let ended = self
            .turns
            .values()
            .filter(|turn| turn.status != TurnStatus::Open && !needed.contains(&turn.turn_id) && wanted(turn))
            .filter(|turn| turn.source == "cron" || !is_quoted(turn))
            .map(|turn| (turn.ended_at.unwrap_or(turn.started_at), turn.turn_id));
        let old = oldest(ended, before, limit);
        for turn_id in &old {
            let steps: Vec<(TurnId, i64)> =
                self.journal.range((*turn_id, i64::MIN)..=(*turn_id, i64::MAX)).map(|(key, _)| *key).collect();
            for step in steps {
                self.journal.remove(&step);
            }
            self.turns.remove(turn_id);
        }
        old
    }

    fn prune_prompts(&mut self, before: Timestamp, limit: usize) -> usize {
        let mut named = BTreeSet::new();
        for row in self.journal.values() {
            if let Step::Briefed { system, briefing, .. } = &row.step {
                named.insert(system.as_str());
                named.insert(briefing.as_str());
            }
        }
        let unnamed = self.prompts.iter().filter(|(hash, _)| !named.contains(hash.as_str()));
        let old = oldest(unnamed.map(|(hash, prompt)| (prompt.at, hash.clone())), before, limit);
        old.iter().filter(|hash| self.prompts.remove(hash)).count()
    }

    fn prune_messages(&mut self, before: Timestamp, limit: usize) -> usize {
        let held: BTreeSet<MessageId> =
            self.held_letters().flat_map(|letter| letter.messages.iter().copied()).collect();
        let done = self.messages.iter().filter(|(_, mail)| {
            let done = match mail.state {
                MailState::Pending | MailState::Taken => false,
                MailState::Consumed | MailState::Dead => !held.contains(&mail.message_id),
            };
            // A turn that no longer exists ended long ago.
            let turn = mail.turn_id.and_then(|turn_id| self.turns.get(&turn_id));
            done && turn
                .is_none_or(|turn| turn.status != TurnStatus::Open && turn.ended_at.is_some_and(|at| at < before))
        });
        let ended = done.map(|(seq, mail)| (mail.created_at, *seq));
        let old = oldest(ended, before, limit);
        for seq in &old {
            self.message_delete(*seq);
        }
        old.len()
    }

    fn held_letters(&self) -> impl Iterator<Item = &ghost_domain::DeadLetter> {
        self.dead_letters.values().filter(|letter| letter.status == DeadLetterStatus::Held)
    }

    fn prune_asks(&mut self, before: Timestamp, limit: usize) -> usize {
        let closed = self.asks.values().filter(|ask| ask.status != AskStatus::Open);
        let old = oldest(closed.map(|ask| (ask.closed_at.unwrap_or(ask.created_at), ask.ask_id)), before, limit);
        old.iter().filter(|ask_id| self.asks.remove(ask_id)).count()
    }

    fn prune_approvals(&mut self, before: Timestamp, limit: usize) -> usize {
        let closed = self.approvals.values().filter(|row| row.status != ApprovalStatus::Pending && !row.always);
        let old = oldest(closed.map(|row| (row.closed_at.unwrap_or(row.requested_at), row.approval_id)), before, limit);
        old.iter().filter(|approval_id| self.approvals.remove(approval_id)).count()
    }

    fn prune_ledger(&mut self, before: Timestamp, limit: usize) -> usize {
        let ended = self.ledger.values().filter(|row| row.status != CallStatus::Started);
        let at =
            |row: &ghost_domain::LedgerRow| row.started_at.plus(Duration::from_millis(row.duration_ms.unwrap_or(0)));
        let old = oldest(ended.map(|row| (at(row), (row.started_at, row.call_id))), before, limit);
        for key in &old {
            self.ledger_by_start.remove(key);
            self.ledger.remove(&key.1);
        }
        old.len()
    }

    fn prune_usage(&mut self, before: Timestamp, limit: usize) -> usize {
        let old = oldest(self.usage.iter().map(|(seq, row)| (row.at, *seq)), before, limit);
        old.iter().filter(|seq| self.usage.remove(seq)).count()
    }

    fn prune_grants(&mut self, before: Timestamp, limit: usize) -> usize {
        let old = oldest(self.grants.values().map(|grant| (grant.expires_at, grant.grant_id)), before, limit);
        old.iter().filter(|grant_id| self.grants.remove(grant_id)).count()
    }

    fn prune_droids(&mut self, before: Timestamp, limit: usize) -> usize {
        let ended = self.droids.values().filter_map(|droid| Some((droid.ended_at?, droid.droid_id.clone())));
        let old = oldest(ended, before, limit);
        old.iter().filter(|droid_id| self.droids.remove(droid_id)).count()
    }

    fn prune_requests(&mut self, before: Timestamp, limit: usize) -> usize {
        let old = oldest(self.requests.iter().map(|(key, answer)| (answer.at, key.clone())), before, limit);
        old.iter().filter(|key| self.requests.remove(key)).count()
    }

    fn prune_dead_letters(&mut self, before: Timestamp, limit: usize) -> usize {
        let resolved = self
            .dead_letters
            .values()
            .filter(|letter| letter.status != DeadLetterStatus::Held || self.agents.get(&letter.agent_id).is_none());
        let at = |letter: &ghost_domain::DeadLetter| letter.resolved_at.unwrap_or(letter.created_at);
        let old = oldest(resolved.map(|letter| (at(letter), letter.dead_letter_id)), before, limit);
        old.iter().filter(|dead_letter_id| self.dead_letters.remove(dead_letter_id)).count()
    }

    fn prune_tasks(&mut self, before: Timestamp, limit: usize) -> usize {
        let open = self.tasks.values().filter(|task| !task.status.is_terminal());
        let needed: BTreeSet<TaskId> = open.flat_map(|task| task.depends_on.iter().copied()).collect();
        let ended = self.tasks.values().filter(|task| task.status.is_terminal() && !needed.contains(&task.task_id));
        let old = oldest(ended.map(|task| (task.updated_at, task.task_id)), before, limit);
        for task_id in &old {
            let history: Vec<(TaskId, i64)> =
                self.task_events.range((*task_id, i64::MIN)..=(*task_id, i64::MAX)).map(|(key, _)| *key).collect();
            for event in history {
                self.task_events.remove(&event);
            }
            self.tasks.remove(task_id);
        }
        old.len()
    }

    /// The roots that further work may be charged to.
    fn live_roots(&self) -> BTreeSet<RootId> {
        let is_open = |turn_id: TurnId| self.turns.get(&turn_id).is_some_and(|turn| turn.status == TurnStatus::Open);
        let held: BTreeSet<MessageId> =
            self.held_letters().flat_map(|letter| letter.messages.iter().copied()).collect();
        let open = self.turns.values().filter(|turn| turn.status == TurnStatus::Open);
        let set_aside = self.held_letters().filter_map(|letter| self.turns.get(&letter.turn_id));
        let mail = self.messages.values().filter(|mail| {
            mail.state == MailState::Pending || mail.turn_id.is_some_and(is_open) || held.contains(&mail.message_id)
        });
        let jobs = self.jobs.values().filter(|job| job.finished_at.is_none());
        let mut roots: BTreeSet<RootId> = open.chain(set_aside).map(|turn| turn.root_id).collect();
        roots.extend(mail.map(|mail| mail.root_id));
        roots.extend(self.tasks.values().map(|task| task.root_id));
        roots.extend(jobs.map(|job| job.root_id));
        roots.extend(self.schedules.values().map(|schedule| schedule.root_id));
        roots
    }

    fn prune_root_budgets(&mut self, before: Timestamp, limit: usize) -> usize {
        let live = self.live_roots();
        let unused = self.budgets.iter().filter(|(_, budget)| {
            let Scope::Root(root_id) = &budget.scope else { return false };
            budget.reserved_tokens == 0 && budget.reserved_money == Money(0) && !live.contains(root_id)
        });
        let old = oldest(unused.map(|(scope, budget)| (budget.updated_at, scope.clone())), before, limit);
        old.iter().filter(|scope| self.budgets.remove(scope)).count()
    }

    /// All direct and indirect creators of living agents. They pay for the agents they created.
    fn creators_of_the_living(&self) -> BTreeSet<AgentId> {
        let mut next: Vec<AgentId> =
            self.agents.values().filter(|agent| !agent.is_deleted()).filter_map(Agent::creator).collect();
        let mut found = BTreeSet::new();
        while let Some(agent_id) = next.pop() {
            next.extend(self.agents.get(&agent_id).and_then(Agent::creator).filter(|_| !found.contains(&agent_id)));
            found.insert(agent_id);
        }
        found
    }

    fn prune_agent_budgets(&mut self, before: Timestamp, limit: usize) -> usize {
        let unused = self.budgets.iter().filter(|(_, budget)| {
            let Some(agent_id) = budget.scope.agent() else { return false };
            let gone = match self.agents.get(agent_id) {
                None => true,
                Some(agent) => agent.is_deleted() && budget.limits.is_none(),
            };
            gone && budget.reserved_tokens == 0 && budget.reserved_money == Money(0)
        });
        let old = oldest(unused.map(|(scope, budget)| (budget.updated_at, scope.clone())), before, limit);
        old.iter().filter(|scope| self.budgets.remove(scope)).count()
    }

    /// Deletes tombstones. Returns their number and the highest incarnation among them.
    fn prune_agents(&mut self, before: Timestamp, limit: usize) -> (usize, u32) {
        let needed = self.creators_of_the_living();
        let dead = self.agents.values().filter(|agent| !needed.contains(&agent.agent_id));
        let dead = dead.filter_map(|agent| Some((agent.deleted_at?, agent.agent_id.clone())));
        let old: Vec<AgentId> = oldest(dead, before, limit);
        let highest = old.iter().filter_map(|id| self.agents.get(id)).map(|agent| agent.incarnation).max();
        (old.iter().filter(|agent_id| self.agents.remove(agent_id)).count(), highest.unwrap_or(0))
    }
}

impl PruneWrites for Session<'_> {
    fn prune(&mut self, family: Family, before: Timestamp, limit: u32) -> Result<u64> {
        let (tables, limit) = (&mut *self.tables, bound(limit));
        let pruned = match family {
            Family::Events => tables.prune_events(before, limit),
            Family::Turns => tables.prune_turns(before, limit),
            Family::CronTurns => tables.prune_cron_turns(before, limit),
            Family::Messages => tables.prune_messages(before, limit),
            Family::Asks => tables.prune_asks(before, limit),
            Family::Approvals => tables.prune_approvals(before, limit),
            Family::Ledger => tables.prune_ledger(before, limit),
            Family::Usage => tables.prune_usage(before, limit),
            Family::Requests => tables.prune_requests(before, limit),
            Family::DeadLetters => tables.prune_dead_letters(before, limit),
            Family::Tasks => tables.prune_tasks(before, limit),
            Family::ChatPosts => tables.prune_chat_posts(before, limit),
            Family::Conversations => tables.prune_conversations(before, limit),
            Family::Knowledge => tables.prune_knowledge(before, limit),
            Family::ScheduleRuns => tables.prune_schedule_runs(before, limit),
            Family::Roots => tables.prune_roots(before, limit),
            Family::Grants => tables.prune_grants(before, limit),
            Family::Droids => tables.prune_droids(before, limit),
            Family::RootBudgets => tables.prune_root_budgets(before, limit),
            Family::AgentBudgets => tables.prune_agent_budgets(before, limit),
            Family::Agents => {
                let (pruned, highest) = tables.prune_agents(before, limit);
                self.agent_incarnation_raise(highest)?;
                pruned
            }
        };
        Ok(u64::try_from(pruned).unwrap_or(u64::MAX))
    }

    fn prune_rows(&mut self, family: Family) -> Result<u64> {
        let t = &*self.tables;
        let scopes = |prefix: &str| t.budgets.iter().filter(|(scope, _)| scope.starts_with(prefix)).count();
        let rows = match family {
            Family::Events => t.events.iter().count(),
            Family::Turns => t.turns.iter().count(),
            Family::CronTurns => t.turns.values().filter(|turn| turn.source == "cron").count(),
            Family::Messages => t.messages.iter().count(),
            Family::Asks => t.asks.iter().count(),
            Family::Approvals => t.approvals.iter().count(),
            Family::Ledger => t.ledger.iter().count(),
            Family::Usage => t.usage.iter().count(),
            Family::Requests => t.requests.iter().count(),
            Family::DeadLetters => t.dead_letters.iter().count(),
            Family::Tasks => t.tasks.iter().count(),
            Family::ChatPosts => t.chat_posts.iter().count(),
            Family::Conversations => t.conversations.iter().count(),
            Family::Knowledge => t.knowledge.values().filter(|entry| entry.deleted).count(),
            Family::ScheduleRuns => t.schedule_runs.iter().count(),
            Family::Roots => t.roots.iter().count(),
            Family::Grants => t.grants.iter().count(),
            Family::Droids => t.droids.iter().count(),
            Family::RootBudgets => scopes("root:"),
            Family::AgentBudgets => scopes("agent:"),
            Family::Agents => t.agents.values().filter(|agent| agent.is_deleted()).count(),
        };
        Ok(u64::try_from(rows).unwrap_or(u64::MAX))
    }

    fn prune_conversation_entries(&mut self, before: Timestamp, keep: u32, limit: u32) -> Result<u64> {
        let pruned = self.tables.prune_conversation_entries(before, keep, bound(limit));
        Ok(u64::try_from(pruned).unwrap_or(u64::MAX))
    }

    fn prune_task_events(&mut self, keep: u32, limit: u32) -> Result<u64> {
        let mut newest_first: Vec<(TaskId, i64)> = self.tables.task_events.iter().map(|(key, _)| *key).collect();
        newest_first.sort_by_key(|(task_id, seq)| (*task_id, std::cmp::Reverse(*seq)));
        let mut old: Vec<(TaskId, i64)> = newest_first
            .chunk_by(|(a, _), (b, _)| a == b)
            .flat_map(|events| events.iter().skip(bound(keep.max(1))))
            .copied()
            .collect();
        old.sort_unstable();
        old.truncate(bound(limit));
        for key in &old {
            self.tables.task_events.remove(key);
        }
        Ok(u64::try_from(old.len()).unwrap_or(u64::MAX))
    }
}
