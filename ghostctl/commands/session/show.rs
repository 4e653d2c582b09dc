//! `ghostctl session show`

use ghost_proto::json;
use ghost_proto::v1::sessions_client::SessionsClient;
use ghost_proto::v1::{GetSessionRequest, SessionEntry};

use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::ids;
use crate::output::Answer;
use crate::view::View;

/// Show what was said and done in a session of an agent, oldest first
#[derive(Debug, clap::Args)]
#[command(
    after_help = "SESSION is `own` for the agent's own work, otherwise the id of a conversation.\n\nExamples:\n  ghostctl session show lead own\n  ID=$(ghostctl --json conversation list | jq -r '.[0].conversation_id')\n  ghostctl session show lead $ID --limit 5"
)]
pub struct Show {
    /// Agent id
    agent_id: String,
    /// `own`, or a conversation id
    session: String,
    /// Show at most this many turns
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100))]
    limit: u32,
    /// Show only turns before this one
    #[arg(long = "before", id = "before_turn_id", value_name = "TURN")]
    before: Option<String>,
}

impl Show {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = GetSessionRequest {
            agent_id: self.agent_id,
            session: ids::session(client, self.session).await?,
            before_turn_id: ids::full_id_if_given(client, ids::TURN, self.before).await?,
            limit: self.limit,
        };
        let found = rpc!(client, SessionsClient::get, request).await?;
        let mut text: String = found.entries.iter().map(|entry| entry_text(entry, &client.view)).collect();
        if text.is_empty() {
            text = "The session has no turns.\n".to_owned();
        }
        if found.truncated {
            text.insert_str(0, "Some entries are left out, because there are too many; use --limit.\n\n");
        }
        if let Some(earlier) = &found.earlier_turn_id {
            text.push_str(&format!("\nThe session has earlier turns: --before {earlier}\n"));
        }
        Ok(Answer::object(json::value(&found), text))
    }
}

fn entry_text(entry: &SessionEntry, view: &View) -> String {
    let tool = entry.tool.as_ref().map(|tool| format!(" {tool}")).unwrap_or_default();
    format!("{}  {}{tool}\n{}\n\n", view.moment(entry.at_ms), entry.author, entry.text)
}
