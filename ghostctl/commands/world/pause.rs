//! `ghostctl pause`

use ghost_proto::v1::PauseRequest;
use ghost_proto::v1::world_client::WorldClient;
use serde_json::json;

use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::output::Answer;
use crate::source::words_if;

/// Let no new turn start; nothing is lost
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl pause --reason 'provider maintenance'\n  ghostctl resume")]
pub struct Pause {
    /// Why, for the event feed
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

impl Pause {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = PauseRequest { request_id: new_request_id(), reason: words_if(self.reason)? };
        let answer = rpc!(client, WorldClient::pause, request).await?;
        let state = if answer.changed { "paused" } else { "paused already" };
        Ok(Answer::object(
            json!({ "paused": answer.paused, "changed": answer.changed, "open_turns": answer.open_turns }),
            format!("{state}; {} open turns go on to their end", answer.open_turns),
        ))
    }
}
