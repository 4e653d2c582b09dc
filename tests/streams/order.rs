//! All subscribers get the same events in the same order, also over kills. Filters, and refused subscriptions.

use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use ghost_testkit::blackbox::Deadline;

use crate::support::{runtime, soon, take, test_env, up};
use crate::wires::{Ask, Reader, Received, Site, WAYS, Way};

/// Reads until an agent is stopped. Closes its own connection once after `cut` events. After any end it continues
/// after the last event that it has seen, at the daemon's current address.
async fn read_all(mut sites: watch::Receiver<Option<Site>>, way: Way, mut cut: Option<usize>) -> Vec<Value> {
    let mut events: Vec<Value> = Vec::new();
    loop {
        let site = sites.wait_for(Option::is_some).await.unwrap().clone().unwrap();
        let after = events.last().map(|event| event["seq"].as_i64().unwrap());
        let mut reader = Reader::open(&site, way, &Ask { after, ..Ask::default() }).await;
        loop {
            match reader.next().await {
                Received::Event(event) => {
                    let is_last = event["kind"] == "agent.stopped";
                    events.push(event);
                    if is_last {
                        return events;
                    }
                    if cut.is_some_and(|cut| events.len() >= cut) {
                        cut = None;
                        break;
                    }
                }
                Received::Lost => {
                    // Wait for the next daemon.
                    sites.wait_for(|now| now.as_ref().is_some_and(|now| now.http != site.http)).await.unwrap();
                    break;
                }
                Received::Lagged(last) => {
                    assert!(after.is_none_or(|after| last >= after));
                    break;
                }
                Received::Refused(how, why) => panic!("{way:?}: {how} {why}"),
            }
        }
    }
}

// covers: CP-06, CP-07, TEST-08
#[test]
fn nine_subscribers_get_the_same_events_over_kills() {
    let (test_env, world) = test_env("");
    let runtime = runtime();
    let (daemon, site) = up(&test_env, &world);
    let (now, sites) = watch::channel(Some(site));
    let readers: Vec<JoinHandle<Vec<Value>>> = WAYS
        .into_iter()
        .flat_map(|way| [(way, None), (way, Some(40)), (way, None)])
        .map(|(way, cut)| runtime.spawn(read_all(sites.clone(), way, cut)))
        .collect();
    let work = |from: usize| {
        for number in from..from + 8 {
            test_env.ctl(&["send", if number % 2 == 0 { "ada" } else { "ben" }, "hello"]).ok();
        }
    };
    work(0);
    // Killed while turns and subscribers are active.
    now.send_replace(None);
    daemon.kill();
    let (daemon, site) = up(&test_env, &world);
    now.send_replace(Some(site));
    work(8);
    test_env.wait_until_quiet(Deadline::seconds(60));
    test_env.ctl(&["agent", "stop", "ben"]).ok();
    let read: Vec<Vec<Value>> =
        readers.into_iter().map(|reader| runtime.block_on(soon("the end of a reader", reader)).unwrap()).collect();
    let seqs = |events: &[Value]| events.iter().map(|event| event["seq"].as_i64().unwrap()).collect::<Vec<_>>();
    let first = &read[0];
    assert!(first.len() > 80, "{}", first.len());
    assert!(seqs(first).into_iter().eq(1..=i64::try_from(first.len()).unwrap()), "no gap and no double");
    for other in &read[1..] {
        assert_eq!(seqs(other), seqs(first));
        assert!(other == first, "one object everywhere");
    }
    let shown: Vec<Value> = test_env.ctl(&["--json", "events"]).json_lines();
    assert_eq!(shown[..first.len()], first[..], "ghostctl shows the same");
    daemon.stop();
}

#[test]
fn filters_have_the_same_effect_on_every_transport() {
    let (test_env, world) = test_env("");
    let runtime = runtime();
    let (daemon, site) = up(&test_env, &world);
    for agent in ["ada", "ben", "ada"] {
        test_env.ctl(&["send", agent, "hello"]).ok();
    }
    test_env.ctl(&["chat", "create", "desk", "--members", "ada,ben", "--gated"]).ok();
    test_env.ctl(&["chat", "send", "desk", "hello"]).ok();
    test_env.wait_until_quiet(Deadline::seconds(60));
    for (ask, arguments) in [
        (Ask { kinds: vec!["turn."], ..Ask::default() }, vec!["--kind", "turn.*"]),
        (
            Ask { kinds: vec!["turn.started", "message."], agent: Some("ada"), ..Ask::default() },
            vec!["--kind", "turn.started,message.*", "--agent", "ada"],
        ),
        (Ask { agent: Some("ben"), after: Some(3), ..Ask::default() }, vec!["--agent", "ben", "--after", "3"]),
        (Ask { channel: Some("desk"), ..Ask::default() }, vec!["--channel", "desk"]),
    ] {
        let expected = test_env.ctl(&[&["--json", "events"], arguments.as_slice()].concat()).json_lines();
        assert!(!expected.is_empty(), "{ask:?}");
        for way in WAYS {
            let events = runtime.block_on(async {
                let mut reader = Reader::open(&site, way, &ask).await;
                soon("what is stored", take(&mut reader, expected.len())).await
            });
            assert_eq!(events, expected, "{way:?} {ask:?}");
        }
    }
    daemon.stop();
}

/// The refusal in the form of the transport.
pub async fn refusal(site: &Site, way: Way, ask: &Ask) -> (String, Value) {
    match soon("a refusal", async { Reader::open(site, way, ask).await.next().await }).await {
        Received::Refused(how, why) => (how, why),
        other => panic!("{way:?} {ask:?}: {other:?}"),
    }
}

#[test]
fn invalid_subscriptions_are_refused_on_every_transport() {
    let (test_env, world) = test_env("");
    let runtime = runtime();
    let (daemon, _) = up(&test_env, &world);
    test_env.ctl(&["send", "ada", "hello"]).ok();
    test_env.wait_until_quiet(Deadline::seconds(60));
    daemon.stop();
    // Retention does this after days.
    let database = rusqlite::Connection::open(test_env.data("open").join("ghost.db")).unwrap();
    database.execute("DELETE FROM events WHERE seq <= 5", []).unwrap();
    database.close().unwrap();
    let (daemon, site) = up(&test_env, &world);
    runtime.block_on(async {
        let after = |after: i64| Ask { after: Some(after), ..Ask::default() };
        for (ask, how, code, words) in [
            (after(1_000_000), ["OutOfRange", "416", "4416"], "cursor_ahead", "1000000"),
            (after(2), ["FailedPrecondition", "410", "4410"], "cursor_expired", "6"),
            (after(-1), ["InvalidArgument", "400", "4400"], "invalid_arguments", "-1"),
            (
                Ask { kinds: vec!["turn.startd"], ..Ask::default() },
                ["InvalidArgument", "400", "4400"],
                "invalid_arguments",
                "turn.startd",
            ),
            (Ask { agent: Some("adda"), ..Ask::default() }, ["NotFound", "404", "4404"], "not_found", "adda"),
        ] {
            for (way, how) in WAYS.into_iter().zip(how) {
                let (outcome, why) = refusal(&site, way, &ask).await;
                assert_eq!((outcome.as_str(), why["code"].as_str()), (how, Some(code)), "{way:?} {ask:?}");
                assert!(why["message"].as_str().unwrap().contains(words), "{why}");
                match code {
                    "cursor_expired" => assert_eq!(why["details"]["first_seq"], 6, "{why}"),
                    "not_found" => assert!(why["hint"].as_str().unwrap().contains("`ada`"), "{why}"),
                    _ => {}
                }
            }
        }
        // A subscriber from the oldest event gets all kept events. One that has seen all pruned events misses nothing.
        for way in WAYS {
            for ask in [Ask::default(), after(5)] {
                let mut reader = Reader::open(&site, way, &ask).await;
                assert_eq!(soon("the oldest", take(&mut reader, 1)).await[0]["seq"], 6, "{way:?} {ask:?}");
            }
        }
    });
    test_env.ctl(&["events", "--after", "1000000"]).exits(2);
    test_env.ctl(&["events", "--after", "2"]).exits(3).says(&["6"]);
    daemon.stop();
}
