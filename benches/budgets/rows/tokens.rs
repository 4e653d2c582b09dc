//! Input tokens of the example worlds: what their models read until the newsroom's job is done and an open mic's debate
//! has ended, and how much of it describes tools. The floor sends every schema in every request. Four bytes count as one
//! token.

use std::path::Path;
use std::time::Duration;

use ghost_proto::v1::messages_client::MessagesClient;
use ghost_proto::v1::world_client::WorldClient;
use ghost_proto::v1::{SendRequest, StatusRequest};
use ghost_provider::testing::{StrictServer, Wire};
use ghost_testkit::blackbox::ScriptedRoles;
use serde_json::Value;
use tonic::transport::Endpoint;

use super::ready::answer;
use crate::child::Child;
use crate::fixture;
use crate::measure::{Outcome, now, pause, runtime};
use crate::table::{Line, Sense};

/// Maximum time of a world's work.
const PATIENCE: Duration = Duration::from_secs(180);
/// A bound that fits every schema.
const ALL: &str = "tools_bytes: 1000000";

/// Tokens of all requests, those of their tools, and the number of requests.
struct Tokens {
    all: u64,
    tools: u64,
    requests: usize,
}

/// Measures the rows of this module.
pub fn measure() -> Outcome<Vec<Line>> {
    let mut lines = Vec::new();
    for (world, question, names) in [
        ("newsroom", None, ["input of the newsroom's job", "its tools alone"]),
        (
            "openmic",
            Some(("moderator", "Should the library stay open at night?")),
            ["input of an open mic", "its tools alone"],
        ),
    ] {
        let floor = spent(world, question, Some(ALL))?;
        let ours = spent(world, question, None)?;
        for (what, floor_tokens, our_tokens) in [(names[0], floor.all, ours.all), (names[1], floor.tools, ours.tools)] {
            lines.push(Line {
                what,
                floor: format!("{floor_tokens} tokens, {} calls", floor.requests),
                ours: format!("{our_tokens} tokens, {} calls", ours.requests),
                ratio: our_tokens as f64 / floor_tokens as f64,
                bar: 0.7,
                aim: 0.4,
                sense: Sense::AtMost,
            });
        }
    }
    Ok(lines)
}

/// Lets a copy of a shipped world do its work, with `limit` among its limits.
fn spent(name: &str, question: Option<(&str, &str)>, limit: Option<&str>) -> Outcome<Tokens> {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("worlds").join(name);
    let dir = tempfile::tempdir()?;
    let (world, data) = (dir.path().join(name), dir.path().join("data"));
    fixture::copy(&from, &world)?;
    // A role is found by the agent's id.
    let speaker = world.join("scripts/speaker.yaml");
    if speaker.exists() {
        for agent_id in ["ada", "bruno", "chen", "dina", "emil"] {
            std::fs::copy(&speaker, speaker.with_file_name(format!("{agent_id}.yaml")))?;
        }
    }
    let roles = ScriptedRoles::load(&world.join("scripts"));
    let runtime = runtime()?;
    let server = runtime.block_on(StrictServer::start(Wire::Anthropic, move |asked| roles.answer_to(asked)))?;
    let file = world.join("world-config.yaml");
    let text = std::fs::read_to_string(&file)?;
    let scripted = "scripted: { kind: scripted, dir: scripts }";
    let ours = format!("scripted: {{ kind: anthropic, base_url: '{}' }}", server.base_url());
    let mut text = text.replace(scripted, &ours).replace("[toolbox/core/skills]", "[], bundled: [moderator-open-mic]");
    if let Some(limit) = limit {
        text = match text.contains("\nlimits:\n") {
            true => text.replace("\nlimits:\n", &format!("\nlimits:\n  {limit}\n")),
            false => format!("{text}\nlimits: {{ {limit} }}\n"),
        };
    }
    std::fs::write(file, text)?;
    let daemon = Child::daemon(&world, &data)?;
    let socket = data.join("ghostd.sock");
    runtime.block_on(answer(&socket))?;
    runtime.block_on(work(&socket, question))?;
    daemon.terminate()?;
    if !server.refusals().is_empty() {
        return Err(format!("{name}: refused: {:?}", server.refusals()).into());
    }
    let tokens = |value: &Value| value.to_string().len() as u64 / 4;
    let requests = server.requests();
    Ok(Tokens {
        all: requests.iter().map(|request| tokens(&request.body)).sum(),
        tools: requests.iter().map(|request| tokens(&request.body["tools"])).sum(),
        requests: requests.len(),
    })
}

/// Asks the question, if there is one, and waits until the world has nothing left to do.
async fn work(socket: &Path, question: Option<(&str, &str)>) -> Outcome<()> {
    let channel = Endpoint::from_shared(format!("unix://{}", socket.display()))?.connect().await?;
    if let Some((agent_id, body)) = question {
        let (agent_id, body, request_id) = (agent_id.to_owned(), body.to_owned(), "bench".to_owned());
        let request = SendRequest { request_id, agent_id, body, ..SendRequest::default() };
        MessagesClient::new(channel.clone()).send(request).await?;
    }
    let began = now();
    let mut quiet = 0;
    while quiet < 5 {
        if began.elapsed() > PATIENCE {
            return Err("the world did not end its work in time".into());
        }
        pause(Duration::from_millis(100)).await;
        let status = WorldClient::new(channel.clone()).status(StatusRequest::default()).await?.into_inner();
        quiet = if status.open_turns == 0 && status.inbox_total == 0 { quiet + 1 } else { 0 };
    }
    Ok(())
}
