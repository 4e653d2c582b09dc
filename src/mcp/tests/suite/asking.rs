//! Questions of a server.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;

use super::fake::{Fake, link, none, open, open_modern, plain, text};
use ghost_mcp::{Answer, CallError, CallOptions, Connection, Elicitation, ElicitationHandler, Options};
use serde_json::{Value, json};

/// Gives answers from a list, and keeps the questions. Without an answer it waits for ever.
#[derive(Default)]
struct User {
    answers: Mutex<VecDeque<Answer>>,
    questions: Mutex<Vec<Elicitation>>,
}

#[async_trait]
impl ElicitationHandler for User {
    async fn ask(&self, question: Elicitation) -> Answer {
        self.questions.lock().unwrap().push(question);
        let answer = self.answers.lock().unwrap().pop_front();
        match answer {
            Some(answer) => answer,
            None => std::future::pending().await,
        }
    }
}

fn user(answers: impl IntoIterator<Item = Answer>) -> (Arc<User>, Options) {
    let user = Arc::new(User { answers: Mutex::new(answers.into_iter().collect()), ..User::default() });
    (Arc::clone(&user), Options { elicitation: Some(user), ..plain() })
}

fn labelled(label: &str) -> CallOptions {
    CallOptions { label: Some(label.into()), ..CallOptions::default() }
}

fn params() -> Value {
    let properties = json!({"name": {"type": "string", "minLength": 2}, "ok": {"type": "boolean", "default": true}});
    json!({"message": "Who?", "requestedSchema": {"type": "object", "properties": properties, "required": ["name"]}})
}

async fn ask(fake: &mut Fake, params: Value) {
    fake.send(json!({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": params})).await;
}

/// What the server gets for a question of the older protocol.
async fn answered(options: Options, params: Value) -> Value {
    let (connection, mut fake) = open(options).await;
    let (result, answer) = tokio::join!(connection.call("t", none(), labelled("call-7"), |_| ()), async {
        let call = fake.expect("tools/call").await;
        ask(&mut fake, params).await;
        let answer = fake.next().await;
        fake.reply(&call, text("done")).await;
        answer
    });
    result.unwrap();
    answer["result"].clone()
}

#[tokio::test]
async fn elicitation_is_declared_with_a_handler() {
    let (link, mut fake) = link();
    let (_user, options) = user([]);
    let (_connection, request) = tokio::join!(Connection::open(link, options), fake.initialize());
    let capabilities = &request["params"]["capabilities"];
    assert!(capabilities["elicitation"]["form"].is_object(), "{capabilities}");
    assert_eq!(capabilities.as_object().unwrap().len(), 1);
}

#[tokio::test]
async fn a_question_reaches_the_user_and_defaults_are_filled() {
    let (user, options) = user([Answer::Accept(json!({"name": "Ada"}))]);
    let result = answered(options, params()).await;
    assert_eq!(result, json!({"action": "accept", "content": {"name": "Ada", "ok": true}}));
    let questions = user.questions.lock().unwrap();
    assert_eq!((questions[0].message.as_str(), questions[0].call.as_deref()), ("Who?", Some("call-7")));
    assert_eq!(questions[0].schema["required"], json!(["name"]));
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_asked_for_again_within_a_bound() {
    let short = || Answer::Accept(json!({"name": "A"}));
    let (asked, options) = user([short(), Answer::Accept(json!([])), Answer::Accept(json!({"name": "Ada"}))]);
    assert_eq!(answered(options, params()).await["action"], "accept");
    let problems: Vec<_> = asked.questions.lock().unwrap().iter().map(|question| question.problem.clone()).collect();
    let too_short = Some("`name` does not have at least 2 characters".to_owned());
    assert_eq!(problems, [None, too_short, Some("the answer is no object".to_owned())]);

    let (asked, options) = user([short(), short(), short(), short()]);
    assert_eq!(answered(options, params()).await, json!({"action": "cancel"}));
    assert_eq!(asked.questions.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn a_user_who_declines_or_cancels_gives_nothing() {
    for (answer, action) in [(Answer::Decline, "decline"), (Answer::Cancel, "cancel")] {
        let (_user, options) = user([answer]);
        assert_eq!(answered(options, params()).await, json!({"action": action}));
    }
}

#[tokio::test(start_paused = true)]
async fn questions_in_another_form_do_not_reach_the_user() {
    let address = json!({"mode": "url", "message": "Go", "url": "https://evil.example", "elicitationId": "1"});
    let remote = json!({"type": "object", "properties": {"a": {"$ref": "https://evil.example/s"}}});
    let forms = [json!({"message": "?", "requestedSchema": remote}), json!({"message": "?"})];
    // Also with a schema beside it, an address is not a form.
    let mut both = params();
    both.as_object_mut().unwrap().extend(address.as_object().unwrap().clone());
    for params in forms.into_iter().chain([address, both]) {
        let (asked, options) = user([Answer::Accept(json!({"name": "Ada"}))]);
        assert_eq!(answered(options, params.clone()).await, json!({"action": "decline"}), "{params}");
        assert!(asked.questions.lock().unwrap().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_user_who_says_nothing_counts_as_cancelled() {
    let (_user, mut options) = user([]);
    options.limits.answer_timeout = Duration::from_secs(20);
    assert_eq!(answered(options, params()).await, json!({"action": "cancel"}));
}

#[tokio::test(start_paused = true)]
async fn the_idle_time_does_not_run_while_the_user_thinks() {
    let (_user, mut options) = user([]);
    options.limits.answer_timeout = Duration::from_secs(20);
    let (connection, mut fake) = open(options).await;
    let idle = CallOptions { idle: Some(Duration::from_secs(3)), ..CallOptions::default() };
    let (result, ()) = tokio::join!(connection.call("t", none(), idle, |_| ()), async {
        let call = fake.expect("tools/call").await;
        ask(&mut fake, params()).await;
        assert_eq!(fake.next().await["result"]["action"], "cancel");
        fake.reply(&call, text("done")).await;
    });
    assert_eq!(result.unwrap().text(), "done");
}

#[tokio::test]
async fn a_server_can_take_its_question_back() {
    let (asked, options) = user([]);
    let (connection, mut fake) = open(options).await;
    let (result, ()) = tokio::join!(connection.call("t", none(), CallOptions::default(), |_| ()), async {
        let call = fake.expect("tools/call").await;
        for _ in 0..20 {
            ask(&mut fake, params()).await;
            let params = json!({"requestId": "q"});
            fake.send(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})).await;
        }
        fake.reply(&call, text("done")).await;
    });
    assert_eq!(result.unwrap().text(), "done");
    assert_eq!(connection.closed_reason(), None, "none of them is open any more");
    assert!(asked.questions.lock().unwrap().len() <= 20);
}

#[tokio::test(start_paused = true)]
async fn an_open_question_does_not_delay_the_end_of_the_server() {
    let (_user, options) = user([]);
    let (connection, mut fake) = open(options).await;
    let begin = tokio::time::Instant::now();
    let (result, ()) = tokio::join!(connection.call("t", none(), CallOptions::default(), |_| ()), async move {
        fake.expect("tools/call").await;
        ask(&mut fake, params()).await;
    });
    assert!(matches!(result, Err(CallError::Closed { sent: true, .. })));
    connection.close().await;
    assert!(begin.elapsed() < Duration::from_millis(100), "{:?}", begin.elapsed());
}

fn required(requests: Value) -> Value {
    json!({"resultType": "input_required", "inputRequests": requests, "requestState": "st\u{e4}te"})
}

#[tokio::test]
async fn input_that_a_modern_server_requires_is_asked_for_and_sent_back() {
    let (asked, options) = user([Answer::Accept(json!({"name": "Ada"})), Answer::Decline]);
    let (connection, mut fake) = open_modern(options).await;
    let arguments = json!({"a": 1}).as_object().unwrap().clone();
    let (result, ()) = tokio::join!(connection.call("t", arguments, labelled("call-8"), |_| ()), async {
        let call = fake.expect("tools/call").await;
        let question = json!({"method": "elicitation/create", "params": params()});
        fake.reply(&call, required(json!({"one": question.clone(), "two": question}))).await;
        let again = fake.expect("tools/call").await;
        assert_ne!(again["id"], call["id"]);
        assert_eq!(again["params"]["arguments"], json!({"a": 1}));
        assert_eq!(again["params"]["requestState"], "st\u{e4}te");
        let one = json!({"action": "accept", "content": {"name": "Ada", "ok": true}});
        assert_eq!(again["params"]["inputResponses"], json!({"one": one, "two": {"action": "decline"}}));
        let mut done = text("done");
        done["resultType"] = json!("complete");
        fake.reply(&again, done).await;
    });
    assert_eq!(result.unwrap().text(), "done");
    assert!(asked.questions.lock().unwrap().iter().all(|question| question.call.as_deref() == Some("call-8")));
}

/// The error of a call that the modern server answers with `result` again and again, and how often it was asked.
async fn insisting(options: Options, result: Value) -> (CallError, usize) {
    let (connection, mut fake) = open_modern(options).await;
    let call = async {
        let error = connection.call("t", none(), CallOptions::default(), |_| ()).await.unwrap_err();
        connection.close().await;
        error
    };
    tokio::join!(call, async {
        let mut count = 0;
        while let Some(request) = fake.try_next().await {
            if request["method"] == "tools/call" {
                count += 1;
                fake.reply(&request, result.clone()).await;
            }
        }
        count
    })
}

#[tokio::test]
async fn a_server_that_never_has_enough_input_is_left() {
    let (_user, options) = user([]);
    let (error, count) = insisting(options, json!({"resultType": "input_required", "requestState": "x"})).await;
    assert!(matches!(error, CallError::NeedsInput { .. }) && error.may_have_happened(), "{error}");
    assert_eq!(count, 11);
}

#[tokio::test]
async fn input_that_nobody_gives_ends_the_call() {
    let (_user, with_user) = user([]);
    let question = json!({"method": "elicitation/create", "params": params()});
    let sampling = json!({"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}});
    let many: Value =
        (0..9).map(|number| (number.to_string(), question.clone())).collect::<serde_json::Map<_, _>>().into();
    let cases = [
        (plain(), json!({"q": question}), "nobody answers its questions"),
        (with_user.clone(), json!({"q": sampling}), "this client does not offer `sampling/createMessage`"),
        (with_user.clone(), json!({"q": {"method": "roots/list"}}), "this client does not offer `roots/list`"),
        (with_user, many, "it asked 9 questions at once, more than 8"),
    ];
    for (options, requests, detail) in cases {
        let (error, count) = insisting(options, required(requests)).await;
        assert_eq!((error, count), (CallError::NeedsInput { detail: detail.to_owned() }, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_call_holds_while_its_user_thinks() {
    let (_user, options) = user([]);
    let (connection, mut fake) = open_modern(options).await;
    let after = Duration::from_secs(5);
    let (result, ()) = tokio::join!(
        connection.call("t", none(), CallOptions { timeout: after, ..CallOptions::default() }, |_| ()),
        async {
            let call = fake.expect("tools/call").await;
            let question = json!({"method": "elicitation/create", "params": params()});
            fake.reply(&call, required(json!({"q": question}))).await;
        }
    );
    assert_eq!(result.unwrap_err(), CallError::Timeout { what: "answer", after });
}

/// Waits for ever. The first channel tells the beginning of the question, the second one closes at its end.
struct Waits(Mutex<Option<(Signal, Signal)>>);

type Signal = tokio::sync::oneshot::Sender<()>;

#[async_trait]
impl ElicitationHandler for Waits {
    async fn ask(&self, _: Elicitation) -> Answer {
        let (begun, _ended) = self.0.lock().unwrap().take().expect("one question");
        begun.send(()).unwrap();
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_of_a_server_that_ended_is_dropped_at_once() {
    let ((begun, begins), (ended, ends)) = (tokio::sync::oneshot::channel(), tokio::sync::oneshot::channel());
    let options = Options { elicitation: Some(Arc::new(Waits(Mutex::new(Some((begun, ended)))))), ..plain() };
    let (connection, mut fake) = open(options).await;
    let begin = tokio::time::Instant::now();
    let (result, ()) = tokio::join!(connection.call("t", none(), CallOptions::default(), |_| ()), async move {
        fake.expect("tools/call").await;
        ask(&mut fake, params()).await;
        begins.await.expect("the question is put");
    });
    assert!(matches!(result, Err(CallError::Closed { sent: true, .. })));
    assert!(ends.await.is_err());
    assert!(begin.elapsed() < Duration::from_millis(100), "{:?}", begin.elapsed());
}
