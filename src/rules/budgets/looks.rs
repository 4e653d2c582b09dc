//! How often the tables that grow with the world were gone through, for tests: time proves nothing.

use std::cell::Cell;

thread_local!(static LOOKS: Cell<u32> = const { Cell::new(0) });

/// One more.
pub(super) fn count() {
    LOOKS.set(LOOKS.get() + 1);
}

/// Since the last time that this was asked, on this thread.
pub(crate) fn taken() -> u32 {
    LOOKS.replace(0)
}
