//! `ghostctl turn`

mod cancel;
mod clip;
mod list;
mod mail;
mod retry;
mod settle;
mod show;
mod steps;
#[cfg(test)]
mod steps_tests;

use crate::connection::Client;
use crate::failure::Failure;
use crate::output::Answer;

/// Subcommands of `turn`.
#[derive(Debug, clap::Subcommand)]
pub enum Turn {
    List(list::List),
    Show(show::Show),
    Cancel(cancel::Cancel),
    Retry(retry::Retry),
    Settle(settle::Settle),
}

impl Turn {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        match self {
            Self::List(verb) => verb.run(client).await,
            Self::Show(verb) => verb.run(client).await,
            Self::Cancel(verb) => verb.run(client).await,
            Self::Retry(verb) => verb.run(client).await,
            Self::Settle(verb) => verb.run(client).await,
        }
    }
}
