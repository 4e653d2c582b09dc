//! `ghostctl artifact`: the files under `output/`, and the removal of what agents left anywhere in the workspace.

mod list;
mod rebuild;
mod remove;

use crate::connection::Client;
use crate::failure::Failure;
use crate::output::Answer;

/// Subcommands of `artifact`.
#[derive(Debug, clap::Subcommand)]
pub enum Artifact {
    List(list::List),
    Rebuild(rebuild::Rebuild),
    Remove(remove::Remove),
}

impl Artifact {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        match self {
            Self::List(verb) => verb.run(client).await,
            Self::Rebuild(verb) => verb.run(client).await,
            Self::Remove(verb) => verb.run(client).await,
        }
    }
}
