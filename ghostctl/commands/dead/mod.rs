//! `ghostctl dead`

mod change;
mod drop;
mod list;
mod retry;
mod show;

use crate::connection::Client;
use crate::failure::Failure;
use crate::output::Answer;

/// Subcommands of `dead`.
#[derive(Debug, clap::Subcommand)]
pub enum Dead {
    List(list::List),
    Show(show::Show),
    Retry(retry::Retry),
    Drop(drop::Drop),
}

impl Dead {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        match self {
            Self::List(verb) => verb.run(client).await,
            Self::Show(verb) => verb.run(client).await,
            Self::Retry(verb) => verb.run(client).await,
            Self::Drop(verb) => verb.run(client).await,
        }
    }
}
