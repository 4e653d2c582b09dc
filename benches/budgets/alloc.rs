//! A global allocator that can count live bytes, for the memory budget of an idle agent.
//!
//! Allocations must never become slower in rows that do not count. Before [`count`] is called, the
//! allocator only reads one flag.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};

static COUNTING: AtomicBool = AtomicBool::new(false);
static LIVE: AtomicIsize = AtomicIsize::new(0);

/// The system's allocator with an optional count.
pub struct Counting;

/// Starts to count. Call it before any other work: the release of an older allocation would be
/// counted wrongly.
pub fn count() {
    COUNTING.store(true, Ordering::Relaxed);
}

/// Number of live bytes as requested, without the allocator's overhead.
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

// An allocator needs unsafe code. Every call goes to the system's allocator unchanged, so its guarantees hold.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's guarantee about `layout` is passed on.
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
        // SAFETY: the caller's guarantee that `place` came from here with `layout` is passed on.
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
