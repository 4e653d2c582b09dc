//! `ghostctl tool brief`

use ghost_proto::v1::tools_client::ToolsClient;
use ghost_proto::v1::{BriefToolsRequest, ListToolsRequest};
use serde_json::json;

use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::lists::collect_all;
use crate::output::Answer;
use crate::text::one_line;

/// Print the tools of an agent as `- name: description`, with full descriptions
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl tool brief chora\n  ghostctl tool brief chora workspace.read")]
pub struct Brief {
    /// Agent id
    agent_id: String,
    /// Print only this tool
    tool: Option<String>,
}

impl Brief {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let text = match &self.tool {
            Some(name) => self.one(client, name).await?,
            None => {
                let request = BriefToolsRequest { agent_id: self.agent_id.clone() };
                rpc!(client, ToolsClient::brief, request).await?.text
            }
        };
        Ok(Answer::object(json!({ "agent_id": self.agent_id, "text": text }), text))
    }

    /// The line of one tool.
    async fn one(&self, client: &Client, name: &str) -> Result<String, Failure> {
        let tools = collect_all(async |limit, cursor| {
            let agent_id = self.agent_id.clone();
            let request = ListToolsRequest { agent_id, limit, cursor, include_absent: false };
            let page = rpc!(client, ToolsClient::list, request).await?;
            Ok((page.tools, page.next_cursor))
        })
        .await?;
        let tool = tools.into_iter().find(|tool| tool.name == name).ok_or_else(|| {
            Failure::new("unknown_tool", format!("{} has no tool `{}`", self.agent_id, one_line(name, 100)))
                .hint(format!("`ghostctl tool list {}` lists its tools", self.agent_id))
        })?;
        Ok(format!("- {}: {}\n", tool.name, tool.description))
    }
}
