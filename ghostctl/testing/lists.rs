//! Tests of lists: joined pages, and notes about lists that are cut at a limit.

use super::answers::TestClient;
use super::fake::Fake;

#[tokio::test]
async fn every_list_is_one_array_over_all_pages() {
    let client = TestClient::new(Fake::default().rows(450));
    for args in [
        &["agent", "list"][..],
        &["turn", "list"],
        &["task", "list"],
        &["dead", "list"],
        &["budget", "list"],
        &["knowledge", "list"],
        &["state", "list"],
        &["ledger"],
    ] {
        let rows = client.run(&[&["--json"], args].concat()).await.json();
        assert_eq!(rows.as_array().unwrap().len(), 450, "{args:?}");
        let table = client.run(args).await;
        assert_eq!((table.code, table.out.lines().count()), (0, 451), "{args:?}");
        let some = client.run(&[args, &["--limit", "3"]].concat()).await;
        assert_eq!((some.out.lines().count(), some.err.contains("--limit")), (4, true), "{args:?}");
    }
    // Lists without --limit; chat history shows the newest 50.
    for (args, rows) in [
        (&["usage"][..], 450),
        (&["usage", "--agent", "a", "--since", "24h"], 450),
        (&["chat", "list"], 450),
        (&["chat", "history", "room"], 50),
        (&["tool", "list", "a"], 1),
    ] {
        let json = client.run(&[&["--json"], args].concat()).await.json();
        assert_eq!(json.as_array().unwrap().len(), rows, "{args:?}");
    }
}

#[tokio::test]
async fn totals_of_the_ledger_are_sums_and_the_calls_that_failed() {
    let client = TestClient::new(Fake::default().rows(3));
    let args = ["ledger", "--tool", "tool.cli", "--since", "24h", "--totals"];
    let answer = client.run(&[&["--json"][..], &args].concat()).await.json();
    assert_eq!((&answer["totals"][1]["cost_usd"], &answer["totals"][1]["tokens"]), (&0.035.into(), &7.into()));
    assert_eq!(answer["failed"].as_array().unwrap().len(), 3);
    let asked = client.fake.asked();
    let listed: Vec<&String> =
        asked.iter().filter(|(method, _)| *method == "Ledger.list").map(|(_, asked)| asked).collect();
    assert!(listed.len() == 1 && listed[0].contains("status: Some(\"failed\")"), "{listed:?}");
    let shown = client.run(&args).await;
    assert!(shown.code == 0 && shown.out.contains("$1.035"), "{}", shown.out);
}

#[tokio::test]
async fn lists_of_a_knowledge_entry_are_set_kept_or_emptied() {
    let client = TestClient::new(Fake::default());
    let args = ["knowledge", "write", "e", "text", "--readers", "a, group:b,", "--tags", ""];
    assert_eq!(client.run(&args).await.code, 0);
    let asked = client.fake.asked().remove(0).1;
    for part in ["readers: [\"a\", \"group:b\"]", "writers: []", "clear: [\"tags\"]", "expected_version: None"] {
        assert!(asked.contains(part), "{part}: {asked}");
    }
    assert_eq!(client.run(&["knowledge", "write", "e"]).await.code, 2, "a text is needed");
    assert_eq!(client.run(&["knowledge", "write", "e", "t", "--file", "f"]).await.code, 2, "and only one");
    assert_eq!(client.run(&["knowledge", "write", "e", "t", "--expect", "-1"]).await.code, 2);
    assert_eq!(client.run(&["knowledge", "write", "e", "--file", "/none/there"]).await.code, 3);
    for words in ["a,,b", ",a", ","] {
        let lost = client.run(&["knowledge", "write", "e", "t", "--tags", words]).await;
        assert_eq!(lost.code, 2, "{words}: {}", lost.err);
    }
    let read = client.run(&["knowledge", "read", "e"]).await;
    assert!(read.out.ends_with("\ntext\n"), "{}", read.out);
    assert_eq!(client.run(&["state", "set", "k", "null"]).await.code, 0);
    assert_eq!(client.run(&["state", "get", "k"]).await.out, "7\n");
    client.run(&["task", "update", "t", "--depends-on", "a", "--depends-on", "b"]).await;
    client.run(&["task", "update", "t", "--depends-on", "none"]).await;
    let asked: Vec<String> = client.fake.asked().into_iter().rev().take(2).map(|(_, request)| request).collect();
    assert!(asked[1].contains("task_ids: [\"a\", \"b\"]") && asked[0].contains("task_ids: []"), "{asked:?}");
}

#[tokio::test]
async fn a_list_cut_at_its_limit_prints_a_note() {
    let client = TestClient::new(Fake::default().rows(3));
    for list in ["task", "dead", "cron", "watch"] {
        assert_eq!(client.run(&[list, "list"]).await.err, "");
    }
    // With --json, standard output stays one array, and the note goes to standard error.
    let asked = client.run(&["--json", "task", "list", "--limit", "2"]).await;
    assert_eq!((asked.json().as_array().unwrap().len(), asked.err.as_str()), (2, ""));
    let some = client.run(&["task", "list", "--limit", "2"]).await;
    assert!(some.err.contains("--limit"), "{}", some.err);
    let runs = async |rows: u32, limit: &str| {
        TestClient::new(Fake::default().rows(rows)).run(&["cron", "runs", "s", "--limit", limit]).await.err
    };
    assert_eq!(runs(3, "4").await, "");
    assert!(runs(3, "3").await.contains("--limit"));
    // The daemon lists no more.
    assert!(!runs(1_000, "1000").await.contains("--limit"));
}
