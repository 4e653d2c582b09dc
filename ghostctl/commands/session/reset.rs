//! `ghostctl session reset`

use ghost_proto::json;
use ghost_proto::v1::ResetSessionRequest;
use ghost_proto::v1::sessions_client::SessionsClient;

use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::ids;
use crate::output::Answer;

/// Begin a session of an agent anew
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Later prompts of the session hold nothing of what was before. Nothing is deleted: turns, journals and the\nconversation stay.\n\nExamples:\n  ghostctl session reset lead own"
)]
pub struct Reset {
    /// Agent id
    agent_id: String,
    /// `own`, or a conversation id
    session: String,
}

impl Reset {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let session = ids::session(client, self.session).await?;
        let text = format!("session {session} of {} begins anew", self.agent_id);
        let request = ResetSessionRequest { request_id: new_request_id(), agent_id: self.agent_id, session };
        let done = rpc!(client, SessionsClient::reset, request).await?;
        let text = if done.changed { text } else { "the session has nothing to leave behind".to_owned() };
        Ok(Answer::object(json::value(&done), text))
    }
}
