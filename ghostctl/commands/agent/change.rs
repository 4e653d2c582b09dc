//! The answer of commands that change an agent.

use ghost_proto::json;
use ghost_proto::v1::{AgentChange, AgentLeft};

use crate::connection::required;
use crate::failure::Failure;
use crate::output::Answer;

/// Formats the agent after a change. `done` describes the change, if there was one.
pub fn changed(change: AgentChange, done: &str) -> Result<Answer, Failure> {
    let json = json::value(&change);
    let agent = required(change.agent, "agent")?;
    let mut text = if change.changed {
        format!("{} {done}; status: {}", agent.agent_id, agent.status)
    } else {
        format!("{} is already {}", agent.agent_id, agent.status)
    };
    if let Some(left) = &change.left {
        text.push_str(&left_undone(&agent.agent_id, left));
    }
    Ok(Answer::object(json, text))
}

/// Lines about the remains of a deleted agent: open tasks, dropped messages, an entry in
/// `world-config.yaml`.
fn left_undone(agent_id: &str, left: &AgentLeft) -> String {
    let mut text = String::new();
    if left.tasks_left > 0 {
        let see = format!("`ghostctl task list --owner {agent_id}`");
        text.push_str(&format!("\nopen tasks left: {}; see {see}", left.tasks_left));
    }
    if left.mail_dropped > 0 {
        text.push_str(&format!("\nunread mail dropped: {}", left.mail_dropped));
    }
    if left.comes_back {
        text.push_str(
            "\nworld-config.yaml still declares this agent, so the next start or reload creates it again; remove it from the file, or stop the agent instead",
        );
    }
    text
}
