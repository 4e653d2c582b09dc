//! Commands for the whole world: `status`, `pause`, `resume`, `reload`, `confirm-clock` and `shutdown`.

pub mod confirm_clock;
pub mod pause;
pub mod reload;
pub mod resume;
pub mod shutdown;
pub mod status;
