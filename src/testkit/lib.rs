//! For tests only: whole worlds under virtual time (`sim`), daemons as real processes (`blackbox`), and databases that look as
//! if a world had run for long (`aged`).
//!
//! Must never: be a dependency of anything that ships, or hold a rule that the rooms should keep themselves.

pub mod aged;
pub mod blackbox;
pub mod sim;
