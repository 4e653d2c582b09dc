//! Property test: for any order of events, the sequence has no gap, every member is shown every
//! post of the others once and in order, and no agent with a pending wake-up stays asleep.

use proptest::prelude::*;

use super::digests;
use crate::operation_tests::operation_world::*;

const AGENTS: [&str; 3] = ["ada", "bob", "cyd"];

#[derive(Clone, Debug)]
enum Act {
    Post { by: usize, to: usize, wake: ChatWake },
    Mail(usize),
    Take(usize),
    Finish(usize),
    Crash(usize),
}

fn act() -> impl Strategy<Value = Act> {
    let wake = prop_oneof![Just(ChatWake::All), Just(ChatWake::Mentions), Just(ChatWake::None)];
    prop_oneof![
        4 => (0usize..4, 0usize..4, wake).prop_map(|(by, to, wake)| Act::Post { by, to, wake }),
        1 => (0usize..3).prop_map(Act::Mail),
        3 => (0usize..3).prop_map(Act::Take),
        3 => (0usize..3).prop_map(Act::Finish),
        1 => (0usize..3).prop_map(Act::Crash),
    ]
}

/// The sequences of the posts that a digest shows, read from their headers.
fn shown(digest: &str) -> Vec<i64> {
    digest
        .lines()
        .filter_map(|line| line.strip_prefix('#'))
        .map(|head| head.split(' ').next().unwrap().parse().unwrap())
        .collect()
}

#[derive(Default)]
struct Model {
    /// The author of each post; the first post has sequence 1.
    posts: Vec<usize>,
    /// The posts that finished turns have shown, by agent.
    seen: BTreeMap<usize, Vec<i64>>,
    open: BTreeMap<usize, (TurnId, Vec<i64>)>,
}

async fn run(acts: Vec<Act>) {
    let world = World::new().await;
    world.limits(|limits| {
        (limits.crashes_max, limits.echoes_max) = (100, 1_000);
        (limits.chat_digest_posts, limits.chat_digest_bytes) = (1_000, 1_048_576);
    });
    world.open_channel("ada", "room", &AGENTS, false).await.unwrap();
    let mut model = Model::default();
    for act in acts {
        step(&world, &mut model, act).await;
    }
    // Every agent processes all of its mail.
    for (agent, name) in AGENTS.into_iter().enumerate() {
        step(&world, &mut model, Act::Finish(agent)).await;
        world.send(name, "last").await;
        while world.inbox(name).await.iter().any(|mail| mail.wake) {
            step(&world, &mut model, Act::Take(agent)).await;
            step(&world, &mut model, Act::Finish(agent)).await;
        }
        assert!(world.member("room", name).await.unwrap().wake_id.is_none());
        let mut seen = model.seen.remove(&agent).unwrap_or_default();
        // Mail returned by a crash is tried alone and may come after newer mail.
        seen.sort_unstable();
        let others: Vec<i64> = (1i64..).zip(&model.posts).filter(|(_, by)| **by != agent).map(|(seq, _)| seq).collect();
        assert_eq!(seen, others, "{}", name);
    }
}

async fn step(world: &World, model: &mut Model, act: Act) {
    match act {
        Act::Post { by, to, wake } => {
            let whom = AGENTS.get(to).copied().unwrap_or("all");
            let new = world.new_post("room", &format!("@{whom} post {}", model.posts.len() + 1));
            let posted = world.post_with(AGENTS.get(by).copied().unwrap_or(""), wake, new).await.unwrap();
            model.posts.push(by);
            assert_eq!(posted.post.seq, i64::try_from(model.posts.len()).unwrap(), "no gap");
            for (agent, name) in AGENTS.iter().enumerate() {
                let called = agent != by
                    && match wake {
                        ChatWake::All => true,
                        ChatWake::Mentions => to == agent || to >= 3,
                        ChatWake::None => false,
                    };
                if called {
                    assert!(world.inbox(name).await.iter().any(|mail| mail.wake), "an agent with a wake-up will wake");
                }
                let wakes = world.inbox(name).await.iter().filter(|mail| mail.is_chat_wake()).count();
                assert!(wakes <= 1, "one wake-up at most");
            }
        }
        Act::Mail(agent) => drop(world.send(AGENTS[agent], "work").await),
        Act::Take(agent) => {
            if model.open.contains_key(&agent) {
                return;
            }
            if let Some(taken) = world.try_take(AGENTS[agent]).await.unwrap() {
                assert!(taken.mail.iter().any(|mail| !mail.is_chat_wake()), "no turn without content");
                let posts: Vec<i64> = digests(&taken.mail).into_iter().flat_map(shown).collect();
                assert!(posts.windows(2).all(|pair| pair[0] < pair[1]));
                model.open.insert(agent, (taken.turn.turn_id, posts));
            }
        }
        Act::Finish(agent) => {
            if let Some((turn_id, posts)) = model.open.remove(&agent) {
                world.finish(turn_id, "ok").await.unwrap();
                model.seen.entry(agent).or_default().extend(posts);
            }
        }
        Act::Crash(agent) => {
            if model.open.remove(&agent).is_some() {
                world.crash(AGENTS[agent], "bang").await;
                // A single message stays with its turn, which goes on.
                if let Some(taken) = world.try_take(AGENTS[agent]).await.unwrap() {
                    let posts = digests(&taken.mail).into_iter().flat_map(shown).collect();
                    model.open.insert(agent, (taken.turn.turn_id, posts));
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(48)))]

    // covers: CHAT-03, CHAT-12
    #[test]
    fn nothing_is_lost_or_shown_twice(acts in prop::collection::vec(act(), 1..40)) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(run(acts));
    }
}
