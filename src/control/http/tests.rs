//! The routes as a client of HTTP sees them.

mod asking;
mod events;
mod health;
mod reads;
