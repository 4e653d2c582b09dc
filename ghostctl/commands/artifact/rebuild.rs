//! `ghostctl artifact rebuild`

use ghost_proto::json;
use ghost_proto::v1::RebuildArtifactsRequest;
use ghost_proto::v1::artifacts_client::ArtifactsClient;

use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::output::Answer;
use crate::text::plural;

/// Compare the record of artifacts with the files, and write shared/manifests/index.jsonl anew
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl artifact rebuild")]
pub struct Rebuild {}

impl Rebuild {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = RebuildArtifactsRequest { request_id: new_request_id() };
        let done = rpc!(client, ArtifactsClient::rebuild, request).await?;
        let text = format!("{}, {} corrected", plural(done.artifacts, "artifact"), done.corrected);
        Ok(Answer::object(json::value(&done), text))
    }
}
