//! `ghostctl conversation handoff`

use ghost_proto::json;
use ghost_proto::v1::HandoffConversationRequest;
use ghost_proto::v1::conversations_client::ConversationsClient;

use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::ids;
use crate::output::Answer;
use crate::source::optional_text;

/// Hand a conversation over to another agent
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ID=$(ghostctl --json conversation list | jq -r '.[0].conversation_id')\n  ghostctl conversation handoff $ID mux --reason 'chora is off today'"
)]
pub struct Handoff {
    /// Conversation id
    conversation_id: String,
    /// Id of the new owner
    agent_id: String,
    /// Record this reason
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

impl Handoff {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = HandoffConversationRequest {
            request_id: new_request_id(),
            conversation_id: ids::full_id(client, ids::CONVERSATION, self.conversation_id).await?,
            agent_id: self.agent_id,
            reason: optional_text(self.reason)?,
        };
        let conversation = rpc!(client, ConversationsClient::handoff, request).await?;
        let text = format!("conversation {} now belongs to {}", conversation.conversation_id, conversation.owner);
        Ok(Answer::object(json::value(&conversation), text))
    }
}
