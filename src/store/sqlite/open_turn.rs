//! What the writer knows about an agent's open turn. It saves a query for each turn.
//!
//! Must never: be `None` while the agent may have an open turn.

use ghost_domain::TurnId;

/// The open turn that an agent continues, as far as the writer knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenTurn {
    /// The agent has no open turn.
    None,
    /// The agent continues this turn.
    Is(TurnId),
    /// The agent has parked turns beside its other work. Only the table says which turn is next.
    Unknown,
}
