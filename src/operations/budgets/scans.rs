//! Counts full scans of large tables, so that tests can check their number. A test on time would
//! not be reliable.

use std::cell::Cell;

thread_local!(static SCANS: Cell<u32> = const { Cell::new(0) });

/// Counts one scan.
pub(super) fn count() {
    SCANS.set(SCANS.get() + 1);
}

/// Returns the number of scans on this thread since the last call, and resets it.
pub(crate) fn taken() -> u32 {
    SCANS.replace(0)
}
