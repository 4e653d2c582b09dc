use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ghost_config::plan::LlmPlan;
use ghost_domain::Clock;

use super::failures::{KINDS, half};
use super::{conversation, serve};
use crate::error::{Charge, ErrorKind};
use crate::model::NoDeltas;
use crate::providers::Providers;
use crate::testing::{FakeEnd, FakeReply, provider_plan};
use ghost_domain::testing::ManualClock;

#[tokio::test]
async fn an_answer_that_falls_silent_in_the_middle_frees_its_slot() {
    for kind in KINDS {
        let (content_type, body) = half(kind);
        let server = serve(move |_| FakeReply::new(200, content_type, body.clone()).ending(FakeEnd::Hang)).await;
        let clock = ManualClock::at(1_700_000_000_000);
        let plan = provider_plan(kind, Some(server.url()));
        let idle_timeout = plan.idle_timeout;
        let plan = LlmPlan { providers: BTreeMap::from([("p".to_owned(), plan)]), ..LlmPlan::default() };
        let providers = Providers::build(&plan, &|_| None, Arc::clone(&clock) as Arc<dyn Clock>).unwrap();
        let provider = Arc::clone(&providers.get("p").unwrap().provider);
        // The clock advances whenever a sleep has started.
        let advance_clock = async {
            for sleeps in 1.. {
                clock.slept(sleeps).await;
                clock.advance(idle_timeout + Duration::from_millis(1));
            }
        };
        let (request, mut deltas) = (conversation("m"), NoDeltas);
        let error = tokio::select! {
            answer = provider.complete(&request, &mut deltas) => answer.expect_err("the answer stalls"),
            () = advance_clock => unreachable!("the clock advances for ever"),
        };
        assert_eq!((error.kind, error.charge), (ErrorKind::Timeout, Charge::Unknown), "{kind:?} {error}");
        assert!(error.message.contains("idle_timeout"), "{kind:?} {error}");
    }
}
