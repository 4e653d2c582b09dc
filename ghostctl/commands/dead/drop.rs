//! `ghostctl dead drop`

use ghost_proto::v1::DropDeadRequest;
use ghost_proto::v1::messages_client::MessagesClient;

use super::change::changed;
use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::ids;
use crate::output::Answer;

/// Drop a dead letter: its messages will not be processed
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ID=$(ghostctl --json dead list | jq -r '.[0].dead_letter_id')\n  ghostctl dead drop $ID"
)]
pub struct Drop {
    /// Dead letter id
    dead_letter_id: String,
}

impl Drop {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let dead_letter_id = ids::full_id(client, ids::DEAD_LETTER, self.dead_letter_id).await?;
        let request = DropDeadRequest { request_id: new_request_id(), dead_letter_id };
        changed(rpc!(client, MessagesClient::drop_dead, request).await?)
    }
}
