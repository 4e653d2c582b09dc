//! `ghostctl state list`

use ghost_proto::json;
use ghost_proto::v1::ListStateRequest;
use ghost_proto::v1::state_client::StateClient;

use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::lists::{Bound, collect};
use crate::output::{Answer, Body};
use crate::table::Table;

/// List the values of the shared state
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl state list plan.")]
pub struct List {
    /// Show only keys that begin with this prefix
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,
    #[command(flatten)]
    bound: Bound,
}

impl List {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let entries = collect(&self.bound, async |limit, cursor| {
            let request = ListStateRequest { prefix: self.prefix.clone(), limit, cursor };
            let page = rpc!(client, StateClient::list, request).await?;
            Ok((page.entries, page.next_cursor))
        })
        .await?;
        let mut table = Table::new(&["KEY", "VERSION", "UPDATED", "BY", "VALUE"]);
        for entry in &entries.rows {
            table.row([
                entry.key.clone(),
                entry.version.to_string(),
                client.view.moment(entry.updated_at_ms),
                entry.writer.clone(),
                entry.value_json.clone(),
            ]);
        }
        let json = json::text(&entries.rows);
        Ok(Answer { note: entries.note, ..Body::Written { json, text: table.render(client.view.screen) }.into() })
    }
}
