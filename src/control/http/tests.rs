//! The HTTP routes, as a client sees them.

mod asking;
mod events;
mod figures;
mod health;
mod reads;
mod writes;
