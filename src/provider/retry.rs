//! Decides how to continue after a failed call. A pure function, so that the turn can journal each
//! attempt and a simulation can replay it.

use std::time::Duration;

use ghost_config::plan::{ProviderKind, ProviderPlan};

use crate::error::{ErrorKind, ProviderError};

/// The decision after a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Ask the same model again after this long.
    Retry(Duration),
    /// Ask a fall-back model at once: the one this many positions after the failed one, at least 1.
    Fallback(usize),
    /// Ask no further model.
    GiveUp,
}

/// The models that are left to try.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rest {
    /// Number of models left.
    pub models: usize,
    /// Position of the first of them that is at another provider, at least 1.
    pub elsewhere: Option<usize>,
}

impl Rest {
    /// The models left after a model at `provider`; `rest` are the providers of the models after
    /// it, in order.
    pub fn after<'a>(provider: &str, rest: impl IntoIterator<Item = &'a str>) -> Self {
        let (mut models, mut elsewhere) = (0, None);
        for next in rest {
            models += 1;
            if next != provider {
                elsewhere = elsewhere.or(Some(models));
            }
        }
        Self { models, elsewhere }
    }
}

/// Decides what to do after a failure. `attempt` counts the failures of this model in this call,
/// including this one, so it is at least 1. `rest` describes the models left to try. `jitter` is
/// any random number.
///
/// A pause that the provider asked for is waited in full, unless it is longer than `retry_cap`;
/// then a fall-back is asked. Otherwise the wait doubles from `retry_base` to at most `retry_cap`,
/// and its upper half is random.
#[must_use]
pub fn decide(attempt: u32, error: &ProviderError, plan: &ProviderPlan, rest: Rest, jitter: u64) -> Next {
    let fall_back = if rest.models > 0 { Next::Fallback(1) } else { Next::GiveUp };
    match error.kind {
        // The same request would fail at other models too, and a second model's cost would not
        // help.
        ErrorKind::BadRequest | ErrorKind::StaleState => return Next::GiveUp,
        // Another model of this provider would be asked with the same key.
        ErrorKind::Unauthorized => return rest.elsewhere.map_or(Next::GiveUp, Next::Fallback),
        ErrorKind::UnknownModel | ErrorKind::ContextTooLong => return fall_back,
        // A recording that has ended has no answer for a retry either.
        ErrorKind::BadAnswer if plan.kind == ProviderKind::Recorded => return fall_back,
        ErrorKind::RateLimited
        | ErrorKind::Overloaded
        | ErrorKind::Server
        | ErrorKind::Network
        | ErrorKind::Timeout
        | ErrorKind::BrokenStream
        | ErrorKind::Gateway
        | ErrorKind::BadAnswer => {}
    }
    if attempt >= plan.attempts {
        return fall_back;
    }
    match error.retry_after {
        Some(asked) if asked > plan.retry_cap => fall_back,
        Some(asked) => Next::Retry(asked),
        None => Next::Retry(back_off(attempt, plan, jitter)),
    }
}

fn back_off(attempt: u32, plan: &ProviderPlan, jitter: u64) -> Duration {
    let doubled = plan.retry_base.saturating_mul(1_u32.checked_shl(attempt.saturating_sub(1)).unwrap_or(u32::MAX));
    let whole = u64::try_from(doubled.min(plan.retry_cap).as_millis()).unwrap_or(u64::MAX);
    let half = whole / 2;
    Duration::from_millis(half + jitter % (whole - half + 1).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::provider_plan;
    use proptest::prelude::*;

    fn plan() -> ProviderPlan {
        ProviderPlan {
            attempts: 3,
            retry_base: Duration::from_millis(500),
            retry_cap: Duration::from_secs(30),
            ..provider_plan(ProviderKind::OpenAi, None)
        }
    }

    /// This many models left, at the same provider.
    fn rest(models: usize) -> Rest {
        Rest { models, elsewhere: None }
    }

    #[test]
    fn a_refused_key_skips_the_models_of_that_provider() {
        let refused = ProviderError::new(ErrorKind::Unauthorized, "401");
        let next = |rest: &[&str]| decide(1, &refused, &plan(), Rest::after("here", rest.iter().copied()), 0);
        assert_eq!(next(&["there"]), Next::Fallback(1));
        assert_eq!(next(&["here", "here", "there", "elsewhere"]), Next::Fallback(3));
        assert_eq!(next(&["here"]), Next::GiveUp);
        assert_eq!(next(&[]), Next::GiveUp);
        let busy = ProviderError::new(ErrorKind::UnknownModel, "404");
        assert_eq!(decide(1, &busy, &plan(), Rest::after("here", ["here", "there"]), 0), Next::Fallback(1));
    }

    // covers: LOOP-09
    #[test]
    fn transient_failures_are_retried_with_doubling_waits() {
        for kind in [
            ErrorKind::RateLimited,
            ErrorKind::Overloaded,
            ErrorKind::Server,
            ErrorKind::Network,
            ErrorKind::Timeout,
            ErrorKind::BrokenStream,
            ErrorKind::Gateway,
            ErrorKind::BadAnswer,
        ] {
            let error = ProviderError::new(kind, "x");
            assert_eq!(decide(1, &error, &plan(), rest(0), 0), Next::Retry(Duration::from_millis(250)), "{kind}");
            assert_eq!(decide(2, &error, &plan(), rest(0), 500), Next::Retry(Duration::from_millis(1_000)), "{kind}");
            assert_eq!(decide(3, &error, &plan(), rest(1), 0), Next::Fallback(1), "{kind}");
            assert_eq!(decide(3, &error, &plan(), rest(0), 0), Next::GiveUp, "{kind}");
        }
    }

    #[test]
    fn a_requested_pause_is_waited_or_a_fall_back_is_asked() {
        let error = |seconds| {
            ProviderError::new(ErrorKind::RateLimited, "slow down").retry_after(Some(Duration::from_secs(seconds)))
        };
        assert_eq!(decide(1, &error(7), &plan(), rest(2), 99), Next::Retry(Duration::from_secs(7)));
        assert_eq!(decide(1, &error(30), &plan(), rest(2), 0), Next::Retry(Duration::from_secs(30)));
        assert_eq!(decide(1, &error(31), &plan(), rest(2), 0), Next::Fallback(1));
        assert_eq!(decide(1, &error(31), &plan(), rest(0), 0), Next::GiveUp);
    }

    #[test]
    fn permanent_failures_are_not_retried() {
        for (kind, with, without) in [
            // The other model is at the same provider.
            (ErrorKind::Unauthorized, Next::GiveUp, Next::GiveUp),
            (ErrorKind::BadRequest, Next::GiveUp, Next::GiveUp),
            (ErrorKind::StaleState, Next::GiveUp, Next::GiveUp),
            (ErrorKind::UnknownModel, Next::Fallback(1), Next::GiveUp),
            (ErrorKind::ContextTooLong, Next::Fallback(1), Next::GiveUp),
        ] {
            let error = ProviderError::new(kind, "x");
            assert_eq!(decide(1, &error, &plan(), rest(1), 0), with, "{kind}");
            assert_eq!(decide(1, &error, &plan(), rest(0), 0), without, "{kind}");
        }
        let recorded = ProviderPlan { kind: ProviderKind::Recorded, ..plan() };
        assert_eq!(decide(1, &ProviderError::new(ErrorKind::BadAnswer, "x"), &recorded, rest(0), 0), Next::GiveUp);
    }

    proptest! {
        #[test]
        fn waits_stay_within_the_cap(attempt in 1_u32..5_000, base in 0_u64..1 << 40, jitter in any::<u64>()) {
            let plan = ProviderPlan { attempts: u32::MAX, retry_base: Duration::from_millis(base), ..plan() };
            match decide(attempt, &ProviderError::new(ErrorKind::Server, "x"), &plan, rest(0), jitter) {
                Next::Retry(wait) => prop_assert!(wait <= plan.retry_cap),
                other => prop_assert!(false, "{other:?}"),
            }
        }
    }
}
