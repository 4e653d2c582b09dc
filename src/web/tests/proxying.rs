//! The proxy: tunnels and requests, the same rules as fetches, and its bounds.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::{Names, Server, TestWeb, http, open_for, page, plan, redirect};
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

/// Counts the connections to another address of this machine, at the port of `server`.
async fn watched(server: &Server) -> (Arc<AtomicUsize>, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind(("127.0.0.2", server.address.port())).await.unwrap();
    let seen = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&seen);
    let task = tokio::spawn(async move {
        while listener.accept().await.is_ok() {
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    (seen, task)
}

/// The code of the refusal in an answer of the proxy, with its status.
fn refused(answer: &str) -> (&str, &str) {
    let code = answer.lines().find_map(|line| line.strip_prefix("x-ghost-refusal: ")).unwrap_or_default();
    (answer.get(9..12).unwrap_or_default(), code)
}

// covers: BI-13b, SBX-07
#[tokio::test]
async fn the_address_of_a_listed_name_that_is_judged_is_the_one_that_is_dialled() {
    let server = Server::answering(|_| page("text/plain", b"here")).await;
    let (elsewhere, _watching) = watched(&server).await;
    let port = server.address.port();
    let forms = |name: &str| {
        [
            format!("CONNECT {name}:{port} HTTP/1.1\r\nHost: {name}:{port}\r\n\r\nGET / HTTP/1.1\r\n\r\n"),
            format!("GET http://{name}:{port}/ HTTP/1.1\r\nConnection: close\r\n\r\n"),
        ]
    };
    let with = |turns: &[&[&str]]| {
        let names = Names::of(&[("site.example", turns)]);
        let web = TestWeb::with(&open_for(&[&server]), Arc::clone(&names), machine_tls().unwrap(), &|_| None);
        (web.proxy(only(&["site.example"]), ProxyBounds::default()), names)
    };
    let inside = [
        "127.0.0.2",
        "0.0.0.0",
        "10.0.0.1",
        "192.168.0.1",
        "172.16.0.1",
        "100.64.0.1",
        "169.254.169.254",
        "::",
        "::1",
        "fd00:ec2::254",
        "fe80::1",
        "::127.0.0.2",
        "::ffff:127.0.0.2",
        "::ffff:169.254.169.254",
        "::ffff:0:127.0.0.2",
        "64:ff9b::127.0.0.2",
        "64:ff9b::169.254.169.254",
        "64:ff9b:1::127.0.0.2",
        "2002:7f00:2::1",
        "2001::7f00:2",
    ];
    for address in inside {
        // What the name meant at first does not count later: each request looks it up once, and judges that answer.
        let (proxy, names) = with(&[&["127.0.0.1"], &[address]]);
        for (at, request) in forms("site.example").iter().cycle().take(4).enumerate() {
            let answer = talk(&proxy, request).await;
            match at {
                0 => assert!(answer.ends_with("here"), "{address}: {answer}"),
                _ => assert_eq!(refused(&answer), ("403", "policy_denied"), "{address}: {answer}"),
            }
            assert_eq!(names.looked_up.load(Ordering::SeqCst), at + 1, "{address}");
        }
        // In an answer of several, as at the end of a chain of aliases, only the allowed one is connected to.
        for answer in [[address, "127.0.0.1"], ["127.0.0.1", address]] {
            let (proxy, names) = with(&[&answer]);
            for request in forms("site.example") {
                let answer = talk(&proxy, &request).await;
                assert!(answer.ends_with("here"), "{address}: {answer}");
            }
            assert_eq!(names.looked_up.load(Ordering::SeqCst), 2);
        }
        let (proxy, _) = with(&[&[address, "10.9.9.9", address]]);
        for request in forms("site.example") {
            assert_eq!(refused(&talk(&proxy, &request).await), ("403", "policy_denied"), "{address}");
        }
    }
    assert_eq!(elsewhere.load(Ordering::SeqCst), 0);
}

// covers: BI-13b, SBX-07
#[tokio::test]
async fn no_spelling_of_a_request_leads_elsewhere_than_to_the_listed_host() {
    let server = Server::answering(|asked| page("text/plain", asked.head.as_bytes())).await;
    let (elsewhere, _watching) = watched(&server).await;
    let port = server.address.port();
    let (here, there): (&[&[&str]], &[&[&str]]) = (&[&["127.0.0.1"]], &[&["127.0.0.2"]]);
    // What may be reached is the other address too; only the list of the owner stands between.
    let open = plan(&[&format!("127.0.0.1:{port}"), &format!("127.0.0.2:{port}")]);
    let known = [
        ("site.example", here),
        ("xn--bcher-kva.example", here),
        ("evil.example", there),
        ("site.example.evil.example", there),
        ("x.site.example", there),
        ("xsite.example", there),
        ("xn--ite-6cd.example", there),
    ];
    let web = TestWeb::with(&open, Names::of(&known), machine_tls().unwrap(), &|_| None);
    let proxy = web.proxy(only(&["site.example", "xn--bcher-kva.example"]), ProxyBounds::default());
    let get = |url: &str| format!("GET {url} HTTP/1.1\r\nConnection: close\r\n\r\n");
    for host in ["SITE.Example", "site.example.", "%73ite.example", "XN--Bcher-KVA.example", "s\u{ff49}te.example"] {
        let answer = talk(&proxy, &get(&format!("http://{host}:{port}/"))).await;
        // A request's line is read strictly: escapes and other letters are no part of a host.
        let wanted = if host.is_ascii() && !host.contains('%') { "200" } else { "400" };
        assert_eq!(refused(&answer).0, wanted, "{host}: {answer}");
        let answer = talk(&proxy, &format!("CONNECT {host}:{port} HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n")).await;
        assert_eq!(refused(&answer).0, wanted, "{host}: {answer}");
    }
    let reached = server.asked().len();
    assert_eq!(reached, 6);
    for host in [
        "evil.example",
        "x.site.example",
        "xsite.example",
        "site.example.evil.example",
        "site.example%2eevil.example",
        "site.example%00.evil.example",
        "site.example%23.evil.example",
        "site.example%2f.evil.example",
        "site.example%40evil.example",
        "xn--ite-6cd.example",
        "xn--site.example",
        "xn--zzzzzz99999.example",
        "127.0.0.1",
        "127.0.0.2",
        "2130706434",
        "[::ffff:127.0.0.2]",
        "[64:ff9b::7f00:2]",
        "",
        "*",
        "*.site.example",
    ] {
        for request in [
            get(&format!("http://{host}:{port}/")),
            format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: site.example:{port}\r\n\r\n"),
        ] {
            let status = talk(&proxy, &request).await;
            assert!(matches!(refused(&status).0, "400" | "403"), "{request}: {status}");
        }
    }
    for request in [
        get(&format!("http://site.example:{port}@evil.example:{port}/")),
        get(&format!("http://site.example@evil.example:{port}/")),
        get(&format!("http://evil.example:{port}@site.example:{port}/")),
        get(&format!("http://u:p@site.example:{port}/")),
        get(&format!("http://evil.example:{port}\\@site.example:{port}/")),
        get(&format!("http://evil.example:{port}#@site.example:{port}/")),
        get(&format!("http://evil.example:{port}?@site.example:{port}/")),
        get(&format!("http:///site.example:{port}/")),
        get(&format!("//site.example:{port}/")),
        get(&format!("http:site.example:{port}/")),
        get("http://site.example:99999/"),
        get("http://site.example:-1/"),
        get("http://site.example:0/"),
        get(&format!("http://site.example:{port}:{port}/")),
        get(&format!("http://site.example\t:{port}/")),
        get("*"),
        "CONNECT site.example HTTP/1.1\r\n\r\n".to_owned(),
        "CONNECT site.example:99999 HTTP/1.1\r\n\r\n".to_owned(),
        "CONNECT site.example:0 HTTP/1.1\r\n\r\n".to_owned(),
        format!("CONNECT site.example:{port}@evil.example:{port} HTTP/1.1\r\n\r\n"),
        format!("CONNECT u:p@site.example:{port} HTTP/1.1\r\n\r\n"),
        format!("CONNECT evil.example:{port}/@site.example:{port} HTTP/1.1\r\n\r\n"),
        "CONNECT / HTTP/1.1\r\n\r\n".to_owned(),
    ] {
        // Through a tunnel that opens, the server would answer.
        let answer = talk(&proxy, &format!("{request}GET / HTTP/1.1\r\n\r\n")).await;
        assert!(matches!(refused(&answer).0, "400" | "403"), "{request}: {answer}");
    }
    assert_eq!((server.asked().len(), elsewhere.load(Ordering::SeqCst)), (reached, 0));
}

// covers: SBX-07
#[tokio::test]
async fn what_a_client_says_besides_its_target_changes_nothing() {
    let echo = |asked: &common::Asked| page("text/plain", &[asked.head.as_bytes(), b"|", &asked.body].concat());
    let server = Server::answering(move |asked| match asked.path() {
        "/leave" => redirect("http://evil.example/"),
        _ => echo(asked),
    })
    .await;
    let (elsewhere, _watching) = watched(&server).await;
    let port = server.address.port();
    let names = Names::of(&[("site.example", &[&["127.0.0.1"]]), ("evil.example", &[&["127.0.0.2"]])]);
    let open = plan(&[&format!("127.0.0.1:{port}"), &format!("127.0.0.2:{port}")]);
    let web = TestWeb::with(&open, names, machine_tls().unwrap(), &|_| None);
    let proxy = web.proxy(only(&["site.example"]), ProxyBounds::default());
    // The server is told the host that was judged, once.
    for hosts in ["Host: evil.example\r\n", "Host: a\r\nHost: b\r\n", "Connection: host\r\n", ""] {
        let request = format!("GET http://site.example:{port}/ HTTP/1.1\r\n{hosts}Connection: close\r\n\r\n");
        let answer = talk(&proxy, &request).await;
        let told: Vec<&str> = answer.lines().filter_map(|line| line.strip_prefix("host: ")).collect();
        assert_eq!(told, [format!("site.example:{port}")], "{answer}");
    }
    // A redirect is the client's to follow, and is judged then.
    let both = format!(
        "GET http://site.example:{port}/leave HTTP/1.1\r\n\r\nGET http://evil.example:{port}/ HTTP/1.1\r\n\r\n"
    );
    let answer = talk(&proxy, &both).await;
    assert!(answer.starts_with("HTTP/1.1 302 ") && answer.contains("HTTP/1.1 403 "), "{answer}");
    // What follows a refused request is not served: it may be meant for what was not given.
    let asked = server.asked().len();
    for first in [
        format!("CONNECT evil.example:{port} HTTP/1.1\r\n\r\n"),
        format!("GET http://evil.example:{port}/ HTTP/1.1\r\n\r\n"),
        format!("CONNECT evil.example:{port} HTTP/1.1\r\nContent-Length: 0\r\n\r\n"),
    ] {
        let answer = talk(&proxy, &format!("{first}GET http://site.example:{port}/ HTTP/1.1\r\n\r\n")).await;
        assert_eq!((refused(&answer).0, answer.matches("HTTP/1.1 ").count()), ("403", 1), "{answer}");
    }
    assert_eq!(server.asked().len(), asked);
    // A body has one length: what could be a second request for the server stays in it, or nothing is sent.
    let hidden = "GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n";
    let chunked = format!("{:x}\r\n{hidden}\r\n0\r\n\r\n", hidden.len());
    for (headers, body) in [
        (format!("Content-Length: {}\r\nTransfer-Encoding: chunked\r\n", hidden.len()), chunked.as_str()),
        ("Transfer-Encoding: chunked\r\nContent-Length: 0\r\n".to_owned(), chunked.as_str()),
        ("Content-Length: 0\r\nContent-Length: 9\r\n".to_owned(), hidden),
        ("Transfer-Encoding: chunked, identity\r\n".to_owned(), hidden),
        (format!("Connection: content-length\r\nContent-Length: {}\r\n", hidden.len()), hidden),
        ("Connection: transfer-encoding\r\nTransfer-Encoding: chunked\r\n".to_owned(), chunked.as_str()),
    ] {
        for method in ["GET", "POST"] {
            let request =
                format!("{method} http://site.example:{port}/ HTTP/1.1\r\n{headers}Connection: close\r\n\r\n{body}");
            talk(&proxy, &request).await;
        }
    }
    assert!(server.asked().iter().all(|asked| asked.path() != "/hidden"));
    assert_eq!(elsewhere.load(Ordering::SeqCst), 0);
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
