//! `ghostctl timer set`

use ghost_proto::v1::SetScheduleRequest;
use ghost_proto::v1::schedules_client::SchedulesClient;

use crate::commands::schedule::shown::shown;
use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::output::Answer;
use crate::source::words_if;
use crate::times::{parse_instant, parse_span_ms};

/// Remind an agent once; setting a name again replaces that timer
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ghostctl timer set chora standup --in 10m --message 'Write the report'\n  ghostctl timer set chora launch --at 2026-11-30T18:00:00Z --message 'Publish it'"
)]
#[command(group(clap::ArgGroup::new("when").required(true).args(["after_ms", "at"])))]
pub struct Set {
    /// The agent
    #[arg(value_name = "AGENT")]
    agent: String,
    /// What the timer is called
    #[arg(value_name = "NAME")]
    name: String,
    /// How long from now, such as 90s or 1h30m
    #[arg(long = "in", value_name = "TIME", value_parser = parse_span_ms, allow_hyphen_values = true)]
    after_ms: Option<i64>,
    /// When, in ISO 8601; UTC if it has no zone
    #[arg(long, value_name = "T", value_parser = parse_instant, allow_hyphen_values = true)]
    at: Option<i64>,
    /// What the agent is reminded of, the name if absent; - reads it from standard input
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
            message: words_if(self.message)?.unwrap_or_default(),
            after_ms: self.after_ms,
            at_ms: self.at,
            ..SetScheduleRequest::default()
        };
        Ok(shown(&rpc!(client, SchedulesClient::set, request).await?, &client.view))
    }
}
