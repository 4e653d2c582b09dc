//! `ghostctl watch`

mod add;

use crate::commands::schedule::{cancel, list, runs};
use crate::connection::Client;
use crate::failure::Failure;
use crate::output::Answer;

/// Subcommands of `watch`.
#[derive(Debug, clap::Subcommand)]
pub enum Watch {
    Add(add::Add),
    List(list::List),
    Runs(runs::Runs),
    Cancel(cancel::Cancel),
}

impl Watch {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        match self {
            Self::Add(verb) => verb.run(client).await,
            Self::List(verb) => verb.run(client, "watch").await,
            Self::Runs(verb) => verb.run(client, "watch").await,
            Self::Cancel(verb) => verb.run(client, "watch").await,
        }
    }
}
