//! A subscriber that accepts no data loses its connection within a time limit on every transport, and
//! releases its permit for another.

use ghost_proto::v1::agents_client::AgentsClient;
use ghost_proto::v1::conversations_client::ConversationsClient;
use ghost_proto::v1::events_client::EventsClient;
use ghost_proto::v1::{ListAgentsRequest, SayRequest, SubscribeRequest, WatchConversationRequest};
use tonic::transport::Endpoint;

use crate::slow::{POST, post_many, wait_until_disconnected};
use crate::support::{runtime, soon, take, test_env, up};
use crate::wires::{Ask, Reader, Received, Site, Way};

const LIMITS: &str = "subscriber_buffer: 16, subscribers_max: 1, reader_stall_seconds: 1";

/// Waits until another subscriber can get a permit.
async fn wait_for_room(site: &Site) {
    let room = async {
        loop {
            let mut reader = Reader::open(site, Way::Grpc, &Ask::default()).await;
            match reader.next().await {
                Received::Event(_) => return,
                Received::Refused(..) => {}
                other => panic!("{other:?}"),
            }
        }
    };
    soon("room for a reader", room).await;
}

/// Reads to the end. Returns the final status.
async fn end<T>(stream: &mut tonic::Streaming<T>) -> tonic::Status {
    let end = async {
        loop {
            match stream.message().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("it ended well"),
                Err(status) => return status,
            }
        }
    };
    soon("the end", end).await
}

#[test]
fn a_stalled_grpc_subscriber_loses_its_connection_and_can_connect_again() {
    let (test_env, world) = test_env(LIMITS);
    let runtime = runtime();
    let (daemon, site) = up(&test_env, &world);
    runtime.block_on(async {
        let endpoint = Endpoint::from_shared(format!("unix:{}", site.socket.display())).unwrap();
        let channel = endpoint.initial_stream_window_size(65_535).connect().await.unwrap();
        let kinds = vec!["chat.message".to_owned()];
        let request = SubscribeRequest { kinds, follow: true, ..SubscribeRequest::default() };
        let mut stream = EventsClient::new(channel.clone()).subscribe(request).await.unwrap().into_inner();
        soon("posts", post_many(&site)).await;
        wait_until_disconnected(&site, 1).await;
        wait_for_room(&site).await;
        // The daemon sent no status: its trailer did not fit into the window.
        let status = end(&mut stream).await;
        assert!(std::error::Error::source(&status).is_some(), "{status:?}");
        let agents = AgentsClient::new(channel).list(ListAgentsRequest::default()).await.unwrap();
        assert_eq!(agents.into_inner().agents.len(), 2);
    });
    daemon.stop();
}

#[test]
fn a_stalled_conversation_stream_is_closed() {
    let (test_env, world) = test_env(LIMITS);
    let runtime = runtime();
    let (daemon, site) = up(&test_env, &world);
    test_env.ctl(&["agent", "stop", "ada"]).ok();
    runtime.block_on(async {
        let mut client = ConversationsClient::new(site.channel());
        let request = |number: usize| SayRequest {
            request_id: format!("say-{number}"),
            agent_id: Some("ada".into()),
            content: "x".repeat(POST),
            ..SayRequest::default()
        };
        let first = client.say(request(0)).await.unwrap().into_inner();
        let id = first.conversation.unwrap().conversation_id;
        for number in 1..160 {
            let more = SayRequest { conversation_id: Some(id.clone()), agent_id: None, ..request(number) };
            client.say(more).await.unwrap();
        }
        let endpoint = Endpoint::from_shared(format!("unix:{}", site.socket.display())).unwrap();
        let channel = endpoint.initial_stream_window_size(65_535).connect().await.unwrap();
        let request = WatchConversationRequest { conversation_id: id, after_seq: 0 };
        let mut stream = ConversationsClient::new(channel.clone()).watch(request).await.unwrap().into_inner();
        wait_until_disconnected(&site, 1).await;
        wait_for_room(&site).await;
        let status = end(&mut stream).await;
        assert!(std::error::Error::source(&status).is_some(), "{status:?}");
    });
    daemon.stop();
}

#[test]
fn a_stalled_reader_of_server_sent_events_is_closed() {
    let (test_env, world) = test_env(LIMITS);
    let runtime = runtime();
    let (daemon, site) = up(&test_env, &world);
    runtime.block_on(async {
        let ask = Ask { kinds: vec!["chat.message"], narrow: true, ..Ask::default() };
        let mut reader = Reader::open(&site, Way::Sse, &ask).await;
        soon("posts", post_many(&site)).await;
        wait_for_room(&site).await;
        let rest = async {
            loop {
                match reader.next().await {
                    Received::Event(_) => {}
                    other => return other,
                }
            }
        };
        assert!(matches!(soon("the end", rest).await, Received::Lost), "no status could be sent");
        let mut next = Reader::open(&site, Way::Sse, &Ask::default()).await;
        assert_eq!(soon("an event", take(&mut next, 1)).await.len(), 1);
    });
    daemon.stop();
}
