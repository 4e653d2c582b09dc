//! A slow subscriber is disconnected with its position, and slows no one.

use ghost_proto::v1::chat_client::ChatClient;
use ghost_proto::v1::{CreateChannelRequest, PostRequest};
use serde_json::Value;

use crate::support::{runtime, soon, take, test_env, up};
use crate::wires::{Ask, Reader, Received, Site, WAYS};

/// Bytes of a chat message, near the limit.
pub const POST: usize = 16_000;
/// Number of chat messages: more than all buffers between the daemon and a subscriber that does not
/// read.
const POSTS: usize = 600;

pub async fn post_many(site: &Site) {
    let mut chat = ChatClient::new(site.channel());
    let create = CreateChannelRequest {
        request_id: "c".into(),
        channel: "flood".into(),
        members: vec!["ada".into(), "ben".into()],
        gated: true,
        ..CreateChannelRequest::default()
    };
    chat.create(create).await.unwrap();
    for round in 0..POSTS / 20 {
        let posts: Vec<_> = (0..20)
            .map(|number| {
                let mut chat = chat.clone();
                let request = PostRequest {
                    request_id: format!("p-{round}-{number}"),
                    channel: "flood".into(),
                    content: "x".repeat(POST),
                    ..PostRequest::default()
                };
                tokio::spawn(async move { chat.post(request).await })
            })
            .collect();
        for post in posts {
            post.await.unwrap().unwrap();
        }
    }
}

// covers: CP-08
#[test]
fn a_subscriber_that_does_not_read_is_disconnected_and_slows_no_one() {
    let (test_env, world) = test_env("subscriber_buffer: 16, reader_stall_seconds: 600");
    let runtime = runtime();
    let (daemon, site) = up(&test_env, &world);
    runtime.block_on(async {
        let flood = Ask { kinds: vec!["chat.message"], narrow: false, ..Ask::default() };
        let mut slow = Vec::new();
        for way in WAYS {
            slow.push((way, Reader::open(&site, way, &Ask { narrow: true, ..flood.clone() }).await));
        }
        let quick: Vec<_> = WAYS
            .into_iter()
            .map(|way| {
                let (site, ask) = (site.clone(), flood.clone());
                tokio::spawn(async move {
                    let mut reader = Reader::open(&site, way, &ask).await;
                    take(&mut reader, POSTS).await
                })
            })
            .collect();
        soon("posts", post_many(&site)).await;
        let mut all: Vec<Vec<Value>> = Vec::new();
        for reader in quick {
            // Three others read nothing at the same time.
            all.push(soon("all posts", reader).await.unwrap());
        }
        assert!(all[0] == all[1] && all[1] == all[2]);
        let wanted: Vec<i64> = all[0].iter().map(|event| event["seq"].as_i64().unwrap()).collect();
        wait_until_disconnected(&site, 3).await;
        for (way, mut reader) in slow {
            let mut seen = Vec::new();
            let last = loop {
                match soon("the end of a slow reader", reader.next()).await {
                    Received::Event(event) => seen.push(event["seq"].as_i64().unwrap()),
                    Received::Lagged(last) => break last,
                    other => panic!("{way:?}: {other:?} after {}", seen.len()),
                }
            };
            assert!(seen.len() < POSTS, "{way:?} was cut off");
            assert!(seen.last().is_none_or(|seen| *seen <= last), "{way:?}");
            let mut resumed = Reader::open(&site, way, &Ask { after: Some(last), ..flood.clone() }).await;
            let rest = soon("the rest", take(&mut resumed, POSTS - seen.len())).await;
            seen.extend(rest.iter().map(|event| event["seq"].as_i64().unwrap()));
            assert_eq!(seen, wanted, "{way:?}: no gap and no double");
        }
    });
    daemon.stop();
}

/// Waits until the daemon's metrics count this many disconnected subscribers.
pub async fn wait_until_disconnected(site: &Site, readers: usize) {
    let wanted = format!("ghost_event_readers_cut_off_total {readers}");
    let bearer = format!("Bearer {}", site.token);
    let gone = async {
        loop {
            let (_, page) = site.get("/metrics", &[("Host", &site.http), ("Authorization", &bearer)]).await;
            if page.lines().any(|line| line == wanted) {
                return;
            }
        }
    };
    soon("the readers to be cut off", gone).await;
}
