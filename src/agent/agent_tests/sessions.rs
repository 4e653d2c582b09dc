//! A prompt holds the past of its own session, word for word, and nothing of another's (LOOP-01).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ghost_domain::conversation::CONTROL;
use ghost_domain::schedule::{JobMode, Missed, OwnTurn, Target, When};
use ghost_domain::transcript::{Block, Role};
use ghost_domain::{ConversationId, Party, ScheduleKind, TurnStatus};
use ghost_operations::conversations::{self, IncomingMessage, Post, Start};
use ghost_operations::mail::Chain;
use ghost_operations::schedules::{self, NewSchedule};
use ghost_operations::{sessions, turns};
use ghost_provider::ModelRequest;
use ghost_provider::testing::{Reply, call, say};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::json;

use super::agent_world::{AgentWorld, id, operator, read, write};
use crate::truncate::CUT_MARK;
use crate::turn::AgentSession;

/// A message to ada from a person outside, who has a conversation of their own.
async fn says(world: &AgentWorld, person: &str, text: &str) -> ConversationId {
    let start = Start { adapter: CONTROL.into(), thread: Some(person.into()), owner: id("ada"), party: operator() };
    let message = IncomingMessage {
        from: Party::Outside(person.into()),
        content: text.into(),
        attachments: vec![],
        reply_to: None,
        external_id: None,
    };
    write!(world, |w| conversations::arrive(w, start, message)).unwrap().conversation.conversation_id
}

/// Every text of a request but the stable parts.
fn text_of(request: &ModelRequest) -> String {
    let blocks = request.messages[1..].iter().flat_map(|message| &message.blocks);
    let texts = blocks.map(|block| match block {
        Block::Text { text } => text.clone(),
        Block::ToolCall { arguments, .. } => arguments.to_string(),
        Block::ToolResult { content, .. } => content.clone(),
        Block::Thinking { .. } | Block::Opaque(_) | Block::Image { .. } | Block::ImageFile(_) => String::new(),
    });
    texts.collect::<Vec<_>>().join("\n")
}

fn last_request(world: &AgentWorld) -> ModelRequest {
    world.model.requests().pop().unwrap()
}

async fn work(world: &AgentWorld, session: &Arc<AgentSession>) {
    world.in_time(crate::turn::work(&world.engine, &id("ada"), session)).await.unwrap();
}

// covers: LOOP-01
#[tokio::test]
async fn a_turn_gets_the_log_of_its_session_with_calls_and_results() {
    let world = AgentWorld::new().await;
    world.model.reply_with(|_, n| if n == 0 { call("test.look", json!({ "n": 7 })) } else { say("seven") });
    says(&world, "eve", "how many?").await;
    work(&world, &world.session).await;
    says(&world, "eve", "thanks").await;
    work(&world, &world.session).await;
    let kept = last_request(&world);
    let shape: Vec<(Role, usize)> = kept.messages.iter().map(|message| (message.role, message.blocks.len())).collect();
    let turn = [(Role::User, 1), (Role::Assistant, 1), (Role::Tool, 1), (Role::Assistant, 1)];
    assert_eq!((&shape[1..5], shape.len(), kept.past), (&turn[..], 6, 5));
    let Block::ToolResult { content, .. } = &kept.messages[3].blocks[0] else { panic!("a result") };
    assert_eq!(content, "{\"n\":7}");
    assert_eq!(kept.messages[4].visible_text(), "seven");
    // An agent that has slept since reads the same from its journals.
    says(&world, "eve", "bye").await;
    work(&world, &Arc::default()).await;
    let read = last_request(&world);
    assert_eq!(read.messages[..6], kept.messages[..]);
}

// covers: LOOP-01
#[tokio::test]
async fn a_full_log_is_cut_to_half_and_keeps_its_beginning_for_many_turns() {
    let world = AgentWorld::with(|plan| plan.limits.session_tokens = 1_000).await;
    world.model.reply_with(|_, n| say(&format!("answer {n} {}", "x".repeat(300))));
    let (mut cuts, mut first, mut session) = (0, None, Arc::default());
    for n in 0..40 {
        world.send("ada", &format!("question {n}")).await;
        // Some turns go on from memory, others read the journals.
        if n % 3 == 0 {
            session = Arc::default();
        }
        work(&world, &session).await;
        let request = last_request(&world);
        let log = &request.messages[1..request.past];
        assert!(crate::truncate::bytes_of(log) <= 4_000 + CUT_MARK.len());
        let begins = log.iter().take(2).cloned().collect::<Vec<_>>();
        if first.as_ref().is_some_and(|first| *first != begins) && n > 1 {
            cuts += 1;
            assert!(crate::truncate::bytes_of(log) <= 2_000 + CUT_MARK.len());
            assert_eq!(log[0].visible_text(), CUT_MARK);
        }
        first = Some(begins);
    }
    assert!((4..12).contains(&cuts), "{cuts}");
}

#[tokio::test]
async fn a_turn_without_an_answer_is_shown_as_such_and_mail_that_no_model_saw_is_not() {
    let world = AgentWorld::with(|plan| plan.limits.turn_rounds_max = 2).await;
    world.model.reply_with(|_, _| call("test.look", json!({ "n": 1 })));
    world.send("ada", "loop").await;
    world.work("ada").await.unwrap();
    assert_eq!(world.turn("ada").await.status, TurnStatus::TimedOut);
    world.model.reply_with(|_, _| {
        Reply::Fail(ghost_provider::ProviderError::new(ghost_provider::ErrorKind::BadRequest, "no"))
    });
    world.send("ada", "unseen").await;
    world.work("ada").await.unwrap();
    world.model.reply_with(|_, _| say("well"));
    world.send("ada", "go on").await;
    world.work("ada").await.unwrap();
    let text = text_of(&last_request(&world));
    assert!(text.contains("loop") && text.contains("ended here without an answer: timed_out"), "{text}");
    assert!(!text.contains("unseen"), "{text}");
    // Two calls with these arguments, and the one result that a model has read.
    assert_eq!(
        (text.matches("{\"n\":1}").count(), text.matches("before this result was read").count()),
        (3, 1),
        "{text}"
    );
}

/// What happens next in the world of the property test.
#[derive(Clone, Debug)]
enum Event {
    /// A person writes to ada.
    Person(u8),
    /// Mail for ada's own work.
    Own,
    /// Ada works off her mail with what she remembers.
    Work,
    /// Ada works off her mail after she slept or the daemon restarted.
    Restart,
    /// The daemon dies in the middle of her turn.
    Crash,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0_u8..2).prop_map(Event::Person),
        1 => Just(Event::Own),
        3 => Just(Event::Work),
        2 => Just(Event::Restart),
        1 => Just(Event::Crash),
    ]
}

/// A canary: a word of one session that no other may contain.
fn canary(session: u8, n: usize) -> String {
    format!("canary-{session}-{n}-end")
}

/// The session of a request, by the newest mail, and checks that it has only canaries of that session, all of those
/// that its session has answered, in order.
fn check(request: &ModelRequest, answered: &mut BTreeMap<u8, Vec<String>>) {
    let mail = request.messages[request.past].visible_text();
    let text = text_of(request);
    let found: Vec<u8> = (0..3).filter(|session| text.contains(&format!("canary-{session}-"))).collect();
    let [session] = found.as_slice() else { panic!("one session's words, not those of {found:?}:\n{text}") };
    let own = answered.entry(*session).or_default();
    let mut rest = text.as_str();
    for word in own.iter() {
        let at = rest.find(word.as_str()).unwrap_or_else(|| panic!("{word} is missing in:\n{text}"));
        rest = &rest[at..];
    }
    // A turn that crashes before this request may be split: its mail is tried again one by one.
    if request.messages.last().is_none_or(|message| message.role != Role::Tool) {
        return;
    }
    for word in mail.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').filter(|word| word.starts_with("canary-"))
    {
        if !own.iter().any(|known| known == word) {
            own.push(word.to_owned());
        }
    }
}

async fn scenario(events: Vec<Event>) {
    let world = AgentWorld::new().await;
    // The first call of each turn reads, so that results are in the logs, too.
    let answer = |request: &ModelRequest, _: usize| match request.messages.last().map(|message| message.role) {
        Some(Role::User) => call("test.look", json!({ "n": 1 })),
        _ => {
            let mail = request.messages[request.past].visible_text();
            let session = (0..3).find(|session| mail.contains(&format!("canary-{session}-"))).unwrap();
            say(&format!("noted canary-{session}-"))
        }
    };
    world.model.reply_with(answer);
    let (mut seen, mut session) = (0, Arc::<AgentSession>::default());
    let mut answered = BTreeMap::new();
    let mut check_new = |world: &AgentWorld| {
        let requests = world.model.requests();
        for request in &requests[seen.min(requests.len())..] {
            check(request, &mut answered);
        }
        seen = requests.len();
    };
    let events = events.into_iter().chain([Event::Person(0), Event::Person(1), Event::Own, Event::Restart]);
    for (n, event) in events.enumerate() {
        match event {
            Event::Person(person) => {
                says(&world, ["eve", "mia"][usize::from(person)], &canary(person, n)).await;
            }
            Event::Own => {
                world.send("ada", &canary(2, n)).await;
            }
            Event::Work => work(&world, &session).await,
            Event::Restart => {
                write!(world, |w| turns::review_at_boot(w)).unwrap();
                session = Arc::default();
                work(&world, &session).await;
            }
            Event::Crash => {
                world.tool_state.hangs.store(true, std::sync::atomic::Ordering::SeqCst);
                session = Arc::default();
                let ada = id("ada");
                tokio::select! {
                    biased;
                    done = crate::turn::work(&world.engine, &ada, &session) => done.unwrap(),
                    () = world.tool_state.entered.notified() => {}
                }
                world.tool_state.hangs.store(false, std::sync::atomic::Ordering::SeqCst);
                write!(world, |w| turns::review_at_boot(w)).unwrap();
            }
        }
        check_new(&world);
    }
    let open = read!(world, |r| r.turns_open()?);
    assert!(open.is_empty() && answered.len() == 3, "{open:?} {answered:?}");
}

// covers: LOOP-01
#[test]
fn nothing_of_one_session_enters_the_prompt_of_another() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = ProptestConfig { cases: 1_000, max_shrink_iters: 200, ..ProptestConfig::default() };
    let ran = TestRunner::new(config).run(&prop::collection::vec(event(), 1..14), |events| {
        runtime.block_on(scenario(events));
        Ok(())
    });
    if let Err(error) = ran {
        panic!("{error}");
    }
}

/// Heartbeats and jobs of other work speak in a conversation. The person answers, and the agent must know what it said.
#[tokio::test]
async fn what_the_agent_said_here_in_other_work_is_in_the_next_prompt() {
    let world = AgentWorld::new().await;
    let eve = says(&world, "eve", "hello").await;
    work(&world, &world.session).await;
    world.clock.advance(Duration::from_secs(1));
    world.send("ada", "look after the disk").await;
    work(&world, &world.session).await;
    let turn_id = world.turn("ada").await.turn_id;
    let post = Post { content: "The <disk> is full.".into(), attachments: vec![], reply_to: None };
    write!(world, |w| conversations::post(w, &id("ada"), turn_id, eve, post)).unwrap();
    world.clock.advance(Duration::from_secs(1));
    says(&world, "eve", "then clean it").await;
    work(&world, &world.session).await;
    let text = text_of(&last_request(&world));
    assert!(text.contains("<said>") && text.contains("<text>The &lt;disk&gt; is full.</text>"), "{text}");
    world.clock.advance(Duration::from_secs(1));
    for (person, said) in [("eve", 1), ("bob", 0)] {
        says(&world, person, "and now?").await;
        work(&world, &world.session).await;
        assert_eq!(text_of(&last_request(&world)).matches("<said>").count(), said, "{person}");
    }
}

/// The mail may have half of the context, and what was said is part of it.
#[tokio::test]
async fn what_was_said_in_other_work_leaves_room_in_a_small_context() {
    let world = AgentWorld::with(|plan| plan.limits.context_bytes = 16_000).await;
    let eve = says(&world, "eve", "hello").await;
    work(&world, &world.session).await;
    world.send("ada", "look after the disk").await;
    work(&world, &world.session).await;
    let turn_id = world.turn("ada").await.turn_id;
    for n in 0..10 {
        world.clock.advance(Duration::from_secs(1));
        let post = Post { content: format!("post {n} {}", "x".repeat(1_500)), attachments: vec![], reply_to: None };
        write!(world, |w| conversations::post(w, &id("ada"), turn_id, eve, post)).unwrap();
    }
    says(&world, "eve", "and?").await;
    work(&world, &world.session).await;
    let text = last_request(&world).messages.last().unwrap().visible_text();
    assert!(text.contains("post 9 ") && !text.contains("post 0 ") && text.len() <= 8_000, "{}", text.len());
}

#[tokio::test]
async fn a_reset_leaves_behind_what_was_said_after_the_last_turn() {
    let world = AgentWorld::new().await;
    let eve = says(&world, "eve", "hello").await;
    work(&world, &world.session).await;
    world.clock.advance(Duration::from_secs(1));
    world.send("ada", "look after the disk").await;
    work(&world, &world.session).await;
    let turn_id = world.turn("ada").await.turn_id;
    let post = Post { content: "The disk is full.".into(), attachments: vec![], reply_to: None };
    write!(world, |w| conversations::post(w, &id("ada"), turn_id, eve, post)).unwrap();
    // No turn of bob's session has ended yet.
    let bob = says(&world, "bob", "hello").await;
    for conversation in [eve, bob] {
        let reset = write!(world, |w| sessions::reset(w, &operator(), &id("ada"), Some(conversation)));
        assert!(reset.unwrap());
    }
    world.clock.advance(Duration::from_secs(1));
    work(&world, &world.session).await;
    says(&world, "eve", "hello again").await;
    work(&world, &world.session).await;
    let text = text_of(&last_request(&world));
    assert!(text.contains("hello again") && !text.contains("disk"), "{text}");
}

/// A job of a conversation has a turn of its own, which no log holds.
#[tokio::test]
async fn what_a_job_of_this_conversation_said_here_is_in_the_next_prompt() {
    let world = AgentWorld::new().await;
    let eve = says(&world, "eve", "hello").await;
    work(&world, &world.session).await;
    world.clock.advance(Duration::from_secs(1));
    let wanted = NewSchedule {
        kind: ScheduleKind::Cron,
        agent_id: id("ada"),
        name: "digest".into(),
        when: When::Cron { expression: "0 9 * * *".into(), zone: None },
        message: "write".into(),
        missed: Missed::Skip,
        mode: JobMode::OwnTurn(OwnTurn {
            target: Target::Nowhere,
            timeout_seconds: None,
            max_rounds: None,
            model: None,
        }),
        enabled: true,
        chain: Chain { conversation_id: Some(eve), ..Chain::root(world.ctx()) },
        baseline: None,
    };
    let job = write!(world, |w| schedules::set(w, &Party::Agent(id("ada")), wanted)).unwrap();
    write!(world, |w| {
        let chain = Chain::root(w.ctx);
        schedules::run_now(w, &operator(), job.schedule_id, chain)
    })
    .unwrap();
    work(&world, &world.session).await;
    let turn = world.turn("ada").await;
    assert_eq!((turn.source.as_str(), turn.conversation_id), ("cron", Some(eve)));
    let post = Post { content: "The disk is full.".into(), attachments: vec![], reply_to: None };
    write!(world, |w| conversations::post(w, &id("ada"), turn.turn_id, eve, post)).unwrap();
    says(&world, "eve", "then clean it").await;
    work(&world, &world.session).await;
    let text = text_of(&last_request(&world));
    assert!(text.contains("<text>The disk is full.</text>"), "{text}");
}
