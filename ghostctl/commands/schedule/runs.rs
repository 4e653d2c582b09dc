//! `ghostctl timer|cron|watch runs`

use ghost_proto::json;
use ghost_proto::v1::ListRunsRequest;
use ghost_proto::v1::schedules_client::SchedulesClient;

use super::lookup::{add_name_hint, find_schedule};
use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::ids;
use crate::output::{Answer, Body, Note};
use crate::table::Table;
use crate::text::whole_number;

/// The daemon lists at most this many runs.
const RUNS_MAX: u32 = 1_000;

fn listed_runs(text: &str) -> Result<u32, String> {
    whole_number(text, 1, RUNS_MAX.into())
}

/// List the runs of one, newest first, including refused and skipped runs
#[derive(Debug, clap::Args)]
pub struct Runs {
    /// Schedule id, or AGENT/NAME; only the id works for one that is removed
    #[arg(id = "schedule_id", value_name = "ID")]
    id: String,
    /// Print at most N rows, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = listed_runs)]
    limit: u32,
}

impl Runs {
    pub async fn run(self, client: &Client, kind: &str) -> Result<Answer, Failure> {
        let schedule_id = match self.id.contains('/') {
            true => find_schedule(client, kind, &self.id).await?.schedule_id,
            false => ids::full_id(client, ids::SCHEDULE, self.id).await?,
        };
        let request = ListRunsRequest { schedule_id, limit: self.limit };
        let runs =
            rpc!(client, SchedulesClient::runs, request).await.map_err(|failure| add_name_hint(kind, failure))?.runs;
        let mut table = Table::new(&["RUN", "SLOT", "STATUS", "LATE", "MISSED", "NOTE"]);
        for run in &runs {
            table.row([
                run.run.to_string(),
                client.view.moment(run.slot_at_ms),
                run.status.clone(),
                if run.late { "yes" } else { "" }.to_owned(),
                run.missed.to_string(),
                run.note.clone().unwrap_or_default(),
            ]);
        }
        let full = runs.len() >= self.limit as usize;
        let note = full.then(|| match self.limit {
            RUNS_MAX => Note::Cut(format!("only the newest {RUNS_MAX} are shown; the daemon lists no more")),
            limit => Note::Word(format!("only the newest {limit} are shown; use --limit to see more")),
        });
        let json = runs.iter().map(json::value).collect();
        Ok(Answer { body: Body::List { json, table }, note, failure: None })
    }
}
