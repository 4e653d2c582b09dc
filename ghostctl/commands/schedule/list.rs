//! `ghostctl timer|cron|watch list`

use super::{LISTED, all, rule};
use crate::connection::Client;
use crate::failure::Failure;
use crate::output::{Answer, Body};
use crate::record::schedules as record;
use crate::table::Table;
use crate::text::rfc3339;

/// List them, with when they go off next and how the last run went
#[derive(Debug, clap::Args)]
pub struct List {
    /// Of this agent
    #[arg(long, value_name = "AGENT")]
    agent: Option<String>,
}

impl List {
    pub async fn run(self, client: &Client, kind: &str) -> Result<Answer, Failure> {
        let schedules = all(client, kind, self.agent).await?;
        let mut table = Table::new(&["AGENT", "NAME", "WHEN", "NEXT", "LAST RUN", "ID"]);
        for schedule in &schedules {
            let next = match (schedule.enabled, schedule.next_at_ms) {
                (false, _) => "off".to_owned(),
                (true, Some(at)) => rfc3339(at),
                (true, None) => "-".to_owned(),
            };
            table.row([
                schedule.agent_id.clone(),
                schedule.name.clone(),
                rule(schedule),
                next,
                schedule.last_status.clone().unwrap_or_else(|| "-".to_owned()),
                schedule.schedule_id.clone(),
            ]);
        }
        let note = (schedules.len() >= LISTED)
            .then(|| format!("the daemon lists no more than these {LISTED}; --agent shows those of one agent"));
        let json = schedules.iter().map(record::schedule).collect();
        Ok(Answer { body: Body::List { json, table }, note, failure: None })
    }
}
