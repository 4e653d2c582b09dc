//! `ghostctl task get`

use ghost_proto::json;
use ghost_proto::v1::GetTaskRequest;
use ghost_proto::v1::tasks_client::TasksClient;

use crate::connection::{Client, required, rpc};
use crate::failure::Failure;
use crate::ids;
use crate::output::Answer;
use crate::table::{Table, fields};

/// Show a task and its history
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ghostctl task list\n  ID=$(ghostctl --json task list | jq -r '.[0].task_id')\n  ghostctl task get $ID"
)]
pub struct Get {
    /// Task id
    task_id: String,
}

impl Get {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let task_id = ids::full_id(client, ids::TASK, self.task_id).await?;
        let answer = rpc!(client, TasksClient::get, GetTaskRequest { task_id }).await?;
        let json = json::value(&answer);
        let task = required(answer.task, "task")?;
        let view = &client.view;
        let mut text = fields(
            view.screen,
            &[
                ("task_id", task.task_id),
                ("title", task.title),
                ("owner", task.owner),
                ("creator", task.creator),
                ("status", task.status),
                ("priority", task.priority.to_string()),
                ("depends on", task.depends_on.join(", ")),
                ("parent", task.parent_id.unwrap_or_default()),
                ("due", task.due_at_ms.map(|at| view.when(at)).unwrap_or_default()),
                ("description", task.description),
                ("result", task.result.unwrap_or_default()),
            ],
        );
        let mut table = Table::new(&["AT", "BY", "STATUS", "OWNER", "NOTE"]);
        for event in answer.history {
            let note = event.note.unwrap_or_default();
            table.row([view.moment(event.changed_at_ms), event.by, event.status, event.owner, note]);
        }
        text.push('\n');
        if answer.history_truncated {
            text.push_str("Earlier changes are not shown.\n");
        }
        text.push_str(&table.render(view.screen));
        Ok(Answer::object(json, text))
    }
}
