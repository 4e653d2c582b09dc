//! Servers and names that try to get more than a page from `fetch`: into the operator's network, out of its bounds, or
//! into a loop.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use common::{Names, Server, TestWeb, answers, get, http, open_for, page, plan, redirect};
use ghost_config::plan::WebPlan;
use ghost_config::plan::web::Robots;
use ghost_domain::{Clock as _, Code};
use ghost_web::{Content, Extract, FetchRequest, machine_tls};
use tokio::io::AsyncWriteExt as _;

fn text(content: &Content) -> &str {
    match content {
        Content::Text { text, .. } => text,
        Content::File(_) => panic!("a file"),
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

// covers: BI-13, BI-13a
#[tokio::test]
async fn a_page_is_read_in_every_form() {
    let server = Server::answering(|asked| match asked.path() {
        "/page" => page("text/html; charset=iso-8859-1", b"<title>T</title><h1>Gr\xfcn</h1><a href=next>n</a>"),
        "/json" => page("application/json", b"{\"a\": 1}"),
        "/gzip" => http("200 OK", "Content-Type: text/plain\r\nContent-Encoding: gzip\r\n", &gzip(b"squeezed")),
        "/pdf" => page("application/pdf", b"%PDF-1.7\0\x01"),
        "/mistyped" => page("text/plain", b"PK\x03\x04\0\0"),
        "/empty" => page("text/html", b"<script>later()</script>"),
        "/gone" => http("404 Not Found", "Content-Type: text/plain\r\n", b"no such page"),
        "/post" => page("text/plain", &[asked.head.as_bytes(), b"|", &asked.body].concat()),
        "/chunked" => b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n".to_vec(),
        _ => http("204 No Content", "", b""),
    })
    .await;
    let web = TestWeb::new(&open_for(&[&server]));
    let got = web.get(&server.url("/page#part")).await.unwrap();
    assert_eq!((got.status, got.content_type.as_str(), got.title.as_str()), (200, "text/html", "T"));
    assert_eq!(text(&got.content), format!("# Grün\n\n[n]({})", server.url("/next")));
    assert_eq!(got.final_url.as_str(), server.url("/page"));
    let raw = web.fetch(FetchRequest { extract: Extract::Raw, ..get(&server.url("/page")) }).await.unwrap();
    assert!(text(&raw.content).starts_with("<title>"));
    let cut =
        web.fetch(FetchRequest { max_length: 3, extract: Extract::Text, ..get(&server.url("/page")) }).await.unwrap();
    assert_eq!(cut.content, Content::Text { text: "Grü".into(), length: 7, truncated: true });
    assert_eq!(text(&web.get(&server.url("/json")).await.unwrap().content), "{\"a\": 1}");
    assert_eq!(text(&web.get(&server.url("/gzip")).await.unwrap().content), "squeezed");
    assert_eq!(text(&web.get(&server.url("/chunked")).await.unwrap().content), "abcde");
    for path in ["/pdf", "/mistyped"] {
        assert!(matches!(web.get(&server.url(path)).await.unwrap().content, Content::File(_)), "{path}");
    }
    let saved = web.fetch(FetchRequest { save: true, ..get(&server.url("/gzip")) }).await.unwrap();
    assert_eq!(saved.content, Content::File(b"squeezed".to_vec()));
    assert_eq!(web.code(&server.url("/empty")).await, Code::ExecFailed);
    assert_eq!(web.get(&server.url("/gone")).await.unwrap().status, 404);
    let post = FetchRequest {
        method: "POST".into(),
        body: Some("{\"b\":2}".into()),
        headers: [("X-Key".to_owned(), "k".to_owned())].into(),
        ..get(&server.url("/post"))
    };
    let echoed = web.fetch(post).await.unwrap();
    let echoed = text(&echoed.content);
    assert!(echoed.starts_with("POST /post HTTP/1.1\r\n") && echoed.ends_with("|{\"b\":2}"), "{echoed}");
    for line in ["x-key: k", "content-type: application/json", "user-agent: ghostd/", "content-length: 7"] {
        assert!(echoed.contains(line), "{line}: {echoed}");
    }
    let head = web.fetch(FetchRequest { method: "HEAD".into(), ..get(&server.url("/none")) }).await.unwrap();
    assert_eq!((head.status, head.bytes), (204, 0));
}

// covers: BI-13, BI-13b
#[tokio::test]
async fn nothing_is_sent_to_an_address_that_was_not_allowed() {
    let server = Server::answering(|_| page("text/plain", b"secret")).await;
    let port = server.address.port();
    let closed = TestWeb::new(&WebPlan::default());
    let spellings = [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::127.0.0.1]",
        "[::127.0.0.1]",
        "localhost",
        "LOCALHOST.",
        "x.localhost",
        "0.0.0.0",
        "0",
        "[::]",
        "[::1]",
        "\u{ff11}27.0.0.1",
        "127\u{3002}0\u{3002}0\u{3002}1",
        "%31%32%37.0.0.1",
    ];
    for host in spellings {
        assert_eq!(closed.code(&format!("http://{host}:{port}/")).await, Code::PolicyDenied, "{host}");
    }
    for url in [
        "http://169.254.169.254/latest/meta-data/",
        "http://[fd00:ec2::254]/",
        "http://10.0.0.1/",
        "http://192.168.1.1/",
        "http://100.64.0.1/",
        "http://224.0.0.1/",
    ] {
        assert_eq!(closed.code(url).await, Code::PolicyDenied, "{url}");
    }
    for url in [
        "file:///etc/passwd",
        "gopher://127.0.0.1/",
        "ftp://127.0.0.1/",
        "http://user:pass@127.0.0.1/",
        "http://[fe80::1%25lo]/",
        "http:\\\\127.0.0.1\\@docs.example/",
        "//127.0.0.1/",
        "",
    ] {
        let code = closed.code(url).await;
        assert!(matches!(code, Code::InvalidArguments | Code::PolicyDenied), "{url}: {code}");
    }
    // The entry of one port opens no other.
    let other = TestWeb::new(&plan(&["127.0.0.1:1"]));
    assert_eq!(other.code(&server.url("/")).await, Code::PolicyDenied);
    assert!(server.asked().is_empty());
    assert!(TestWeb::new(&open_for(&[&server])).get(&server.url("/")).await.is_ok());
}

// covers: BI-13b
#[tokio::test]
async fn a_name_is_judged_by_its_addresses_and_resolved_once() {
    let server = Server::answering(|_| page("text/plain", b"here")).await;
    let port = server.address.port();
    let names = Names::of(&[
        ("inside.example", &[&["10.0.0.5", "127.0.0.1"]]),
        ("rebinds.example", &[&["127.0.0.1"], &["10.0.0.5"]]),
        ("mixed.example", &[&["10.0.0.5", "fd00::1", "::ffff:127.0.0.1", "127.0.0.1"]]),
        ("mapped.example", &[&["::ffff:10.0.0.5"]]),
        ("denied.example", &[&["127.0.0.1"]]),
    ]);
    let mut open = open_for(&[&server]);
    open.deny.push(ghost_config::plan::web::WebTarget::parse("denied.example").unwrap());
    let web = TestWeb::with(&open, Arc::clone(&names), machine_tls().unwrap(), &|_| None);
    let url = |name: &str| format!("http://{name}:{port}/");
    // The first answer is judged and used; the second is never asked for.
    assert_eq!(text(&web.get(&url("rebinds.example")).await.unwrap().content), "here");
    assert_eq!(names.looked_up.load(Ordering::SeqCst), 1);
    // Only the allowed address of several is connected to.
    assert_eq!(text(&web.get(&url("mixed.example")).await.unwrap().content), "here");
    assert_eq!(web.code(&url("denied.example")).await, Code::PolicyDenied);
    assert_eq!(web.code(&url("mapped.example")).await, Code::PolicyDenied);
    assert_eq!(web.code(&url("unknown.example")).await, Code::Unavailable);
    let closed = TestWeb::with(&WebPlan::default(), names, machine_tls().unwrap(), &|_| None);
    let refusal = closed.get(&url("inside.example")).await.unwrap_err();
    assert_eq!(refusal.code, Code::PolicyDenied);
    assert!(refusal.message.contains("inside.example"), "{refusal}");
    // The name that rebinds answers with a private address now.
    assert_eq!(closed.code(&url("rebinds.example")).await, Code::PolicyDenied);
    assert_eq!(server.asked().len(), 2);
}

// covers: BI-13b
#[tokio::test]
async fn every_redirect_is_judged_again() {
    let secret = Server::answering(|_| page("text/plain", b"secret")).await;
    let inside = secret.url("/");
    let shared = inside.clone();
    let server = Server::answering(move |asked| match asked.path() {
        "/inside" => redirect(&shared),
        "/metadata" => redirect("http://169.254.169.254/"),
        "/name" => redirect("http://inside.example/"),
        "/file" => redirect("file:///etc/passwd"),
        "/gopher" => redirect("gopher://127.0.0.1:1/"),
        "/user" => redirect("http://u:p@127.0.0.1/"),
        "/circle" => redirect("/circle2"),
        "/circle2" => redirect("/circle"),
        "/self" => redirect("/self"),
        "/no-way" => http("302 Found", "", b"stay"),
        "/crlf" => b"HTTP/1.1 302 Found\r\nLocation: /next\r\nX: a\rb\r\nContent-Length: 0\r\n\r\n".to_vec(),
        "/post" => http("307 Temporary Redirect", &format!("Location: {shared}\r\n"), b""),
        "/303" => http("303 See Other", "Location: /seen\r\n", b""),
        "/seen" => page("text/plain", asked.head.as_bytes()),
        path => match path.strip_prefix("/down/").and_then(|left| left.parse::<u32>().ok()) {
            Some(0) => page("text/plain", b"arrived"),
            Some(left) => redirect(&format!("/down/{}", left - 1)),
            None => http("404 Not Found", "", b""),
        },
    })
    .await;
    let names = Names::of(&[("inside.example", &[&["127.0.0.1"]])]);
    let web = TestWeb::with(&open_for(&[&server]), names, machine_tls().unwrap(), &|_| None);
    for path in ["/inside", "/metadata", "/name"] {
        assert_eq!(web.code(&server.url(path)).await, Code::PolicyDenied, "{path}");
    }
    for path in ["/file", "/gopher", "/user", "/circle", "/self", "/down/6"] {
        assert_eq!(web.code(&server.url(path)).await, Code::ExecFailed, "{path}");
    }
    let circle = web.get(&server.url("/circle")).await.unwrap_err();
    assert_eq!(circle.details.unwrap()["redirects"].as_array().unwrap().len(), 3);
    assert_eq!(text(&web.get(&server.url("/down/5")).await.unwrap().content), "arrived");
    assert_eq!(web.get(&server.url("/no-way")).await.unwrap().status, 302);
    assert!(web.get(&server.url("/crlf")).await.is_err());
    let post = |path: &str| FetchRequest { method: "POST".into(), body: Some("b".into()), ..get(&server.url(path)) };
    // The other server is allowed here, and still does not get the body.
    let both = TestWeb::new(&open_for(&[&server, &secret]));
    assert_eq!(both.fetch(post("/post")).await.unwrap_err().code, Code::PolicyDenied);
    let seen = both.fetch(post("/303")).await.unwrap();
    let seen = text(&seen.content);
    assert!(
        seen.starts_with("GET /seen ") && !seen.contains("content-type") && !seen.contains("content-length"),
        "{seen}"
    );
    assert!(secret.asked().is_empty());
    // Keys stay with the first site.
    let key = FetchRequest {
        headers: [("Authorization".to_owned(), "Bearer k".to_owned())].into(),
        ..get(&server.url("/inside"))
    };
    both.fetch(key).await.unwrap();
    let first = server.asked().last().unwrap().clone();
    assert_eq!(first.header("authorization"), Some("Bearer k"));
    assert_eq!(secret.asked()[0].header("authorization"), None);
    assert_eq!(secret.asked()[0].header("user-agent"), first.header("user-agent"));
}

#[tokio::test]
async fn https_never_becomes_http_and_certificates_are_checked() {
    let key = rcgen::generate_simple_self_signed(["site.example".to_owned()]).unwrap();
    let certificate = key.cert.der().clone();
    let private = rustls::pki_types::PrivateKeyDer::try_from(key.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let serving = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], private)
        .unwrap();
    let plain = Server::answering(|_| page("text/plain", b"in the clear")).await;
    let to = format!("http://site.example:{}/", plain.address.port());
    let handler = answers(move |asked| match asked.path() {
        "/down" => redirect(&to),
        _ => page("text/plain", b"private"),
    });
    let server = Server::with(handler, Some(Arc::new(serving))).await;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).unwrap();
    let trusting = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let open = open_for(&[&server, &plain]);
    let names = || Names::of(&[("site.example", &[&["127.0.0.1"]]), ("other.example", &[&["127.0.0.1"]])]);
    let web = TestWeb::with(&open, names(), Arc::new(trusting), &|_| None);
    let url = |name: &str, path: &str| format!("https://{name}:{}{path}", server.address.port());
    assert_eq!(text(&web.get(&url("site.example", "/")).await.unwrap().content), "private");
    assert_eq!(web.code(&url("site.example", "/down")).await, Code::PolicyDenied);
    assert_eq!(web.code(&url("other.example", "/")).await, Code::Unavailable, "another name than the certificate's");
    let machine = TestWeb::with(&open, names(), machine_tls().unwrap(), &|_| None);
    assert_eq!(machine.code(&url("site.example", "/")).await, Code::Unavailable, "a certificate that nobody signed");
    assert!(plain.asked().is_empty());
}

// covers: BI-13a
#[tokio::test]
async fn sizes_are_bounded_before_and_after_decompression() {
    let server = Server::answering(|asked| match asked.path() {
        "/declared" => b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\nx".to_vec(),
        "/endless" => [b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n".to_vec(), vec![b'x'; 1 << 20]].concat(),
        "/chunks" => {
            let chunk = [b"2000\r\n".to_vec(), vec![b'x'; 0x2000], b"\r\n".to_vec()].concat();
            [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec(), chunk.repeat(64)].concat()
        }
        "/bomb" => http("200 OK", "Content-Encoding: gzip\r\nContent-Type: text/html\r\n", &gzip(&vec![b' '; 1 << 24])),
        "/double" => {
            let body = gzip(&gzip(&vec![0; 1 << 24]));
            http("200 OK", "Content-Encoding: gzip\r\nContent-Encoding: gzip\r\n", &body)
        }
        "/zstd" => http("200 OK", "Content-Encoding: zstd\r\n", b"x"),
        "/heads" => {
            let mut answer = b"HTTP/1.1 200 OK\r\n".to_vec();
            (0..20_000).for_each(|n| answer.extend_from_slice(format!("x-{n}: {n}\r\n").as_bytes()));
            answer
        }
        "/cut" => b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nshort".to_vec(),
        "/both" => {
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n".to_vec()
        }
        "/no-http" => b"SSH-2.0-OpenSSH_9.9\r\n".to_vec(),
        "/nothing" => Vec::new(),
        _ => http("404 Not Found", "", b""),
    })
    .await;
    let web = TestWeb::new(&WebPlan { max_bytes: 100_000, ..open_for(&[&server]) });
    for path in ["/declared", "/endless", "/chunks", "/bomb", "/double"] {
        assert_eq!(web.code(&server.url(path)).await, Code::TooLarge, "{path}");
    }
    for path in ["/heads", "/cut", "/no-http", "/nothing"] {
        assert_eq!(web.code(&server.url(path)).await, Code::Unavailable, "{path}");
    }
    assert_eq!(web.code(&server.url("/zstd")).await, Code::ExecFailed);
    // A length beside chunks is ignored, as the standard demands, and nothing is left for the next request.
    assert_eq!(text(&web.get(&server.url("/both")).await.unwrap().content), "abc");
    // A request that may have had an effect is not called a failure.
    let post = FetchRequest { method: "POST".into(), body: Some("b".into()), ..get(&server.url("/nothing")) };
    assert_eq!(web.fetch(post).await.unwrap_err().code, Code::OutcomeUnknown);
    let nobody = FetchRequest { method: "POST".into(), ..get("http://127.0.0.1:1/") };
    let refused = TestWeb::new(&plan(&["127.0.0.1:1"])).fetch(nobody).await.unwrap_err();
    assert_eq!(refused.code, Code::Unavailable, "nothing was sent");
}

// covers: BI-13a
#[tokio::test]
async fn time_is_bounded_in_silence_and_in_all() {
    let clock = ghost_domain::testing::ManualClock::at(ghost_domain::testing::START_MS);
    let drip = Arc::clone(&clock);
    let server = Server::start(Arc::new(move |asked, mut stream| {
        let clock = Arc::clone(&drip);
        Box::pin(async move {
            match asked.path() {
                // A byte a second, for ever.
                "/drip" => {
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n").await;
                    while stream.write_all(b"x").await.is_ok() {
                        clock.sleep(Duration::from_secs(1)).await;
                    }
                }
                "/half" => {
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx").await;
                    std::future::pending().await
                }
                _ => std::future::pending().await,
            }
        })
    }))
    .await;
    let bounds =
        WebPlan { timeout: Duration::from_secs(20), idle_timeout: Duration::from_secs(4), ..open_for(&[&server]) };
    let outside = ghost_web::Outside {
        env: &|_| None,
        clock: Arc::clone(&clock) as Arc<dyn ghost_domain::Clock>,
        resolver: Names::of(&[]),
        tls: machine_tls().unwrap(),
    };
    let web = ghost_web::Web::open_with(&bounds, outside).unwrap();
    for (path, method, code, least, most) in [
        ("/drip", "GET", Code::Timeout, 20, 21),
        ("/half", "GET", Code::Timeout, 4, 6),
        ("/silent", "GET", Code::Timeout, 4, 20),
        ("/silent", "POST", Code::OutcomeUnknown, 4, 20),
    ] {
        let began = clock.now();
        let request = FetchRequest { method: method.into(), ..get(&server.url(path)) };
        let done = clock.advance_until(Duration::from_millis(20), web.fetcher.fetch(request)).await;
        assert_eq!(done.unwrap_err().code, code, "{path}");
        let took = clock.now().since(began).as_secs();
        assert!((least..=most).contains(&took), "{path}: {took} s");
    }
}

#[tokio::test]
async fn robots_are_respected_if_the_world_says_so() {
    let server = Server::answering(|asked| match asked.path() {
        "/robots.txt" => page("text/plain", b"User-agent: *\nDisallow: /private\n"),
        "/way" => redirect("/private/x"),
        _ => page("text/plain", b"open"),
    })
    .await;
    let angry = Server::answering(|asked| match asked.path() {
        "/robots.txt" => http("500 Oops", "", b""),
        _ => page("text/plain", b"open"),
    })
    .await;
    let none = Server::answering(|asked| match asked.path() {
        "/robots.txt" => http("404 Not Found", "", b""),
        _ => page("text/plain", b"open"),
    })
    .await;
    let open = open_for(&[&server, &angry, &none]);
    let careless = TestWeb::new(&open);
    assert!(careless.get(&server.url("/private/x")).await.is_ok());
    assert_eq!(server.asked().len(), 1);
    let polite = TestWeb::new(&WebPlan { robots: Robots::Respect, ..open });
    assert!(polite.get(&server.url("/a")).await.is_ok());
    for url in [server.url("/private"), server.url("/way"), angry.url("/a")] {
        assert_eq!(polite.code(&url).await, Code::PolicyDenied, "{url}");
    }
    assert!(polite.get(&none.url("/a")).await.is_ok());
    let read = server.asked().iter().filter(|asked| asked.path() == "/robots.txt").count();
    assert_eq!(read, 1, "the rules are kept");
    assert!(!server.asked()[1..].iter().any(|asked| asked.path().starts_with("/private")));
}

#[tokio::test]
async fn headers_and_bodies_of_agents_are_checked_before_anything_is_sent() {
    let server = Server::answering(|_| page("text/plain", b"x")).await;
    let web = TestWeb::new(&open_for(&[&server]));
    let of = |method: &str, body: Option<String>, header: (&str, &str)| FetchRequest {
        method: method.into(),
        body,
        headers: [(header.0.to_owned(), header.1.to_owned())].into(),
        ..get(&server.url("/"))
    };
    for request in [
        of("GET", None, ("X-A", "1\r\nHost: evil")),
        of("GET", None, ("Host", "evil")),
        of("GET", None, ("Content-Length", "0")),
        of("GET", Some("b".into()), ("X-A", "1")),
        of("CONNECT", None, ("X-A", "1")),
        of("get", None, ("X-A", "1")),
        of("POST", Some("x".repeat((1 << 20) + 1)), ("X-A", "1")),
        FetchRequest { url: format!("{}\r\nX-A: 1", server.url("/ HTTP/1.1")), method: "TRACE".into(), ..get("") },
    ] {
        assert_eq!(web.fetch(request.clone()).await.unwrap_err().code, Code::InvalidArguments, "{request:?}");
    }
    assert!(server.asked().is_empty());
    // What a URL can carry of a line break does not begin a line.
    web.get(&format!("{}\r\nX-A: 1", server.url("/a b"))).await.unwrap();
    assert!(server.asked()[0].head.starts_with("GET /a%20bX-A:%201 HTTP/1.1\r\n"), "{:?}", server.asked());
    assert_eq!(server.asked()[0].header("x-a"), None);
}
