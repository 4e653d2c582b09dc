//! Changes of the tools.

use futures_util::FutureExt as _;

use super::fake::{Fake, link, open, plain};
use ghost_mcp::{Connection, Options};
use serde_json::{Value, json};

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

async fn acknowledge(fake: &mut Fake, listen: &Value) {
    let params = json!({"_meta": {SUBSCRIPTION: listen["id"]}, "notifications": {"toolsListChanged": true}});
    let method = "notifications/subscriptions/acknowledged";
    assert!(fake.send(json!({"jsonrpc": "2.0", "method": method, "params": params})).await);
}

async fn change(fake: &mut Fake, listen: Option<&Value>) {
    let mut message = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    if let Some(listen) = listen {
        message["params"] = json!({"_meta": {SUBSCRIPTION: listen["id"]}});
    }
    assert!(fake.send(message).await);
}

#[tokio::test]
async fn the_older_notification_is_a_change() {
    let (connection, mut fake) = open(plain()).await;
    assert_eq!(connection.changed().now_or_never(), None);
    for _ in 0..2 {
        change(&mut fake, None).await;
        assert_eq!(connection.changed().await, Ok(()));
    }
    assert_eq!(connection.changed().now_or_never(), None);
}

#[tokio::test]
async fn a_modern_server_is_listened_to() {
    let (link, mut fake) = link();
    let (connection, _) = tokio::join!(Connection::open(link, Options::default()), fake.start_modern(true));
    let connection = connection.unwrap();
    let listen = fake.expect("subscriptions/listen").await;
    assert_eq!(listen["params"]["notifications"], json!({"toolsListChanged": true}));
    acknowledge(&mut fake, &listen).await;
    // More than the buffer of a subscription holds.
    for _ in 0..100 {
        change(&mut fake, Some(&listen)).await;
    }
    assert_eq!(connection.changed().await, Ok(()));
}

#[tokio::test]
async fn a_server_that_refuses_to_be_listened_to_stays_connected() {
    let (link, mut fake) = link();
    let (connection, _) = tokio::join!(Connection::open(link, Options::default()), fake.start_modern(true));
    let connection = connection.unwrap();
    let listen = fake.expect("subscriptions/listen").await;
    fake.refuse(&listen, -32_601, "unknown method").await;
    let (tools, ()) = tokio::join!(connection.tools(), async {
        let request = fake.expect("tools/list").await;
        fake.reply(&request, json!({"resultType": "complete", "tools": []})).await;
    });
    assert_eq!(tools.unwrap().items, []);
    assert_eq!(connection.closed_reason(), None);
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_ends_is_opened_again_within_a_bound() {
    let (link, mut fake) = link();
    let mut options = Options::default();
    options.limits.listens = 2;
    let (connection, _) = tokio::join!(Connection::open(link, options), fake.start_modern(true));
    let connection = connection.unwrap();
    for round in 0..3 {
        let listen = fake.expect("subscriptions/listen").await;
        acknowledge(&mut fake, &listen).await;
        fake.reply(&listen, json!({"resultType": "complete", "_meta": {SUBSCRIPTION: listen["id"]}})).await;
        if round > 0 {
            assert_eq!(connection.changed().await, Ok(()), "nobody listened for a moment");
        }
    }
    // The time of the runtime stands still, so this is long enough for any further attempt.
    tokio::time::sleep(std::time::Duration::from_secs(600)).await;
    let (tools, ()) = tokio::join!(connection.tools(), async {
        let request = fake.expect("tools/list").await;
        fake.reply(&request, json!({"resultType": "complete", "tools": []})).await;
    });
    assert_eq!(tools.unwrap().items, []);
}

#[tokio::test]
async fn a_modern_server_that_reports_nothing_is_not_listened_to() {
    let (link, mut fake) = link();
    let (connection, _) = tokio::join!(Connection::open(link, Options::default()), fake.start_modern(false));
    let connection = connection.unwrap();
    let (tools, ()) = tokio::join!(connection.tools(), async {
        let request = fake.expect("tools/list").await;
        fake.reply(&request, json!({"resultType": "complete", "tools": []})).await;
    });
    assert_eq!(tools.unwrap().items, []);
}
