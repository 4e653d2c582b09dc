//! A global allocator that can count what is live, for the budget of an idle agent's memory.
//!
//! Must never: change what an allocation costs in rows that do not count: until [`count`] is called it reads one flag.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};

static COUNTING: AtomicBool = AtomicBool::new(false);
static LIVE: AtomicIsize = AtomicIsize::new(0);

/// The system's allocator, counted on demand.
pub struct Counting;

/// Begins to count. What was allocated before is not in the count, and its release would be: so this comes first.
pub fn count() {
    COUNTING.store(true, Ordering::Relaxed);
}

/// Bytes that are live now, as they were asked for; the allocator's own overhead is not among them.
pub fn live() -> isize {
    LIVE.load(Ordering::Relaxed)
}

fn add(bytes: usize) {
    if COUNTING.load(Ordering::Relaxed) {
        LIVE.fetch_add(isize::try_from(bytes).unwrap_or(isize::MAX), Ordering::Relaxed);
    }
}

fn take(bytes: usize) {
    if COUNTING.load(Ordering::Relaxed) {
        LIVE.fetch_sub(isize::try_from(bytes).unwrap_or(isize::MAX), Ordering::Relaxed);
    }
}

// An allocator can be written in no other way. Every call is passed on to the system's as it came, whose guarantees are
// therefore this one's.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise about `layout` is passed on.
        let place = unsafe { System.alloc(layout) };
        if !place.is_null() {
            add(layout.size());
        }
        place
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let place = unsafe { System.alloc_zeroed(layout) };
        if !place.is_null() {
            add(layout.size());
        }
        place
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        take(layout.size());
        // SAFETY: the caller's promise that `place` came from here with `layout` is passed on.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        let moved = unsafe { System.realloc(place, layout, size) };
        if !moved.is_null() {
            take(layout.size());
            add(size);
        }
        moved
    }
}
