//! `ghostctl conversation redeliver`

use ghost_proto::json;
use ghost_proto::v1::RedeliverRequest;
use ghost_proto::v1::conversations_client::ConversationsClient;

use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::ids;
use crate::output::Answer;
use crate::text::from_1;

/// Retry a failed delivery of a message, under the same delivery id
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ID=$(ghostctl --json conversation list | jq -r '.[0].conversation_id')\n  ghostctl conversation redeliver $ID 12"
)]
pub struct Redeliver {
    /// Conversation id
    conversation_id: String,
    /// Number of the message, as `conversation show` prints it
    #[arg(allow_negative_numbers = true, value_parser = from_1::<i64>)]
    seq: i64,
}

impl Redeliver {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let conversation_id = ids::full_id(client, ids::CONVERSATION, self.conversation_id).await?;
        let request = RedeliverRequest { request_id: new_request_id(), conversation_id, seq: self.seq };
        let entry = rpc!(client, ConversationsClient::redeliver, request).await?;
        let text = format!("message {} of conversation {} will be delivered again", entry.seq, entry.conversation_id);
        Ok(Answer::object(json::value(&entry), text))
    }
}
