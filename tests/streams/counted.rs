//! Subscribers of all transports share one limit.

use crate::order::refusal;
use crate::support::{runtime, soon, take, test_env, up};
use crate::wires::{Ask, Reader, Received, WAYS, Way};

#[test]
fn subscribers_of_all_transports_share_one_limit() {
    let (test_env, world) = test_env("subscribers_max: 3");
    let runtime = runtime();
    let (daemon, site) = up(&test_env, &world);
    runtime.block_on(async {
        let mut readers = Vec::new();
        for way in WAYS {
            let mut reader = Reader::open(&site, way, &Ask::default()).await;
            soon("an event", take(&mut reader, 1)).await;
            readers.push(reader);
        }
        for (way, how) in WAYS.into_iter().zip(["ResourceExhausted", "429", "4429"]) {
            let (outcome, why) = refusal(&site, way, &Ask::default()).await;
            assert_eq!((outcome.as_str(), why["code"].as_str()), (how, Some("rate_limited")), "{way:?}");
            assert!(why["hint"].as_str().unwrap().contains("subscribers_max"), "{why}");
        }
        // A subscriber that leaves releases its permit for any other.
        let mut kept = Vec::new();
        for left in readers {
            drop(left);
            let mut next = None;
            let room = async {
                while next.is_none() {
                    let mut reader = Reader::open(&site, Way::Sse, &Ask::default()).await;
                    match reader.next().await {
                        Received::Event(_) => next = Some(reader),
                        Received::Refused(..) => {}
                        other => panic!("{other:?}"),
                    }
                }
            };
            soon("room", room).await;
            // It stays, so that the next subscriber that leaves releases only one permit.
            kept.extend(next);
        }
    });
    daemon.stop();
}
