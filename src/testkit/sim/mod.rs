//! Whole worlds under virtual time: a seed gives a world, its models, its operators and its troubles, and the same seed
//! gives the same event log (DESIGN.md, promise 8). A run lives through crashes of the daemon and ends when the world is
//! at rest; then every promise is checked against what was recorded, inside the world and outside it.
//!
//! Must never: leave anything to the machine's clock, scheduler or chance.

mod chance;
mod check;
mod clock;
mod error;
mod facts;
mod log_check;
mod model;
mod operator;
mod plan;
mod random_actions;
mod run;
mod slow_store;
mod tools;

pub use chance::{Dice, SimIds, SimRng};
pub use clock::{Bounds, SimClock};
pub use error::SimError;
pub use run::{Course, Outcome, SimWorld};
