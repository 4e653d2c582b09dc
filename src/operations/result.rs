//! The result type of all rules, their refusals, and the reading of a whole list.
//!
//! This module must never import anything from this crate, because every other module imports it.

use ghost_domain::Refusal;
use ghost_store::StoreError;

/// The result of a rule: a value, or a typed refusal.
pub type Result<T, E = Refusal> = std::result::Result<T, E>;

/// Reads a list to its end. `page` reads what follows the last item that was read.
pub(crate) fn read_all<T>(
    mut page: impl FnMut(Option<&T>) -> std::result::Result<Vec<T>, StoreError>,
) -> Result<Vec<T>> {
    let mut all: Vec<T> = Vec::new();
    loop {
        let next = page(all.last())?;
        if next.is_empty() {
            return Ok(all);
        }
        all.extend(next);
    }
}

/// A refusal with a code and a formatted message, for example `refusal!(Conflict, "{name} has ended")`.
macro_rules! refusal {
    ($code:ident, $($message:tt)+) => {
        ghost_domain::Refusal::new(ghost_domain::Code::$code, format!($($message)+))
    };
}
pub(crate) use refusal;

/// The refusal for a name that is not there. Without a name that is `near`, the hint is this one.
pub(crate) fn not_among(what: &str, name: &str, near: Option<&str>, hint: &str) -> Refusal {
    let refusal = Refusal::not_found(what, name, near);
    if near.is_some() { refusal } else { refusal.hint(hint) }
}

/// Refuses one more of what `limits.{limit}` bounds. `what` says of what there are `count`.
pub(crate) fn at_most(limit: &str, count: u32, most: u32, what: &str, hint: &str) -> Result<()> {
    if count < most {
        return Ok(());
    }
    Err(refusal!(RateLimited, "{count} {what}, which is the limit (limits.{limit})").hint(hint))
}
