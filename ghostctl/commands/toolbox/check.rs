//! `ghostctl toolbox check`

use ghost_proto::v1::CheckToolboxRequest;
use ghost_proto::v1::toolboxes_client::ToolboxesClient;

use super::rows::body;
use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::output::Answer;

/// Show the tools of a toolbox; of an MCP server, what it has now and what is trusted
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ghostctl toolbox check devtools\n  ghostctl --json toolbox check files | jq -r '.[] | select(.state == \"changed\").name'"
)]
pub struct Check {
    /// Toolbox name
    toolbox: String,
}

impl Check {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let found = rpc!(client, ToolboxesClient::check, CheckToolboxRequest { toolbox: self.toolbox }).await?;
        Ok(body(&found.tools).into())
    }
}
