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
    use ghost_domain::Timestamp;
    use ghost_domain::time::BoxFuture;

    use super::*;

    /// The runtime's own clock.
    struct Timer;

    impl Clock for Timer {
        fn now(&self) -> Timestamp {
            Timestamp(0)
        }
        #[allow(clippy::disallowed_methods, reason = "what is tested is how the runtime's own timer is polled")]
        fn sleep_until(&self, _: Timestamp) -> BoxFuture<'static, ()> {
            Box::pin(tokio::time::sleep(Duration::ZERO))
        }
    }

    #[tokio::test]
    async fn the_limit_applies_while_the_work_uses_up_the_task_budget() {
        let busy = async {
            for _ in 0..1_000_000 {
                tokio::task::coop::consume_budget().await;
            }
        };
        assert_eq!(within(&Timer, Duration::ZERO, busy).await, None);
    }
}
