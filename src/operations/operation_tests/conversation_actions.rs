//! The actions of agents in conversations, and retention of conversations that always stay active.

use ghost_domain::conversation::{CONTROL_ACTIONS, WEBHOOK_ACTIONS};

use super::operation_world::*;
use super::{conversations, crashes};
use crate::conversations::{self as rules, AllowedActions, ChannelAction};

fn means(reactions: Reactions) -> AllowedActions {
    AllowedActions { actions: CONTROL_ACTIONS.to_vec(), reactions }
}

/// What agents may do in a conversation of a webhook.
fn webhook_means() -> AllowedActions {
    AllowedActions { actions: WEBHOOK_ACTIONS.to_vec(), reactions: Reactions::Minimal }
}

async fn act(
    world: &World,
    turn: &Turn,
    conversation: ConversationId,
    means: AllowedActions,
    deed: ChannelAction,
) -> Result<ConversationEntry> {
    let (agent, turn_id) = (turn.agent_id.clone(), turn.turn_id);
    run!(world, |w| rules::act(w, &agent, turn_id, conversation, &means, deed))
}

async fn post(world: &World, turn: &Turn, conversation: ConversationId) -> ConversationEntry {
    conversations::post(world, turn, conversation, "oops", None).await.unwrap()
}

fn react(to: Option<&str>) -> ChannelAction {
    ChannelAction::React { message_id: to.map(str::to_owned), emoji: "👍".into(), remove: false }
}

/// One message from outside that ada has processed.
async fn exchange(world: &World, text: &str) -> ConversationId {
    let id = conversations::begun(world, CONTROL, text).await;
    world.done("ada", "Yes.").await;
    id
}

/// A conversation with a message from outside, and ada's turn with it.
async fn taken(world: &World, adapter: &str, text: &str) -> (ConversationId, Turn) {
    let id = conversations::begun(world, adapter, text).await;
    (id, world.take("ada").await.turn)
}

// covers: LIM-19, MSG-14
world_test!(reactions_are_rare_where_they_are_minimal, async |world| {
    let (id, turn) = taken(&world, CONTROL, "0").await;
    let first = act(&world, &turn, id, means(Reactions::Minimal), react(Some("ext-0"))).await.unwrap();
    let expected = Action::React { message_id: "ext-0".into(), seq: 1, emoji: "👍".into(), remove: false };
    assert_eq!((first.action, first.delivery), (Some(expected), Delivery::Delivered));
    let again = act(&world, &turn, id, means(Reactions::Minimal), react(None)).await;
    assert_eq!(detail(again, Code::RateLimited, "limit"), "reaction_gap");
    act(&world, &turn, id, means(Reactions::Extensive), react(None)).await.unwrap();
    world.finish(turn.turn_id, "Yes.").await.unwrap();
    for number in 1..5 {
        exchange(&world, &number.to_string()).await;
    }
    let (id, turn) = taken(&world, CONTROL, "5").await;
    let reacted = act(&world, &turn, id, means(Reactions::Minimal), react(None)).await.unwrap();
    assert_eq!(reacted.action.unwrap().message_id(), Some("ext-5"), "the newest from outside");
    world.limits(|limits| limits.reaction_gap = 1);
    assert_eq!(code(act(&world, &turn, id, means(Reactions::Minimal), react(None)).await), Code::RateLimited);
});

world_test!(a_message_deleted_before_delivery_is_never_delivered, async |world| {
    let (id, turn) = taken(&world, "webhook:shop", "hello").await;
    let acts = async |action| act(&world, &turn, id, webhook_means(), action).await;
    let delete = |entry: &ConversationEntry| ChannelAction::Delete { message_id: entry.message_id.to_string() };
    let early = post(&world, &turn, id).await;
    let gone = acts(delete(&early)).await.unwrap();
    assert_eq!(gone.delivery, Delivery::None, "there is nothing to take back outside");
    let all = world.entries(id).await;
    let was = all.iter().find(|entry| entry.seq == early.seq).unwrap();
    assert!(was.deleted && was.content.is_empty() && was.delivery == Delivery::None, "{was:?}");
    // A message that may have been delivered is deleted outside, too.
    let late = post(&world, &turn, id).await;
    let outgoing = conversations::try_out(&world, id, late.seq).await.unwrap();
    assert_eq!(outgoing.entry.message_id, late.message_id);
    let told = acts(delete(&late)).await.unwrap();
    assert_eq!(told.delivery, Delivery::Pending);
    assert_eq!(told.action.unwrap().message_id(), Some(late.message_id.to_string().as_str()));
    conversations::settle(&world, id, late.seq, Outcome::Retry { error: "busy".into(), after: None }).await;
    assert_eq!(code(conversations::redeliver(&world, id, late.seq).await), Code::Conflict);
    assert_eq!(code(acts(delete(&late)).await), Code::Conflict, "once");
    // A message of another party cannot be deleted, and an unsupported action is refused.
    let foreign = ChannelAction::Delete { message_id: "ext-hello".into() };
    assert_eq!(code(acts(foreign).await), Code::AccessDenied);
    let before = world.entries(id).await;
    let pin = ChannelAction::Pin { message_id: "ext-hello".into(), remove: false };
    let refusal = refused(acts(pin).await, Code::Unsupported, "send, delete, react");
    assert!(refusal.message.contains("webhook:shop") && refusal.message.contains("pin"), "{refusal}");
    let nothing = AllowedActions { actions: vec![], reactions: Reactions::Extensive };
    assert_eq!(code(act(&world, &turn, id, nothing, react(None)).await), Code::Unsupported);
    assert_eq!(world.entries(id).await, before, "a refusal leaves nothing");
    // An agent that handed the conversation over can do nothing there.
    let other = world.busy("bob").await;
    assert_eq!(code(act(&world, &other, id, webhook_means(), react(None)).await), Code::Conflict);
});

world_test!(an_always_active_conversation_loses_its_oldest_entries, async |world| {
    world.limits(|limits| (limits.conversation_days, limits.conversation_entries_max) = (2, 1_000));
    let mut id = exchange(&world, "first").await;
    let seqs = async |id| world.entries(id).await.iter().map(|entry| entry.seq).collect::<Vec<_>>();
    for day in 0..3 {
        world.pass(DAY);
        id = exchange(&world, &day.to_string()).await;
        world.sweep().await;
    }
    assert_eq!(seqs(id).await, [3, 4, 5, 6, 7, 8], "what is older is gone, and what is left has no gap");
    assert_eq!(read!(world, |r| rules::get(r, id)?).last_seq, 8, "the sequence goes on");
    // By count: no entry is old, but there are too many.
    for number in 0..520 {
        exchange(&world, &format!("more {number}")).await;
    }
    world.sweep().await;
    let all = world.entries(id).await;
    assert_eq!((all.len(), all[0].seq), (1_000, 49));
    // An entry whose mail waits is kept, however old it is.
    let waits = conversations::hear(&world, CONTROL, "waits").await;
    world.sweep_after(DAY * 3).await;
    assert_eq!(seqs(id).await, [waits.seq]);
    world.done("ada", "[[reply_to_current]] At last.").await;
    assert_eq!(world.entries(id).await.last().unwrap().reply_to.as_deref(), Some("ext-waits"));
});

world_test!(files_of_a_dead_turn_are_sent_with_its_own_reply_and_not_with_a_new_turns, async |world| {
    world.limits(|limits| limits.crashes_max = 1);
    // A turn of ada that attaches a file to its reply to a message from outside.
    let attaches = async |name: &str| {
        let (id, turn) = taken(&world, CONTROL, name).await;
        conversations::attach(&world, &turn, id, conversations::file(name)).await.unwrap();
        (id, turn.turn_id)
    };
    let crash = async || {
        world.crash("ada", "it fell over").await;
        world.dead_letters().await.remove(0)
    };
    let (id, first) = attaches("first").await;
    let dead = crash().await;
    assert!(world.entries(id).await.iter().all(|entry| entry.delivery != Delivery::Draft));
    let (_, second) = attaches("second").await;
    crashes::retry(&world, &dead, false).await.unwrap();
    world.finish(second, "To the second.").await.unwrap();
    let again = world.take("ada").await;
    assert!(again.resumed && again.turn.turn_id == first);
    world.finish(first, "To the first.").await.unwrap();
    // A new turn attaches its files itself.
    attaches("third").await;
    crashes::retry(&world, &crash().await, true).await.unwrap();
    assert!(!world.take("ada").await.resumed);
    world.finish(world.take("ada").await.turn.turn_id, "To the third.").await.unwrap();
    let entries = world.entries(id).await;
    let replies = entries.iter().filter(|entry| entry.direction == Direction::Out && entry.from == party("ada"));
    let sent: Vec<(&str, Vec<&str>)> = replies
        .map(|entry| (entry.content.as_str(), entry.attachments.iter().map(|file| file.name.as_str()).collect()))
        .collect();
    let expected = [("To the second.", vec!["second"]), ("To the first.", vec!["first"]), ("To the third.", vec![])];
    assert_eq!(sent, expected);
});

world_test!(a_conversation_with_a_dead_letter_grows_to_twice_its_limit_at_most, async |world| {
    world.limits(|limits| (limits.crashes_max, limits.conversation_entries_max) = (1, 4));
    taken(&world, CONTROL, "poison").await;
    world.crash("ada", "it fell over").await;
    for text in ["one", "two"] {
        exchange(&world, text).await;
    }
    let (id, turn) = taken(&world, CONTROL, "three").await;
    post(&world, &turn, id).await;
    world.sweep().await;
    assert_eq!(world.entries(id).await.len(), 8, "nothing can go");
    let say = async || {
        let said = said(Party::Outside("eve".into()), "more");
        run!(world, |w| rules::say(w, id, said)).map(|_| ())
    };
    let posted = conversations::post(&world, &turn, id, "more", None).await.map(drop);
    let reacted = act(&world, &turn, id, means(Reactions::Extensive), react(None)).await.map(drop);
    for full in [posted, reacted, say().await] {
        let refusal = refused(full, Code::RateLimited, "ghostctl dead list");
        assert_eq!(refusal.details.unwrap()["limit"], "conversation_entries_max");
    }
    // The last text of the turn is still accepted.
    world.finish(turn.turn_id, "Yes.").await.unwrap();
    assert_eq!(world.entries(id).await.len(), 9);
    let held = world.dead_letters().await.remove(0).dead_letter_id;
    run!(world, |w| dead_letters::discard(w, &operator(), held)).unwrap();
    world.sweep().await;
    assert_eq!(world.entries(id).await.len(), 4);
    say().await.unwrap();
});
