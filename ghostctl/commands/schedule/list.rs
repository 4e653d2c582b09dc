//! `ghostctl timer|cron|watch list`

use ghost_proto::json;

use super::display::rule;
use super::lookup::all_of_kind;
use crate::connection::Client;
use crate::failure::Failure;
use crate::output::{Answer, Body};
use crate::table::Table;

/// List them with the next time and the status of the last run
#[derive(Debug, clap::Args)]
pub struct List {
    /// Show only those of this agent
    #[arg(long = "agent", id = "agent_id", value_name = "AGENT")]
    agent: Option<String>,
}

impl List {
    pub async fn run(self, client: &Client, kind: &str) -> Result<Answer, Failure> {
        let schedules = all_of_kind(client, kind, self.agent).await?;
        // Only a cron job can run as an isolated turn, with limits and a delivery target of its own.
        let jobs = kind == "cron";
        let mut table = match jobs {
            true => Table::new(&[
                "AGENT",
                "NAME",
                "WHEN",
                "NEXT",
                "LAST",
                "LAST RUN",
                "SESSION",
                "TO",
                "TIMEOUT",
                "ROUNDS",
                "MODEL",
                "CONVERSATION",
                "ID",
            ]),
            false => Table::new(&["AGENT", "NAME", "WHEN", "NEXT", "LAST", "LAST RUN", "CONVERSATION", "ID"]),
        };
        for schedule in &schedules {
            let none = || "-".to_owned();
            let next = match (schedule.enabled, schedule.next_at_ms) {
                (false, _) => "off".to_owned(),
                (true, Some(at)) => format!("{} ({})", client.view.moment(at), client.view.age(at)),
                (true, None) => none(),
            };
            let (agent, name, when) = (schedule.agent_id.clone(), schedule.name.clone(), rule(schedule, &client.view));
            let last = schedule.last_at_ms.map_or_else(none, |at| client.view.when(at));
            let status = schedule.last_status.clone().unwrap_or_else(none);
            let id = schedule.schedule_id.clone();
            let conversation = schedule.conversation_id.clone().unwrap_or_else(none);
            if !jobs {
                table.row([agent, name, when, next, last, status, conversation, id]);
                continue;
            }
            let options = schedule.options.clone().unwrap_or_default();
            let to = if options.to.is_empty() { none() } else { options.to };
            let timeout = options.timeout_seconds.map_or_else(none, |seconds| format!("{seconds} s"));
            let rounds = options.max_rounds.map_or_else(none, |rounds| rounds.to_string());
            let model = options.model.unwrap_or_else(none);
            let session = options.session;
            table.row([agent, name, when, next, last, status, session, to, timeout, rounds, model, conversation, id]);
        }
        let json = schedules.iter().map(json::value).collect();
        Ok(Body::List { json, table }.into())
    }
}
