//! The savings of gating: the same three chat messages to a thousand members, first in an ungated
//! channel that wakes all members, then in a gated channel. The figures are the number of turns and
//! their tokens. The models are scripted, so turns are as cheap as possible.

use std::time::Duration;

use ghost_domain::event::EventFilter;
use ghost_domain::{AgentId, ChannelName, ChatWake, EventKind, Party, Refusal};
use ghost_operations::chat::{self, NewChannel, NewPost, Speaker};
use ghost_operations::mail::Chain;
use ghost_store::StoreError;
use ghost_store::tables::UsageFilter;
use ghost_world::World;

use crate::fixture;
use crate::measure::{Outcome, pause, runtime};
use crate::table::{Line, Sense};

const MEMBERS: usize = 1_000;
const POSTS: usize = 3;

/// Measures the rows of this module.
pub fn measure() -> Outcome<Vec<Line>> {
    runtime()?.block_on(async {
        let dir = tempfile::tempdir()?;
        let (world_dir, data) = (dir.path().join("bench"), dir.path().join("data"));
        std::fs::create_dir_all(&data)?;
        fixture::write_world(&world_dir, MEMBERS, "http://127.0.0.1:9/v1")?;
        let file = world_dir.join("world-config.yaml");
        let text = std::fs::read_to_string(&file)?;
        let (before, after) = text.split_once("    local:").ok_or("the world has no provider `local`")?;
        let (_, rest) = after.split_once('\n').ok_or("the provider is the last thing in the world")?;
        std::fs::write(&file, format!("{before}    local: {{ kind: scripted, dir: scripts }}\n{rest}"))?;
        std::fs::create_dir_all(world_dir.join("scripts"))?;
        std::fs::write(world_dir.join("scripts/fake.yaml"), "otherwise: [{ say: I have read it. }]\n")?;
        let world = fixture::boot(&world_dir, &data, ghost_daemon::system_ports(), Vec::new()).await?;
        let (open_turns, open_tokens) = conversation(&world, "open", false).await?;
        let (gated_turns, gated_tokens) = conversation(&world, "gated", true).await?;
        world.shutdown("measured").await;
        world.store().close().await;
        if open_turns < MEMBERS || open_tokens == 0 {
            return Err(format!("the ungated channel started {open_turns} turns with {open_tokens} tokens").into());
        }
        let line = |what, ungated: u64, gated: u64, unit: &str| Line {
            what,
            floor: format!("{ungated} {unit}"),
            ours: format!("{gated} {unit}"),
            ratio: gated as f64 / ungated as f64,
            bar: 0.0,
            aim: 0.0,
            sense: Sense::AtMost,
        };
        Ok(vec![
            line(
                "turns of 3 posts to 1,000 members, gated, beside ungated",
                u64::try_from(open_turns)?,
                u64::try_from(gated_turns)?,
                "turns",
            ),
            line("tokens of the same", open_tokens, gated_tokens, "tokens"),
        ])
    })
}

/// Sends three chat messages to all members, and waits after each until the world is quiet. Returns
/// the number of turns and of tokens.
async fn conversation(world: &World, name: &str, gated: bool) -> Outcome<(usize, u64)> {
    let operator = Speaker::from(Party::Operator("bench".into()));
    let channel: ChannelName = name.parse()?;
    let members: Vec<AgentId> =
        (0..MEMBERS).map(|agent| format!("worker-{agent}").parse()).collect::<Result<_, Refusal>>()?;
    let new = NewChannel { channel: channel.clone(), members, gated, skip_creator: false, topic: None };
    let by = operator.clone();
    world.write(move |w| chat::create(w, &by, new).map(drop)).await?;
    let (since, tokens) = (world.store().last_seq(), tokens(world).await?);
    for _ in 0..POSTS {
        let content =
            "@all Three of the five figures differ from last year's; say so if yours is one of them.".to_owned();
        let chain = Chain::root(world.ctx());
        let new = NewPost { channel: channel.clone(), content, reply_to: None, deliver: false, chain };
        let by = operator.clone();
        world.write(move |w| chat::post(w, &by, ChatWake::All, new).map(drop)).await?;
        quiet(world).await?;
    }
    Ok((turns(world, since).await?, self::tokens(world).await?.saturating_sub(tokens)))
}

async fn quiet(world: &World) -> Outcome<()> {
    loop {
        pause(Duration::from_millis(50)).await;
        let (waiting, open) =
            world.store().read(|r| Ok::<_, StoreError>((r.inbox_total()?, r.turns_open()?.len()))).await?;
        if waiting == 0 && open == 0 {
            return Ok(());
        }
    }
}

/// Number of turns that began after a position in the event feed.
async fn turns(world: &World, since: i64) -> Outcome<usize> {
    let (mut after, mut turns) = (since, 0);
    while after < world.store().last_seq() {
        let (events, seen) = world.store().read(move |r| r.event_list(after, &EventFilter::default(), 1_000)).await?;
        turns += events.iter().filter(|event| event.kind == EventKind::TurnStarted).count();
        after = seen.max(after + 1);
    }
    Ok(turns)
}

async fn tokens(world: &World) -> Outcome<u64> {
    let sums = world.store().read(|r| r.usage_sum(&UsageFilter::default())).await?;
    Ok(sums.iter().map(|sum| sum.tokens.total()).sum())
}
