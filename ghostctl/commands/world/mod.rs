//! Commands for the whole world: `status`, `pause`, `resume`, `reload` and `shutdown`.

pub mod pause;
pub mod reload;
pub mod resume;
pub mod shutdown;
pub mod status;
