//! Everything that a world has recorded at its end. The event feed names the records, and the tables hold their
//! final state.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ghost_domain::budget::{Budget, Reservation};
use ghost_domain::event::{Event, EventFilter, EventKind};
use ghost_domain::journal::{JournalRow, Step};
use ghost_domain::transcript::Block;
use ghost_domain::usage::UsageSum;
use ghost_domain::{
    Agent, AgentId, Ask, AskId, DeadLetter, Envelope, LedgerRow, MessageId, Refusal, Task, TaskId, Turn, TurnId,
};
use ghost_store::memory::MemoryDisk;
use ghost_store::tables::{BudgetFilter, LedgerFilter, PAGE_MAX, UsageFilter};
use ghost_store::{StoreError, Tx};
use serde_json::Value;

use super::error::SimError;
use super::tools::{MARK, mark_key};

/// All records of a world.
#[derive(Clone, Default)]
pub(crate) struct Facts {
    pub(crate) events: Vec<Event>,
    pub(crate) agents: BTreeMap<AgentId, Agent>,
    pub(crate) messages: BTreeMap<MessageId, Envelope>,
    pub(crate) turns: BTreeMap<TurnId, Turn>,
    pub(crate) journals: BTreeMap<TurnId, Vec<JournalRow>>,
    pub(crate) ledger: Vec<LedgerRow>,
    pub(crate) tasks: BTreeMap<TaskId, Task>,
    pub(crate) asks: BTreeMap<AskId, Ask>,
    pub(crate) asks_open: Vec<Ask>,
    pub(crate) dead_letters: Vec<DeadLetter>,
    pub(crate) budgets: Vec<Budget>,
    pub(crate) held: Vec<(TurnId, Reservation)>,
    pub(crate) usage: Vec<UsageSum>,
    /// Number of effects of each mark, by token. Contains every token that appeared in a call.
    pub(crate) marks: BTreeMap<String, u32>,
    /// The counts that differ from the rows that they count: name, count, rows.
    pub(crate) wrong_counts: Vec<(String, i64, i64)>,
    /// Text files of the workspace, by path.
    pub(crate) files: BTreeMap<String, String>,
}

impl Facts {
    /// Reads all records from the disk and the workspace.
    pub(crate) fn gather(disk: &MemoryDisk, workspace: &Path) -> Result<Self, SimError> {
        let store = disk.open();
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let gathered = runtime.block_on(store.read(Self::read)).map_err(Refusal::from)?;
        let mut facts = gathered;
        read_files(workspace, workspace, &mut facts.files)?;
        Ok(facts)
    }

    fn read(r: &mut Tx) -> Result<Self, StoreError> {
        let (events, _) = r.event_list(0, &EventFilter::default(), u32::MAX)?;
        let mut facts = Self { events, ..Self::default() };
        for agent in r.agent_list(true)? {
            facts.agents.insert(agent.agent_id.clone(), agent);
        }
        for message_id in ids(&facts.events, EventKind::MessageDelivered, "message_id") {
            if let Some(envelope) = r.message_get(MessageId(message_id))? {
                if let Some(ask_id) = envelope.ask_id
                    && let Some(ask) = r.ask_get(ask_id)?
                {
                    facts.asks.insert(ask_id, ask);
                }
                facts.messages.insert(envelope.message_id, envelope);
            }
        }
        for turn_id in ids(&facts.events, EventKind::TurnStarted, "turn_id") {
            let turn_id = TurnId(turn_id);
            if let Some(turn) = r.turn_get(turn_id)? {
                facts.held.extend(turn.held.clone().map(|held| (turn_id, held)));
                facts.turns.insert(turn_id, turn);
            }
            facts.journals.insert(turn_id, r.journal_of(turn_id)?);
            let filter = LedgerFilter { turn_id: Some(turn_id), limit: 1_000, ..LedgerFilter::default() };
            facts.ledger.extend(r.call_list(&filter)?);
        }
        for task_id in ids(&facts.events, EventKind::TaskCreated, "task_id") {
            if let Some(task) = r.task_get(TaskId(task_id))? {
                facts.tasks.insert(task.task_id, task);
            }
        }
        facts.asks_open = r.asks_open()?;
        facts.dead_letters = r.dead_letter_list(None, None, None, PAGE_MAX)?;
        facts.budgets = r.budget_list(&BudgetFilter { limit: PAGE_MAX, ..BudgetFilter::default() })?;
        facts.usage = r.usage_sum(&UsageFilter::default())?;
        facts.wrong_counts = r.wrong_counts()?;
        for token in facts.mark_tokens() {
            let count = r.meta_get(&mark_key(&token))?.and_then(|text| text.parse().ok()).unwrap_or(0);
            facts.marks.insert(token, count);
        }
        Ok(facts)
    }

    /// Every token in a call of the marking tool, executed or not, and the token of the poisoned tool's undone effect.
    fn mark_tokens(&self) -> BTreeSet<String> {
        let mut tokens = BTreeSet::from(["poison".to_owned()]);
        tokens.extend(self.ledger.iter().filter(|row| row.tool == MARK).filter_map(token_of));
        for row in self.journals.values().flatten() {
            let Step::ModelAnswered { blocks, .. } = &row.step else { continue };
            for block in blocks {
                if let Block::ToolCall { name, arguments, .. } = block
                    && name == MARK
                {
                    tokens.extend(text_of(arguments, "token"));
                }
            }
        }
        tokens
    }

    /// Whether the agent runs, according to its record.
    pub(crate) fn runs(&self, agent_id: &AgentId) -> bool {
        use ghost_domain::{AgentStatus, Desired};
        self.agents.get(agent_id).is_some_and(|agent| {
            !agent.is_deleted() && agent.desired == Desired::Running && agent.status == AgentStatus::Running
        })
    }
}

/// The token in a call's arguments.
pub(crate) fn token_of(row: &LedgerRow) -> Option<String> {
    argument(row, "token")
}

/// A text argument of a call.
pub(crate) fn argument(row: &LedgerRow, name: &str) -> Option<String> {
    text_of(&serde_json::from_str(&row.arguments).ok()?, name)
}

fn text_of(arguments: &Value, name: &str) -> Option<String> {
    arguments.get(name)?.as_str().map(str::to_owned)
}

fn ids(events: &[Event], kind: EventKind, field: &str) -> Vec<uuid::Uuid> {
    let found: BTreeSet<uuid::Uuid> = events
        .iter()
        .filter(|event| event.kind == kind)
        .filter_map(|event| event.payload.get(field)?.as_str()?.parse().ok())
        .collect();
    found.into_iter().collect()
}

fn read_files(root: &Path, dir: &Path, files: &mut BTreeMap<String, String>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            read_files(root, &path, files)?;
        } else if let (Ok(name), Ok(text)) = (path.strip_prefix(root), std::fs::read_to_string(&path)) {
            files.insert(name.to_string_lossy().into_owned(), text);
        }
    }
    Ok(())
}
