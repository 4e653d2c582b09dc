//! `ghostctl state`: the shared state of the world.

mod get;
mod list;
mod set;

use crate::connection::Client;
use crate::failure::Failure;
use crate::output::Answer;

/// Subcommands of `state`.
#[derive(Debug, clap::Subcommand)]
pub enum State {
    Get(get::Get),
    Set(set::Set),
    List(list::List),
}

impl State {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        match self {
            Self::Get(verb) => verb.run(client).await,
            Self::Set(verb) => verb.run(client).await,
            Self::List(verb) => verb.run(client).await,
        }
    }
}
