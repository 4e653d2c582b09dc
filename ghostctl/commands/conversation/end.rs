//! `ghostctl conversation end`

use ghost_proto::json;
use ghost_proto::v1::EndConversationRequest;
use ghost_proto::v1::conversations_client::ConversationsClient;

use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::ids;
use crate::output::Answer;
use crate::source::optional_text;

/// End a conversation: agents cannot speak in it until a message from outside opens it again
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl conversation end 01a20d4b --reason 'the order was cancelled'")]
pub struct End {
    /// Conversation id
    conversation_id: String,
    /// Record this reason
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

impl End {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = EndConversationRequest {
            request_id: new_request_id(),
            conversation_id: ids::full_id(client, ids::CONVERSATION, self.conversation_id).await?,
            reason: optional_text(self.reason)?,
        };
        let conversation = rpc!(client, ConversationsClient::end, request).await?;
        let text = format!("conversation {} has ended", conversation.conversation_id);
        Ok(Answer::object(json::value(&conversation), text))
    }
}
