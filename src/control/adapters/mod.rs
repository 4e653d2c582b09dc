//! The ways to those outside. An adapter hands over one thing that an agent said or did; when it is tried, how often and what
//! becomes of it is the commons' rule, and [`delivery_worker`] keeps the time.
//!
//! They live in this room because it is the one that faces outwards: what comes in by the same ways arrives here, too, and
//! no room below may know of them.
//!
//! Must never: retry by themselves, follow a redirect, or keep anything that a crash may not take.

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
