//! `ghostctl artifact remove`

use ghost_proto::json;
use ghost_proto::v1::RemoveArtifactRequest;
use ghost_proto::v1::artifacts_client::ArtifactsClient;

use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::output::Answer;

/// Remove a file or directory of the workspace with all that is in it, however deep
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ghostctl artifact remove output/reports/old.md\n  ghostctl artifact remove agents/ada/deep"
)]
pub struct Remove {
    /// Path relative to the workspace
    #[arg(value_name = "PATH")]
    path: String,
}

impl Remove {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = RemoveArtifactRequest { request_id: new_request_id(), path: self.path.clone() };
        let done = rpc!(client, ArtifactsClient::remove, request).await?;
        let text = if done.removed { format!("removed {}", self.path) } else { format!("nothing is at {}", self.path) };
        Ok(Answer::object(json::value(&done), text))
    }
}
