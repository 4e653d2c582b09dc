//! The client for the npm suite `@modelcontextprotocol/conformance`: `conformance_client URL`.
//!
//! The suite names the scenario and the protocol version in variables. CONFORMANCE.md has the commands.

// An example is a program of one file, with its output on the terminal.
#![allow(clippy::print_stderr)]

use std::error::Error;
use std::sync::Arc;

use async_trait::async_trait;
use ghost_mcp::{
    Answer, CallOptions, Connection, Elicitation, ElicitationHandler, HttpClient, Lifecycle, Link, Options,
};
use serde_json::{Map, Value, json};

/// Accepts with nothing: the crate fills the defaults.
struct Accepts;

#[async_trait]
impl ElicitationHandler for Accepts {
    async fn ask(&self, _: Elicitation) -> Answer {
        Answer::Accept(json!({}))
    }
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

/// The calls that the scenario wants.
async fn calls(
    connection: &Connection,
    scenario: &str,
    context: &Value,
) -> Result<Vec<(String, Map<String, Value>)>, Box<dyn Error>> {
    let tools = connection.tools().await?;
    eprintln!("tools {:?}", tools.items.iter().map(|tool| &tool.name).collect::<Vec<_>>());
    eprintln!("skipped {:?}, end {:?}", tools.skipped, tools.end);
    if let Some(list) = context["toolCalls"].as_array() {
        let call = |call: &Value| (call["name"].as_str().unwrap_or_default().to_owned(), object(&call["arguments"]));
        return Ok(list.iter().map(call).collect());
    }
    let named = |name: &str, arguments: Value| vec![(name.to_owned(), object(&arguments))];
    Ok(match scenario {
        "tools_call" => named("add_numbers", json!({"a": 2, "b": 3})),
        "json-schema-2020-12-preservation" => {
            let tool = tools.items.iter().find(|tool| tool.name == "json_schema_2020_12_tool");
            tool.map(|tool| named("json_schema_echo", json!({"schema": tool.input_schema}))).unwrap_or_default()
        }
        "json-schema-ref-no-deref" | "initialize" => Vec::new(),
        _ => tools.items.iter().map(|tool| (tool.name.clone(), Map::new())).collect(),
    })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    drop(rustls::crypto::ring::default_provider().install_default());
    let url = std::env::args().nth(1).ok_or("usage: conformance_client URL")?;
    let (scenario, version) = (variable("MCP_CONFORMANCE_SCENARIO"), variable("MCP_CONFORMANCE_PROTOCOL_VERSION"));
    let context: Value = serde_json::from_str(&variable("MCP_CONFORMANCE_CONTEXT")).unwrap_or_default();
    let lifecycle = if version.as_str() >= "2026" { Lifecycle::Auto } else { Lifecycle::Initialize };
    let options = Options { lifecycle, elicitation: Some(Arc::new(Accepts)), ..Options::default() };
    let link = Link::Http { client: HttpClient::new(reqwest::Client::builder().no_proxy())?, url, token: None };
    let connection = Connection::open(link, options).await?;
    eprintln!("{:?}", connection.server());
    for (name, arguments) in calls(&connection, &scenario, &context).await? {
        let result = connection.call(&name, arguments, CallOptions::default(), |_| ()).await;
        eprintln!("call {name}: {result:?}");
    }
    if scenario == "http-standard-headers" {
        for resource in connection.resources().await?.items {
            let read = connection.read_resource(&resource.uri).await;
            eprintln!("resource {}: {}", resource.uri, read.is_ok());
        }
        for prompt in connection.prompts().await?.items {
            let got = connection.get_prompt(&prompt.name, Map::new()).await;
            eprintln!("prompt {}: {}", prompt.name, got.is_ok());
        }
    }
    connection.close().await;
    Ok(())
}
