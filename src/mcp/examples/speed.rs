//! Compares calls of this crate with bare calls of `rmcp`, over the same server in memory: `speed [CALLS]`.

// An example prints to the terminal and measures real time: no simulation drives it.
#![allow(clippy::print_stdout, clippy::disallowed_methods, missing_docs)]

use std::error::Error;
use std::time::{Duration, Instant};

use ghost_mcp::{CallOptions, Connection, Lifecycle, Link, Options};
use rmcp::model::{CallToolRequestParams, ClientConfig, JsonObject};
use rmcp::{ClientHandler, ServiceExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};

struct Bare;

impl ClientHandler for Bare {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::default().with_protocol_version(rmcp::model::ProtocolVersion::LATEST_WITH_INITIALIZE)
    }
}

/// Answers `initialize` and `tools/call`.
async fn echo(stream: DuplexStream) -> std::io::Result<()> {
    let (reader, mut writer) = tokio::io::split(stream);
    let mut lines = BufReader::new(reader).lines();
    while let Some(line) = lines.next_line().await? {
        let request: Value = serde_json::from_str(&line)?;
        let result = match request["method"].as_str() {
            Some("initialize") => json!({
                "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                "serverInfo": {"name": "echo", "version": "1"},
            }),
            Some("tools/call") => {
                json!({"content": [{"type": "text", "text": request["params"]["arguments"]["text"]}]})
            }
            _ => continue,
        };
        let answer = json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
        writer.write_all(format!("{answer}\n").as_bytes()).await?;
    }
    Ok(())
}

fn arguments() -> JsonObject {
    [("text".to_owned(), json!("The quick brown fox jumps over the lazy dog."))].into_iter().collect()
}

async fn ours(calls: u32) -> Result<Duration, Box<dyn Error>> {
    let (here, there) = tokio::io::duplex(64 * 1_024);
    tokio::spawn(echo(there));
    let (reader, writer) = tokio::io::split(here);
    let link = Link::Streams { reader: Box::new(reader), writer: Box::new(writer) };
    let connection = Connection::open(link, Options { lifecycle: Lifecycle::Initialize, ..Options::default() }).await?;
    let begin = Instant::now();
    for _ in 0..calls {
        let result = connection.call("echo", arguments(), CallOptions::default(), |_| ()).await?;
        assert!(result.text().ends_with("dog."));
    }
    let time = begin.elapsed();
    connection.close().await;
    Ok(time)
}

async fn bare(calls: u32) -> Result<Duration, Box<dyn Error>> {
    let (here, there) = tokio::io::duplex(64 * 1_024);
    tokio::spawn(echo(there));
    let client = Bare.serve(tokio::io::split(here)).await?;
    let begin = Instant::now();
    for _ in 0..calls {
        let result = client.peer().call_tool(CallToolRequestParams::new("echo").with_arguments(arguments())).await?;
        assert_eq!(result.content.len(), 1);
    }
    let time = begin.elapsed();
    client.cancel().await?;
    Ok(time)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let calls = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(2_000);
    // The first round warms up. The best of five rounds is the least disturbed.
    let (mut best_ours, mut best_bare) = (Duration::MAX, Duration::MAX);
    for round in 0..6 {
        let (mine, theirs) = (ours(calls).await?, bare(calls).await?);
        if round > 0 {
            best_ours = best_ours.min(mine);
            best_bare = best_bare.min(theirs);
        }
    }
    let each = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(calls);
    println!("{calls} calls: ghost-mcp {:.1} us each, bare rmcp {:.1} us each", each(best_ours), each(best_bare));
    println!("ratio {:.2}", best_ours.as_secs_f64() / best_bare.as_secs_f64());
    Ok(())
}
