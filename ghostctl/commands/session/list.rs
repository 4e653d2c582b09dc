//! `ghostctl session list`

use ghost_proto::json;
use ghost_proto::v1::ListSessionsRequest;
use ghost_proto::v1::sessions_client::SessionsClient;

use crate::commands::since::since;
use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::output::{Answer, Body};
use crate::table::Table;

/// List the sessions of an agent, last active first
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl session list lead\n  ghostctl session list lead --since 1h")]
pub struct List {
    /// Agent id
    agent_id: String,
    /// Show only sessions that were active since this time or in this duration
    #[arg(long = "since", id = "since_at_ms", value_name = "TIME", value_parser = since, allow_hyphen_values = true)]
    since: Option<i64>,
    /// Show at most this many sessions
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,
}

impl List {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = ListSessionsRequest { agent_id: self.agent_id, since_at_ms: self.since, limit: self.limit };
        let sessions = rpc!(client, SessionsClient::list, request).await?.sessions;
        let mut table = Table::new(&["SESSION", "TURNS", "LAST", "AGE"]);
        for session in &sessions {
            table.row([
                session.session.clone(),
                session.turns.to_string(),
                client.view.moment(session.last_at_ms),
                client.view.age(session.last_at_ms),
            ]);
        }
        let json = sessions.iter().map(json::value).collect();
        Ok(Answer { body: Body::List { json, table }, note: None, failure: None })
    }
}
