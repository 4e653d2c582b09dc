//! The start of a connection.

use std::time::Duration;

use super::fake::{link, open, open_modern, plain, text};
use ghost_mcp::{ClosedReason, Connection, Lifecycle, OpenError, Options};
use serde_json::json;

#[tokio::test]
async fn a_server_that_refuses_discover_gets_the_older_handshake_on_the_same_streams() {
    let (link, mut fake) = link();
    let (connection, request) = tokio::join!(Connection::open(link, Options::default()), fake.start_old());
    let connection = connection.unwrap();
    assert_eq!(request["params"]["protocolVersion"], "2025-11-25");
    assert_eq!(request["params"]["clientInfo"]["name"], "ghost");
    let server = connection.server();
    assert_eq!((server.protocol.as_str(), server.is_modern), ("2025-11-25", false));
    assert_eq!(server.name.as_deref(), Some("fake"));
    assert_eq!(server.instructions.as_deref(), Some("Be kind."));
    assert!(server.has_tools && server.has_resources && server.has_prompts && server.reports_changes);
}

#[tokio::test]
async fn a_modern_server_gets_no_handshake_and_its_version_with_every_request() {
    let (connection, mut fake) = open_modern(Options::default()).await;
    assert!(connection.server().is_modern);
    let (tools, ()) = tokio::join!(connection.tools(), async {
        let request = fake.expect("tools/list").await;
        assert_eq!(request["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
        fake.reply(&request, json!({"resultType": "complete", "tools": []})).await;
    });
    assert_eq!(tools.unwrap().items, []);
}

#[tokio::test]
async fn sampling_and_roots_are_never_declared_and_elicitation_only_with_a_handler() {
    let (link, mut fake) = link();
    let (_connection, request) = tokio::join!(Connection::open(link, plain()), fake.initialize());
    assert_eq!(request["params"]["capabilities"], json!({}));
}

#[tokio::test]
async fn a_server_that_ends_at_discover_is_a_typed_error() {
    let (link, mut fake) = link();
    let server = async move {
        fake.expect("server/discover").await;
    };
    let (connection, ()) = tokio::join!(Connection::open(link, Options::default()), server);
    assert_eq!(connection.unwrap_err(), OpenError::ClosedOnDiscover);
}

#[tokio::test]
async fn a_server_that_ends_in_the_older_handshake_is_another_error() {
    let (link, mut fake) = link();
    let server = async move {
        fake.expect("initialize").await;
    };
    let (connection, ()) = tokio::join!(Connection::open(link, plain()), server);
    assert_eq!(connection.unwrap_err(), OpenError::Closed { reason: ClosedReason::Ended });
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_nothing_at_all_ends_the_start_in_time() {
    for lifecycle in [Lifecycle::Auto, Lifecycle::Initialize] {
        let (link, _fake) = link();
        let after = Duration::from_secs(15);
        let options = Options { lifecycle, start_timeout: after, ..Options::default() };
        assert_eq!(Connection::open(link, options).await.unwrap_err(), OpenError::Timeout { after });
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_discover_too_late_still_starts() {
    let (link, mut fake) = link();
    let server = async {
        let discover = fake.expect("server/discover").await;
        let initialize = fake.expect("initialize").await;
        fake.refuse(&discover, -32_601, "unknown method").await;
        let info = json!({"name": "late", "version": "1"});
        let result = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": info});
        fake.reply(&initialize, result).await;
        fake.expect("notifications/initialized").await;
    };
    let (connection, ()) = tokio::join!(Connection::open(link, Options::default()), server);
    assert_eq!(connection.unwrap().server().protocol, "2025-06-18");
}

#[tokio::test]
async fn a_protocol_version_that_nobody_knows_is_refused() {
    let (link, mut fake) = link();
    let server = async {
        let request = fake.expect("initialize").await;
        let info = json!({"name": "odd", "version": "1"});
        fake.reply(&request, json!({"protocolVersion": "1999-01-01", "capabilities": {}, "serverInfo": info})).await;
        fake
    };
    let (connection, _fake) = tokio::join!(Connection::open(link, plain()), server);
    assert_eq!(connection.unwrap_err(), OpenError::NoCommonVersion { server: vec!["1999-01-01".to_owned()] });
}

#[tokio::test]
async fn a_refused_handshake_and_a_senseless_one_are_typed_errors() {
    let (stream, mut fake) = link();
    let refusing = async {
        let request = fake.expect("initialize").await;
        fake.refuse(&request, -32_000, "no\nentry").await;
    };
    let (connection, ()) = tokio::join!(Connection::open(stream, plain()), refusing);
    let refused = OpenError::Refused { code: -32_000, message: "no entry".to_owned() };
    assert_eq!(connection.unwrap_err(), refused);

    let (stream, mut fake) = link();
    let senseless = async {
        let request = fake.expect("initialize").await;
        fake.reply(&request, json!({"hello": 1})).await;
    };
    let (connection, ()) = tokio::join!(Connection::open(stream, plain()), senseless);
    assert!(matches!(connection, Err(OpenError::Malformed { .. })), "{connection:?}");
}

#[tokio::test]
async fn an_answer_with_its_number_as_text_is_accepted() {
    let (connection, mut fake) = open(plain()).await;
    let (result, ()) = tokio::join!(connection.call("echo", super::fake::none(), Default::default(), |_| ()), async {
        let request = fake.expect("tools/call").await;
        let id = request["id"].as_i64().unwrap().to_string();
        assert!(fake.send(json!({"jsonrpc": "2.0", "id": id, "result": text("hi")})).await);
    });
    assert_eq!(result.unwrap().text(), "hi");
}
