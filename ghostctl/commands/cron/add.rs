//! `ghostctl cron add`

use ghost_proto::v1::SetScheduleRequest;
use ghost_proto::v1::schedules_client::SchedulesClient;

use crate::commands::schedule::display::schedule_answer;
use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::output::Answer;
use crate::source::text_or_stdin;
use crate::text::from_1;
use crate::times::{parse_instant, parse_span_ms};

/// Add a cron job for an agent; a job with the same name is replaced
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ghostctl cron add chora mail --cron '0 9 * * 1-5' --zone Europe/Berlin --message 'Read the mail'\n  ghostctl cron add chora pulse --every 1h --message 'Look around' --missed run_once\n  ghostctl cron add chora digest --cron '0 18 * * *' --session isolated --deliver announce --to news --run-timeout 2m --message 'Write the digest'"
)]
#[command(group(clap::ArgGroup::new("when").required(true).args(["cron", "every_ms", "at_ms"])))]
pub struct Add {
    /// Agent id
    #[arg(id = "agent_id", value_name = "AGENT")]
    agent: String,
    /// Name of the job
    #[arg(value_name = "NAME")]
    name: String,
    /// Run by this cron expression: minute hour day month weekday, with optional seconds in front
    #[arg(long, value_name = "EXPR", allow_hyphen_values = true)]
    cron: Option<String>,
    /// Evaluate --cron in this time zone, such as Europe/Berlin (default: UTC)
    #[arg(long, value_name = "Z", conflicts_with_all = ["every_ms", "at_ms"])]
    zone: Option<String>,
    /// Run at this interval, such as 15m or 1h30m
    #[arg(long = "every", id = "every_ms", value_name = "TIME", value_parser = parse_span_ms, allow_hyphen_values = true)]
    every_ms: Option<i64>,
    /// Count the intervals of --every from this time (ISO 8601; default: now)
    #[arg(long = "anchor", id = "anchor_ms", value_name = "T", requires = "every_ms", value_parser = parse_instant, allow_hyphen_values = true)]
    anchor: Option<i64>,
    /// Run once at this time (ISO 8601); the job is removed afterwards
    #[arg(long = "at", id = "at_ms", value_name = "T", value_parser = parse_instant, allow_hyphen_values = true)]
    at: Option<i64>,
    /// Give the agent this instruction; - reads standard input
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    message: String,
    /// Handle runs missed while the daemon was down: skip or run_once
    #[arg(long, value_name = "POLICY")]
    missed: Option<String>,
    /// Run as a message in the agent's main session (main, the default) or in a separate turn (isolated)
    #[arg(long, value_name = "S")]
    session: Option<String>,
    /// Set the payload kind: systemEvent with main, agentTurn with isolated
    #[arg(long, value_name = "P")]
    payload: Option<String>,
    /// Wake the agent now, or with its next-heartbeat
    #[arg(long, value_name = "MODE")]
    wake: Option<String>,
    /// Deliver the last text of an isolated turn: none, announce (the default) or webhook
    #[arg(long, value_name = "HOW")]
    deliver: Option<String>,
    /// Deliver to this target: last, a channel or a conversation id; for webhook: NAME or NAME/THREAD
    #[arg(long, value_name = "TARGET")]
    to: Option<String>,
    /// Limit the duration of an isolated turn, such as 90s
    #[arg(long = "run-timeout", id = "timeout_seconds", value_name = "TIME", value_parser = parse_span_ms, allow_hyphen_values = true)]
    run_timeout: Option<i64>,
    /// Limit the model calls of an isolated turn
    #[arg(long = "max-rounds", value_name = "N", value_parser = from_1::<u32>)]
    max_rounds: Option<u32>,
    /// Use this model for an isolated turn: MODEL or PROVIDER/MODEL
    #[arg(long, value_name = "M")]
    model: Option<String>,
}

/// Milliseconds as whole seconds, the unit of a job's timeout.
fn whole_seconds(ms: i64) -> Result<u32, Failure> {
    match u32::try_from(ms / 1_000) {
        Ok(seconds) if ms % 1_000 == 0 => Ok(seconds),
        _ => Err(Failure::new("invalid_arguments", "--run-timeout must be whole seconds".to_owned())
            .hint("write it as 90s or 2m".to_owned())),
    }
}

impl Add {
    pub async fn run(self, client: &Client, kind: &str) -> Result<Answer, Failure> {
        let request = SetScheduleRequest {
            request_id: new_request_id(),
            kind: kind.into(),
            agent_id: self.agent,
            name: self.name,
            message: text_or_stdin(self.message)?,
            missed: self.missed,
            at_ms: self.at,
            // The parser refuses negative values.
            every_ms: self.every_ms.map(i64::unsigned_abs),
            anchor_ms: self.anchor,
            cron: self.cron,
            zone: self.zone,
            session: self.session,
            payload: self.payload,
            wake: self.wake,
            deliver: self.deliver,
            to: self.to,
            timeout_seconds: self.run_timeout.map(whole_seconds).transpose()?,
            max_rounds: self.max_rounds,
            model: self.model,
            ..SetScheduleRequest::default()
        };
        Ok(schedule_answer(&rpc!(client, SchedulesClient::set, request).await?, &client.view))
    }
}
