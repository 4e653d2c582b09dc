//! What the writer remembers of an agent's open turn, so that it need not ask the table for every turn.
//!
//! Must never: say that there is none while one may be.

use ghost_domain::TurnId;

/// What is known of the open turn that an agent goes on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenTurn {
    /// There is none.
    None,
    /// This one.
    Is(TurnId),
    /// The agent has turns aside: the table says which is next.
    Unknown,
}
