//! `ghostctl timer`

mod set;

use crate::commands::schedule::{cancel, list, runs};
use crate::connection::Client;
use crate::failure::Failure;
use crate::output::Answer;

/// Subcommands of `timer`.
#[derive(Debug, clap::Subcommand)]
pub enum Timer {
    Set(set::Set),
    List(list::List),
    Runs(runs::Runs),
    Cancel(cancel::Cancel),
}

impl Timer {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        match self {
            Self::Set(verb) => verb.run(client).await,
            Self::List(verb) => verb.run(client, "timer").await,
            Self::Runs(verb) => verb.run(client, "timer").await,
            Self::Cancel(verb) => verb.run(client, "timer").await,
        }
    }
}
