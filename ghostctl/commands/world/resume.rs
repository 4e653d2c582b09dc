//! `ghostctl resume`

use ghost_proto::json;
use ghost_proto::v1::ResumeRequest;
use ghost_proto::v1::world_client::WorldClient;

use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::output::Answer;

/// Resume a paused world
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl resume")]
pub struct Resume {}

impl Resume {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = ResumeRequest { request_id: new_request_id() };
        let answer = rpc!(client, WorldClient::resume, request).await?;
        let text = if answer.changed { "resumed" } else { "the world was not paused" };
        Ok(Answer::object(json::value(&answer), text))
    }
}
