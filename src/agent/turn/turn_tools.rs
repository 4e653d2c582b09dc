//! The tools of a turn as its model saw them, from its opening or its journal.

use ghost_domain::journal::{JournalRow, Step};
use ghost_domain::{Agent, HeldSkill, SeenTools};

/// What a turn remembers of its tools, in a world whose tools come and go.
pub(super) struct TurnTools {
    /// The agent as the turn was opened.
    pub(super) agent: Agent,
    /// The skills that it held when the tools were taken.
    pub(super) held: Vec<HeldSkill>,
    /// The tools as the model saw them.
    pub(super) seen: SeenTools,
    /// Whether the agent may hold other skills than before.
    pub(super) skills_changed: bool,
}

impl TurnTools {
    pub(super) fn new(agent: Agent, held: Vec<HeldSkill>, seen: SeenTools) -> Self {
        Self { agent, held, seen, skills_changed: false }
    }
}

/// The tools that the model of a resumed turn has seen. `None` if the turn has none that come and go.
pub(super) fn seen_before(journal: &[JournalRow]) -> Option<SeenTools> {
    let mut seen: Option<SeenTools> = None;
    for row in journal {
        match &row.step {
            Step::Briefed { tools, .. } => seen = tools.as_deref().cloned(),
            Step::ToolsChanged { changes, .. } => seen.iter_mut().for_each(|seen| seen.apply(changes)),
            _ => {}
        }
    }
    seen
}
