//! The proxy: tunnels and requests, the same rules as fetches, and its bounds.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Names, Server, TestWeb, http, open_for, page, plan};
use ghost_config::plan::WebPlan;
use ghost_config::plan::web::WebTarget;
use ghost_web::machine_tls;
use ghost_web::proxy::{Hosts, Proxy, ProxyBounds};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::net::{TcpListener, TcpStream};

fn only(hosts: &[&str]) -> Hosts {
    Hosts::Only(hosts.iter().map(|text| WebTarget::parse(text).unwrap()).collect())
}

/// A stream to a proxy, as a sandbox's runner has it.
fn through(proxy: &Arc<Proxy>) -> DuplexStream {
    let (near, far) = tokio::io::duplex(1 << 16);
    tokio::spawn(Arc::clone(proxy).serve_stream(far));
    near
}

/// Sends bytes through the proxy, and reads until it closes the connection.
async fn talk(proxy: &Arc<Proxy>, request: &str) -> String {
    let mut stream = through(proxy);
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// Reads until the end of a head.
async fn head(stream: &mut DuplexStream) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        bytes.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(bytes).unwrap()
}

/// A server that sends back what it gets.
async fn echo() -> (std::net::SocketAddr, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
            });
        }
    });
    (address, task)
}

// covers: SBX-07
#[tokio::test]
async fn requests_go_on_without_what_belongs_to_one_connection() {
    let server = Server::answering(|asked| {
        let body = [asked.head.as_bytes(), b"|", &asked.body].concat();
        http("200 OK", "X-Kept: 1\r\nProxy-Authenticate: x\r\nKeep-Alive: 5\r\n", &body)
    })
    .await;
    let web = TestWeb::new(&open_for(&[&server]));
    let proxy = web.proxy(Hosts::All, ProxyBounds::default());
    let place = server.address;
    let answer = talk(
        &proxy,
        &format!(
            "POST http://{place}/a?b HTTP/1.1\r\nHost: other.example\r\nProxy-Authorization: Basic x\r\nConnection: x-hop, close\r\n\
             X-Hop: 1\r\nUpgrade: websocket\r\nX-End: 2\r\nContent-Length: 3\r\n\r\nabc"
        ),
    )
    .await;
    let (answered, echoed) = answer.split_once("\r\n\r\n").unwrap();
    assert!(answered.starts_with("HTTP/1.1 200 OK\r\n") && answered.contains("x-kept: 1"), "{answer}");
    assert!(
        !answered.to_lowercase().contains("proxy-auth") && !answered.to_lowercase().contains("keep-alive"),
        "{answer}"
    );
    assert!(echoed.starts_with("POST /a?b HTTP/1.1\r\n") && echoed.ends_with("|abc"), "{echoed}");
    assert!(echoed.contains(&format!("host: {place}\r\n")) && echoed.contains("x-end: 2"), "{echoed}");
    for gone in ["other.example", "proxy-authorization", "x-hop", "websocket"] {
        assert!(!echoed.contains(gone), "{gone}: {echoed}");
    }
    // Two requests on one connection, to two servers.
    let second = Server::answering(|_| page("text/plain", b"second")).await;
    let web = TestWeb::new(&open_for(&[&server, &second]));
    let proxy = web.proxy(Hosts::All, ProxyBounds::default());
    let both = format!(
        "GET http://{place}/ HTTP/1.1\r\n\r\nGET http://{}/ HTTP/1.1\r\nConnection: close\r\n\r\n",
        second.address
    );
    let answer = talk(&proxy, &both).await;
    assert!(answer.matches("HTTP/1.1 200 OK").count() == 2 && answer.ends_with("second"), "{answer}");
}

// covers: BI-13b, SBX-04
#[tokio::test]
async fn the_rules_of_fetches_hold_in_the_proxy_and_its_own_list_narrows_them() {
    let server = Server::answering(|_| page("text/plain", b"here")).await;
    let port = server.address.port();
    let names =
        || Names::of(&[("site.example", &[&["127.0.0.1"], &["10.0.0.1"]]), ("inside.example", &[&["10.0.0.1"]])]);
    let with = |plan: &WebPlan, hosts: Hosts| {
        let web = TestWeb::with(plan, names(), machine_tls().unwrap(), &|_| None);
        web.proxy(hosts, ProxyBounds::default())
    };
    let closed = with(&WebPlan::default(), Hosts::All);
    for host in [
        format!("127.0.0.1:{port}"),
        format!("2130706433:{port}"),
        format!("0x7f.1:{port}"),
        format!("localhost:{port}"),
        format!("[::1]:{port}"),
        format!("[::ffff:127.0.0.1]:{port}"),
        "169.254.169.254:80".into(),
        "inside.example:80".into(),
        format!("site.example:{port}"),
    ] {
        let answer = talk(&closed, &format!("CONNECT {host} HTTP/1.1\r\n\r\n")).await;
        assert!(
            answer.starts_with("HTTP/1.1 403 ") && answer.contains("x-ghost-refusal: policy_denied"),
            "{host}: {answer}"
        );
        let answer = talk(&closed, &format!("GET http://{host}/ HTTP/1.1\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 403 "), "{host}: {answer}");
    }
    for bad in [
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET https://a.example/ HTTP/1.1\r\n\r\n",
        "GET ftp://a.example/ HTTP/1.1\r\n\r\n",
        "GET http://u:p@a.example/ HTTP/1.1\r\n\r\n",
        "CONNECT a.example HTTP/1.1\r\n\r\n",
        "nonsense\r\n\r\n",
    ] {
        let answer = talk(&closed, bad).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{bad}: {answer}");
    }
    assert!(server.asked().is_empty());
    // The list of the owner comes first, and opens nothing by itself.
    let get = |host: &str| format!("GET http://{host}/ HTTP/1.1\r\nConnection: close\r\n\r\n");
    let open = open_for(&[&server]);
    let listed = with(&open, only(&["site.example"]));
    assert!(talk(&listed, &get(&format!("site.example:{port}"))).await.ends_with("here"));
    for other in [format!("127.0.0.1:{port}"), "inside.example".into(), "x.site.example".into()] {
        assert!(talk(&listed, &get(&other)).await.starts_with("HTTP/1.1 403 "), "{other}");
    }
    // The second look-up of the name leads inside.
    assert!(talk(&listed, &get(&format!("site.example:{port}"))).await.starts_with("HTTP/1.1 403 "));
    assert!(talk(&with(&open, only(&[])), &get(&format!("127.0.0.1:{port}"))).await.starts_with("HTTP/1.1 403 "));
    assert!(
        talk(&with(&WebPlan::default(), only(&["127.0.0.1"])), &get(&format!("127.0.0.1:{port}")))
            .await
            .starts_with("HTTP/1.1 403 ")
    );
    assert_eq!(server.asked().len(), 1);
    let gone = talk(&with(&plan(&["127.0.0.1:1"]), Hosts::All), &get("127.0.0.1:1")).await;
    assert!(gone.starts_with("HTTP/1.1 502 "), "{gone}");
}

// covers: SBX-07
#[tokio::test]
async fn a_tunnel_carries_bytes_both_ways_and_ends_with_its_listener() {
    let (address, _echo) = echo().await;
    let web = TestWeb::new(&plan(&[&address.to_string()]));
    let proxy = web.proxy(Hosts::All, ProxyBounds::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let listening = tokio::spawn(Arc::clone(&proxy).listen(listener));
    let mut client = TcpStream::connect(at).await.unwrap();
    // The bytes after the head belong to the tunnel.
    client.write_all(format!("CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n\r\nearly ").as_bytes()).await.unwrap();
    let mut answer = vec![0; "HTTP/1.1 200 OK\r\n".len()];
    client.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, b"HTTP/1.1 200 OK\r\n");
    let mut seen = Vec::new();
    while !seen.ends_with(b"\r\n\r\nearly ") {
        seen.push(client.read_u8().await.unwrap());
    }
    let data: Vec<u8> = (0..300_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    let (mut from, mut to) = client.split();
    let sending = async {
        to.write_all(&data).await.unwrap();
    };
    let mut back = vec![0; data.len()];
    let (_, read) = tokio::join!(sending, from.read_exact(&mut back));
    read.unwrap();
    assert!(back == data);
    // Whoever stops the listener ends every tunnel.
    listening.abort();
    let mut rest = Vec::new();
    let ended = client.read_to_end(&mut rest).await;
    assert!(ended.is_err() || rest.is_empty());
}

#[tokio::test]
async fn connections_bytes_and_silence_are_bounded() {
    let (address, _echo) = echo().await;
    let web = TestWeb::new(&plan(&[&address.to_string()]));
    let bounds = ProxyBounds { connections: 1, bytes: 100_000, idle: Duration::from_secs(30) };
    let proxy = web.proxy(Hosts::All, bounds);
    let connect = format!("CONNECT {address} HTTP/1.1\r\n\r\n");
    let mut first = through(&proxy);
    first.write_all(connect.as_bytes()).await.unwrap();
    assert!(head(&mut first).await.starts_with("HTTP/1.1 200 OK\r\n"));
    // The only place is taken.
    let mut answer = String::new();
    through(&proxy).read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    // The bytes of a connection are used up.
    let (mut from, mut to) = tokio::io::split(first);
    let sending = tokio::spawn(async move { while to.write_all(&[b'x'; 1_000]).await.is_ok() {} });
    let mut got = Vec::new();
    from.read_to_end(&mut got).await.unwrap();
    sending.await.unwrap();
    assert!(got.len() < 100_000, "{}", got.len());
    // The place is free once the connection is gone, and silence ends the next one.
    let mut second = loop {
        let mut stream = through(&proxy);
        stream.write_all(connect.as_bytes()).await.unwrap();
        if head(&mut stream).await.starts_with("HTTP/1.1 200") {
            break stream;
        }
        tokio::task::yield_now().await;
    };
    let mut rest = Vec::new();
    let silent = web.clock.advance_until(Duration::from_secs(1), second.read_to_end(&mut rest)).await;
    assert!(silent.is_err() || rest.is_empty());
    // Also before a request, and in the middle of a head.
    for start in ["", "GET http://a"] {
        let mut stream = loop {
            let mut stream = through(&proxy);
            if stream.write_all(start.as_bytes()).await.is_ok() {
                tokio::task::yield_now().await;
                break stream;
            }
        };
        let mut rest = Vec::new();
        web.clock.advance_until(Duration::from_secs(1), stream.read_to_end(&mut rest)).await.unwrap();
    }
    let huge = format!("GET http://{address}/ HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(80_000));
    let mut stream = through(&proxy);
    let writing = stream.write_all(huge.as_bytes()).await;
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer).await;
    assert!(writing.is_err() || answer.starts_with("HTTP/1.1 431 ") || answer.is_empty(), "{answer}");
}
