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
mod adapter_lookup;
mod client;
mod control;
mod delivery_worker;
mod signature;
mod webhook;

pub use adapter::{Adapter, File};
pub(crate) use delivery_worker::delivery_worker;
pub(crate) use signature::secret;
pub use signature::{SIGNATURE_VERSION, sign, verify};
pub use webhook::{DELIVERY, SIGNATURE, TIMESTAMP};
