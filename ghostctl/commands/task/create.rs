//! `ghostctl task create`

use ghost_proto::v1::CreateTaskRequest;
use ghost_proto::v1::tasks_client::TasksClient;

use super::options::{due, priority};
use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::ids;
use crate::output::Answer;
use crate::record;
use crate::source::{words, words_if};

/// Create a task and put it into its owner's inbox
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ghostctl task create 'Read notes/may.md' --owner chora\n  ghostctl task create 'Review it' --owner subrosa --depends-on $ID --due-in 2h"
)]
pub struct Create {
    /// One line that says what to do
    #[arg(required_unless_present = "titled", conflicts_with = "titled")]
    title: Option<String>,
    /// The same as an option
    #[arg(long = "title", value_name = "TEXT", id = "titled")]
    titled: Option<String>,
    /// The agent whose work it is
    #[arg(long, visible_alias = "agent", value_name = "AGENT")]
    owner: String,
    /// The whole of it; - reads it from standard input
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true, allow_hyphen_values = true)]
    description: String,
    /// Higher is sooner
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = priority)]
    priority: i32,
    /// A task that must be done first; may be given several times
    #[arg(long, value_name = "TASK-ID")]
    depends_on: Vec<String>,
    /// The task it is a part of
    #[arg(long, value_name = "TASK-ID")]
    parent: Option<String>,
    /// When it should be done, from now
    #[arg(long = "due-in", value_name = "TIME", value_parser = due)]
    due_at_ms: Option<i64>,
}

impl Create {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = CreateTaskRequest {
            request_id: new_request_id(),
            title: words_if(self.title.or(self.titled))?.unwrap_or_default(),
            description: words(self.description)?,
            owner: self.owner,
            priority: self.priority,
            depends_on: ids::whole_each(client, ids::TASK, self.depends_on).await?,
            parent_id: ids::whole_if(client, ids::TASK, self.parent).await?,
            due_at_ms: self.due_at_ms,
        };
        let task = rpc!(client, TasksClient::create, request).await?;
        Ok(Answer::object(record::task(&task), format!("task {} of {} is {}", task.task_id, task.owner, task.status)))
    }
}
