//! `ghostctl toolbox`: tools that come from outside ghostd.

mod check;
mod list;
mod rows;
mod trust;

use crate::commands::world::reload::Reload;
use crate::connection::Client;
use crate::failure::Failure;
use crate::output::Answer;

/// Subcommands of `toolbox`.
#[derive(Debug, clap::Subcommand)]
pub enum Toolbox {
    List(list::List),
    Check(check::Check),
    Trust(trust::Trust),
    Reload(Reload),
}

impl Toolbox {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        match self {
            Self::List(verb) => verb.run(client).await,
            Self::Check(verb) => verb.run(client).await,
            Self::Trust(verb) => verb.run(client).await,
            Self::Reload(verb) => verb.run(client).await,
        }
    }
}
