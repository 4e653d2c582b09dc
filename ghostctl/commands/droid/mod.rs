//! `ghostctl droid`: the helpers that agents start.

mod kill;
mod list;
mod show;
mod steer;

use crate::connection::Client;
use crate::failure::Failure;
use crate::output::Answer;

/// Subcommands of `droid`.
#[derive(Debug, clap::Subcommand)]
pub enum Droid {
    List(list::List),
    Show(show::Show),
    Steer(steer::Steer),
    Kill(kill::Kill),
}

impl Droid {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        match self {
            Self::List(verb) => verb.run(client).await,
            Self::Show(verb) => verb.run(client).await,
            Self::Steer(verb) => verb.run(client).await,
            Self::Kill(verb) => verb.run(client).await,
        }
    }
}
