//! The actions of agents in conversations, and retention of conversations that always stay active.

use ghost_domain::conversation::{CONTROL_ACTIONS, WEBHOOK_ACTIONS};

use super::conversations;
use super::operation_world::*;
use crate::conversations::{self as rules, AllowedActions, ChannelAction};

async fn arrive(world: &OperationWorld, adapter: &str, text: &str) -> Received {
    conversations::arrive(world, adapter, "t", text).await.unwrap()
}

fn means(reactions: Reactions) -> AllowedActions {
    AllowedActions { actions: CONTROL_ACTIONS.to_vec(), reactions }
}

async fn act(
    world: &OperationWorld,
    turn: &Turn,
    conversation: ConversationId,
    means: AllowedActions,
    deed: ChannelAction,
) -> Result<ConversationEntry> {
    let (agent, turn_id) = (turn.agent_id.clone(), turn.turn_id);
    run!(world, |w| rules::act(w, &agent, turn_id, conversation, &means, deed))
}

async fn post(world: &OperationWorld, turn: &Turn, conversation: ConversationId) -> ConversationEntry {
    conversations::post(world, turn, conversation, "oops", None).await.unwrap()
}

async fn entries(world: &OperationWorld, id: ConversationId) -> Vec<ConversationEntry> {
    read!(world, |r| r.conversation_entries(id, 0, 10_000)?)
}

fn react(to: Option<&str>) -> ChannelAction {
    ChannelAction::React { message_id: to.map(str::to_owned), emoji: "👍".into(), remove: false }
}

/// One message from outside that ada has processed.
async fn exchange(world: &OperationWorld, text: &str) -> ConversationId {
    let id = arrive(world, CONTROL, text).await.conversation.conversation_id;
    world.done("ada", "Yes.").await;
    id
}

// covers: LIM-19, MSG-14
world_test!(reactions_are_rare_where_they_are_minimal, async |world| {
    let id = arrive(&world, CONTROL, "0").await.conversation.conversation_id;
    let turn = world.take("ada").await.turn;
    let first = act(&world, &turn, id, means(Reactions::Minimal), react(Some("ext-0"))).await.unwrap();
    let expected = Action::React { message_id: "ext-0".into(), seq: 1, emoji: "👍".into(), remove: false };
    assert_eq!((first.action, first.delivery), (Some(expected), Delivery::Delivered));
    let refusal = act(&world, &turn, id, means(Reactions::Minimal), react(None)).await.unwrap_err();
    assert_eq!((refusal.code, &refusal.details.unwrap()["limit"]), (Code::RateLimited, &json!("reaction_gap")));
    act(&world, &turn, id, means(Reactions::Extensive), react(None)).await.unwrap();
    world.finish(turn.turn_id, "Yes.").await.unwrap();
    for number in 1..5 {
        exchange(&world, &number.to_string()).await;
    }
    let id = arrive(&world, CONTROL, "5").await.conversation.conversation_id;
    let turn = world.take("ada").await.turn;
    let reacted = act(&world, &turn, id, means(Reactions::Minimal), react(None)).await.unwrap();
    assert_eq!(reacted.action.unwrap().message_id(), Some("ext-5"), "the newest from outside");
    world.limits(|limits| limits.reaction_gap = 1);
    assert_eq!(code(act(&world, &turn, id, means(Reactions::Minimal), react(None)).await), Code::RateLimited);
});

world_test!(a_message_deleted_before_delivery_is_never_delivered, async |world| {
    let id = arrive(&world, "webhook:shop", "hello").await.conversation.conversation_id;
    let turn = world.take("ada").await.turn;
    let can = || AllowedActions { actions: WEBHOOK_ACTIONS.to_vec(), reactions: Reactions::Minimal };
    let delete = |entry: &ConversationEntry| ChannelAction::Delete { message_id: entry.message_id.to_string() };
    let early = post(&world, &turn, id).await;
    let gone = act(&world, &turn, id, can(), delete(&early)).await.unwrap();
    assert_eq!(gone.delivery, Delivery::None, "there is nothing to take back outside");
    let all = entries(&world, id).await;
    let was = all.iter().find(|entry| entry.seq == early.seq).unwrap();
    assert!(was.deleted && was.content.is_empty() && was.delivery == Delivery::None, "{was:?}");
    // A message that may have been delivered is deleted outside, too.
    let late = post(&world, &turn, id).await;
    let seq = late.seq;
    let outgoing = run!(world, |w| rules::attempt(w, id, seq, 0)).unwrap().unwrap();
    assert_eq!(outgoing.entry.message_id, late.message_id);
    let told = act(&world, &turn, id, can(), delete(&late)).await.unwrap();
    assert_eq!(told.delivery, Delivery::Pending);
    assert_eq!(told.action.unwrap().message_id(), Some(late.message_id.to_string().as_str()));
    let outcome = Outcome::Retry { error: "busy".into(), after: None };
    run!(world, |w| rules::settle(w, id, seq, outcome)).unwrap();
    let again = run!(world, |w| rules::redeliver(w, &operator(), id, seq));
    assert_eq!(code(again), Code::Conflict);
    assert_eq!(code(act(&world, &turn, id, can(), delete(&late)).await), Code::Conflict, "once");
    // A message of another party cannot be deleted, and an unsupported action is refused.
    let foreign = ChannelAction::Delete { message_id: "ext-hello".into() };
    assert_eq!(code(act(&world, &turn, id, can(), foreign).await), Code::AccessDenied);
    let before = entries(&world, id).await;
    let pin = ChannelAction::Pin { message_id: "ext-hello".into(), remove: false };
    let refusal = act(&world, &turn, id, can(), pin).await.unwrap_err();
    assert_eq!(refusal.code, Code::Unsupported);
    assert!(refusal.message.contains("webhook:shop") && refusal.message.contains("pin"), "{}", refusal.message);
    assert!(refusal.hint.unwrap().contains("send, delete, react"));
    let nothing = AllowedActions { actions: vec![], reactions: Reactions::Extensive };
    assert_eq!(code(act(&world, &turn, id, nothing, react(None)).await), Code::Unsupported);
    assert_eq!(entries(&world, id).await, before, "a refusal leaves nothing");
    // An agent that handed the conversation over can do nothing there.
    world.send("bob", "x").await;
    let other = world.take("bob").await.turn;
    assert_eq!(code(act(&world, &other, id, can(), react(None)).await), Code::Conflict);
});

world_test!(an_always_active_conversation_loses_its_oldest_entries, async |world| {
    world.limits(|limits| (limits.conversation_days, limits.conversation_entries_max) = (2, 1_000));
    let mut id = exchange(&world, "first").await;
    for day in 0..3 {
        world.pass(Limits::days(1));
        id = exchange(&world, &day.to_string()).await;
        retention::sweep(&world.store, &world.ctx).await.unwrap();
    }
    let seqs: Vec<i64> = entries(&world, id).await.iter().map(|entry| entry.seq).collect();
    assert_eq!(seqs, [3, 4, 5, 6, 7, 8], "what is older is gone, and what is left has no gap");
    assert_eq!(read!(world, |r| rules::get(r, id)?).last_seq, 8, "the sequence goes on");
    // By count: no entry is old, but there are too many.
    for number in 0..520 {
        exchange(&world, &format!("more {number}")).await;
    }
    retention::sweep(&world.store, &world.ctx).await.unwrap();
    let all = entries(&world, id).await;
    assert_eq!((all.len(), all[0].seq), (1_000, 49));
    // An entry whose mail waits is kept, however old it is.
    let waits = arrive(&world, CONTROL, "waits").await.entry;
    world.pass(Limits::days(3));
    retention::sweep(&world.store, &world.ctx).await.unwrap();
    assert_eq!(entries(&world, id).await.iter().map(|entry| entry.seq).collect::<Vec<_>>(), [waits.seq]);
    world.done("ada", "[[reply_to_current]] At last.").await;
    assert_eq!(entries(&world, id).await.last().unwrap().reply_to.as_deref(), Some("ext-waits"));
});

#[tokio::test]
async fn a_retried_dead_letter_still_has_its_attachments() {
    for fresh in [false, true] {
        let world = OperationWorld::new().await;
        world.limits(|limits| limits.crashes_max = 1);
        let conversation = arrive(&world, CONTROL, "files please").await.conversation.conversation_id;
        let turn = world.take("ada").await.turn;
        let (agent, turn_id) = (turn.agent_id.clone(), turn.turn_id);
        let file = Attachment { path: "output/a".into(), name: "a".into(), mime_type: "text/plain".into(), bytes: 3 };
        run!(world, |w| rules::attach(w, &agent, turn_id, conversation, file)).unwrap();
        world.crash("ada", "it fell over").await;
        assert!(entries(&world, conversation).await.iter().all(|entry| entry.delivery != Delivery::Draft));
        let held = world.dead_letters().await.remove(0);
        run!(world, |w| dead_letters::retry(w, &operator(), held.dead_letter_id, fresh)).unwrap();
        let again = world.take("ada").await;
        assert_eq!(again.resumed, !fresh);
        world.finish(again.turn.turn_id, "Here it is.").await.unwrap();
        let reply = entries(&world, conversation).await.pop().unwrap();
        assert_eq!((reply.direction, &reply.from), (Direction::Out, &party("ada")));
        // A new turn attaches its files itself.
        assert_eq!(reply.attachments.len(), usize::from(!fresh));
    }
}

world_test!(a_conversation_with_a_dead_letter_grows_to_twice_its_limit_at_most, async |world| {
    world.limits(|limits| (limits.crashes_max, limits.conversation_entries_max) = (1, 4));
    arrive(&world, CONTROL, "poison").await;
    world.take("ada").await;
    world.crash("ada", "it fell over").await;
    let mut id = exchange(&world, "one").await;
    id = exchange(&world, "two").await.max(id);
    arrive(&world, CONTROL, "three").await;
    let turn = world.take("ada").await.turn;
    post(&world, &turn, id).await;
    retention::sweep(&world.store, &world.ctx).await.unwrap();
    assert_eq!(entries(&world, id).await.len(), 8, "nothing can go");
    let full = |refusal: Refusal| {
        assert_eq!(
            (refusal.code, &refusal.details.unwrap()["limit"]),
            (Code::RateLimited, &json!("conversation_entries_max"))
        );
        assert!(refusal.hint.unwrap().contains("ghostctl dead list"));
    };
    let (agent, turn_id) = (turn.agent_id.clone(), turn.turn_id);
    let more = Post { content: "more".into(), attachments: vec![], reply_to: None };
    full(run!(world, |w| rules::post(w, &agent, turn_id, id, more)).unwrap_err());
    full(act(&world, &turn, id, means(Reactions::Extensive), react(None)).await.unwrap_err());
    let said = said(Party::Outside("eve".into()), "more");
    let again = said.clone();
    full(run!(world, |w| rules::say(w, id, said)).unwrap_err());
    // The last text of the turn is still accepted.
    world.finish(turn.turn_id, "Yes.").await.unwrap();
    assert_eq!(entries(&world, id).await.len(), 9);
    let held = world.dead_letters().await.remove(0);
    run!(world, |w| dead_letters::discard(w, &operator(), held.dead_letter_id)).unwrap();
    retention::sweep(&world.store, &world.ctx).await.unwrap();
    assert_eq!(entries(&world, id).await.len(), 4);
    run!(world, |w| rules::say(w, id, again)).unwrap();
});
