//! The routes as a client of HTTP sees them.

mod asking;
mod events;
mod figures;
mod health;
mod reads;
mod writes;
