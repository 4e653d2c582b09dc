//! Runs work with a time limit on the Clock port.

use std::time::Duration;

use ghost_domain::time::Clock;

/// The result of `work`, or `None` if `limit` elapses first; then `work` is cancelled. `work` is
/// polled first, so it wins if both are ready at the same instant. The timer also runs if `work`
/// uses up the task's cooperative budget.
pub async fn within<T>(clock: &dyn Clock, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    let late = tokio::task::unconstrained(clock.sleep(limit));
    tokio::select! {
        biased;
        done = work => Some(done),
        () = late => None,
    }
}

#[cfg(test)]
mod tests {
    use ghost_domain::testing::ManualClock;

    use super::*;

    #[tokio::test]
    async fn the_limit_applies_while_the_work_uses_up_the_task_budget() {
        let clock = ManualClock::at(0);
        let busy = async {
            clock.advance(Duration::from_secs(1));
            for _ in 0..1_000_000 {
                tokio::task::coop::consume_budget().await;
            }
        };
        assert_eq!(within(&*clock, Duration::from_secs(1), busy).await, None);
    }
}
