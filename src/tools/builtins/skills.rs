//! The tools for skills: list, acquire, activate, drop. The tools that a skill brings join
//! the registry before the next model call.

use std::sync::Arc;

use ghost_config::skills::{Skill, active_room};
use ghost_domain::Code;
use ghost_domain::text::nearest;
use ghost_operations::skills as rules;

use super::common::*;

params! {
    pub(super) struct ListParams {
        /// Only skills whose name or description contains this text.
        query: Option<String>,
    }

    pub(super) struct NameParams {
        /// The name of the skill, as syscall.skill.list shows it.
        name: String,
    }
}

/// The skill with that name, if the caller may hold it.
pub(super) fn allowed(call: &CallContext, name: &str) -> Result<Arc<Skill>> {
    let skills = call.services.skills();
    let name = name.trim();
    let filter = call.caller.skills.as_ref();
    if let Some(skill) = skills.visible(filter).find(|skill| skill.name == name) {
        return Ok(Arc::clone(skill));
    }
    if skills.get(name).is_some() {
        return Err(refusal!(AccessDenied, "{} may not hold the skill `{name}`", call.caller.agent_id)
            .hint("syscall.skill.list shows the skills that you may hold"));
    }
    let near = nearest(name, skills.visible(filter).map(|skill| skill.name.as_str())).map(str::to_owned);
    let refusal = Refusal::not_found("skill", name, near.as_deref());
    Err(if near.is_none() { refusal.hint("syscall.skill.list shows the skills that there are") } else { refusal })
}

/// The skill with that name, if the caller may hold it and this machine has what it needs.
fn usable(call: &CallContext, name: &str) -> Result<Arc<Skill>> {
    let skill = allowed(call, name)?;
    if skill.missing.is_empty() {
        return Ok(skill);
    }
    Err(refusal!(Unavailable, "the skill `{}` needs {}, which is not here", skill.name, skill.missing.join(", "))
        .hint("work without it, or say what is missing; it is checked again when the world's files are reloaded"))
}

/// Full names of the tools that the skill brings.
fn tools_of(call: &CallContext, skill: &str) -> Vec<String> {
    let plan = call.services.plan();
    let own = plan.toolboxes.values().filter(|toolbox| toolbox.skill.as_deref() == Some(skill));
    own.flat_map(|toolbox| toolbox.tool_names().map(|tool| toolbox.full(tool)).collect::<Vec<_>>()).collect()
}

/// The note for a skill whose tools cannot be had.
fn tools_note(skill: &Skill, tools: &[String]) -> Option<&'static str> {
    (skill.has_tools && tools.is_empty())
        .then_some("this skill describes tools of its own, which are not available here")
}

pub(super) async fn list(call: &CallContext, params: ListParams) -> Result<Output> {
    let own = call.caller.agent_id.clone();
    let held = call.services.store.read(move |r| Ok::<_, Refusal>(r.skills_held(&own)?)).await?;
    let skills = call.services.skills();
    let query = params.query.unwrap_or_default().trim().to_lowercase();
    let matches = |skill: &&Arc<Skill>| {
        skill.name.to_lowercase().contains(&query) || skill.description.to_lowercase().contains(&query)
    };
    let rows = skills.visible(call.caller.skills.as_ref()).filter(matches).map(|skill| {
        let hold = held.iter().find(|hold| hold.skill == skill.name);
        let tools = tools_of(call, &skill.name);
        without_nulls(json!({
            "name": skill.name, "description": skill.description, "held": hold.is_some(),
            "active": hold.is_some_and(|hold| hold.active), "eligible": skill.missing.is_empty(),
            "missing": (!skill.missing.is_empty()).then_some(&skill.missing), "note": tools_note(skill, &tools),
            "tools": tools,
        }))
    });
    Ok(listed(rows))
}

pub(super) fn acquire(call: &CallContext, params: NameParams, w: &mut Tx) -> Result<Output> {
    let skill = usable(call, &params.name)?;
    let new = rules::acquire(w, &call.caller.agent_id, &skill.name)?;
    let (tools, note) = (tools_of(call, &skill.name), tools_note(&skill, &tools_of(call, &skill.name)));
    let content = json!({ "name": skill.name, "tools": tools, "already_held": !new, "note": note });
    Ok(without_nulls(content).into())
}

pub(super) fn activate(call: &CallContext, params: NameParams, w: &mut Tx) -> Result<Output> {
    opened(call, &params.name, false, w)
}

pub(super) fn load(call: &CallContext, params: NameParams, w: &mut Tx) -> Result<Output> {
    opened(call, &params.name, true, w)
}

/// Opens a skill, and acquires it if the agent does not hold it. With `list_tools`, the result names its tools.
fn opened(call: &CallContext, name: &str, list_tools: bool, w: &mut Tx) -> Result<Output> {
    let skill = usable(call, name)?;
    let own = &call.caller.agent_id;
    let held = w.skills_held(own)?;
    let active: Vec<&str> = held.iter().filter(|held| held.active).map(|held| held.skill.as_str()).collect();
    let loaded = active.contains(&skill.name.as_str());
    let document = skill.text();
    if !loaded {
        let skills = call.services.skills();
        let room = active_room(call.caller.context_bytes);
        let sizes = active.iter().filter_map(|name| skills.get(name)).map(|skill| skill.document.len());
        if skill.document.len() > room {
            let message = format!("the text of `{}` has more than the {room} bytes of your prompt", skill.name);
            let hint = format!(
                "read it in parts: workspace.read {{\"scope\": \"skill\", \"path\": \"{}/SKILL.md\"}}",
                skill.name
            );
            return Err(Refusal::new(Code::TooLarge, message).hint(hint));
        }
        if sizes.sum::<usize>() + skill.document.len() > room {
            let message = format!("with `{}` your active skills would have over {room} bytes", skill.name);
            let hint = format!("drop one of these with syscall.skill.drop: {}", active.join(", "));
            return Err(Refusal::new(Code::RateLimited, message).hint(hint));
        }
    }
    rules::activate(w, own, &skill.name)?;
    let mut content = json!({ "name": skill.name, "document": document, "already_active": loaded });
    let tools = tools_of(call, &skill.name);
    let note = tools_note(&skill, &tools);
    if list_tools {
        content["tools_count"] = json!(tools.len());
        content["tools"] = json!(tools);
    }
    if let Some(note) = note {
        content["note"] = note.into();
    }
    Ok(Output::cut(content, skill.continues_at.is_some()))
}

// Checks only the skills that the agent holds, so that a skill whose folder was removed can be
// dropped.
pub(super) fn drop_skill(call: &CallContext, params: NameParams, w: &mut Tx) -> Result<Output> {
    let name = params.name.trim();
    rules::drop_skill(w, &call.caller.agent_id, name)?;
    Ok(json!({ "name": name, "removed": tools_of(call, name) }).into())
}
