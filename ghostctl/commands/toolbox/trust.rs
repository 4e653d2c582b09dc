//! `ghostctl toolbox trust`

use ghost_proto::v1::TrustToolboxRequest;
use ghost_proto::v1::toolboxes_client::ToolboxesClient;

use super::rows::body;
use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::output::Answer;

/// Trust tools of an MCP server as they are now, and reload the world
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Agents get only tools that are trusted. Their definitions are written to mcp.lock beside toolbox.yaml. A tool whose
definition the server changes later is absent until you trust it again. Look first with `ghostctl toolbox check`.

Examples:
  ghostctl toolbox trust files
  ghostctl toolbox trust files read_file list_directory
  ghostctl toolbox trust files read_file=3f2a9c0d11aa")]
pub struct Trust {
    /// Toolbox name
    toolbox: String,
    /// Tools, each with the beginning of its hash after = if it must have that; all if none
    tools: Vec<String>,
}

impl Trust {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = TrustToolboxRequest { request_id: new_request_id(), toolbox: self.toolbox, tools: self.tools };
        let found = rpc!(client, ToolboxesClient::trust, request).await?;
        Ok(body(&found.tools).into())
    }
}
