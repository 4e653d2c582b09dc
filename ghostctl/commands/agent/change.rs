//! How an agent looks after a change.

use ghost_proto::v1::AgentChange;
use serde_json::Value;

use crate::connection::required;
use crate::failure::Failure;
use crate::output::Answer;
use crate::record;

/// The agent after a change; `done` is what the change is called when it was one.
pub fn changed(change: AgentChange, done: &str) -> Result<Answer, Failure> {
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
