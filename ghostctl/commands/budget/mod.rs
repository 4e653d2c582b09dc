//! `ghostctl budget` and `ghostctl usage`

mod list;
mod set;
pub mod usage;

use crate::connection::Client;
use crate::failure::Failure;
use crate::output::Answer;

/// Subcommands of `budget`.
#[derive(Debug, clap::Subcommand)]
pub enum Budget {
    List(list::List),
    Set(set::Set),
}

impl Budget {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        match self {
            Self::List(verb) => verb.run(client).await,
            Self::Set(verb) => verb.run(client).await,
        }
    }
}
