//! The answer of commands that change a dead letter.

use ghost_proto::v1::DeadChange;
use serde_json::Value;

use crate::connection::required;
use crate::failure::Failure;
use crate::output::Answer;
use crate::record;

/// Formats the dead letter after a change.
pub fn changed(change: DeadChange) -> Result<Answer, Failure> {
    let letter = required(change.dead_letter, "dead letter")?;
    let mut json = record::dead_letter(&letter);
    if let Value::Object(object) = &mut json {
        object.insert("changed".into(), change.changed.into());
    }
    let already = if change.changed { "" } else { "already " };
    let text = format!("dead letter {} of {} is {already}{}", letter.dead_letter_id, letter.agent_id, letter.status);
    Ok(Answer::object(json, text))
}
