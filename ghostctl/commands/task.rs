//! `ghostctl task`: the task board.

use ghost_proto::v1::{GetTaskResponse, TaskEvent, TaskIds};

use crate::arguments::{due, optional_text, text_or_stdin, whole_number};
use crate::commands::prelude::*;

#[derive(Debug, clap::Subcommand)]
pub enum Task {
    Create(Create),
    /// List tasks
    ///
    /// Examples:
    ///   ghostctl task list --owner chora --status pending
    #[command(verbatim_doc_comment)]
    List {
        /// Show only tasks of this agent
        #[arg(long, visible_alias = "agent", value_name = "AGENT")]
        owner: Option<String>,
        /// Show only this status: pending, in_progress, blocked, done, failed or cancelled
        #[arg(long, value_name = "S")]
        status: Option<String>,
        #[command(flatten)]
        bound: Bound,
    },
    /// Show a task and its history
    ///
    /// Examples:
    ///   ghostctl task list
    ///   ID=$(ghostctl --json task list | jq -r '.[0].task_id')
    ///   ghostctl task get $ID
    #[command(verbatim_doc_comment)]
    Get {
        /// Task id
        task_id: String,
    },
    Update(Update),
}

/// Parses `--priority`.
fn priority(text: &str) -> Result<i32, String> {
    whole_number(text, i32::MIN.into(), i32::MAX.into())
}

const TASKS: &[Column<v1::Task>] = columns![
    "TASK" task_id, "OWNER" owner, "STATUS" status, "PRIORITY" priority, "TITLE" title,
];

const HISTORY: &[Column<TaskEvent>] = columns![
    "AT" moment changed_at_ms, "BY" by, "STATUS" status, "OWNER" owner, "NOTE" note,
];

impl Task {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        match self {
            Self::Create(verb) => verb.run(client).await,
            Self::List { owner, status, bound } => {
                let request = v1::ListTasksRequest { owner, status, ..<_>::default() };
                list(client, &bound, request, TASKS).await
            }
            Self::Get { task_id } => {
                let task_id = full_id(client, IdKind::TASK, task_id).await?;
                get(client, client.call(v1::GetTaskRequest { task_id }).await?)
            }
            Self::Update(verb) => verb.run(client).await,
        }
    }
}

fn get(client: &Client, answer: GetTaskResponse) -> Result<Answer, Failure> {
    let task = required(answer.task.clone(), "task")?;
    let view = &client.view;
    let shown = [
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
    ];
    let cut = if answer.history_truncated { "Earlier changes are not shown.\n" } else { "" };
    let text = format!("{}\n{cut}{}", fields(view.screen, &shown), table(&answer.history, view, HISTORY));
    Ok(Answer::new(&answer, text))
}

fn changed(task: &v1::Task) -> Answer {
    Answer::new(task, format!("task {} of {} is {}", task.task_id, task.owner, task.status))
}

/// Create a task and send it to its owner's inbox
///
/// Examples:
///   ghostctl task create 'Read notes/may.md' --owner chora
///   ghostctl task create 'Review it' --owner subrosa --depends-on $ID --due-in 2h
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
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
    async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = v1::CreateTaskRequest {
            request_id: new_request_id(),
            title: optional_text(self.title.or(self.titled))?.unwrap_or_default(),
            description: text_or_stdin(self.description)?,
            owner: self.owner,
            priority: self.priority,
            depends_on: full_ids(client, IdKind::TASK, self.depends_on).await?,
            parent_id: full_id_if_given(client, IdKind::TASK, self.parent).await?,
            due_at_ms: self.due_at_ms,
        };
        Ok(changed(&client.call(request).await?))
    }
}

/// Change a task
///
/// Examples:
///   ID=$(ghostctl --json task list | jq -r '.[0].task_id')
///   ghostctl task update $ID --status done --result 'see output/may.md'
///   ghostctl task update $ID --status pending --reopen --note 'figures were wrong'
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
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
    async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let task_id = full_id(client, IdKind::TASK, self.task_id).await?;
        let none = self.depends_on.iter().all(|word| word == "none");
        let depends_on = match self.depends_on {
            typed if typed.is_empty() => None,
            _ if none => Some(TaskIds::default()),
            typed => Some(TaskIds { task_ids: full_ids(client, IdKind::TASK, typed).await? }),
        };
        let request = v1::UpdateTaskRequest {
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
        Ok(changed(&client.call(request).await?))
    }
}
