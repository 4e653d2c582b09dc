//! The spec of a droid, and the tools that one may have.
//!
//! A droid must never have a tool that neither its parent has nor the world file lists under `droids.tools`.

use std::collections::BTreeSet;
use std::sync::Arc;

use ghost_domain::droid::{ROUNDS_MAX, TOOLS};
use ghost_domain::restart::RestartType;
use ghost_domain::text::clip;
use ghost_domain::tool_catalogue::{CALL, DESCRIBE};
use ghost_domain::write_acl::WriteAcl;
use ghost_domain::{Agent, Code, DroidTerms, Refusal};
use serde_json::json;

use crate::access::ToolAccess;
use crate::extra_tools::ExtraTools;
use crate::plan::droids::DroidsPlan;
use crate::plan::{AgentLimits, LlmPlan, ModelChoice, Plan, RestartPlan};
use crate::spec::{AgentSpec, TurnLimits};
use crate::world_file::WorldFile;

/// The plan of a world's droids.
pub(crate) fn droids(world: &WorldFile<'_>, extra: &ExtraTools, llm: &LlmPlan) -> DroidsPlan {
    let tools = world.droids.tools.as_ref().map(|words| extra.expand_all(&world.all_named(words)));
    let model = world.droids.model.as_ref().map(|model| {
        let (field, name) = world.named(model);
        let (provider, model) = llm.fallback_target(&llm.default_provider, name);
        if provider.is_empty() || model.is_empty() {
            field.error(
                format!("`{}` is not a model", field.shown()),
                "write `provider/model`, or a model of `llm.default_provider`",
            );
        }
        format!("{provider}/{model}")
    });
    DroidsPlan { tools, model, ..DroidsPlan::default() }
}

impl Plan {
    /// The tools of a new droid. `parent` are canonical names of the tools that its parent has now, `above` those that a
    /// parent which is a droid itself was given, and `wanted` the words with which the parent narrows them.
    ///
    /// # Errors
    /// `InvalidArguments` for a word that stands for no tool, `AccessDenied` for one that the droid may not have.
    pub fn droid_tools(
        &self,
        parent: &BTreeSet<String>,
        above: Option<&BTreeSet<String>>,
        wanted: Option<&[String]>,
    ) -> Result<BTreeSet<String>, Refusal> {
        let mut most: BTreeSet<String> = match &self.droids.tools {
            Some(tools) => tools.clone(),
            None => TOOLS.iter().filter(|tool| parent.contains(**tool)).map(|tool| (*tool).to_owned()).collect(),
        };
        if let Some(above) = above {
            most.retain(|tool| above.contains(tool));
        }
        let Some(wanted) = wanted else { return Ok(most) };
        let mut tools = BTreeSet::new();
        for word in wanted {
            let found = self.groups.extra().expand(word);
            let refused = |code, what: String| Refusal::new(code, what).details(json!({ "field": "tools" }));
            if found.is_empty() {
                let what = format!("tools: there is no tool `{}`", clip(word, 80));
                return Err(refused(Code::InvalidArguments, what).hint(self.groups.extra().hint(word)));
            }
            let had: BTreeSet<String> = found.intersection(&most).cloned().collect();
            if had.is_empty() {
                let list: Vec<&str> = most.iter().map(String::as_str).collect();
                let what = format!("a droid of yours may not have `{}`", clip(word, 80));
                let hint = match list.is_empty() {
                    true => "your droids may have no tools: do this work yourself".to_owned(),
                    false => format!("it may have: {}", list.join(", ")),
                };
                return Err(refused(Code::AccessDenied, what).hint(hint));
            }
            tools.extend(had);
        }
        Ok(tools)
    }

    /// The model of a new droid as its parent names it, `provider/model`.
    ///
    /// # Errors
    /// `NotFound` for a model that the world's files do not name.
    pub fn droid_model(&self, name: &str) -> Result<String, Refusal> {
        let (provider, model) = self.model_named(&self.llm.default_provider, name)?;
        Ok(format!("{provider}/{model}"))
    }

    /// The model that the world file names for droids, and the tools that they may have. `None` if it names no model.
    #[must_use]
    pub fn droid_choice(&self) -> Option<(ModelChoice, ToolAccess)> {
        let model = self.droids.model.as_deref()?;
        let tools = self.droids.tools.clone().unwrap_or_else(|| TOOLS.map(str::to_owned).into());
        Some((self.choice_of(model), ToolAccess::of_droid(&self.groups, BTreeSet::new(), tools)))
    }

    fn choice_of(&self, model: &str) -> ModelChoice {
        let (provider, model) = self.llm.fallback_target(&self.llm.default_provider, model);
        ModelChoice { provider: Some(provider.to_owned()), model: Some(model.to_owned()), ..ModelChoice::default() }
    }

    /// The spec of a droid. What the world file takes from droids is taken from those at work, too.
    pub(crate) fn droid_spec(&self, agent: &Agent) -> Result<AgentSpec, Refusal> {
        let terms: DroidTerms = serde_json::from_value(agent.overrides.clone()).map_err(|error| {
            Refusal::new(Code::Internal, format!("the terms of {} cannot be read: {error}", agent.agent_id))
        })?;
        let mut tools: BTreeSet<String> = match &self.droids.tools {
            Some(most) => terms.tools.intersection(most).cloned().collect(),
            None => terms.tools,
        };
        // They reach the tools whose schemas a request leaves out, and no others.
        tools.extend([CALL, DESCRIBE].map(str::to_owned));
        let named = terms.model.as_deref().or(self.droids.model.as_deref()).unwrap_or(&terms.parent_model);
        let limits = AgentLimits {
            turn_rounds_max: Some(ROUNDS_MAX),
            turn_seconds: Some(terms.turn_seconds),
            ..AgentLimits::default()
        };
        Ok(AgentSpec {
            archetype: Arc::clone(&self.droids.archetype),
            access: Arc::new(ToolAccess::of_droid(&self.groups, terms.groups, tools)),
            write_acl: WriteAcl::own_directory(&agent.agent_id),
            model: self.choice_of(named),
            limits: TurnLimits::of(&self.limits, &limits, None),
            skills: Some(BTreeSet::new()),
            restart: RestartPlan { restart: RestartType::Temporary, ..RestartPlan::default() },
            team: None,
        })
    }
}

#[cfg(test)]
#[path = "droids_tests.rs"]
mod tests;
