//! The cached channels and members equal those in SQL, also after undone commands.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ghost_domain::{AgentId, ChannelName, ChatChannel, ChatMember, ChatPost, MessageId, Party, RootId, Timestamp};
use uuid::Uuid;

use super::tools::{Stop, dir, id_of, open, together};
use crate::{Store, StoreError, Tx};

fn channel_name(name: &str) -> ChannelName {
    name.parse().unwrap()
}

fn channel(name: &str, gated: bool, last_seq: i64) -> ChatChannel {
    ChatChannel {
        channel: channel_name(name),
        creator: Party::System,
        gated,
        topic: None,
        members: 0,
        last_seq,
        created_at: Timestamp(1),
    }
}

fn member(channel: &str, agent_id: &str, read_seq: i64) -> ChatMember {
    ChatMember {
        channel: channel_name(channel),
        agent_id: id_of(agent_id),
        read_seq,
        wake_id: (read_seq % 2 == 1).then(|| MessageId(Uuid::from_u128(u128::try_from(read_seq).unwrap()))),
        joined_at: Timestamp(2),
    }
}

fn post(channel: &str, seq: i64) -> ChatPost {
    ChatPost {
        channel: channel_name(channel),
        seq,
        message_id: MessageId(Uuid::from_u128(9)),
        from: Party::Agent(id_of("a0")),
        content: format!("post {seq}"),
        mentions: if seq % 2 == 0 { vec![id_of("a1"), id_of("a2")] } else { vec![] },
        reply_to: (seq > 1).then_some(seq - 1),
        root_id: RootId(Uuid::from_u128(7)),
        hop: 3,
        ts: Timestamp(seq),
    }
}

const CHANNELS: [&str; 4] = ["c0", "c1", "c2", "gated"];
const AGENTS: [&str; 6] = ["a0", "a1", "a2", "a3", "a4", "a5"];
/// The last sequence of every channel.
const LAST: i64 = 50;

type Model = BTreeMap<(ChannelName, AgentId), ChatMember>;

/// Compares every read with the model.
fn compare(r: &mut Tx, model: &Model) -> Result<(), StoreError> {
    for name in CHANNELS {
        let in_channel: Vec<_> =
            model.values().filter(|member| member.channel == channel_name(name)).cloned().collect();
        assert_eq!(r.chat_members(&channel_name(name))?, in_channel);
    }
    for agent_id in AGENTS {
        let of_agent: Vec<_> = model.values().filter(|member| member.agent_id == id_of(agent_id)).cloned().collect();
        assert_eq!(r.chat_memberships(&id_of(agent_id))?, of_agent);
        let unread: Vec<_> = of_agent
            .into_iter()
            .filter(|member| member.channel != channel_name("gated") && member.read_seq < LAST)
            .map(|member| (member.clone(), channel(member.channel.as_str(), false, LAST)))
            .collect();
        assert_eq!(r.chat_unread(&id_of(agent_id))?, unread);
        for name in CHANNELS {
            let expected = model.get(&(channel_name(name), id_of(agent_id)));
            assert_eq!(r.chat_member_get(&channel_name(name), &id_of(agent_id))?.as_ref(), expected);
        }
    }
    Ok(())
}

/// A random number generator that gives the same numbers in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }
}

/// Changes and reads a few memberships. Refuses one time in four.
fn command(w: &mut Tx, mut random: Random, shared: &Mutex<Model>) -> Result<(), Stop> {
    let mut model = shared.lock().unwrap().clone();
    for _ in 0..=random.below(6) {
        let (name, agent_id) = (CHANNELS[random.below(4)], AGENTS[random.below(6)]);
        let key = (channel_name(name), id_of(agent_id));
        match random.below(8) {
            0..=2 => {
                let member = member(name, agent_id, i64::try_from(random.below(60)).unwrap());
                w.chat_member_put(&member)?;
                model.insert(key, member);
            }
            3 => {
                w.chat_member_delete(&key.0, &key.1)?;
                model.remove(&key);
            }
            4 => {
                let in_channel: Vec<_> = model.values().filter(|member| member.channel == key.0).cloned().collect();
                assert_eq!(w.chat_members(&key.0)?, in_channel);
            }
            5 => {
                let of_agent: Vec<_> = model.values().filter(|member| member.agent_id == key.1).cloned().collect();
                assert_eq!(w.chat_memberships(&key.1)?, of_agent);
            }
            6 => assert_eq!(w.chat_member_get(&key.0, &key.1)?.as_ref(), model.get(&key)),
            _ => compare(w, &model)?,
        }
    }
    if random.below(4) == 0 {
        return Err(Stop::Refused);
    }
    *shared.lock().unwrap() = model;
    Ok(())
}

async fn put_channels(store: &Store) {
    store
        .write::<_, StoreError, _>(|w| {
            for name in CHANNELS {
                w.chat_channel_put(&channel(name, name == "gated", LAST))?;
            }
            Ok(())
        })
        .await
        .unwrap();
}

async fn compare_outside(store: &Store, shared: &Arc<Mutex<Model>>) {
    let model = shared.lock().unwrap().clone();
    store.read::<_, StoreError, _>(move |r| compare(r, &model)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memberships_equal_a_model() {
    let dir = dir();
    let path = dir.path().join("ghost.db");
    let shared = Arc::new(Mutex::new(Model::new()));
    let mut random = Random(41);
    for _reopened in 0..3 {
        let store = open(&path).await;
        put_channels(&store).await;
        for _batch in 0..25 {
            let commands = (0..=random.below(8)).map(|_| {
                let (store, shared, random) = (store.clone(), shared.clone(), Random(random.below(1 << 30) as u64));
                async move {
                    let result = store.write::<_, Stop, _>(move |w| command(w, random, &shared)).await;
                    assert!(matches!(result, Ok(()) | Err(Stop::Refused)), "{result:?}");
                }
            });
            let commands: Vec<_> = commands.collect();
            together(&store, commands).await;
            compare_outside(&store, &shared).await;
        }
        store.close().await;
    }
    assert!(!shared.lock().unwrap().is_empty());
}

/// Several chat messages in one batch that wake a thousand members each leave every row as the last
/// chat message wrote it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_members_are_woken_by_every_post() {
    const MEMBERS: i64 = 1_000;
    let dir = dir();
    let path = dir.path().join("ghost.db");
    let store = open(&path).await;
    put_channels(&store).await;
    store
        .write::<_, StoreError, _>(|w| {
            for n in 0..MEMBERS {
                w.chat_member_put(&member("c0", &format!("m{n:04}"), 0))?;
            }
            Ok(())
        })
        .await
        .unwrap();
    let posts = (1..=5_i64).map(|seq| {
        let store = store.clone();
        async move {
            store
                .write::<_, StoreError, _>(move |w| {
                    w.chat_post_append(&post("c0", seq))?;
                    let members = w.chat_members(&channel_name("c0"))?;
                    assert_eq!(members.len(), 1_000);
                    for mut member in members {
                        assert_eq!(member.wake_id.map(|id| id.0.as_u128()), (seq > 1).then_some(seq as u128 - 1));
                        member.wake_id = Some(MessageId(Uuid::from_u128(seq as u128)));
                        w.chat_member_put(&member)?;
                    }
                    Ok(())
                })
                .await
                .unwrap();
        }
    });
    together(&store, posts.collect()).await;
    store.close().await;
    let store = open(&path).await;
    let (members, newest) = store
        .read::<_, StoreError, _>(|r| {
            Ok((r.chat_members(&channel_name("c0"))?, r.chat_posts(&channel_name("c0"), 1, 5, 2)?))
        })
        .await
        .unwrap();
    assert_eq!(members.len(), 1_000);
    assert!(members.iter().all(|member| member.wake_id == Some(MessageId(Uuid::from_u128(5)))));
    assert_eq!(newest, vec![post("c0", 3), post("c0", 4)]);
}

/// A repeated chat message is refused and affects no other command, even after a restart of the
/// writer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_post_fails_its_command_only() {
    let dir = dir();
    let path = dir.path().join("ghost.db");
    for reopened in 0..2 {
        let store = open(&path).await;
        let posts = [1, 2, 2, 3, 1].map(|seq| {
            let store = store.clone();
            async move {
                let append = store.write::<_, StoreError, _>(move |w| w.chat_post_append(&post("c0", seq)));
                match append.await {
                    Ok(()) => true,
                    Err(StoreError::Row { table: "chat_posts", .. }) => false,
                    Err(error) => panic!("{error}"),
                }
            }
        });
        let results = together(&store, posts.into()).await;
        assert_eq!(results, if reopened == 0 { [true, true, false, true, false] } else { [false; 5] });
        store.close().await;
    }
}
