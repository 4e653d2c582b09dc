//! A call of an MCP tool, beside a bare call of `rmcp`, over the same server in memory.

use ghost_mcp::{CallOptions, Connection, Lifecycle, Link, Options};
use rmcp::model::{CallToolRequestParams, ClientConfig, JsonObject, ProtocolVersion};
use rmcp::{ClientHandler, ServiceExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, duplex};

use crate::measure::{Outcome, median, now, runtime};
use crate::table::{Line, Sense};

const CALLS: u32 = 2_000;
const ROUNDS: usize = 9;
/// Bytes between the client and the server.
const BETWEEN: usize = 64 * 1_024;

/// Measures the row of this module.
pub fn measure() -> Outcome<Vec<Line>> {
    runtime()?.block_on(async {
        let (mut floors, mut ours) = (Vec::new(), Vec::new());
        for round in 0..=ROUNDS {
            let (floor, our) = (bare().await?, calls().await?);
            if round > 0 {
                floors.push(floor);
                ours.push(our);
            }
        }
        let (floor, ours) = (median(floors), median(ours));
        Ok(vec![Line {
            what: "a call of an MCP tool, beside bare rmcp",
            floor: format!("{floor:.1} us"),
            ours: format!("{ours:.1} us"),
            ratio: ours / floor,
            bar: 1.3,
            aim: 1.1,
            sense: Sense::AtMost,
        }])
    })
}

struct Bare;

impl ClientHandler for Bare {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::default().with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }
}

/// The server: answers `initialize` and `tools/call`.
async fn echo(stream: DuplexStream) -> std::io::Result<()> {
    let (reader, mut writer) = tokio::io::split(stream);
    let mut lines = BufReader::new(reader).lines();
    while let Some(line) = lines.next_line().await? {
        let request: Value = serde_json::from_str(&line)?;
        let result = match request["method"].as_str() {
            Some("initialize") => json!({
                "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                "serverInfo": { "name": "echo", "version": "1" },
            }),
            Some("tools/call") => {
                json!({ "content": [{ "type": "text", "text": request["params"]["arguments"]["text"] }] })
            }
            _ => continue,
        };
        let answer = json!({ "jsonrpc": "2.0", "id": request["id"], "result": result });
        writer.write_all(format!("{answer}\n").as_bytes()).await?;
    }
    Ok(())
}

fn arguments() -> JsonObject {
    [("text".to_owned(), json!("The quick brown fox jumps over the lazy dog."))].into_iter().collect()
}

/// Microseconds of one call of ours.
async fn calls() -> Outcome<f64> {
    let (here, there) = duplex(BETWEEN);
    tokio::spawn(echo(there));
    let (reader, writer) = tokio::io::split(here);
    let link = Link::Streams { reader: Box::new(reader), writer: Box::new(writer) };
    let connection = Connection::open(link, Options { lifecycle: Lifecycle::Initialize, ..Options::default() }).await?;
    let began = now();
    for _ in 0..CALLS {
        let result = connection.call("echo", arguments(), CallOptions::default(), |_| ()).await?;
        if !result.text().ends_with("dog.") {
            return Err("the answer is another one".into());
        }
    }
    let each = began.elapsed().as_secs_f64() * 1e6 / f64::from(CALLS);
    connection.close().await;
    Ok(each)
}

/// Microseconds of one call of the floor.
async fn bare() -> Outcome<f64> {
    let (here, there) = duplex(BETWEEN);
    tokio::spawn(echo(there));
    let client = Bare.serve(tokio::io::split(here)).await?;
    let began = now();
    for _ in 0..CALLS {
        let result = client.peer().call_tool(CallToolRequestParams::new("echo").with_arguments(arguments())).await?;
        if result.content.len() != 1 {
            return Err("the answer is another one".into());
        }
    }
    let each = began.elapsed().as_secs_f64() * 1e6 / f64::from(CALLS);
    client.cancel().await?;
    Ok(each)
}
