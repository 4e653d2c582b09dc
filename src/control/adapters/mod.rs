//! Delivery to receivers outside the world. An adapter makes one attempt to deliver a message or an
//! action of an agent. Rules in `ghost-operations` decide when to try, how often, and how to treat the
//! outcome; [`delivery_worker`] runs the attempts.
//!
//! Adapters are in the control layer because it is the layer that faces the outside: incoming messages
//! arrive here too, and no lower layer may know of them.
//!
//! An adapter must never retry by itself, follow a redirect, or keep state that must survive a
//! crash.

mod adapter;
mod delivery_worker;
mod webhook;

pub(crate) use delivery_worker::delivery_worker;
pub(crate) use webhook::{DELIVERY, SIGNATURE, TIMESTAMP, secret};
pub use webhook::{sign, verify};
