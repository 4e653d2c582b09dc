//! A conversation whose beginning was pruned: a reader gets the kept entries, and is refused if it would miss some.

use ghost_proto::v1::conversations_client::ConversationsClient;
use ghost_proto::v1::{GetConversationRequest, WatchConversationRequest};
use tonic::transport::Endpoint;

use crate::desk::{desk, talk};

#[test]
fn a_reader_that_would_miss_entries_is_refused() {
    let (test_env, world) = desk("");
    let daemon = test_env.up(&world, &[]);
    let lines = talk(&test_env, &["ada"], "one\ntwo\nthree\n").json_lines();
    let id = lines[0]["conversation_id"].as_str().unwrap().to_owned();
    daemon.stop();
    // Retention does this after months.
    let database = rusqlite::Connection::open(test_env.data("desk").join("ghost.db")).unwrap();
    database.execute("DELETE FROM conversation_entries WHERE seq <= 3", []).unwrap();
    database.close().unwrap();
    let daemon = test_env.up(&world, &[]);
    let shown = test_env.json(&["conversation", "show", &id]);
    assert_eq!(shown["entries"][0]["seq"], 4, "what is kept");
    assert_eq!(test_env.json(&["conversation", "show", &id, "--after", "3"])["entries"][0]["seq"], 4);
    let gone = test_env.ctl(&["conversation", "show", &id, "--after", "2"]);
    gone.exits(3).says(&["4"]);
    let socket = test_env.data("desk").join("ghostd.sock");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let channel = Endpoint::from_shared(format!("unix:{}", socket.display())).unwrap().connect_lazy();
        let mut client = ConversationsClient::new(channel);
        let get = GetConversationRequest { conversation_id: id.clone(), after_seq: Some(1), limit: 10 };
        assert_eq!(client.get(get).await.unwrap_err().code(), tonic::Code::FailedPrecondition);
        let watch = |after_seq| WatchConversationRequest { conversation_id: id.clone(), after_seq };
        let mut stream = client.watch(watch(1)).await.unwrap().into_inner();
        let status = stream.message().await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::FailedPrecondition, "{status:?}");
        let mut stream = client.watch(watch(0)).await.unwrap().into_inner();
        assert!(stream.message().await.unwrap().is_some());
    });
    talk(&test_env, &["ada", "--conversation", &id], "four\n").exits(0);
    daemon.stop();
}
