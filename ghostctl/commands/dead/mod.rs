//! Dead letters.

mod drop;
mod list;
mod retry;
mod show;

use ghost_proto::v1::DeadChange;
use serde_json::Value;

use crate::commands::required;
use crate::connection::Client;
use crate::failure::Failure;
use crate::output::Answer;
use crate::record;

/// What can be done with dead letters.
#[derive(Debug, clap::Subcommand)]
pub enum Dead {
    List(list::List),
    Show(show::Show),
    Retry(retry::Retry),
    Drop(drop::Drop),
}

impl Dead {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        match self {
            Self::List(verb) => verb.run(client).await,
            Self::Show(verb) => verb.run(client).await,
            Self::Retry(verb) => verb.run(client).await,
            Self::Drop(verb) => verb.run(client).await,
        }
    }
}

/// The dead letter after a change.
fn changed(change: DeadChange) -> Result<Answer, Failure> {
    let letter = required(change.dead_letter, "dead letter")?;
    let mut json = record::dead_letter(&letter);
    if let Value::Object(object) = &mut json {
        object.insert("changed".into(), change.changed.into());
    }
    let already = if change.changed { "" } else { " already" };
    let text = format!("dead letter {} of {} is {}{already}", letter.dead_letter_id, letter.agent_id, letter.status);
    Ok(Answer::object(json, text))
}
