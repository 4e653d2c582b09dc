//! `ghostctl config show`

use ghost_proto::json;
use ghost_proto::v1::LimitsRequest;
use ghost_proto::v1::world_client::WorldClient;

use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::output::{Answer, Body};
use crate::table::Table;

/// Show every limit of the running world: its value, default and range
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ghostctl config show\n  ghostctl config show inbox\n  ghostctl config show --changed"
)]
pub struct Show {
    /// Show only limits whose name contains this text
    name: Option<String>,
    /// Show only limits that differ from their default
    #[arg(long)]
    changed: bool,
}

impl Show {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let mut limits = rpc!(client, WorldClient::limits, LimitsRequest {}).await?.limits;
        limits.retain(|limit| !self.changed || limit.value != limit.default_value);
        if let Some(name) = &self.name {
            limits.retain(|limit| limit.name.contains(name.trim_start_matches("limits.")));
        }
        let mut table = Table::new(&["LIMIT", "VALUE", "DEFAULT", "RANGE", "MEANING"]);
        for limit in &limits {
            table.row([
                limit.name.clone(),
                limit.value.to_string(),
                limit.default_value.to_string(),
                format!("{} to {}", limit.least, limit.most),
                limit.meaning.clone(),
            ]);
        }
        Ok(Body::List { json: limits.iter().map(json::value).collect(), table }.into())
    }
}
