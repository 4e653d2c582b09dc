//! `ghostctl tool`: the tools of an agent.

mod brief;
mod call;
mod describe;
mod list;
pub mod schema;

use crate::connection::Client;
use crate::failure::Failure;
use crate::output::Answer;

/// Subcommands of `tool`.
#[derive(Debug, clap::Subcommand)]
pub enum Tool {
    List(list::List),
    Brief(brief::Brief),
    Describe(describe::Describe),
    Call(call::Call),
}

impl Tool {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        match self {
            Self::List(verb) => verb.run(client).await,
            Self::Brief(verb) => verb.run(client).await,
            Self::Describe(verb) => verb.run(client).await,
            Self::Call(verb) => verb.run(client).await,
        }
    }
}
