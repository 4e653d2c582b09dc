//! Tickets: each replaces the token for one stream, once.

use serde_json::Value;

use crate::support::{runtime, soon, test_env, up};
use crate::wires::Site;

async fn ticket(site: &Site) -> String {
    let bearer = format!("Bearer {}", site.token);
    let headers = [("Host", site.http.as_str()), ("Authorization", bearer.as_str()), ("Content-Length", "0")];
    let (status, body) = soon("a ticket", site.ask("POST", "/api/events/ticket", &headers)).await;
    assert_eq!(status, 200, "{body}");
    let body: Value = serde_json::from_str(&body).unwrap();
    assert!(body["expires_at"].is_string());
    body["ticket"].as_str().unwrap().to_owned()
}

#[test]
fn a_ticket_opens_one_stream() {
    let (test_env, world) = test_env("");
    let runtime = runtime();
    let (daemon, site) = up(&test_env, &world);
    test_env.ctl(&["send", "ada", "hello"]).ok();
    let host = [("Host", site.http.as_str())];
    runtime.block_on(async {
        let first = ticket(&site).await;
        assert_ne!(first, site.token);
        let path = format!("/api/events?after=oldest&ticket={first}");
        let head = soon("a stream", site.head(&path, &host)).await;
        assert!(head.contains(" 200 ") && head.contains("text/event-stream"), "{head}");
        for (path, host) in [
            (path.as_str(), site.http.as_str()),
            ("/api/events?ticket=", site.http.as_str()),
            ("/api/events/ws?ticket=nonsense", site.http.as_str()),
        ] {
            let (status, body) = soon("a refusal", site.get(path, &[("Host", host)])).await;
            assert_eq!(status, 401, "{path}: {body}");
        }
        // A ticket opens only streams, only on this host. Only the token can create one.
        let other = ticket(&site).await;
        let (status, _) = soon("a refusal", site.get(&format!("/api/agents?ticket={other}"), &host)).await;
        assert_eq!(status, 401);
        let evil = [("Host", "evil.example")];
        let (status, _) = soon("a refusal", site.get(&format!("/api/events?ticket={other}"), &evil)).await;
        assert_eq!(status, 403);
        let (status, _) = soon("a refusal", site.ask("POST", "/api/events/ticket", &host)).await;
        assert_eq!(status, 401);
        let head = soon("a stream", site.head(&format!("/api/events/stream?ticket={other}"), &host)).await;
        assert!(head.contains(" 200 "), "a refused request did not use it up: {head}");
        // A malformed address does not use up the ticket. Neither does a stream that is refused.
        let third = ticket(&site).await;
        for (slip, expected) in [
            ("after=soon", 400),
            ("after=999999999", 416),
            ("kind=nope", 400),
            ("agent=nobody", 404),
            ("channel=nowhere", 404),
            ("afer=now", 400),
        ] {
            let path = format!("/api/events?{slip}&ticket={third}");
            let (status, body) = soon("a refusal", site.get(&path, &host)).await;
            assert_eq!(status, expected, "{slip}: {body}");
        }
        let plain = soon("no socket", site.get(&format!("/api/events/ws?ticket={third}"), &host)).await;
        assert_eq!(plain.0, 400, "{}", plain.1);
        // A ticket can also open a WebSocket.
        let upgrade = [
            ("Host", site.http.as_str()),
            ("Connection", "Upgrade"),
            ("Upgrade", "websocket"),
            ("Sec-WebSocket-Version", "13"),
            ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        let head = soon("a socket", site.head(&format!("/api/events/ws?ticket={third}"), &upgrade)).await;
        assert!(head.contains(" 101 "), "{head}");
        let (status, body) = soon("a refusal", site.get(&format!("/api/events?ticket={third}"), &host)).await;
        assert_eq!(status, 401, "once: {body}");
    });
    daemon.stop();
}
