//! `ghostctl timer|cron|watch runs`

use ghost_proto::v1::ListRunsRequest;
use ghost_proto::v1::schedules_client::SchedulesClient;

use super::named::{named, names};
use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::ids;
use crate::output::{Answer, Body, Note};
use crate::record::schedules as record;
use crate::table::Table;
use crate::text::whole;

/// Runs that the daemon lists at once.
const MOST: u32 = 1_000;

fn listed_runs(text: &str) -> Result<u32, String> {
    whole(text, 1, MOST.into())
}

/// Show how the runs of one went, newest first, those refused or skipped included
#[derive(Debug, clap::Args)]
pub struct Runs {
    /// Its id, or <agent>/<name>; only the id for one that is gone
    #[arg(value_name = "ID")]
    id: String,
    /// Most rows to print, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = listed_runs)]
    limit: u32,
}

impl Runs {
    pub async fn run(self, client: &Client, kind: &str) -> Result<Answer, Failure> {
        let schedule_id = match self.id.contains('/') {
            true => named(client, kind, &self.id).await?.schedule_id,
            false => ids::whole(client, ids::SCHEDULE, self.id).await?,
        };
        let request = ListRunsRequest { schedule_id, limit: self.limit };
        let runs = rpc!(client, SchedulesClient::runs, request).await.map_err(|failure| names(kind, failure))?.runs;
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
            MOST => Note::Cut(format!("only the newest {MOST} are shown, and the daemon lists no more")),
            limit => Note::Word(format!("only the newest {limit} are shown; --limit shows more")),
        });
        let json = runs.iter().map(record::run).collect();
        Ok(Answer { body: Body::List { json, table }, note, failure: None })
    }
}
