//! Records of droids: found by id, and their events.

use crate::prelude::*;

/// Finds a droid.
///
/// # Errors
/// `InvalidArguments` for an id of another form, `NotFound`.
pub fn named(r: &mut StoreTx, text: &str) -> Result<Droid> {
    let text = text.trim();
    if !droid_id::is_droid(text) {
        return Err(refusal!(InvalidArguments, "`{}` is not the id of a droid", shown(text, 80))
            .hint("it is `droid-` and eight hexadecimal digits, as the droid's start returned it")
            .details(json!({ "field": "droid_id" })));
    }
    let missing = || Refusal::not_found("droid", text, None).hint("the list shows your droids");
    r.droid_get(&text.parse()?)?.ok_or_else(missing)
}

/// Finds a droid that `by` may steer and end: an agent only its own.
///
/// # Errors
/// Those of [`named`]; `AccessDenied` for another agent's droid.
pub fn own(r: &mut StoreTx, by: &Party, text: &str) -> Result<Droid> {
    let droid = named(r, text)?;
    match by.agent() {
        Some(agent_id) if *agent_id != droid.parent_id => {
            Err(refusal!(AccessDenied, "{} is a droid of {}", droid.droid_id, droid.parent_id)
                .hint("only its parent and operators steer and end it; you may check on it"))
        }
        _ => Ok(droid),
    }
}

/// The droid with this id, unless it has ended.
pub(crate) fn at_work(r: &mut StoreTx, droid_id: &AgentId) -> Result<Option<Droid>> {
    Ok(r.droid_get(droid_id)?.filter(|droid| !droid.state.is_over()))
}

/// Records that a droid's turn was opened. Returns its record; `None` for the turn of another agent.
pub(crate) fn turn_opened(w: &mut StoreTx, turn: &Turn) -> Result<Option<Droid>> {
    if !turn.agent_id.is_droid() {
        return Ok(None);
    }
    let Some(mut droid) = w.droid_get(&turn.agent_id)? else { return Ok(None) };
    if droid.state == DroidState::Pending {
        droid.state = DroidState::Running;
        w.droid_put(&droid)?;
    }
    Ok(Some(droid))
}

pub(crate) fn emit(w: &mut Tx, kind: EventKind, droid: &Droid, mut payload: Value) -> Result<()> {
    payload["parent_id"] = json!(droid.parent_id);
    payload["label"] = json!(droid.label);
    w.emit(NewEvent::new(kind, payload).agent(&droid.droid_id).correlation(droid.root_id))
}
