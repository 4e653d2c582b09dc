//! `ghostctl session`

mod list;
mod reset;
mod show;

use crate::connection::Client;
use crate::failure::Failure;
use crate::output::Answer;

/// Subcommands of `session`.
#[derive(Debug, clap::Subcommand)]
pub enum Session {
    List(list::List),
    Show(show::Show),
    Reset(reset::Reset),
}

impl Session {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        match self {
            Self::List(verb) => verb.run(client).await,
            Self::Show(verb) => verb.run(client).await,
            Self::Reset(verb) => verb.run(client).await,
        }
    }
}
