//! `ghostctl task`: the task board.

mod create;
mod get;
mod list;
mod options;
mod update;

use crate::connection::Client;
use crate::failure::Failure;
use crate::output::Answer;

/// Subcommands of `task`.
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
