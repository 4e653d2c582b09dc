//! `ghostctl task create`

use ghost_proto::json;
use ghost_proto::v1::CreateTaskRequest;
use ghost_proto::v1::tasks_client::TasksClient;

use super::options::{due, priority};
use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::ids;
use crate::output::Answer;
use crate::source::{optional_text, text_or_stdin};

/// Create a task and send it to its owner's inbox
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ghostctl task create 'Read notes/may.md' --owner chora\n  ghostctl task create 'Review it' --owner subrosa --depends-on $ID --due-in 2h"
)]
pub struct Create {
    /// Title: one line that says what to do
    #[arg(required_unless_present = "titled", conflicts_with = "titled")]
    title: Option<String>,
    /// Set the title, instead of the argument
    #[arg(long = "title", value_name = "TEXT", id = "titled")]
    titled: Option<String>,
    /// Assign the task to this agent
    #[arg(long, visible_alias = "agent", value_name = "AGENT")]
    owner: String,
    /// Set the description; - reads standard input
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true, allow_hyphen_values = true)]
    description: String,
    /// Set the priority; higher comes first
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = priority)]
    priority: i32,
    /// Require that this task is done first; may be repeated
    #[arg(long, value_name = "TASK-ID")]
    depends_on: Vec<String>,
    /// Make it a subtask of this task
    #[arg(long = "parent", id = "parent_id", value_name = "TASK-ID")]
    parent: Option<String>,
    /// Set the due time, counted from now, such as 2h
    #[arg(long = "due-in", value_name = "TIME", value_parser = due, allow_hyphen_values = true)]
    due_at_ms: Option<i64>,
}

impl Create {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = CreateTaskRequest {
            request_id: new_request_id(),
            title: optional_text(self.title.or(self.titled))?.unwrap_or_default(),
            description: text_or_stdin(self.description)?,
            owner: self.owner,
            priority: self.priority,
            depends_on: ids::full_ids(client, ids::TASK, self.depends_on).await?,
            parent_id: ids::full_id_if_given(client, ids::TASK, self.parent).await?,
            due_at_ms: self.due_at_ms,
        };
        let task = rpc!(client, TasksClient::create, request).await?;
        Ok(Answer::object(json::value(&task), format!("task {} of {} is {}", task.task_id, task.owner, task.status)))
    }
}
