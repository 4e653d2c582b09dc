//! The tools for skills: list, acquire, activate, drop (BI-70..74; SKILL-24, 41, 42, 46). The tools
//! that skills bring are not loaded yet; results say so.

use std::sync::Arc;

use async_trait::async_trait;
use ghost_domain::text::nearest;
use ghost_domain::{Code, Refusal};
use ghost_operations::skills as rules;
use ghost_store::Writes;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::common::{LIST_BYTES, fitting, without_nulls};
use crate::context::CallContext;
use crate::skills::Skill;
use crate::tool::{Output, ReadTool, WorldTool};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListParams {
    /// Only skills whose name or description contains this text.
    #[serde(default)]
    query: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NameParams {
    /// The name of the skill, as syscall.skill.list shows it.
    name: String,
}

/// The skill with that name, if the caller may hold it.
fn allowed(call: &CallContext, name: &str) -> Result<Arc<Skill>, Refusal> {
    let skills = call.services.skills();
    let name = name.trim();
    let filter = call.caller.skills.as_ref();
    if let Some(skill) = skills.visible(filter).find(|skill| skill.name == name) {
        return Ok(Arc::clone(skill));
    }
    if skills.get(name).is_some() {
        return Err(Refusal::new(
            Code::AccessDenied,
            format!("{} may not hold the skill `{name}`", call.caller.agent_id),
        )
        .hint("syscall.skill.list shows the skills that you may hold"));
    }
    let near = nearest(name, skills.visible(filter).map(|skill| skill.name.as_str())).map(str::to_owned);
    let refusal = Refusal::not_found("skill", name, near.as_deref());
    Err(if near.is_none() { refusal.hint("syscall.skill.list shows the skills that there are") } else { refusal })
}

/// The note for a skill whose tools are not loaded.
fn tools_note(skill: &Skill) -> Option<&'static str> {
    skill.has_schema.then_some("this skill describes tools of its own, which are not available here")
}

pub(super) struct List;

#[async_trait]
impl ReadTool for List {
    type Params = ListParams;

    async fn run(&self, call: &CallContext, params: ListParams) -> Result<Output, Refusal> {
        let own = call.caller.agent_id.clone();
        let held = call
            .services
            .store
            .read(move |r| Box::pin(async move { Ok::<_, Refusal>(r.skills_held(&own).await?) }))
            .await?;
        let skills = call.services.skills();
        let query = params.query.unwrap_or_default().trim().to_lowercase();
        let matches = |skill: &&Arc<Skill>| {
            skill.name.to_lowercase().contains(&query) || skill.description.to_lowercase().contains(&query)
        };
        let rows = skills.visible(call.caller.skills.as_ref()).filter(matches).map(|skill| {
            let hold = held.iter().find(|hold| hold.skill == skill.name);
            without_nulls(json!({
                "name": skill.name, "description": skill.description, "held": hold.is_some(),
                "active": hold.is_some_and(|hold| hold.active), "eligible": true, "tools": [],
                "note": tools_note(skill),
            }))
        });
        let (rows, all) = fitting(rows, LIST_BYTES);
        Ok(Output { content: Value::Array(rows), truncated: !all, events: Vec::new() })
    }
}

pub(super) struct Acquire;

#[async_trait]
impl WorldTool for Acquire {
    type Params = NameParams;

    async fn apply(&self, call: &CallContext, params: NameParams, w: &mut dyn Writes) -> Result<Output, Refusal> {
        let skill = allowed(call, &params.name)?;
        let new = rules::acquire(w, &call.services.ctx, &call.caller.agent_id, &skill.name).await?;
        let content = json!({ "name": skill.name, "tools": [], "already_held": !new, "note": tools_note(&skill) });
        Ok(without_nulls(content).into())
    }
}

/// `syscall.skill.activate` and, with `load`, `syscall.skill.load`. Both acquire a skill that the
/// agent does not hold; they differ in their results.
pub(super) struct Activate {
    pub(super) load: bool,
}

#[async_trait]
impl WorldTool for Activate {
    type Params = NameParams;

    async fn apply(&self, call: &CallContext, params: NameParams, w: &mut dyn Writes) -> Result<Output, Refusal> {
        let skill = allowed(call, &params.name)?;
        let own = &call.caller.agent_id;
        let loaded = w.skills_held(own).await?.iter().any(|held| held.skill == skill.name && held.active);
        rules::activate(w, &call.services.ctx, own, &skill.name).await?;
        let mut content = json!({ "name": skill.name, "document": skill.document, "already_active": loaded });
        if self.load {
            content["tools"] = json!([]);
            content["tools_count"] = json!(0);
        }
        if let Some(note) = tools_note(&skill) {
            content["note"] = note.into();
        }
        Ok(Output { content, truncated: skill.truncated, events: Vec::new() })
    }
}

pub(super) struct Drop;

#[async_trait]
impl WorldTool for Drop {
    type Params = NameParams;

    // Checks only the skills that the agent holds, so that a skill whose folder was removed can be
    // dropped.
    async fn apply(&self, call: &CallContext, params: NameParams, w: &mut dyn Writes) -> Result<Output, Refusal> {
        let name = params.name.trim();
        rules::drop_skill(w, &call.services.ctx, &call.caller.agent_id, name).await?;
        Ok(json!({ "name": name, "removed": [] }).into())
    }
}
