//! `ghostctl watch add`

use ghost_proto::v1::SetScheduleRequest;
use ghost_proto::v1::schedules_client::SchedulesClient;

use crate::commands::schedule::shown::shown;
use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::output::Answer;
use crate::source::words;
use crate::text::from_0;

/// Tell an agent when a file or directory of the workspace changes
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ghostctl watch add chora inbox shared/inbox --changes created --message 'Read what came in'\n  ghostctl watch add chora all projects --recursive"
)]
pub struct Add {
    /// The agent
    #[arg(value_name = "AGENT")]
    agent: String,
    /// What the watch is called
    #[arg(value_name = "NAME")]
    name: String,
    /// The path, relative to the workspace; `.` is all of it
    #[arg(value_name = "PATH")]
    path: String,
    /// Everything below a directory counts
    #[arg(long)]
    recursive: bool,
    /// Which changes count: created, modified, removed, renamed; all if absent
    #[arg(long, value_name = "C,C", value_delimiter = ',')]
    changes: Vec<String>,
    /// Changes within this many milliseconds are reported together
    #[arg(long = "debounce-ms", value_name = "MS", value_parser = from_0::<u32>)]
    debounce_ms: Option<u32>,
    /// What the agent is reminded of
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true, allow_hyphen_values = true)]
    message: String,
}

impl Add {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = SetScheduleRequest {
            request_id: new_request_id(),
            kind: "watch".into(),
            agent_id: self.agent,
            name: self.name,
            message: words(self.message)?,
            path: Some(self.path),
            recursive: self.recursive,
            changes: self.changes,
            debounce_ms: self.debounce_ms,
            ..SetScheduleRequest::default()
        };
        Ok(shown(&rpc!(client, SchedulesClient::set, request).await?, &client.view))
    }
}
