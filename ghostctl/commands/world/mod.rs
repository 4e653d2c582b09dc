//! The world as a whole.

pub mod pause;
pub mod reload;
pub mod resume;
pub mod shutdown;
pub mod status;
