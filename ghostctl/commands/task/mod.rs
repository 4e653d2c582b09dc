//! The task board.

mod create;
mod get;
mod list;
mod update;

use std::time::Duration;

use crate::connection::Client;
use crate::failure::Failure;
use crate::output::Answer;
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

/// The instant that lies `duration` ahead.
fn due_at_ms(duration: Duration) -> i64 {
    now_ms().saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX))
}
