//! `ghostctl grant`: directories that agents may write to for some time.

mod add;
mod list;
mod revoke;
mod told;

use crate::connection::Client;
use crate::failure::Failure;
use crate::output::Answer;

/// Subcommands of `grant`.
#[derive(Debug, clap::Subcommand)]
pub enum Grant {
    Add(add::Add),
    List(list::List),
    Revoke(revoke::Revoke),
}

impl Grant {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        match self {
            Self::Add(verb) => verb.run(client).await,
            Self::List(verb) => verb.run(client).await,
            Self::Revoke(verb) => verb.run(client).await,
        }
    }
}
