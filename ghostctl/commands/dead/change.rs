//! The answer of commands that change a dead letter.

use ghost_proto::json;
use ghost_proto::v1::DeadChange;

use crate::connection::required;
use crate::failure::Failure;
use crate::output::Answer;

/// Formats the dead letter after a change.
pub fn changed(change: DeadChange) -> Result<Answer, Failure> {
    let json = json::value(&change);
    let letter = required(change.dead_letter, "dead letter")?;
    let already = if change.changed { "" } else { "already " };
    let text = format!("dead letter {} of {} is {already}{}", letter.dead_letter_id, letter.agent_id, letter.status);
    Ok(Answer::object(json, text))
}
