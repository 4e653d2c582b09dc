//! `ghostctl config`

mod show;

use crate::connection::Client;
use crate::failure::Failure;
use crate::output::Answer;

/// Subcommands of `config`.
#[derive(Debug, clap::Subcommand)]
pub enum Config {
    Show(show::Show),
}

impl Config {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        match self {
            Self::Show(verb) => verb.run(client).await,
        }
    }
}
