//! `ghostctl skill`

mod list;
mod show;

use crate::connection::Client;
use crate::failure::Failure;
use crate::output::Answer;

/// Subcommands of `skill`.
#[derive(Debug, clap::Subcommand)]
pub enum Skill {
    List(list::List),
    Show(show::Show),
}

impl Skill {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        match self {
            Self::List(verb) => verb.run(client).await,
            Self::Show(verb) => verb.run(client).await,
        }
    }
}
