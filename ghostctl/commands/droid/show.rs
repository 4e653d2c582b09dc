//! `ghostctl droid show`

use ghost_proto::json;
use ghost_proto::v1::droids_client::DroidsClient;
use ghost_proto::v1::{Droid, GetDroidRequest};
use serde_json::Value;

use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::output::Answer;

/// Show a droid: its state, task, tools and result
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ghostctl droid show droid-1a2b3c4d\n  ghostctl --json droid show droid-1a2b3c4d | jq .error"
)]
pub struct Show {
    /// Droid id
    droid_id: String,
}

impl Show {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let droid = rpc!(client, DroidsClient::get, GetDroidRequest { droid_id: self.droid_id }).await?;
        Ok(Answer::object(json::value(&droid), text(&droid, client)))
    }
}

/// A droid in lines.
fn text(droid: &Droid, client: &Client) -> String {
    let label = droid.label.as_deref().map(|label| format!(" ({label})")).unwrap_or_default();
    let moment = |ms| client.view.moment(ms);
    let when = match droid.ended_at_ms {
        Some(ended) => format!("started {}, ended {}", moment(droid.created_at_ms), moment(ended)),
        None => format!("started {}, its time is over {}", moment(droid.created_at_ms), moment(droid.deadline_at_ms)),
    };
    let mut lines = vec![
        format!("{}{label}: {}, a droid of {} (mode {})", droid.droid_id, droid.state, droid.parent_id, droid.mode),
        when,
        format!("output: {}", droid.output_path),
        format!("tools: {}", droid.tools.join(", ")),
        format!(
            "used: {} model calls, {} tool calls, {} tokens in, {} tokens out",
            droid.rounds, droid.calls, droid.input_tokens, droid.output_tokens
        ),
    ];
    if let Some(error) = &droid.error_json {
        let error: Value = json::parsed(error);
        let part = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
        lines.push(format!("error: {}: {}", part("code"), part("error")));
    }
    lines.push(format!("\nTask:\n{}", droid.task.trim_end()));
    if let Some(result) = &droid.result {
        lines.push(format!("\nAnswer:\n{}", result.trim_end()));
    }
    lines.join("\n") + "\n"
}
