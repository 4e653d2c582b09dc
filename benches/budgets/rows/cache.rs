//! The share of a model's input that comes from the provider's prompt cache, in a turn of ten rounds. The server
//! implements the documented prefix rule.

use std::time::Duration;

use ghost_domain::transcript::{Block, Message, Role};
use ghost_domain::{AgentId, Kind, Party};
use ghost_operations::mail::{Chain, NewMessage};
use ghost_provider::testing::{StrictServer, Wire};
use ghost_store::StoreError;
use ghost_store::tables::UsageFilter;
use serde_json::json;

use crate::fixture;
use crate::measure::{Outcome, pause, runtime};
use crate::table::{Line, Sense};

const ROUNDS: usize = 10;

/// Measures the rows of this module.
pub fn measure() -> Outcome<Vec<Line>> {
    let runtime = runtime()?;
    let share = |wire, what| runtime.block_on(share(wire)).map(|share| line(what, share));
    Ok(vec![
        share(Wire::Anthropic, "input read from cache in a turn of ten rounds, marks of Anthropic's")?,
        share(Wire::Responses, "the same, OpenAI's responses")?,
    ])
}

fn line(what: &'static str, (read, all): (u64, u64)) -> Line {
    Line {
        what,
        floor: format!("{all} tokens"),
        ours: format!("{read} tokens"),
        ratio: read as f64 / all as f64,
        bar: 0.85,
        aim: 0.9,
        sense: Sense::AtLeast,
    }
}

/// A call in each round, and text at the end.
fn script(messages: &[Message]) -> Vec<Block> {
    let round = messages.iter().filter(|message| message.role == Role::Assistant).count() + 1;
    match round < ROUNDS {
        true => vec![Block::ToolCall {
            id: String::new(),
            name: "workspace.write".into(),
            arguments: json!({ "path": format!("{round}.md"), "content": "What was found in this round.\n".repeat(20) }),
        }],
        false => vec![Block::Text { text: "All is written.".into() }],
    }
}

/// Input tokens from the cache, and all input tokens.
async fn share(wire: Wire) -> Outcome<(u64, u64)> {
    let server = StrictServer::start(wire, |asked| script(&asked.messages)).await?;
    let dir = tempfile::tempdir()?;
    let (world_dir, data) = (dir.path().join("bench"), dir.path().join("data"));
    std::fs::create_dir_all(&data)?;
    fixture::write_world(&world_dir, 1, "URL")?;
    let file = world_dir.join("world-config.yaml");
    let (kind, api) = if wire == Wire::Anthropic { ("anthropic", "") } else { ("openai", ", api: responses") };
    let ours = format!("kind: {kind}, base_url: \"{}\"{api},", server.base_url());
    let text = std::fs::read_to_string(&file)?.replace("kind: openai, base_url: \"URL\",", &ours);
    std::fs::write(&file, text)?;
    let world = fixture::boot(&world_dir, &data, ghost_daemon::system_ports(), Vec::new()).await?;
    let (ctx, to): (_, AgentId) = (world.ctx().clone(), "worker-0".parse()?);
    let new_message =
        NewMessage::new(&to, Party::Operator("bench".into()), Kind::Message, "Write ten files.", Chain::root(&ctx));
    world.write(move |w| ghost_operations::mail::deliver(w, new_message)).await?;
    loop {
        pause(Duration::from_millis(20)).await;
        let read = world.store().read(|r| Ok::<_, StoreError>((r.inbox_total()?, r.turns_open()?.len())));
        if read.await? == (0, 0) {
            break;
        }
    }
    let sums = world.store().read(|r| r.usage_sum(&UsageFilter::default())).await?;
    world.shutdown("measured").await;
    world.store().close().await;
    if !server.refusals().is_empty() || server.requests().len() != ROUNDS {
        return Err(format!("{} requests, refused: {:?}", server.requests().len(), server.refusals()).into());
    }
    Ok((sums.iter().map(|sum| sum.tokens.cache_read).sum(), sums.iter().map(|sum| sum.tokens.input).sum()))
}
