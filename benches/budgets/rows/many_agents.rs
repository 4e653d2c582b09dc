//! Memory of a daemon with 20,000 agents that take a broadcast and go back to sleep, against the 200 MB that it may take.

use std::time::Duration;

use ghost_proto::v1::tools_client::ToolsClient;
use ghost_proto::v1::world_client::WorldClient;
use ghost_proto::v1::{CallToolRequest, StatusRequest};
use tonic::transport::Endpoint;

use super::ready::answer;
use crate::child::Child;
use crate::measure::{Outcome, now, pause, runtime};
use crate::table::{Line, Sense};

const AGENTS: u64 = 20_000;
/// Maximum time until all have answered.
const PATIENCE: Duration = Duration::from_secs(300);
const MB: f64 = 1e6;
const ALLOWED: f64 = 200.0 * MB;

/// Measures the rows of this module.
pub fn measure() -> Outcome<Vec<Line>> {
    let dir = tempfile::tempdir()?;
    let (world, data) = (dir.path().join("many"), dir.path().join("data"));
    std::fs::create_dir_all(world.join("archetype/worker"))?;
    std::fs::create_dir_all(world.join("scripts"))?;
    for (file, text) in [
        (
            "world-config.yaml",
            format!(
                "world: {{ id: many, name: Many }}\nagents: [{{ id: worker, archetype: worker, count: {AGENTS} }}]\n\
                 llm: {{ default_provider: s, default_model: worker, providers: {{ s: {{ kind: scripted, dir: scripts, \
                 concurrency: 64 }} }} }}\nlimits: {{ root_messages_max: 1000000, root_turns_max: 1000000 }}\n"
            ),
        ),
        ("archetype/worker/soul.md", "You work.\n".to_owned()),
        ("archetype/worker/goal.md", "Do what you are asked.\n".to_owned()),
        ("scripts/worker.yaml", "about: \"Answers.\"\notherwise:\n  - say: \"done\"\n".to_owned()),
    ] {
        std::fs::write(world.join(file), text)?;
    }
    let daemon = Child::daemon(&world, &data)?;
    let socket = data.join("ghostd.sock");
    let runtime = runtime()?;
    runtime.block_on(answer(&socket))?;
    let started = daemon.peak_rss()? as f64;
    let answered: Outcome<()> = runtime.block_on(async {
        let channel = Endpoint::from_shared(format!("unix://{}", socket.display()))?.connect().await?;
        let call = CallToolRequest {
            request_id: "bench".into(),
            agent_id: "worker-1".into(),
            tool: "syscall.broadcast".into(),
            arguments_json: "{\"message\":\"hello\"}".into(),
            ..CallToolRequest::default()
        };
        ToolsClient::new(channel.clone()).call(call).await?;
        let began = now();
        loop {
            let status = WorldClient::new(channel.clone()).status(StatusRequest::default()).await?.into_inner();
            if status.open_turns == 0 && status.inbox_total == 0 {
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                return Err(format!("{} agents still have mail", status.inbox_total).into());
            }
            pause(Duration::from_millis(200)).await;
        }
    });
    answered?;
    let worked = daemon.peak_rss()? as f64;
    daemon.terminate()?;
    let line = |what, bytes: f64| Line {
        what,
        floor: format!("{} MB", ALLOWED / MB),
        ours: format!("{:.0} MB", bytes / MB),
        ratio: bytes / ALLOWED,
        bar: 1.0,
        aim: 0.75,
        sense: Sense::AtMost,
    };
    Ok(vec![
        line("20,000 agents: memory of the first start", started),
        line("the same after a broadcast to all", worked),
    ])
}
