//! Time, CPU and the middle of several rounds.
//!
//! Must never: give the best of several rounds, or the mean of rounds that something else on the machine disturbed.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// What a row of the table fails with; printed as it is.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The instant. Benches measure real time by their nature.
#[allow(clippy::disallowed_methods)]
pub fn now() -> Instant {
    Instant::now()
}

/// A pause between two looks. See [`now`].
#[allow(clippy::disallowed_methods)]
pub async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}

/// CPU that all threads of this process have used, in user and kernel.
pub fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// The middle one; of an even number the upper.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A runtime like the daemon's.
pub fn runtime() -> Outcome<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}
