//! `ghostctl knowledge`

mod delete;
mod list;
mod read;
mod write;

use crate::connection::Client;
use crate::failure::Failure;
use crate::output::Answer;

/// Subcommands of `knowledge`.
#[derive(Debug, clap::Subcommand)]
pub enum Knowledge {
    List(list::List),
    Read(read::Read),
    Write(write::Write),
    Delete(delete::Delete),
}

impl Knowledge {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        match self {
            Self::List(verb) => verb.run(client).await,
            Self::Read(verb) => verb.run(client).await,
            Self::Write(verb) => verb.run(client).await,
            Self::Delete(verb) => verb.run(client).await,
        }
    }
}
