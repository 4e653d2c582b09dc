//! `ghostctl droid list`

use ghost_proto::json;
use ghost_proto::v1::ListDroidsRequest;
use ghost_proto::v1::droids_client::DroidsClient;

use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::lists::{Bound, collect};
use crate::output::{Answer, Body};
use crate::table::Table;
use crate::text::one_line;

/// Characters of a task in the table.
const TASK_CHARS: usize = 60;

/// List droids, also those that have ended
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl droid list\n  ghostctl droid list --agent praxis --live")]
pub struct List {
    /// Show only droids of this agent
    #[arg(long = "agent", id = "parent_id", value_name = "A")]
    agent: Option<String>,
    /// Show only droids that have not ended
    #[arg(long)]
    live: bool,
    #[command(flatten)]
    bound: Bound,
}

impl List {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let droids = collect(&self.bound, async |limit, cursor| {
            let request = ListDroidsRequest { parent_id: self.agent.clone(), live: self.live, limit, cursor };
            let page = rpc!(client, DroidsClient::list, request).await?;
            Ok((page.droids, page.next_cursor))
        })
        .await?;
        let mut table = Table::new(&["DROID", "PARENT", "STATE", "STARTED", "LABEL", "TASK"]);
        for droid in &droids.rows {
            table.row([
                droid.droid_id.clone(),
                droid.parent_id.clone(),
                droid.state.clone(),
                client.view.moment(droid.created_at_ms),
                droid.label.clone().unwrap_or_default(),
                one_line(&droid.task, TASK_CHARS),
            ]);
        }
        let json = droids.rows.iter().map(json::value).collect();
        Ok(Answer { body: Body::List { json, table }, note: droids.note, failure: None })
    }
}
