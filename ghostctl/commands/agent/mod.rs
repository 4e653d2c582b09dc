//! Agents.

mod create;
mod delete;
mod get;
mod list;
mod prompt;
mod start;
mod stop;

use ghost_proto::v1::AgentChange;
use serde_json::Value;

use crate::commands::required;
use crate::connection::Client;
use crate::failure::Failure;
use crate::output::Answer;
use crate::record;

/// What can be done with agents.
#[derive(Debug, clap::Subcommand)]
pub enum Agent {
    List(list::List),
    Create(create::Create),
    Get(get::Get),
    Start(start::Start),
    Stop(stop::Stop),
    Delete(delete::Delete),
    Prompt(prompt::Prompt),
}

impl Agent {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        match self {
            Self::List(verb) => verb.run(client).await,
            Self::Create(verb) => verb.run(client).await,
            Self::Get(verb) => verb.run(client).await,
            Self::Start(verb) => verb.run(client).await,
            Self::Stop(verb) => verb.run(client).await,
            Self::Delete(verb) => verb.run(client).await,
            Self::Prompt(verb) => verb.run(client).await,
        }
    }
}

/// The agent after a change; `done` is what the change is called when it was one.
fn changed(change: AgentChange, done: &str) -> Result<Answer, Failure> {
    let agent = required(change.agent, "agent")?;
    let mut json = record::agent(&agent);
    if let Value::Object(object) = &mut json {
        object.insert("changed".into(), change.changed.into());
    }
    let text = if change.changed {
        format!("{} {done}; it is {}", agent.agent_id, agent.status)
    } else {
        format!("{} is {} already", agent.agent_id, agent.status)
    };
    Ok(Answer::object(json, text))
}
