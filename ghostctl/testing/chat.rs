//! Tests of `chat history`, `chat send` and `chat watch`.

use super::fake::{End, Fake, Feed};
use super::ran::ghostctl;

fn seqs(value: &serde_json::Value) -> Vec<i64> {
    value.as_array().unwrap().iter().map(|post| post["seq"].as_i64().unwrap()).collect()
}

#[tokio::test]
async fn posts_are_read_back_over_all_pages() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = Fake::default().rows(450).serve(&dir.path().join("g.sock"));
    let history = async |args: &[&str]| {
        let args = [&["--json", "chat", "history", "room"], args].concat();
        seqs(&ghostctl(&daemon.endpoint, &args).await.json())
    };
    assert_eq!(history(&[]).await, (401..=450).collect::<Vec<_>>());
    assert_eq!(history(&["--limit", "260"]).await, (191..=450).collect::<Vec<_>>());
    assert_eq!(history(&["--limit", "500", "--before", "321"]).await, (1..=320).collect::<Vec<_>>());
    assert_eq!(history(&["--after", "300"]).await, (301..=350).collect::<Vec<_>>());
    assert_eq!(history(&["--after", "190", "--limit", "500"]).await, (191..=450).collect::<Vec<_>>());
    for limit in ["0", "501"] {
        let refused = ghostctl(&daemon.endpoint, &["chat", "history", "room", "--limit", limit]).await;
        assert!(refused.code == 2 && refused.err.contains("1 to 500"), "{}", refused.err);
    }
    let plain = ghostctl(&daemon.endpoint, &["chat", "history", "room", "--limit", "2"]).await;
    assert!(plain.out.starts_with("#449 ada") && plain.out.ends_with("  post 450\n"), "{}", plain.out);
    let list = ghostctl(&daemon.endpoint, &["--json", "chat", "list"]).await.json();
    assert_eq!((list.as_array().unwrap().len(), &list[0]["channel"]), (450, &"0".into()));
}

#[tokio::test]
async fn notes_name_members_that_a_post_did_not_reach() {
    let dir = tempfile::tempdir().unwrap();
    let fake = Fake::default();
    let daemon = fake.serve(&dir.path().join("g.sock"));
    let sent = ghostctl(&daemon.endpoint, &["chat", "send", "room", "hello", "--as", "ada"]).await;
    assert_eq!(sent.code, 0);
    assert!(sent.out.contains('2') && sent.out.contains('1') && sent.err.contains("the inbox of bob is full"));
    let asked = &fake.asked()[0].1;
    assert!(asked.contains(r#"as_agent: Some("ada"), deliver: false"#), "{asked}");
    let created = ghostctl(&daemon.endpoint, &["chat", "create", "room", "--members", "ada,bob"]).await;
    assert!(!created.err.is_empty());
    assert!(fake.asked()[1].1.contains(r#"members: ["ada", "bob"]"#));
}

#[tokio::test]
async fn watch_starts_after_the_given_post_and_prints_no_post_twice() {
    let dir = tempfile::tempdir().unwrap();
    // The watch ends with the feed, because the fake daemon offers no further stream.
    let fake = Fake::default().rows(230).feeds([Feed { upto: 4, repeats: false, end: End::Done }]);
    let daemon = fake.serve(&dir.path().join("g.sock"));
    let args = ["--timeout", "1s", "--json", "chat", "watch", "room", "--after", "10"];
    let watched = ghostctl(&daemon.endpoint, &args).await;
    let shown: Vec<i64> = watched.lines().iter().map(|post| post["seq"].as_i64().unwrap()).collect();
    assert_eq!(shown, (11..=230).collect::<Vec<_>>());
    for key in ["channel", "seq", "from", "content", "ts"] {
        assert!(watched.lines()[0].get(key).is_some(), "{key}");
    }
    let asked = fake.asked();
    let (_, subscribed) = asked.iter().find(|(method, _)| *method == "Events.subscribe").unwrap();
    assert!(subscribed.contains(r#"kinds: ["chat.message"]"#) && subscribed.contains(r#"channel: Some("room")"#));
    assert!(subscribed.contains("after_seq: Some(2)") && subscribed.contains("follow: true"), "{subscribed}");
}
