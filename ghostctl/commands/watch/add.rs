//! `ghostctl watch add`

use ghost_proto::v1::SetScheduleRequest;
use ghost_proto::v1::schedules_client::SchedulesClient;

use crate::commands::schedule::display::schedule_answer;
use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::output::Answer;
use crate::source::text_or_stdin;
use crate::text::from_0;

/// Notify an agent when a file or directory of the workspace changes
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ghostctl watch add chora inbox shared/inbox --changes created --message 'Read what came in'\n  ghostctl watch add chora all projects --recursive"
)]
pub struct Add {
    /// Agent id
    #[arg(id = "agent_id", value_name = "AGENT")]
    agent: String,
    /// Name of the watch
    #[arg(value_name = "NAME")]
    name: String,
    /// Path relative to the workspace; `.` is the whole workspace
    #[arg(value_name = "PATH")]
    path: String,
    /// Watch everything below the directory
    #[arg(long)]
    recursive: bool,
    /// Report only these changes: created, modified, removed, renamed (default: all)
    #[arg(long, value_name = "C,C", value_delimiter = ',')]
    changes: Vec<String>,
    /// Report changes within this many milliseconds together
    #[arg(long = "debounce-ms", value_name = "MS", value_parser = from_0::<u32>)]
    debounce_ms: Option<u32>,
    /// Send this text with the notification
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
            message: text_or_stdin(self.message)?,
            path: Some(self.path),
            recursive: self.recursive,
            changes: self.changes,
            debounce_ms: self.debounce_ms,
            ..SetScheduleRequest::default()
        };
        Ok(schedule_answer(&rpc!(client, SchedulesClient::set, request).await?, &client.view))
    }
}
