//! `ghostctl task list`

use std::cell::Cell;

use ghost_proto::json;
use ghost_proto::v1::ListTasksRequest;
use ghost_proto::v1::tasks_client::TasksClient;

use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::lists::{Bound, collect};
use crate::output::{Answer, Body, Note};
use crate::table::Table;
use crate::text::from_1;

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
    /// Print at most N rows; the daemon lists at most 1000
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = from_1::<u32>)]
    limit: u32,
}

impl List {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let cut = Cell::new(false);
        let mut tasks = collect(&Bound { limit: self.limit }, async |limit, cursor| {
            let request = ListTasksRequest { owner: self.owner.clone(), status: self.status.clone(), limit, cursor };
            let page = rpc!(client, TasksClient::list, request).await?;
            cut.set(page.truncated);
            Ok((page.tasks, page.next_cursor))
        })
        .await?;
        if tasks.note.is_none() && cut.get() {
            let shown = tasks.rows.len();
            let note = format!("the daemon lists at most these {shown}; use --owner or --status to see others");
            tasks.note = Some(Note::Cut(note));
        }
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
