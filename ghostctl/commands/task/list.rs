//! `ghostctl task list`

use ghost_proto::json;
use ghost_proto::v1::ListTasksRequest;
use ghost_proto::v1::tasks_client::TasksClient;

use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::lists::{Bound, collect};
use crate::output::{Answer, Body};
use crate::table::Table;

/// List tasks
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl task list --owner chora --status pending")]
pub struct List {
    /// Show only tasks of this agent
    #[arg(long, visible_alias = "agent", value_name = "AGENT")]
    owner: Option<String>,
    /// Show only this status: pending, in_progress, blocked, done, failed or cancelled
    #[arg(long, value_name = "S")]
    status: Option<String>,
    #[command(flatten)]
    bound: Bound,
}

impl List {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let tasks = collect(&self.bound, async |limit, cursor| {
            let request = ListTasksRequest { owner: self.owner.clone(), status: self.status.clone(), limit, cursor };
            let page = rpc!(client, TasksClient::list, request).await?;
            Ok((page.tasks, page.next_cursor))
        })
        .await?;
        let mut table = Table::new(&["TASK", "OWNER", "STATUS", "PRIORITY", "TITLE"]);
        for task in &tasks.rows {
            table.row([
                task.task_id.clone(),
                task.owner.clone(),
                task.status.clone(),
                task.priority.to_string(),
                task.title.clone(),
            ]);
        }
        let json = tasks.rows.iter().map(json::value).collect();
        Ok(Answer { body: Body::List { json, table }, note: tasks.note, failure: None })
    }
}
