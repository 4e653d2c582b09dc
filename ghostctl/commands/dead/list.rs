//! `ghostctl dead list`

use ghost_proto::json;
use ghost_proto::v1::ListDeadRequest;
use ghost_proto::v1::messages_client::MessagesClient;

use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::lists::{Bound, collect};
use crate::output::{Answer, Body};
use crate::table::Table;

/// List dead letters, newest first
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl dead list\n  ghostctl dead list --status all")]
pub struct List {
    /// Show only dead letters of this agent
    #[arg(long = "agent", id = "agent_id", value_name = "A")]
    agent: Option<String>,
    /// Show this status: held, retried, dropped or all (default: held)
    #[arg(long, value_name = "S")]
    status: Option<String>,
    #[command(flatten)]
    bound: Bound,
}

impl List {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let letters = collect(&self.bound, async |limit, cursor| {
            let request = ListDeadRequest { agent_id: self.agent.clone(), status: self.status.clone(), limit, cursor };
            let page = rpc!(client, MessagesClient::list_dead, request).await?;
            Ok((page.dead_letters, page.next_cursor))
        })
        .await?;
        let mut table = Table::new(&["DEAD LETTER", "AGENT", "STATUS", "SINCE", "AGE", "MAIL", "CRASHES", "REASON"]);
        for letter in &letters.rows {
            table.row([
                letter.dead_letter_id.clone(),
                letter.agent_id.clone(),
                letter.status.clone(),
                client.view.moment(letter.created_at_ms),
                client.view.age(letter.created_at_ms),
                letter.messages.len().to_string(),
                letter.crashes.to_string(),
                letter.reason.clone(),
            ]);
        }
        let json = letters.rows.iter().map(json::value).collect();
        Ok(Answer { body: Body::List { json, table }, note: letters.note, failure: None })
    }
}
