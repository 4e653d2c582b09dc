//! Tests of the `Messages` and `Turns` services.

use ghost_domain::EventKind;
use ghost_proto::v1;
use ghost_proto::v1::budgets_client::BudgetsClient;
use ghost_proto::v1::messages_client::MessagesClient;
use ghost_proto::v1::turns_client::TurnsClient;
use tonic::Code;

use crate::test_daemon::{TestDaemon, new_world, refused, while_time_passes};

fn send(request_id: &str, agent: &str, body: &str) -> v1::SendRequest {
    v1::SendRequest { request_id: request_id.into(), agent_id: agent.into(), body: body.into(), ..Default::default() }
}

fn ask(request_id: &str, body: &str, timeout_ms: Option<u64>) -> v1::AskRequest {
    v1::AskRequest { request_id: request_id.into(), agent_id: "ada".into(), body: body.into(), timeout_ms }
}

#[tokio::test]
async fn mail_is_accepted_once_and_answered_once() {
    let test_world = new_world();
    let daemon = TestDaemon::serve(&test_world, "s").await;
    let mut messages = MessagesClient::new(daemon.channel.clone());
    let sent = messages.send(send("1", "ben", "hello")).await.unwrap().into_inner();
    assert!(sent.seq > 0);
    assert_eq!(messages.send(send("1", "ben", "hello")).await.unwrap().into_inner(), sent);
    refused(messages.send(send("1", "ben", "other")).await, Code::FailedPrecondition, None);
    let answered = messages.ask(ask("2", "hello", None)).await.unwrap().into_inner();
    assert_eq!((answered.status.as_str(), answered.reply.as_deref()), ("answered", Some("heard")));
    assert_eq!(messages.ask(ask("2", "hello", None)).await.unwrap().into_inner(), answered);
    let late = while_time_passes(&test_world.clock, messages.ask(ask("3", "please wait", Some(1_000))))
        .await
        .unwrap()
        .into_inner();
    assert_eq!((late.status.as_str(), late.reply), ("timed_out", None));
    assert_eq!(late.error_code.as_deref(), Some("timeout"));
    assert!(late.hint.unwrap().contains("ask.late"));
    assert_eq!((answered.error_code, answered.hint), (None, None));
    refused(messages.send(send("4", "bne", "x")).await, Code::NotFound, None);
    refused(messages.send(send("4", "ben", "a\0")).await, Code::InvalidArgument, Some("body"));
    let escape = v1::SendRequest { attachments: vec!["../x".into()], ..send("4", "ben", "x") };
    refused(messages.send(escape).await, Code::PermissionDenied, Some("attachments"));
    refused(messages.ask(ask("5", "x", Some(0))).await, Code::InvalidArgument, Some("timeout_ms"));
}

#[tokio::test]
async fn the_deadline_of_a_client_ends_its_call() {
    let test_world = new_world();
    let daemon = TestDaemon::serve(&test_world, "s").await;
    let mut request = tonic::Request::new(ask("1", "please wait", None));
    request.metadata_mut().insert("grpc-timeout", "20S".parse().unwrap());
    let call = while_time_passes(&test_world.clock, MessagesClient::new(daemon.channel.clone()).ask(request)).await;
    let refusal = refused(call, Code::DeadlineExceeded, None);
    assert_eq!(refusal.code, ghost_domain::Code::Timeout);
    assert!(refusal.message.contains("within 20s"), "{refusal}");
}

#[tokio::test]
async fn a_failed_ask_reports_its_code() {
    let test_world = new_world();
    let daemon = TestDaemon::serve(&test_world, "s").await;
    let mut messages = MessagesClient::new(daemon.channel.clone());
    let (mut asker, mut turns) = (messages.clone(), TurnsClient::new(daemon.channel.clone()));
    let waiting = tokio::spawn(async move { asker.ask(ask("4", "please wait", None)).await });
    daemon.until(EventKind::ModelStarted, "ada").await;
    let open = v1::ListTurnsRequest { status: Some("open".into()), ..Default::default() };
    let turn_id = turns.list(open).await.unwrap().into_inner().turns[0].turn_id.clone();
    let cancel = v1::CancelTurnRequest { request_id: "5".into(), turn_id, reason: Some("too long".into()) };
    turns.cancel(cancel).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().into_inner().error_code.as_deref(), Some("cancelled"));

    let set_aside =
        while_time_passes(&test_world.clock, messages.ask(ask("6", "poison", None))).await.unwrap().into_inner();
    assert_eq!((set_aside.status.as_str(), set_aside.error_code.as_deref()), ("failed", Some("unavailable")));

    // A spent budget parks the turn. The ask reaches its deadline and reports what it waited for.
    let mut budgets = BudgetsClient::new(daemon.channel.clone());
    let limit = v1::SetBudgetRequest {
        request_id: "1".into(),
        scope: "agent:ben".into(),
        limit_tokens: Some(1),
        ..Default::default()
    };
    budgets.set(limit).await.unwrap();
    let ask_ben = v1::AskRequest { agent_id: "ben".into(), ..ask("2", "hello", Some(1_000)) };
    let spent = while_time_passes(&test_world.clock, messages.ask(ask_ben.clone())).await.unwrap().into_inner();
    assert_eq!((spent.status.as_str(), spent.error_code.as_deref()), ("timed_out", Some("timeout")), "{spent:?}");
    assert!(
        spent.error.as_ref().is_some_and(|error| error.contains("agent:ben")) && spent.reply.is_none(),
        "{spent:?}"
    );
    assert_eq!(messages.ask(ask_ben).await.unwrap().into_inner(), spent, "a repetition gets the same answer");
}

#[tokio::test]
async fn dead_letters_are_shown_dropped_and_retried() {
    let test_world = new_world();
    let daemon = TestDaemon::serve(&test_world, "s").await;
    let mut messages = MessagesClient::new(daemon.channel.clone());
    messages.send(send("1", "ada", "poison")).await.unwrap();
    messages.send(send("2", "ben", "poison")).await.unwrap();
    for agent in ["ada", "ben"] {
        while_time_passes(&test_world.clock, daemon.until(EventKind::DeadLetterHeld, agent)).await;
    }
    let list = |status: Option<&str>, limit, cursor| v1::ListDeadRequest {
        agent_id: None,
        status: status.map(str::to_owned),
        limit,
        cursor,
    };
    let first = messages.list_dead(list(None, 1, String::new())).await.unwrap().into_inner();
    let second = messages.list_dead(list(None, 1, first.next_cursor)).await.unwrap().into_inner();
    assert_eq!((first.dead_letters.len(), second.dead_letters.len(), second.next_cursor.as_str()), (1, 1, ""));
    let (one, two) = (first.dead_letters[0].dead_letter_id.clone(), second.dead_letters[0].dead_letter_id.clone());
    assert_ne!(one, two);
    for cursor in ["x", "5.00", "9.00000000000000000000000000000000"] {
        refused(messages.list_dead(list(None, 1, cursor.into())).await, Code::InvalidArgument, Some("cursor"));
    }
    assert!(messages.list_dead(list(None, 501, String::new())).await.is_ok(), "a larger limit means the largest");
    let letter = messages.get_dead(v1::GetDeadRequest { dead_letter_id: one.clone() }).await.unwrap().into_inner();
    assert_eq!((letter.envelopes[0].body.as_str(), letter.envelopes[0].state.as_str()), ("poison", "dead"));
    let cut = v1::GetDeadRequest { dead_letter_id: one[..35].to_owned() };
    refused(messages.get_dead(cut).await, Code::InvalidArgument, Some("dead_letter_id"));
    let drop = |request_id: &str| v1::DropDeadRequest { request_id: request_id.into(), dead_letter_id: one.clone() };
    let dropped = messages.drop_dead(drop("3")).await.unwrap().into_inner();
    assert!(dropped.changed && dropped.dead_letter.as_ref().unwrap().status == "dropped");
    assert_eq!(messages.drop_dead(drop("3")).await.unwrap().into_inner(), dropped);
    refused(messages.drop_dead(drop("4")).await, Code::FailedPrecondition, None);
    let retry = v1::RetryDeadRequest { request_id: "5".into(), dead_letter_id: two, fresh: true };
    assert_eq!(messages.retry_dead(retry).await.unwrap().into_inner().dead_letter.unwrap().status, "retried");
    let all = messages.list_dead(list(Some("all"), 0, String::new())).await.unwrap().into_inner();
    assert!(all.dead_letters.len() >= 2);
    let refusal =
        refused(messages.list_dead(list(Some("lost"), 0, String::new())).await, Code::InvalidArgument, Some("status"));
    assert!(refusal.hint.unwrap().ends_with(", all"));
    let none = v1::GetDeadRequest { dead_letter_id: "00000000-0000-0000-0000-00000000ffff".into() };
    refused(messages.get_dead(none).await, Code::NotFound, None);
}

#[tokio::test]
async fn turns_are_listed_in_pages_shown_with_their_journal_and_cancelled() {
    let test_world = new_world();
    let daemon = TestDaemon::serve(&test_world, "s").await;
    let mut messages = MessagesClient::new(daemon.channel.clone());
    let mut turns = TurnsClient::new(daemon.channel.clone());
    for n in 0..5 {
        messages.ask(ask(&format!("a{n}"), "say hush-hush-secret", None)).await.unwrap();
    }
    let mut request = v1::ListTurnsRequest { limit: 2, ..Default::default() };
    let mut seen = Vec::new();
    loop {
        let page = turns.list(request.clone()).await.unwrap().into_inner();
        seen.extend(page.turns);
        if page.next_cursor.is_empty() {
            break;
        }
        request.cursor = page.next_cursor;
    }
    let mut ids: Vec<&str> = seen.iter().map(|turn| turn.turn_id.as_str()).collect();
    ids.dedup();
    assert_eq!(ids.len(), 5, "all share one millisecond and none is lost or repeated");
    let root = v1::ListTurnsRequest { root_id: Some(seen[3].root_id.clone()), ..Default::default() };
    assert_eq!(turns.list(root).await.unwrap().into_inner().turns, [seen[3].clone()]);
    let get = v1::GetTurnRequest { turn_id: ids[0].into(), limit: 1, after_seq: 0 };
    let first = turns.get(get.clone()).await.unwrap().into_inner();
    assert!(first.more && first.steps.len() == 1);
    let rest = v1::GetTurnRequest { limit: 0, after_seq: first.steps[0].seq, ..get };
    let rest = turns.get(rest).await.unwrap().into_inner();
    assert!(!rest.more && rest.steps.iter().any(|step| step.step == "model_answered"));
    assert!(first.steps.iter().chain(&rest.steps).all(|step| !step.step_json.contains("hush-hush")));
    messages.send(send("h", "ben", "please wait")).await.unwrap();
    daemon.until(EventKind::ModelStarted, "ben").await;
    let open = v1::ListTurnsRequest { status: Some("open".into()), ..Default::default() };
    let turn_id = turns.list(open).await.unwrap().into_inner().turns[0].turn_id.clone();
    let cancel = |request_id: &str| v1::CancelTurnRequest {
        request_id: request_id.into(),
        turn_id: turn_id.clone(),
        reason: Some("too long".into()),
    };
    let cancelled = turns.cancel(cancel("c1")).await.unwrap().into_inner();
    assert!(cancelled.changed && cancelled.turn.unwrap().reason.unwrap().ends_with("too long"));
    assert!(!turns.cancel(cancel("c2")).await.unwrap().into_inner().changed);
    let bad = v1::GetTurnRequest { turn_id: "x".into(), ..Default::default() };
    refused(turns.get(bad).await, Code::InvalidArgument, Some("turn_id"));
    let bad = v1::ListTurnsRequest { cursor: "x".into(), ..Default::default() };
    refused(turns.list(bad).await, Code::InvalidArgument, Some("cursor"));
}
