//! `ghostctl artifact list`

use ghost_proto::json;
use ghost_proto::v1::ListArtifactsRequest;
use ghost_proto::v1::artifacts_client::ArtifactsClient;

use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::lists::{Bound, collect};
use crate::output::{Answer, Body};
use crate::table::Table;

/// List the artifacts: the files under output/
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl artifact list\n  ghostctl artifact list output/reports/ --agent chora")]
pub struct List {
    /// Show only files whose path begins with this
    #[arg(value_name = "PATH")]
    path: Option<String>,
    /// Show only files that this agent changed last
    #[arg(long = "agent", id = "agent_id", value_name = "A")]
    agent: Option<String>,
    #[command(flatten)]
    bound: Bound,
}

impl List {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let artifacts = collect(&self.bound, async |limit, cursor| {
            let request =
                ListArtifactsRequest { prefix: self.path.clone(), agent_id: self.agent.clone(), limit, cursor };
            let page = rpc!(client, ArtifactsClient::list, request).await?;
            Ok((page.artifacts, page.next_cursor))
        })
        .await?;
        let mut table = Table::new(&["PATH", "TYPE", "BYTES", "AGENT", "CHANGED", "ARTIFACT"]);
        for artifact in &artifacts.rows {
            table.row([
                artifact.path.clone(),
                artifact.r#type.clone(),
                artifact.bytes.to_string(),
                artifact.agent_id.clone().unwrap_or_default(),
                client.view.moment(artifact.updated_at_ms),
                artifact.artifact_id.clone(),
            ]);
        }
        let json = artifacts.rows.iter().map(json::value).collect();
        Ok(Answer { body: Body::List { json, table }, note: artifacts.note, failure: None })
    }
}
