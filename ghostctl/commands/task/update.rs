//! `ghostctl task update`

use ghost_proto::json;
use ghost_proto::v1::tasks_client::TasksClient;
use ghost_proto::v1::{TaskIds, UpdateTaskRequest};

use super::options::{due, priority};
use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::ids;
use crate::output::Answer;
use crate::source::optional_text;

/// Change a task
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ID=$(ghostctl --json task list | jq -r '.[0].task_id')\n  ghostctl task update $ID --status done --result 'see output/may.md'\n  ghostctl task update $ID --status pending --reopen --note 'figures were wrong'"
)]
#[command(group = clap::ArgGroup::new("change").required(true).multiple(true))]
pub struct Update {
    /// Task id
    task_id: String,
    /// Set the status: pending, in_progress, blocked, done, failed or cancelled
    #[arg(long, value_name = "S", group = "change")]
    status: Option<String>,
    /// Assign the task to this agent
    #[arg(long, visible_alias = "agent", value_name = "AGENT", group = "change")]
    owner: Option<String>,
    /// Set the title
    #[arg(long, value_name = "TEXT", group = "change")]
    title: Option<String>,
    /// Set the description; - reads standard input
    #[arg(long, value_name = "TEXT", group = "change", allow_hyphen_values = true)]
    description: Option<String>,
    /// Set the priority; higher comes first
    #[arg(long, value_name = "N", group = "change", value_parser = priority)]
    priority: Option<i32>,
    /// Set the result; - reads standard input
    #[arg(long, value_name = "TEXT", group = "change", allow_hyphen_values = true)]
    result: Option<String>,
    /// Replace the tasks that must be done first; may be repeated; none removes all
    #[arg(long, value_name = "TASK-ID|none", group = "change")]
    depends_on: Vec<String>,
    /// Set the due time, counted from now, such as 2h
    #[arg(long = "due-in", value_name = "TIME", group = "change", value_parser = due, allow_hyphen_values = true)]
    due_at_ms: Option<i64>,
    /// Add this note to the task's history
    #[arg(long, value_name = "TEXT", group = "change")]
    note: Option<String>,
    /// Reopen a task that has ended; needs --note
    #[arg(long, requires = "note")]
    reopen: bool,
}

impl Update {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let task_id = ids::full_id(client, ids::TASK, self.task_id).await?;
        let none = self.depends_on.iter().all(|word| word == "none");
        let depends_on = (!self.depends_on.is_empty()).then_some(if none { Vec::new() } else { self.depends_on });
        let depends_on = match depends_on {
            Some(typed) => Some(TaskIds { task_ids: ids::full_ids(client, ids::TASK, typed).await? }),
            None => None,
        };
        let request = UpdateTaskRequest {
            request_id: new_request_id(),
            task_id,
            status: self.status,
            owner: self.owner,
            title: optional_text(self.title)?,
            description: optional_text(self.description)?,
            priority: self.priority,
            result: optional_text(self.result)?,
            due_at_ms: self.due_at_ms,
            note: optional_text(self.note)?,
            reopen: self.reopen,
            depends_on,
        };
        let task = rpc!(client, TasksClient::update, request).await?;
        Ok(Answer::object(json::value(&task), format!("task {} of {} is {}", task.task_id, task.owner, task.status)))
    }
}
