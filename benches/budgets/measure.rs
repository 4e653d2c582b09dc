//! Time, CPU time, and the median of several rounds.
//!
//! A result must never be the best round or the mean, because other work on the machine disturbs
//! single rounds.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The result of a measurement. The error is printed.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The current instant. Benchmarks measure real time.
#[allow(clippy::disallowed_methods)]
pub fn now() -> Instant {
    Instant::now()
}

/// A pause between two tries, in real time.
#[allow(clippy::disallowed_methods)]
pub async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}

/// CPU time of all threads of this process, user and kernel.
pub fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// The median; for an even number of values the upper one.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A runtime like the daemon's.
pub fn runtime() -> Outcome<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}
