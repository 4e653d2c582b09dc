//! `ghostctl dead retry`

use ghost_proto::v1::RetryDeadRequest;
use ghost_proto::v1::messages_client::MessagesClient;

use super::change::changed;
use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::ids;
use crate::output::Answer;

/// Deliver a dead letter again; its turn resumes from its journal
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ID=$(ghostctl --json dead list | jq -r '.[0].dead_letter_id')\n  ghostctl dead retry $ID\n  ghostctl dead retry $ID --fresh"
)]
pub struct Retry {
    /// Dead letter id
    dead_letter_id: String,
    /// Start a new turn instead of resuming the old one
    #[arg(long)]
    fresh: bool,
}

impl Retry {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let dead_letter_id = ids::full_id(client, ids::DEAD_LETTER, self.dead_letter_id).await?;
        let request = RetryDeadRequest { request_id: new_request_id(), dead_letter_id, fresh: self.fresh };
        changed(rpc!(client, MessagesClient::retry_dead, request).await?)
    }
}
