//! `ghostctl cron add`

use ghost_proto::v1::SetScheduleRequest;
use ghost_proto::v1::schedules_client::SchedulesClient;

use super::KIND;
use crate::commands::schedule::shown;
use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::output::Answer;
use crate::times::{parse_instant, parse_span_ms};

/// Wake an agent again and again; adding a name again replaces that job
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ghostctl cron add chora mail --cron '0 9 * * 1-5' --zone Europe/Berlin --message 'Read the mail'\n  ghostctl cron add chora pulse --every 1h --message 'Look around' --missed run_once"
)]
#[command(group(clap::ArgGroup::new("when").required(true).args(["cron", "every_ms", "at"])))]
pub struct Add {
    /// The agent
    #[arg(value_name = "AGENT")]
    agent: String,
    /// What the job is called
    #[arg(value_name = "NAME")]
    name: String,
    /// Five fields, or six with seconds in front: minute hour day month weekday
    #[arg(long, value_name = "EXPR", allow_hyphen_values = true)]
    cron: Option<String>,
    /// The time zone of --cron, such as Europe/Berlin; UTC if absent
    #[arg(long, value_name = "Z", requires = "cron")]
    zone: Option<String>,
    /// An interval, such as 15m or 1h30m
    #[arg(long = "every", value_name = "TIME", id = "every_ms", value_parser = parse_span_ms)]
    every_ms: Option<i64>,
    /// Once, at this time in ISO 8601; the job is gone afterwards
    #[arg(long, value_name = "T", value_parser = parse_instant)]
    at: Option<i64>,
    /// What is to be done
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    message: String,
    /// What becomes of times that pass while the daemon is down: skip or run_once
    #[arg(long, value_name = "POLICY")]
    missed: Option<String>,
}

impl Add {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = SetScheduleRequest {
            request_id: new_request_id(),
            kind: KIND.into(),
            agent_id: self.agent,
            name: self.name,
            message: self.message,
            missed: self.missed,
            at_ms: self.at,
            // Never negative: the parser takes whole numbers only.
            every_ms: self.every_ms.map(i64::unsigned_abs),
            cron: self.cron,
            zone: self.zone,
            ..SetScheduleRequest::default()
        };
        Ok(shown(&rpc!(client, SchedulesClient::set, request).await?))
    }
}
