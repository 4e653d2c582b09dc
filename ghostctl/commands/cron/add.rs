//! `ghostctl cron add`

use ghost_proto::v1::SetScheduleRequest;
use ghost_proto::v1::schedules_client::SchedulesClient;

use crate::commands::schedule::shown::shown;
use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::output::Answer;
use crate::source::words;
use crate::text::from_1;
use crate::times::{parse_instant, parse_span_ms};

/// Wake an agent again and again; adding a name again replaces that job
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ghostctl cron add chora mail --cron '0 9 * * 1-5' --zone Europe/Berlin --message 'Read the mail'\n  ghostctl cron add chora pulse --every 1h --message 'Look around' --missed run_once\n  ghostctl cron add chora digest --cron '0 18 * * *' --session isolated --deliver announce --to news --run-timeout 2m --message 'Write the digest'"
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
    #[arg(long, value_name = "Z", conflicts_with_all = ["every_ms", "at"])]
    zone: Option<String>,
    /// An interval, such as 15m or 1h30m
    #[arg(long = "every", value_name = "TIME", id = "every_ms", value_parser = parse_span_ms, allow_hyphen_values = true)]
    every_ms: Option<i64>,
    /// Once, at this time in ISO 8601; the job is gone afterwards
    #[arg(long, value_name = "T", value_parser = parse_instant, allow_hyphen_values = true)]
    at: Option<i64>,
    /// What is to be done; - reads it from standard input
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    message: String,
    /// What becomes of times that pass while the daemon is down: skip or run_once
    #[arg(long, value_name = "POLICY")]
    missed: Option<String>,
    /// main: mail in the agent's ongoing conversation (the default); isolated: a turn of its own
    #[arg(long, value_name = "S")]
    session: Option<String>,
    /// systemEvent goes with main, agentTurn with isolated
    #[arg(long, value_name = "P")]
    payload: Option<String>,
    /// When it wakes the agent: now, or with its next-heartbeat
    #[arg(long, value_name = "MODE")]
    wake: Option<String>,
    /// Where the last text of a turn of its own goes: none, announce (the default) or webhook
    #[arg(long, value_name = "HOW")]
    deliver: Option<String>,
    /// last, a chat channel or a conversation's id; for webhook its name, or name/thread
    #[arg(long, value_name = "TARGET")]
    to: Option<String>,
    /// How long a turn of its own may work, such as 90s
    #[arg(long = "run-timeout", value_name = "TIME", value_parser = parse_span_ms, allow_hyphen_values = true)]
    run_timeout: Option<i64>,
    /// How many model calls a turn of its own may make
    #[arg(long = "max-rounds", value_name = "N", value_parser = from_1::<u32>)]
    max_rounds: Option<u32>,
    /// The model of a turn of its own: model or provider/model
    #[arg(long, value_name = "M")]
    model: Option<String>,
}

/// A turn's time is counted in seconds.
fn whole_seconds(ms: i64) -> Result<u32, Failure> {
    match u32::try_from(ms / 1_000) {
        Ok(seconds) if ms % 1_000 == 0 => Ok(seconds),
        _ => Err(Failure::new("invalid_arguments", "--run-timeout is whole seconds".to_owned())
            .hint("write such as 90s or 2m".to_owned())),
    }
}

impl Add {
    pub async fn run(self, client: &Client, kind: &str) -> Result<Answer, Failure> {
        let request = SetScheduleRequest {
            request_id: new_request_id(),
            kind: kind.into(),
            agent_id: self.agent,
            name: self.name,
            message: words(self.message)?,
            missed: self.missed,
            at_ms: self.at,
            // Never negative: the parser takes whole numbers only.
            every_ms: self.every_ms.map(i64::unsigned_abs),
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
        Ok(shown(&rpc!(client, SchedulesClient::set, request).await?, &client.view))
    }
}
