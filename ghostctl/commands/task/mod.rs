//! The task board.

mod create;
mod get;
mod list;
mod update;

use crate::connection::Client;
use crate::failure::Failure;
use crate::output::Answer;
use crate::text::{parse_due, whole};
use crate::wait::now_ms;

/// What can be done with tasks.
#[derive(Debug, clap::Subcommand)]
pub enum Task {
    Create(create::Create),
    List(list::List),
    Get(get::Get),
    Update(update::Update),
}

impl Task {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        match self {
            Self::Create(verb) => verb.run(client).await,
            Self::List(verb) => verb.run(client).await,
            Self::Get(verb) => verb.run(client).await,
            Self::Update(verb) => verb.run(client).await,
        }
    }
}

/// Reads `--due-in`: the instant that lies so far ahead.
fn due(text: &str) -> Result<i64, String> {
    parse_due(text, now_ms())
}

/// Reads `--priority`.
fn priority(text: &str) -> Result<i32, String> {
    whole(text, i32::MIN.into(), i32::MAX.into())
}
