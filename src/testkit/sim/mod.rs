//! Simulation of whole worlds under virtual time (promise 8 of `docs/design.md`). A seed decides
//! the world, its models, its operators and its faults. The same seed gives the same event log. A
//! run includes crashes of the daemon and ends when the world is at rest. Then every promise is
//! checked against the records and against witnesses outside the world.
//!
//! A simulation must never depend on the machine's clock, its scheduler or its random numbers.

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
