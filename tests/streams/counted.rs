//! Readers of all kinds are counted together.

use crate::order::refusal;
use crate::scene::{runtime, soon, take, test_env, up};
use crate::wires::{Ask, Heard, Reader, WAYS, Way};

#[test]
fn readers_of_all_kinds_are_counted_together() {
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
            let (told, why) = refusal(&site, way, &Ask::default()).await;
            assert_eq!((told.as_str(), why["code"].as_str()), (how, Some("rate_limited")), "{way:?}");
            assert!(why["hint"].as_str().unwrap().contains("subscribers_max"), "{why}");
        }
        // Whoever goes makes room, whatever it was.
        let mut kept = Vec::new();
        for left in readers {
            drop(left);
            let mut next = None;
            let room = async {
                while next.is_none() {
                    let mut reader = Reader::open(&site, Way::Sse, &Ask::default()).await;
                    match reader.next().await {
                        Heard::Event(_) => next = Some(reader),
                        Heard::Refused(..) => {}
                        other => panic!("{other:?}"),
                    }
                }
            };
            soon("room", room).await;
            // It stays, so that the next one that leaves makes room for one more only.
            kept.extend(next);
        }
    });
    daemon.stop();
}
