//! Waiting on the Clock port beside something else.

use std::time::Duration;

use ghost_domain::time::Clock;

/// What `work` gives, or nothing if `most` passes first. Dropping `work` cancels it. The work is looked at first, so that
/// at one instant it wins: order must not depend on chance. The time passes even while the work takes all the turns that the
/// runtime gives this task.
pub async fn within<T>(clock: &dyn Clock, most: Duration, work: impl Future<Output = T>) -> Option<T> {
    let late = tokio::task::unconstrained(clock.sleep(most));
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
    async fn time_passes_while_the_work_takes_every_turn() {
        let busy = async {
            for _ in 0..1_000_000 {
                tokio::task::coop::consume_budget().await;
            }
        };
        assert_eq!(within(&Timer, Duration::ZERO, busy).await, None);
    }
}
