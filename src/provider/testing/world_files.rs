//! Helpers for tests of whole worlds: counted ids, fixed random numbers, and the files of a small
//! world.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use ghost_domain::ports::{Ids, Rng};
use uuid::Uuid;

/// Ids 1, 2, 3, …, and a random number generator that always returns 0.
#[derive(Debug, Default)]
pub struct Counting(AtomicU64);

impl Ids for Counting {
    fn next(&self) -> Uuid {
        Uuid::from_u128(u128::from(self.0.fetch_add(1, Ordering::SeqCst)) + 1)
    }
}

impl Rng for Counting {
    fn below(&self, _: u64) -> u64 {
        0
    }
}

/// Writes a file of a world, and creates its directories.
///
/// # Panics
/// When the write fails.
#[allow(clippy::unwrap_used)] // see above
pub fn write_file(world: &Path, path: &str, text: &str) {
    let path = world.join(path);
    std::fs::create_dir_all(path.parent().unwrap_or(world)).unwrap();
    std::fs::write(path, text).unwrap();
}

/// Writes the files of a world with one archetype, `worker`.
///
/// # Panics
/// When a write fails; see [`write_file`].
pub fn write_world(world: &Path, config: &str, worker: &str) {
    for (path, text) in [
        ("world-config.yaml", config),
        ("laws.md", "Be exact."),
        ("archetype/worker/soul.md", "You work."),
        ("archetype/worker/goal.md", "Work."),
        ("archetype/worker/config.md", worker),
    ] {
        write_file(world, path, text);
    }
}
