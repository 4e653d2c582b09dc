//! `ghostctl cron`

mod add;
mod enable;
mod run;

use crate::commands::schedule::{cancel, list, runs};
use crate::connection::Client;
use crate::failure::Failure;
use crate::output::Answer;

/// The schedule kind of these commands.
const KIND: &str = "cron";

/// Subcommands of `cron`.
#[derive(Debug, clap::Subcommand)]
pub enum Cron {
    Add(Box<add::Add>),
    List(list::List),
    Runs(runs::Runs),
    Run(run::Run),
    /// Enable a job; runs missed while it was disabled are not made up
    Enable(enable::Which),
    /// Disable a job without removing it
    Disable(enable::Which),
    Cancel(cancel::Cancel),
}

impl Cron {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        match self {
            Self::Add(verb) => (*verb).run(client, KIND).await,
            Self::List(verb) => verb.run(client, KIND).await,
            Self::Runs(verb) => verb.run(client, KIND).await,
            Self::Run(verb) => verb.run(client, KIND).await,
            Self::Enable(verb) => verb.run(client, KIND, true).await,
            Self::Disable(verb) => verb.run(client, KIND, false).await,
            Self::Cancel(verb) => verb.run(client, KIND).await,
        }
    }
}
