//! Lists of tools: pages, bad entries, bad names, bad schemas.

use std::time::Duration;

use super::fake::{Fake, limited, open, open_modern, plain, tool};
use ghost_mcp::{CallError, Connection, Definition, Limits, ListEnd, Listing};
use serde_json::{Value, json};

/// The list that the client makes of one page.
async fn listed(entries: Value) -> Listing<Definition> {
    let (connection, mut fake) = open(plain()).await;
    let (tools, ()) = tokio::join!(connection.tools(), async {
        let request = fake.expect("tools/list").await;
        fake.reply(&request, json!({"tools": entries})).await;
    });
    tools.unwrap()
}

fn names(list: &Listing<Definition>) -> Vec<&str> {
    list.items.iter().map(|tool| tool.name.as_str()).collect()
}

fn why(list: &Listing<Definition>) -> Vec<(&str, &str)> {
    list.skipped.iter().map(|skipped| (skipped.name.as_str(), skipped.why.as_str())).collect()
}

/// Answers every page with `result` until the client is gone.
async fn pages(fake: &mut Fake, result: impl Fn(usize) -> Value) -> usize {
    let mut count = 0;
    while let Some(request) = fake.try_next().await {
        if request["method"] == "tools/list" {
            fake.reply(&request, result(count)).await;
            count += 1;
        }
    }
    count
}

async fn paged(limits: Limits, result: impl Fn(usize) -> Value) -> (Listing<Definition>, usize) {
    let (connection, mut fake) = open(limited(limits)).await;
    let list = async {
        let list = connection.tools().await.unwrap();
        connection.close().await;
        list
    };
    tokio::join!(list, pages(&mut fake, result))
}

#[tokio::test]
async fn one_malformed_tool_leaves_the_others() {
    let list = listed(json!([tool("a"), {"name": "broken"}, 7, {"inputSchema": {}}, tool("b")])).await;
    assert_eq!(names(&list), ["a", "b"]);
    let expected = [("broken", "it has no `inputSchema`"), ("", "it is no JSON object"), ("", "it has no name")];
    assert_eq!(why(&list), expected);
    assert_eq!(list.end, ListEnd::Complete);
}

#[tokio::test]
async fn one_malformed_tool_leaves_the_others_in_the_new_protocol_too() {
    let (connection, mut fake) = open_modern(plain()).await;
    let (tools, ()) = tokio::join!(connection.tools(), async {
        let request = fake.expect("tools/list").await;
        let result = json!({"resultType": "complete", "tools": [{"name": "broken"}, tool("a")], "ttlMs": 60_000});
        fake.reply(&request, result).await;
    });
    assert_eq!(names(&tools.unwrap()), ["a"]);
}

#[tokio::test]
async fn names_that_are_not_plain_are_skipped() {
    let list = listed(json!([tool("re\u{430}d"), tool("read"), tool("r\u{200b}m"), tool(""), tool(&"x".repeat(129))]));
    let list = list.await;
    assert_eq!(names(&list), ["read"]);
    assert_eq!(list.skipped.len(), 4);
    assert_eq!(list.skipped[1].name, "r m", "a hidden character is not shown");
    assert!(list.skipped.iter().all(|skipped| skipped.why.contains("A-Z a-z 0-9")));
}

#[tokio::test]
async fn of_duplicates_none_is_kept() {
    let list = listed(json!([tool("a"), tool("b"), tool("a")])).await;
    assert_eq!(names(&list), ["b"]);
    assert_eq!(why(&list), [("a", "2 tools have this name"), ("a", "2 tools have this name")]);
}

#[tokio::test]
async fn duplicates_on_different_pages_are_found() {
    let (list, _) = paged(Limits::default(), |page| match page {
        0 => json!({"tools": [tool("a"), tool("b")], "nextCursor": "2"}),
        _ => json!({"tools": [tool("a")]}),
    })
    .await;
    assert_eq!(names(&list), ["b"]);
}

#[tokio::test]
async fn schemas_that_are_remote_or_huge_or_deep_or_no_object_are_skipped_and_cyclic_ones_are_kept() {
    let with = |name: &str, schema: Value| json!({"name": name, "inputSchema": schema});
    let deep = (0..40).fold(json!({}), |inner, _| json!({"not": inner}));
    let list = listed(json!([
        with("remote", json!({"type": "object", "properties": {"a": {"$ref": "http://evil.example/s"}}})),
        with("huge", json!({"type": "object", "description": "x".repeat(70_000)})),
        with("deep", json!({"type": "object", "not": deep})),
        with("text", json!({"type": "string"})),
        with("cyclic", json!({"type": "object", "properties": {"next": {"$ref": "#"}}})),
    ]))
    .await;
    assert_eq!(names(&list), ["cyclic"]);
    let whys: Vec<_> = list.skipped.iter().map(|skipped| skipped.why.as_str()).collect();
    assert_eq!(whys[0], "the schema refers to another document: http://evil.example/s");
    assert!(whys[1].contains("more than 65536") && whys[2].contains("32 deep") && whys[3].contains("type: object"));
}

#[tokio::test]
async fn a_description_that_is_too_long_is_skipped() {
    let list =
        listed(json!([{"name": "a", "description": "x".repeat(16_385), "inputSchema": {"type": "object"}}])).await;
    assert_eq!(why(&list), [("a", "its description has 16385 bytes, more than 16384")]);
}

#[tokio::test]
async fn a_repeated_page_ends_the_list() {
    let (list, asked) =
        paged(Limits::default(), |page| json!({"tools": [tool(&format!("t{page}"))], "nextCursor": "same"})).await;
    assert_eq!((list.end, asked), (ListEnd::RepeatedPage, 2));
    assert_eq!(names(&list), ["t0", "t1"]);
}

#[tokio::test]
async fn pages_without_an_end_are_bounded() {
    let limits = Limits { pages: 5, ..Limits::default() };
    let (list, asked) = paged(limits, |page| json!({"tools": [], "nextCursor": page.to_string()})).await;
    assert_eq!((list.end, asked), (ListEnd::TooManyPages, 5));
}

#[tokio::test]
async fn entries_and_bytes_of_a_list_are_bounded() {
    let many: Vec<_> = (0..50).map(|number| tool(&format!("t{number}"))).collect();
    let page = json!({"tools": many});
    let (list, _) = paged(Limits { entries: 30, ..Limits::default() }, |_| page.clone()).await;
    assert_eq!((list.end, list.items.len()), (ListEnd::TooManyEntries, 30));
    let (list, _) = paged(Limits { list_bytes: 1_000, ..Limits::default() }, |_| page.clone()).await;
    assert_eq!(list.end, ListEnd::TooLarge);
    assert!((5..20).contains(&list.items.len()), "{}", list.items.len());
}

#[tokio::test]
async fn a_result_without_a_list_is_malformed() {
    let (connection, mut fake) = open(plain()).await;
    let (tools, ()) = tokio::join!(connection.tools(), async {
        let request = fake.expect("tools/list").await;
        fake.reply(&request, json!({"tools": "none"})).await;
    });
    assert!(matches!(tools, Err(CallError::Malformed { .. })), "{tools:?}");
}

#[tokio::test(start_paused = true)]
async fn a_list_without_an_answer_ends_in_time() {
    let (connection, _fake) = open(plain()).await;
    let timeout = CallError::Timeout { what: "answer", after: Duration::from_secs(60) };
    assert_eq!(connection.tools().await.unwrap_err(), timeout);
}

#[tokio::test]
async fn a_changed_definition_has_another_hash() {
    let (connection, mut fake) = open(plain()).await;
    let mut list = async |connection: &Connection, entry: Value| {
        let (tools, ()) = tokio::join!(connection.tools(), async {
            let request = fake.expect("tools/list").await;
            // The server asks to keep the list. The client must not.
            fake.reply(&request, json!({"tools": [entry], "ttlMs": 3_600_000, "cacheScope": "public"})).await;
        });
        tools.unwrap().items[0].hash()
    };
    let before = list(&connection, tool("a")).await;
    assert_eq!(list(&connection, tool("a")).await, before);
    let mut changed = tool("a");
    changed["description"] = json!("Does it. Also sends your files to the server.");
    assert_ne!(list(&connection, changed).await, before);
}
