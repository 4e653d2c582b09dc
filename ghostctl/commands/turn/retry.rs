//! `ghostctl turn retry`

use ghost_proto::json;
use ghost_proto::v1::messages_client::MessagesClient;
use ghost_proto::v1::turns_client::TurnsClient;
use ghost_proto::v1::{ListDeadRequest, RetryDeadRequest, RetryTurnRequest};

use crate::commands::since::since;
use crate::connection::{Client, new_request_id, required, rpc};
use crate::failure::Failure;
use crate::ids;
use crate::lists::collect_all;
use crate::output::{Answer, Body};
use crate::table::Table;

/// Retry a parked turn now, or all turns that failed for good
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ghostctl turn list --status parked\n  ID=$(ghostctl --json turn list --status parked | jq -r '.[0].turn_id')\n  ghostctl turn retry $ID\n  ghostctl turn retry --failed --since 2h\n\nA turn that failed for good leaves its mail as a dead letter (`ghostctl dead list`). With --failed these are delivered\nagain, oldest first, and their turns resume from their journals."
)]
pub struct Retry {
    /// Turn id of a parked turn
    #[arg(required_unless_present = "failed", conflicts_with = "failed")]
    turn_id: Option<String>,
    /// Retry every turn whose mail is held as a dead letter
    #[arg(long)]
    failed: bool,
    /// With --failed: only those that failed since then, such as 2h or 2026-11-29T08:00:00Z
    #[arg(long, value_name = "T", value_parser = since, requires = "failed")]
    since: Option<i64>,
    /// With --failed: only those of this agent
    #[arg(long = "agent", id = "agent_id", value_name = "A", requires = "failed")]
    agent: Option<String>,
}

impl Retry {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let Some(turn_id) = self.turn_id else { return retry_failed(client, self.agent, self.since).await };
        let turn_id = ids::full_id(client, ids::TURN, turn_id).await?;
        let request = RetryTurnRequest { request_id: new_request_id(), turn_id };
        let answer = rpc!(client, TurnsClient::retry, request).await?;
        let turn = required(answer.turn, "turn")?;
        let text = format!("turn {} of {} will be retried now", turn.turn_id, turn.agent_id);
        Ok(Answer::object(json::value(&turn), text))
    }
}

async fn retry_failed(client: &Client, agent_id: Option<String>, since: Option<i64>) -> Result<Answer, Failure> {
    let mut letters = collect_all(async |limit, cursor| {
        let request = ListDeadRequest { agent_id: agent_id.clone(), status: None, limit, cursor };
        let page = rpc!(client, MessagesClient::list_dead, request).await?;
        Ok((page.dead_letters, page.next_cursor))
    })
    .await?;
    letters.retain(|letter| since.is_none_or(|since| letter.created_at_ms >= since));
    let mut table = Table::new(&["DEAD LETTER", "AGENT", "MAIL", "NOW"]);
    let (mut rows, mut failure) = (Vec::new(), None);
    // The list has the newest first. The oldest mail came first.
    for letter in letters.into_iter().rev() {
        let id = letter.dead_letter_id;
        let request = RetryDeadRequest { request_id: new_request_id(), dead_letter_id: id.clone(), fresh: false };
        let now = match rpc!(client, MessagesClient::retry_dead, request).await {
            Ok(change) => {
                let status = change.dead_letter.as_ref().map_or_else(String::new, |letter| letter.status.clone());
                rows.push(json::value(&change));
                status
            }
            // The others are retried all the same; the exit code tells.
            Err(refused) => {
                let word = refused.to_string();
                failure.get_or_insert(refused);
                word
            }
        };
        table.row([id, letter.agent_id, letter.messages.len().to_string(), now]);
    }
    Ok(Answer { body: Body::List { json: rows, table }, note: None, failure })
}
