//! `ghostctl agent inspect`

use ghost_proto::json;
use ghost_proto::v1::InspectAgentRequest;
use ghost_proto::v1::agents_client::AgentsClient;

use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::output::Answer;
use crate::table::Table;
use crate::text::from_1;

/// List the memory files of an agent, or show one of them
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl agent inspect chora\n  ghostctl agent inspect chora 2026-11-26.md")]
pub struct Inspect {
    /// Agent id
    agent_id: String,
    /// Path of a memory file, as the list shows it
    path: Option<String>,
    /// Show at most this many bytes
    #[arg(long, value_name = "N", default_value = "65536", value_parser = from_1::<u32>)]
    limit: u32,
}

impl Inspect {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = InspectAgentRequest { agent_id: self.agent_id, path: self.path, limit: self.limit };
        let answer = rpc!(client, AgentsClient::inspect, request).await?;
        let json = json::value(&answer);
        let view = &client.view;
        let mut text = match answer.content {
            Some(content) => content,
            None if answer.files.is_empty() => "no memory files\n".to_owned(),
            None => {
                let mut table = Table::new(&["PATH", "BYTES", "MODIFIED"]);
                for file in answer.files {
                    table.row([file.path, file.size_bytes.to_string(), view.when(file.modified_at_ms)]);
                }
                table.render(view.screen)
            }
        };
        if answer.truncated {
            text.push_str("\n(cut; --limit shows more)\n");
        }
        Ok(Answer::object(json, text))
    }
}
