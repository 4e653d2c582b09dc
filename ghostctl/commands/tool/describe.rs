//! `ghostctl tool describe`

use ghost_proto::json;
use ghost_proto::v1::DescribeToolRequest;
use ghost_proto::v1::tools_client::ToolsClient;
use serde_json::json;

use super::schema;
use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::output::Answer;

/// Show a tool of an agent with its parameters
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ghostctl tool describe chora workspace.read\n  ghostctl --json tool describe chora workspace.read | jq .parameters"
)]
pub struct Describe {
    /// Agent id
    agent_id: String,
    /// Tool name or alias
    tool: String,
}

impl Describe {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = DescribeToolRequest { agent_id: self.agent_id, tool: self.tool };
        let tool = rpc!(client, ToolsClient::describe, request).await?;
        let parameters = json::parsed(&tool.parameters_json);
        let mut text = schema::description(
            &json!({ "name": tool.name, "description": tool.description, "parameters": parameters }),
        );
        let from = match (&tool.skill, tool.toolbox.as_str()) {
            (_, "") => "Ghost".to_owned(),
            (Some(skill), toolbox) => format!("the toolbox {toolbox} of the skill {skill}"),
            (None, toolbox) => format!("the toolbox {toolbox}"),
        };
        text.push_str(&format!("  from: {from}\n  effect: {}\n", tool.effect));
        if tool.deferred {
            text.push_str("  requests leave its parameters out: a model runs it through syscall.tool.call\n");
        }
        Ok(Answer::object(json::value(&tool), text))
    }
}
