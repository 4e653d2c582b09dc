//! The control plane from a foreign client's point of view: plain gRPC and plain HTTP against a real daemon.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ghost_proto::v1::agents_client::AgentsClient;
use ghost_proto::v1::events_client::EventsClient;
use ghost_proto::v1::messages_client::MessagesClient;
use ghost_proto::v1::tools_client::ToolsClient;
use ghost_proto::v1::world_client::WorldClient;
use ghost_proto::v1::{
    CallToolRequest, CreateAgentRequest, ListAgentsRequest, SendRequest, StatusRequest, SubscribeRequest,
};
use ghost_testkit::blackbox::{Daemon, Database, Deadline, EFFECTS, TestEnvironment, ghostd_testing};
use serde_json::Value;
use tokio::runtime::Runtime;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

fn test_env() -> (TestEnvironment, PathBuf) {
    let mut test_env = TestEnvironment::new(ghostd_testing());
    let effects = test_env.join("effects");
    test_env.set(EFFECTS, effects);
    let world = test_env.world("open");
    world
        .config(
            "agents: [{ id: ada, archetype: clerk }, { id: ben, archetype: clerk }]\n\
             agents_may_create: [clerk]\n\
             llm: { default_provider: scripted, default_model: clerk }\n",
        )
        .archetype("clerk", "")
        .write("scripts/clerk.yaml", "otherwise: [{ say: Here. }]\n");
    let path = world.path().to_owned();
    (test_env, path)
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// A channel to the daemon's socket. Must be called inside a runtime.
fn channel(test_env: &TestEnvironment) -> Channel {
    let socket = test_env.data("open").join("ghostd.sock");
    Endpoint::from_shared(format!("unix:{}", socket.display())).unwrap().connect_lazy()
}

/// The refusal in a status's trailer.
fn refusal(status: &Status) -> Value {
    let trailer = status.metadata().get_bin(ghost_proto::REFUSAL_TRAILER).expect("a refusal in the trailer");
    serde_json::from_slice(&trailer.to_bytes().unwrap()).unwrap()
}

fn send(request_id: &str, body: &str) -> SendRequest {
    SendRequest { request_id: request_id.into(), agent_id: "ada".into(), body: body.into(), ..SendRequest::default() }
}

/// Reads events after `after` until the stream ends or `enough` returns true. Returns their numbers and where to
/// continue.
async fn follow(channel: Channel, after: i64, mut enough: impl FnMut(i64) -> bool) -> (Vec<i64>, i64) {
    let mut seen = Vec::new();
    let mut position = after;
    let request = SubscribeRequest { after_seq: Some(after), follow: true, ..SubscribeRequest::default() };
    let Ok(stream) = EventsClient::new(channel).subscribe(request).await else { return (seen, position) };
    let mut stream = stream.into_inner();
    while let Ok(Some(message)) = stream.message().await {
        if let Some(event) = message.event {
            seen.push(event.seq);
        }
        position = position.max(message.position_seq);
        if enough(position) {
            break;
        }
    }
    (seen, position)
}

// covers: CP-06
#[test]
fn the_event_feed_resumes_over_kills_without_gap_or_repetition() {
    let (test_env, world) = test_env();
    let runtime = runtime();
    let (mut all, mut position) = (Vec::new(), 0);
    for round in 0..4 {
        let daemon = test_env.up(&world, &[]);
        let reader = runtime.spawn(follow(runtime.block_on(async { channel(&test_env) }), position, |_| false));
        for number in 0..5 {
            test_env.ctl(&["send", "ada", &format!("mail {round}.{number}")]).ok();
        }
        daemon.kill();
        // The stream ends when the daemon is killed.
        let (seen, reached) = runtime.block_on(reader).unwrap();
        all.extend(seen);
        position = reached;
    }
    let daemon = test_env.up(&world, &[]);
    test_env.wait_until_quiet(Deadline::seconds(30));
    let last = test_env.json(&["status"])["last_seq"].as_i64().unwrap();
    let (seen, _) = runtime.block_on(async { follow(channel(&test_env), position, |at| at >= last).await });
    all.extend(seen);
    daemon.kill();
    assert!(all.iter().copied().eq(1..=i64::try_from(all.len()).unwrap()), "{all:?}");
    assert!(i64::try_from(all.len()).unwrap() >= last);
    assert!(Database::open(&test_env.data("open")).number("SELECT max(seq) FROM events") >= last);
}

// covers: CP-01, CP-07
#[test]
fn three_subscribers_get_the_same_events() {
    let (test_env, world) = test_env();
    let runtime = runtime();
    let daemon = test_env.up(&world, &[]);
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let channel = runtime.block_on(async { channel(&test_env) });
            runtime.spawn(async move {
                let request = SubscribeRequest { after_seq: Some(0), follow: true, ..SubscribeRequest::default() };
                let mut stream = EventsClient::new(channel).subscribe(request).await.unwrap().into_inner();
                let mut events = Vec::new();
                while let Ok(Some(message)) = stream.message().await {
                    events.extend(message.event);
                    if events.last().is_some_and(|event| event.kind == "agent.stopped") {
                        break;
                    }
                }
                events
            })
        })
        .collect();
    for number in 0..20 {
        test_env.ctl(&["send", if number % 2 == 0 { "ada" } else { "ben" }, "hello"]).ok();
    }
    test_env.wait_until_quiet(Deadline::seconds(30));
    test_env.ctl(&["agent", "stop", "ben"]).ok();
    let read: Vec<_> = readers.into_iter().map(|reader| runtime.block_on(reader).unwrap()).collect();
    assert!(read[0].len() > 100);
    assert!(read[0] == read[1] && read[1] == read[2]);
    assert!(read[0].windows(2).all(|pair| pair[1].seq == pair[0].seq + 1));
    daemon.stop();
}

#[test]
fn a_repeated_request_has_one_effect_over_kills() {
    let (test_env, world) = test_env();
    let runtime = runtime();
    let daemon = test_env.up(&world, &[]);
    let first =
        runtime.block_on(async { MessagesClient::new(channel(&test_env)).send(send("r-1", "once")).await.unwrap() });
    let create = CreateAgentRequest {
        request_id: "r-2".into(),
        archetype: "clerk".into(),
        goal: Some("Say hello.".into()),
        ..CreateAgentRequest::default()
    };
    let made = runtime
        .block_on(async { AgentsClient::new(channel(&test_env)).create(create.clone()).await.unwrap().into_inner() });
    let effect = CallToolRequest {
        request_id: "r-3".into(),
        agent_id: "ada".into(),
        tool: "test.effect".into(),
        arguments_json: r#"{"arg": "operator"}"#.into(),
        timeout_ms: None,
    };
    let called = runtime
        .block_on(async { ToolsClient::new(channel(&test_env)).call(effect.clone()).await.unwrap().into_inner() });
    assert_eq!(called.status, "ok", "{called:?}");
    daemon.kill();

    let daemon = test_env.up(&world, &[]);
    runtime.block_on(async {
        let channel = channel(&test_env);
        let mut messages = MessagesClient::new(channel.clone());
        let again = messages.send(send("r-1", "once")).await.unwrap();
        assert_eq!(again.get_ref(), first.get_ref());
        let made_again = AgentsClient::new(channel.clone()).create(create).await.unwrap().into_inner();
        let id = |change: ghost_proto::v1::AgentChange| change.agent.unwrap().agent_id;
        assert_eq!(id(made_again), id(made));
        let called_again = ToolsClient::new(channel).call(effect).await.unwrap().into_inner();
        assert_eq!(called_again, called);
        // The same request id with other content is an error of the caller.
        let other = messages.send(send("r-1", "twice")).await.unwrap_err();
        assert!(matches!(other.code(), Code::FailedPrecondition | Code::Aborted | Code::AlreadyExists), "{other:?}");
        assert_eq!(refusal(&other)["code"], "conflict");
        let nameless = messages.send(send("", "nameless")).await.unwrap_err();
        assert_eq!(nameless.code(), Code::InvalidArgument);
    });
    test_env.wait_until_quiet(Deadline::seconds(30));
    daemon.stop();
    let database = Database::open(&test_env.data("open"));
    assert_eq!(database.number("SELECT count(*) FROM messages WHERE body = 'once'"), 1);
    assert_eq!(database.number("SELECT count(*) FROM agents"), 3);
    assert_eq!(std::fs::read_to_string(test_env.join("effects")).unwrap().lines().count(), 1);
}

// covers: CP-10
#[test]
fn refusals_have_the_same_hint_on_every_transport() {
    let (test_env, world) = test_env();
    let runtime = runtime();
    let daemon = test_env.up(&world, &["--http", "127.0.0.1:0"]);
    let status = runtime.block_on(async {
        let request = SendRequest { agent_id: "adda".into(), ..send("r-9", "x") };
        MessagesClient::new(channel(&test_env)).send(request).await.unwrap_err()
    });
    assert_eq!(status.code(), Code::NotFound);
    let refusal = refusal(&status);
    assert_eq!(refusal["code"], "not_found");
    test_env.ctl(&["send", "adda", "x"]).exits(3).says(&[refusal["hint"].as_str().unwrap()]);
    daemon.stop();
}

// covers: CP-11
#[test]
fn health_and_reflection_answer() {
    use tonic_health::pb::HealthCheckRequest;
    use tonic_health::pb::health_client::HealthClient;
    use tonic_reflection::pb::v1::ServerReflectionRequest;
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

    let (test_env, world) = test_env();
    let daemon = test_env.up(&world, &[]);
    runtime().block_on(async {
        let channel = channel(&test_env);
        let health = HealthClient::new(channel.clone()).check(HealthCheckRequest::default()).await.unwrap();
        assert_eq!(health.into_inner().status().as_str_name(), "SERVING");
        let request = ServerReflectionRequest {
            message_request: Some(MessageRequest::ListServices(String::new())),
            ..ServerReflectionRequest::default()
        };
        let mut answers = ServerReflectionClient::new(channel)
            .server_reflection_info(tokio_stream::once(request))
            .await
            .unwrap()
            .into_inner();
        let Some(MessageResponse::ListServicesResponse(list)) =
            answers.message().await.unwrap().unwrap().message_response
        else {
            panic!("no list of services");
        };
        let names: BTreeSet<String> = list.service.into_iter().map(|service| service.name).collect();
        for service in ["World", "Agents", "Turns", "Tools", "Messages", "Tasks", "Budgets", "Ledger", "Events"] {
            assert!(names.contains(&format!("ghost.v1.{service}")), "{service} is not in {names:?}");
        }
    });
    daemon.stop();
}

/// The address of a daemon with one TCP endpoint, from its output.
fn address(daemon: &Daemon) -> String {
    let line = daemon.wait_for_line("the endpoint", Deadline::seconds(10), |line| line.contains("127.0.0.1:"));
    line[line.find("127.0.0.1:").unwrap()..].trim_end_matches('/').to_owned()
}

/// Sends one HTTP request. Returns status and body.
fn http(address: &str, path: &str, headers: &[(&str, &str)]) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut request = format!("GET {path} HTTP/1.1\r\nConnection: close\r\n");
    if !headers.iter().any(|(name, _)| *name == "Host") {
        request.push_str(&format!("Host: {address}\r\n"));
    }
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(format!("{request}\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("{answer}"));
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status, body.to_owned())
}

fn token(data: &Path) -> String {
    let file = data.join("token");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    std::fs::read_to_string(file).unwrap().trim().to_owned()
}

// covers: CP-10
#[test]
fn tcp_needs_the_token() {
    let (test_env, world) = test_env();
    let socket = format!("unix:{}", test_env.data("open").join("ghostd.sock").display());
    let daemon = test_env.up(&world, &["--listen", &socket, "--listen", "127.0.0.1:0"]);
    let address = address(&daemon);
    let token = token(&test_env.data("open"));
    runtime().block_on(async {
        let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect_lazy();
        let mut world = WorldClient::new(channel.clone());
        let none = world.status(StatusRequest {}).await.unwrap_err();
        assert_eq!(none.code(), Code::Unauthenticated);
        assert!(none.metadata().contains_key("ghost-refusal-bin"), "{none:?}");
        let mut wrong = Request::new(StatusRequest {});
        wrong.metadata_mut().insert("authorization", "Bearer nonsense".parse().unwrap());
        assert_eq!(world.status(wrong).await.unwrap_err().code(), Code::Unauthenticated);
        let mut right = Request::new(ListAgentsRequest::default());
        right.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        assert_eq!(AgentsClient::new(channel).list(right).await.unwrap().into_inner().agents.len(), 2);
    });
    test_env.ctl(&["--endpoint", &address, "--token", &token, "status"]).ok();
    test_env.ctl(&["--endpoint", &address, "--token", "nonsense", "status"]).exits(4).says(&["hint: ", "--token"]);
    daemon.stop();
}

// covers: WORLD-15
#[test]
fn a_shutdown_returns_when_the_daemon_has_ended() {
    let (test_env, world) = test_env();
    let log = test_env.data("open").join("ghost.db-wal");
    for _ in 0..3 {
        let mut daemon = test_env.up(&world, &[]);
        test_env.ctl(&["send", "ada", "hello"]).ok();
        test_env.ctl(&["shutdown"]).ok();
        assert!(daemon.has_ended(), "its process has ended");
        assert!(!log.exists(), "its database is closed");
    }
    // A client over TCP cannot watch the process. But the listeners close after the database, and the next daemon
    // waits for the lock.
    for _ in 0..3 {
        let daemon = test_env.up(&world, &["--listen", "127.0.0.1:0"]);
        let (address, token) = (address(&daemon), token(&test_env.data("open")));
        test_env.ctl(&["--endpoint", &address, "--token", &token, "send", "ada", "hello"]).ok();
        test_env.ctl(&["--endpoint", &address, "--token", &token, "shutdown"]).ok();
        assert!(!log.exists(), "its database is closed");
    }
    test_env.up(&world, &[]).stop();
}

/// Creates an authority and certificates that it signs, as the PEM files `<name>.pem` and `<name>.key`.
fn certificates(test_env: &TestEnvironment, authority: &str, names: &[(&str, rcgen::ExtendedKeyUsagePurpose)]) {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    std::fs::write(test_env.join(format!("{authority}.pem")), issuer.pem()).unwrap();
    for (name, usage) in names {
        let mut params = CertificateParams::new(vec!["localhost".into(), "127.0.0.1".into()]).unwrap();
        params.extended_key_usages = vec![usage.clone()];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        std::fs::write(test_env.join(format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(test_env.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}

/// Sets this certificate and this trusted authority for all programs that start later.
fn use_certificate(test_env: &mut TestEnvironment, name: Option<&str>, authority: &str) {
    test_env.unset("GHOST_TLS_CERT").unset("GHOST_TLS_KEY");
    if let Some(name) = name {
        let (certificate, key) = (test_env.join(format!("{name}.pem")), test_env.join(format!("{name}.key")));
        test_env.set("GHOST_TLS_CERT", certificate).set("GHOST_TLS_KEY", key);
    }
    let authority = test_env.join(format!("{authority}.pem"));
    test_env.set("GHOST_TLS_CA", authority);
}

// covers: CP-10
#[test]
fn mutual_tls_accepts_only_certificates_of_its_authority() {
    use rcgen::ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
    let (mut test_env, world) = test_env();
    certificates(&test_env, "ours", &[("server", ServerAuth), ("friend", ClientAuth)]);
    certificates(&test_env, "theirs", &[("stranger", ClientAuth)]);
    use_certificate(&mut test_env, Some("server"), "ours");
    let daemon = test_env.up(&world, &["--listen", "127.0.0.1:0"]);
    let endpoint = format!("https://{}", address(&daemon));
    let ask = ["--timeout", "1s", "--endpoint", &endpoint, "--json", "task", "create", "Knock", "--owner", "ada"];
    use_certificate(&mut test_env, Some("friend"), "ours");
    let task = test_env.ctl(&ask).json();
    assert!(task["creator"].as_str().unwrap().starts_with("operator:certificate-"), "{task}");
    for (certificate, trusted) in [(None, "ours"), (Some("stranger"), "ours"), (Some("friend"), "theirs")] {
        use_certificate(&mut test_env, certificate, trusted);
        let refused = test_env.ctl(&ask);
        // The daemon may close the connection before its reason arrives.
        assert!(matches!(refused.code, Some(4 | 5)), "{certificate:?}: {:?} {}", refused.code, refused.err);
        refused.says(&["GHOST_TLS_CERT"]);
    }
    // Errors that the client finds itself are reported at once.
    test_env.ctl(&ask).exits(4).says(&["certificate"]);
    use_certificate(&mut test_env, Some("friend"), "ours");
    let tasks = test_env.ctl(&["--endpoint", &endpoint, "--json", "task", "list"]).json();
    assert_eq!(tasks.as_array().unwrap().len(), 1, "no other client had access");
    // A key that does not fit its certificate is reported before anything serves.
    daemon.stop();
    let key = test_env.join("friend.key");
    use_certificate(&mut test_env, Some("server"), "ours");
    test_env.set("GHOST_TLS_KEY", key);
    let path = world.to_str().unwrap();
    let mixed = test_env.ghostd(&["up", path, "--listen", "127.0.0.1:0"]);
    mixed.exits(2).says(&["GHOST_TLS_CERT"]);
}

// covers: CONF-29, CP-02, CP-11
#[test]
fn http_routes_answer_only_authorized_clients() {
    let (test_env, world) = test_env();
    let daemon = test_env.up(&world, &["--http", "127.0.0.1:0"]);
    let address = address(&daemon);
    for path in ["/healthz", "/readyz"] {
        assert_eq!(http(&address, path, &[]).0, 200, "{path}");
    }
    let bearer = format!("Bearer {}", token(&test_env.data("open")));
    let authorized = [("Authorization", bearer.as_str())];
    let (status, body) = http(&address, "/api/agents/ada/tools", &authorized);
    assert_eq!(status, 200, "{body}");
    let tools: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(tools, test_env.json(&["tool", "list", "ada"]));
    let (status, body) = http(&address, "/api/agents/ada/tools/brief", &authorized);
    assert_eq!((status, body.as_str()), (200, test_env.ctl(&["tool", "brief", "ada"]).ok().out.as_str()));
    let (status, body) = http(&address, "/api/agents/adda/tools", &authorized);
    let refusal: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, refusal["error"]["code"].as_str()), (404, Some("not_found")));
    assert!(matches!(http(&address, "/api/agents/ada/tools", &[]).0, 401 | 403));
    assert!(matches!(http(&address, "/metrics", &[]).0, 401 | 403));
    let (status, metrics) = http(&address, "/metrics", &authorized);
    assert_eq!(status, 200);
    assert!(metrics.lines().any(|line| line.starts_with("ghost_")), "{metrics}");
    // A web page whose own host name resolves to this machine is refused.
    let (status, _) = http(&address, "/api/agents/ada/tools", &[authorized[0], ("Host", "evil.example")]);
    assert!((400..500).contains(&status), "{status}");
    daemon.stop();
}
