//! `ghostctl conversation`

mod end;
mod handoff;
mod list;
mod redeliver;
mod show;

use crate::connection::Client;
use crate::failure::Failure;
use crate::output::Answer;

/// Subcommands of `conversation`.
#[derive(Debug, clap::Subcommand)]
pub enum Conversation {
    List(list::List),
    Show(show::Show),
    Handoff(handoff::Handoff),
    End(end::End),
    Redeliver(redeliver::Redeliver),
}

impl Conversation {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        match self {
            Self::List(verb) => verb.run(client).await,
            Self::Show(verb) => verb.run(client).await,
            Self::Handoff(verb) => verb.run(client).await,
            Self::End(verb) => verb.run(client).await,
            Self::Redeliver(verb) => verb.run(client).await,
        }
    }
}
