//! `ghostctl pause`

use ghost_proto::json;
use ghost_proto::v1::PauseRequest;
use ghost_proto::v1::world_client::WorldClient;

use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::output::Answer;
use crate::source::optional_text;
use crate::text::plural;

/// Pause the world: no new turn starts; open turns finish, and messages wait
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl pause --reason 'provider maintenance'\n  ghostctl resume")]
pub struct Pause {
    /// Record this reason in the event feed
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

impl Pause {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = PauseRequest { request_id: new_request_id(), reason: optional_text(self.reason)? };
        let answer = rpc!(client, WorldClient::pause, request).await?;
        let state = if answer.changed { "paused" } else { "already paused" };
        Ok(Answer::object(
            json::value(&answer),
            format!("{state}; {} will finish", plural(answer.open_turns, "open turn")),
        ))
    }
}
