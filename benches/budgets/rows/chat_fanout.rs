//! Fan-out in chat: a durable chat message that wakes a thousand members. The floor writes the same
//! rows in one plain transaction for each chat message, with prepared statements on the calling thread.

use ghost_domain::redact::Redactor;
use ghost_domain::{AgentId, AgentKind, ChannelName, ChatMember, ChatWake, Limits, MailState, Party, Refusal};
use ghost_operations::OperationContext;
use ghost_operations::agents;
use ghost_operations::chat::{self, NewChannel, NewPost, Speaker};
use ghost_operations::mail::Chain;
use ghost_store::Store;
use ghost_store::sqlite::{SqliteOptions, open_store};
use rusqlite::types::Value as Cell;
use rusqlite::{Connection, params_from_iter};

use super::durable_sends::{COUNTED, EVENTS, INBOXES, MESSAGES, Table, connect, counted, last, rows};
use crate::fixture::worker;
use crate::measure::{Outcome, median, now, runtime};
use crate::table::{Line, Sense};

pub(super) const MEMBERS: usize = 1_000;
/// Number of chat messages in one round.
const POSTS: usize = 20;
const ROUNDS: usize = 7;

const MEMBERSHIPS: Table =
    Table { name: "chat_members", columns: "channel, agent_id, read_seq, wake_id, joined_at", count: 5 };
const CHAT_POSTS: Table = Table {
    name: "chat_posts",
    columns: "channel, seq, message_id, from_party, content, mentions, reply_to, root_id, hop, ts",
    count: 10,
};
const CHANNELS: Table = Table { name: "chat_channels", columns: "channel, gated, last_seq, record", count: 4 };

/// The rows of one chat message, by table.
pub(super) type Written = Vec<(&'static Table, &'static str, Vec<Vec<Cell>>)>;

/// Measures the row of this module.
pub fn measure() -> Outcome<Vec<Line>> {
    runtime()?.block_on(async {
        let dir = tempfile::tempdir()?;
        let (ours_path, raw_path) = (dir.path().join("ours.db"), dir.path().join("raw.db"));
        let store = open_store(&ours_path, SqliteOptions::default()).await?;
        let limits = Limits { dynamic_agents_max: 2_000, ..Limits::default() };
        let ctx = OperationContext::new(ghost_daemon::system_ports(), Redactor::default(), "bench", 1, limits);
        let hall: ChannelName = "hall".parse()?;
        gather(&store, &ctx, &hall).await?;
        open_store(&raw_path, SqliteOptions::default()).await?.close().await;
        let (reader, raw) = (connect(&ours_path)?, connect(&raw_path)?);
        let (mut ours, mut floor) = (Vec::new(), Vec::new());
        for round in 0..=ROUNDS {
            let (mut posting, mut inserting) = (0.0, 0.0);
            for _ in 0..POSTS {
                let before = (last(&reader, &MESSAGES)?, last(&reader, &EVENTS)?);
                posting += post(&store, &ctx, &hall).await?;
                let written = written(&reader, before)?;
                let counts: Vec<usize> = written.iter().map(|(_, _, rows)| rows.len()).collect();
                if counts != [MEMBERS, MEMBERS, 1, 1, 1, MEMBERS] {
                    return Err(format!("a post to {MEMBERS} members wrote {counts:?} rows").into());
                }
                inserting += insert_all(&raw, &written)?;
                // Every member has read the chat message, so the next one wakes every member again.
                read_all(&store, &hall).await?;
            }
            // The first round warms up both.
            if round > 0 {
                ours.push(POSTS as f64 / posting);
                floor.push(POSTS as f64 / inserting);
            }
        }
        store.close().await;
        let (ours, floor) = (median(ours), median(floor));
        Ok(vec![Line {
            what: "a post that mentions 1,000 members, SQLite",
            floor: format!("{floor:.1}/s"),
            ours: format!("{ours:.1}/s"),
            ratio: ours / floor,
            bar: 0.5,
            aim: 0.8,
            sense: Sense::AtLeast,
        }])
    })
}

/// Creates a thousand agents and a channel of them all.
pub(super) async fn gather(store: &Store, ctx: &OperationContext, hall: &ChannelName) -> Outcome<()> {
    let mut members: Vec<AgentId> = Vec::with_capacity(MEMBERS);
    for member in 0..MEMBERS {
        members.push(format!("member-{member:04}").parse()?);
    }
    let (channel, operator) = (hall.clone(), Party::Operator("bench".into()));
    ctx.write(store, move |w| {
        for agent_id in &members {
            let new = worker(agent_id.clone(), AgentKind::Persistent, Chain::root(w.ctx));
            agents::create(w, &Party::System, new)?;
        }
        let new = NewChannel { channel, members, gated: false, skip_creator: false, topic: None };
        chat::create(w, &Speaker::from(operator), new).map(drop)
    })
    .await?;
    Ok(())
}

/// Sends one chat message. Returns the seconds until its commit.
async fn post(store: &Store, ctx: &OperationContext, hall: &ChannelName) -> Outcome<f64> {
    let new = NewPost {
        channel: hall.clone(),
        content: "@all The figures of the third quarter are in output/reports/q3.md; say here which of the five lines \
                  differ by more than a tenth."
            .into(),
        reply_to: None,
        deliver: false,
        chain: Chain::root(ctx),
    };
    let by = Speaker::from(Party::Operator("bench".into()));
    let began = now();
    let posted = ctx.write(store, move |w| chat::post(w, &by, ChatWake::Mentions, new)).await?;
    let seconds = began.elapsed().as_secs_f64();
    match posted.woken as usize {
        MEMBERS => Ok(seconds),
        woken => Err(format!("the post woke {woken}").into()),
    }
}

/// Consumes the wake-ups of all members and moves their cursors.
async fn read_all(store: &Store, hall: &ChannelName) -> Outcome<()> {
    let hall = hall.clone();
    store
        .write(move |w| {
            let members = w.chat_members(&hall)?;
            let wakes: Vec<_> = members.iter().filter_map(|member| member.wake_id).collect();
            w.message_mark(&wakes, MailState::Consumed, None, 0)?;
            for member in members {
                w.chat_member_put(&ChatMember { wake_id: None, read_seq: member.read_seq + 1, ..member })?;
            }
            Ok::<_, Refusal>(())
        })
        .await?;
    Ok(())
}

/// The rows that the last chat message wrote.
fn written(reader: &Connection, before: (i64, i64)) -> Outcome<Written> {
    let mut read = Vec::new();
    for (table, on_conflict, wanted) in [
        (&MESSAGES, "", format!("seq > {}", before.0)),
        (
            &MEMBERSHIPS,
            " ON CONFLICT (channel, agent_id) DO UPDATE SET read_seq = excluded.read_seq, wake_id = excluded.wake_id, \
             joined_at = excluded.joined_at",
            "wake_id IS NOT NULL".to_owned(),
        ),
        (&CHAT_POSTS, "", "seq = (SELECT max(seq) FROM chat_posts)".to_owned()),
        (
            &CHANNELS,
            " ON CONFLICT (channel) DO UPDATE SET gated = excluded.gated, last_seq = excluded.last_seq, record = \
             excluded.record",
            "1".to_owned(),
        ),
        (&EVENTS, "", format!("seq > {}", before.1)),
    ] {
        let sql = format!("SELECT {} FROM {} WHERE {wanted}", table.columns, table.name);
        read.push((table, on_conflict, rows(reader, &sql, table.count)?));
    }
    let counted = counted(&read[0].2);
    read.push((&INBOXES, COUNTED, counted));
    Ok(read)
}

/// Writes the rows of a chat message in one transaction. Returns the seconds that it took.
pub(super) fn insert_all(raw: &Connection, written: &Written) -> Outcome<f64> {
    // The cache keeps them prepared from one chat message to the next.
    let (mut begin, mut commit) = (raw.prepare_cached("BEGIN IMMEDIATE")?, raw.prepare_cached("COMMIT")?);
    let mut inserts = Vec::with_capacity(written.len());
    for (table, on_conflict, rows) in written {
        inserts.push((raw.prepare_cached(&format!("{}{on_conflict}", table.insert()))?, rows));
    }
    let began = now();
    begin.execute([])?;
    for (insert, rows) in &mut inserts {
        for row in *rows {
            insert.execute(params_from_iter(row))?;
        }
    }
    commit.execute([])?;
    Ok(began.elapsed().as_secs_f64())
}
