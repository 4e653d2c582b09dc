//! `ghostctl timer set`

use ghost_proto::v1::SetScheduleRequest;
use ghost_proto::v1::schedules_client::SchedulesClient;

use crate::commands::schedule::display::schedule_answer;
use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::output::Answer;
use crate::source::optional_text;
use crate::times::{parse_instant, parse_span_ms};

/// Set a timer that sends an agent one reminder; a timer with the same name is replaced
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ghostctl timer set chora standup --in 10m --message 'Write the report'\n  ghostctl timer set chora launch --at 2026-11-30T18:00:00Z --message 'Publish it'"
)]
#[command(group(clap::ArgGroup::new("when").required(true).args(["after_ms", "at_ms"])))]
pub struct Set {
    /// Agent id
    #[arg(id = "agent_id", value_name = "AGENT")]
    agent: String,
    /// Name of the timer
    #[arg(value_name = "NAME")]
    name: String,
    /// Fire after this time, such as 90s or 1h30m
    #[arg(long = "in", value_name = "TIME", value_parser = parse_span_ms, allow_hyphen_values = true)]
    after_ms: Option<i64>,
    /// Fire at this time (ISO 8601; UTC if it has no zone)
    #[arg(long = "at", id = "at_ms", value_name = "T", value_parser = parse_instant, allow_hyphen_values = true)]
    at: Option<i64>,
    /// Send this text (default: the timer's name); - reads standard input
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    message: Option<String>,
}

impl Set {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = SetScheduleRequest {
            request_id: new_request_id(),
            kind: "timer".into(),
            agent_id: self.agent,
            name: self.name,
            message: optional_text(self.message)?.unwrap_or_default(),
            after_ms: self.after_ms,
            at_ms: self.at,
            ..SetScheduleRequest::default()
        };
        Ok(schedule_answer(&rpc!(client, SchedulesClient::set, request).await?, &client.view))
    }
}
