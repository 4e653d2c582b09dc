//! `ghostctl droid`: the helpers that agents start.

use ghost_proto::json;

use crate::commands::prelude::*;
use crate::text::one_line;

/// Characters of a task in the table.
const TASK_CHARS: usize = 60;

#[derive(Debug, clap::Subcommand)]
pub enum Droid {
    /// List droids, also those that have ended
    ///
    /// Examples:
    ///   ghostctl droid list
    ///   ghostctl droid list --agent praxis --live
    #[command(verbatim_doc_comment)]
    List {
        /// Show only droids of this agent
        #[arg(long = "agent", id = "parent_id", value_name = "A")]
        agent: Option<String>,
        /// Show only droids that have not ended
        #[arg(long)]
        live: bool,
        #[command(flatten)]
        bound: Bound,
    },
    /// Show a droid: its state, task, tools and result
    ///
    /// Examples:
    ///   ghostctl droid show droid-1a2b3c4d
    ///   ghostctl --json droid show droid-1a2b3c4d | jq .error
    #[command(verbatim_doc_comment)]
    Show {
        /// Droid id
        droid_id: String,
    },
    /// Give a droid guidance; it reads it before its next answer
    ///
    /// Examples:
    ///   ghostctl droid steer droid-1a2b3c4d 'Leave the drafts out'
    #[command(verbatim_doc_comment)]
    Steer {
        /// Droid id
        droid_id: String,
        /// What it should know or do
        message: String,
    },
    /// End a droid; its parent is told
    ///
    /// Examples:
    ///   ghostctl droid kill droid-1a2b3c4d --reason 'no longer needed'
    #[command(verbatim_doc_comment)]
    Kill {
        /// Droid id
        droid_id: String,
        /// Why, for its parent
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
}

const DROIDS: &[Column<v1::Droid>] = &[
    ("DROID", |droid, _| droid.droid_id.clone()),
    ("PARENT", |droid, _| droid.parent_id.clone()),
    ("STATE", |droid, _| droid.state.clone()),
    ("STARTED", |droid, view| view.moment(droid.created_at_ms)),
    ("LABEL", |droid, _| droid.label.clone().unwrap_or_default()),
    ("TASK", |droid, _| one_line(&droid.task, TASK_CHARS)),
];

impl Droid {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request_id = new_request_id();
        match self {
            Self::List { agent: parent_id, live, bound } => {
                let request = v1::ListDroidsRequest { parent_id, live, ..<_>::default() };
                Ok(pages!(client, &bound, Droids::list, request, droids).await?.answer(&client.view, DROIDS))
            }
            Self::Show { droid_id } => {
                let droid = rpc!(client, Droids::get, v1::GetDroidRequest { droid_id }).await?;
                Ok(Answer::new(&droid, text(&droid, &client.view)))
            }
            Self::Steer { droid_id, message } => {
                let droid =
                    rpc!(client, Droids::steer, v1::SteerDroidRequest { request_id, droid_id, message }).await?;
                Ok(Answer::new(&droid, format!("{} reads it before its next answer\n", droid.droid_id)))
            }
            Self::Kill { droid_id, reason } => {
                let droid = rpc!(client, Droids::kill, v1::KillDroidRequest { request_id, droid_id, reason }).await?;
                Ok(Answer::new(&droid, format!("{} is {}\n", droid.droid_id, droid.state)))
            }
        }
    }
}

/// A droid in lines.
fn text(droid: &v1::Droid, view: &View) -> String {
    let v1::Droid { droid_id, parent_id, state, mode, rounds, calls, .. } = droid;
    let label = droid.label.as_deref().map(|label| format!(" ({label})")).unwrap_or_default();
    let end = match droid.ended_at_ms {
        Some(ended) => format!("ended {}", view.moment(ended)),
        None => format!("its time is over {}", view.moment(droid.deadline_at_ms)),
    };
    let tokens = format!("{} tokens in, {} tokens out", droid.input_tokens, droid.output_tokens);
    let mut lines = vec![
        format!("{droid_id}{label}: {state}, a droid of {parent_id} (mode {mode})"),
        format!("started {}, {end}", view.moment(droid.created_at_ms)),
        format!("output: {}", droid.output_path),
        format!("tools: {}", droid.tools.join(", ")),
        format!("used: {rounds} model calls, {calls} tool calls, {tokens}"),
    ];
    if let Some(error) = &droid.error_json {
        let error = json::parsed(error);
        let part = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
        lines.push(format!("error: {}: {}", part("code"), part("error")));
    }
    lines.push(format!("\nTask:\n{}", droid.task.trim_end()));
    if let Some(result) = &droid.result {
        lines.push(format!("\nAnswer:\n{}", result.trim_end()));
    }
    lines.join("\n") + "\n"
}
