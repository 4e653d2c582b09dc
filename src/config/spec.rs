//! What the runtime needs to know of one agent, whether the world file names it or another agent created it: a
//! [`Plan`] and an agent's record become an [`AgentSpec`]. Overrides of created agents are checked and applied here.
//!
//! Must never: let an override give more than the archetype has (BI-22).

use std::collections::BTreeSet;
use std::sync::Arc;

use ghost_domain::text::{clip, nearest};
use ghost_domain::write_acl::WriteAcl;
use ghost_domain::{Agent, AgentId, AgentKind, Code, Limits, Refusal};
use serde_json::Value;

use crate::access::{self, ToolAccess};
use crate::plan::{AgentLimits, AgentPlan, Archetype, ModelChoice, Plan, RestartPlan};

/// The keys that overrides may have.
pub const OVERRIDE_KEYS: [&str; 4] = ["max_tokens", "model", "tools", "turn_rounds_max"];

/// Most tool names in one override.
const TOOLS_MAX: usize = 500;

/// One agent, ready to be run.
#[derive(Clone, Debug)]
pub struct AgentSpec {
    /// What it is made from.
    pub archetype: Arc<Archetype>,
    /// What it may use.
    pub access: Arc<ToolAccess>,
    /// Where it may write.
    pub write_acl: WriteAcl,
    /// Its model; `provider` and `model` are always there.
    pub model: ModelChoice,
    /// Its bounds, none above the world's.
    pub limits: TurnLimits,
    /// The skills it may acquire; `None` is all eligible.
    pub skills: Option<BTreeSet<String>>,
    /// When and how it is restarted.
    pub restart: RestartPlan,
    /// Its team; `None` is the world's own.
    pub team: Option<String>,
}

/// The bounds of one agent's turns, all filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnLimits {
    /// See [`Limits::turn_rounds_max`].
    pub turn_rounds_max: u32,
    /// See [`Limits::turn_seconds`].
    pub turn_seconds: u32,
    /// See [`Limits::context_bytes`].
    pub context_bytes: u32,
    /// See [`Limits::result_view_bytes`].
    pub result_view_bytes: u32,
    /// See [`Limits::answer_tokens`]; an archetype's `max_tokens` replaces it.
    pub answer_tokens: u32,
}

impl TurnLimits {
    fn of(world: &Limits, own: &AgentLimits, max_tokens: Option<u32>) -> Self {
        let least = |own: Option<u32>, world: u32| own.map_or(world, |own| own.min(world));
        Self {
            turn_rounds_max: least(own.turn_rounds_max, world.turn_rounds_max),
            turn_seconds: least(own.turn_seconds, world.turn_seconds),
            context_bytes: least(own.context_bytes, world.context_bytes),
            result_view_bytes: least(own.result_view_bytes, world.result_view_bytes),
            answer_tokens: max_tokens.unwrap_or(world.answer_tokens),
        }
    }
}

impl Plan {
    /// The agent that the world file names so.
    #[must_use]
    pub fn agent(&self, agent_id: &AgentId) -> Option<&AgentPlan> {
        self.agents.iter().find(|plan| plan.agent_id == *agent_id)
    }

    /// What the runtime needs for `agent`.
    ///
    /// # Errors
    /// `NotFound` if its archetype, or a persistent agent itself, is no longer in the world; `AccessDenied` if the
    /// archetype's own configuration forbids it to start (WORLD-07); `InvalidArguments` if its overrides would widen
    /// what its archetype has.
    pub fn spec_for(&self, agent: &Agent) -> Result<AgentSpec, Refusal> {
        let archetype = self.archetype(&agent.archetype)?;
        if let Some(reason) = &archetype.config.refused {
            return Err(Refusal::new(
                Code::AccessDenied,
                format!("{} must not start: archetype `{}`: {reason}", agent.agent_id, archetype.name),
            )
            .hint("correct the archetype or the world file and reload"));
        }
        let base = match agent.kind {
            AgentKind::Persistent => self.named_spec(&agent.agent_id, archetype)?,
            AgentKind::Dynamic => self.created_spec(agent, archetype),
        };
        self.narrowed(base, &agent.overrides)
    }

    /// Whether an agent may create an agent from `archetype` with `overrides`.
    ///
    /// # Errors
    /// `NotFound` with the nearest name if there is no such archetype, `AccessDenied` with the list of those that may be
    /// used if it is not among them, `InvalidArguments` if the overrides would widen what it has.
    pub fn check_create(&self, archetype: &str, overrides: &Value) -> Result<(), Refusal> {
        let found = self.archetype(archetype)?;
        if !self.creatable.contains(archetype) {
            let list: Vec<&str> = self.creatable.iter().map(String::as_str).collect();
            let hint = if list.is_empty() {
                "this world lets agents create no agents: `agents_may_create` is empty".to_owned()
            } else {
                format!("agents may create: {}", list.join(", "))
            };
            return Err(
                Refusal::new(Code::AccessDenied, format!("agents may not create agents from `{archetype}`")).hint(hint)
            );
        }
        self.check_overrides(found, overrides)
    }

    /// Whether `overrides` only narrow what agents made from `archetype` have: the part of
    /// [`check_create`](Self::check_create) that holds for operators too.
    ///
    /// # Errors
    /// `NotFound` if there is no such archetype, `AccessDenied` if its configuration forbids it to start,
    /// `InvalidArguments` if the overrides would widen what it has.
    pub fn check_overrides_of(&self, archetype: &str, overrides: &Value) -> Result<(), Refusal> {
        self.check_overrides(self.archetype(archetype)?, overrides)
    }

    fn check_overrides(&self, archetype: &Arc<Archetype>, overrides: &Value) -> Result<(), Refusal> {
        if let Some(reason) = &archetype.config.refused {
            return Err(Refusal::new(
                Code::AccessDenied,
                format!("agents of archetype `{}` must not start: {reason}", archetype.name),
            ));
        }
        let base = self.archetype_spec(archetype, WriteAcl::new(&[])?);
        self.narrowed(base, overrides).map(drop)
    }

    fn archetype(&self, name: &str) -> Result<&Arc<Archetype>, Refusal> {
        self.archetypes.get(name).ok_or_else(|| {
            Refusal::not_found("archetype", name, nearest(name, self.archetypes.keys().map(String::as_str)))
        })
    }

    fn named_spec(&self, agent_id: &AgentId, archetype: &Arc<Archetype>) -> Result<AgentSpec, Refusal> {
        let plan = self.agent(agent_id).ok_or_else(|| {
            let near = nearest(agent_id.as_str(), self.agents.iter().map(|plan| plan.agent_id.as_str()));
            let refusal = Refusal::not_found("agent in the world file called", agent_id.as_str(), near);
            match near {
                Some(_) => refusal,
                None => refusal.hint("it is kept, but stopped; name it in the world file again to run it"),
            }
        })?;
        Ok(AgentSpec {
            archetype: Arc::clone(archetype),
            access: Arc::clone(&plan.access),
            write_acl: plan.write_acl.clone(),
            model: self.llm.resolve(&plan.model),
            limits: TurnLimits::of(&self.limits, &plan.limits, plan.model.max_tokens),
            skills: archetype.config.skills.clone(),
            restart: plan.restart,
            team: plan.team.clone(),
        })
    }

    fn created_spec(&self, agent: &Agent, archetype: &Arc<Archetype>) -> AgentSpec {
        let spec = self.archetype_spec(archetype, WriteAcl::own_directory(&agent.agent_id));
        let team = agent.team.clone().filter(|name| self.teams.iter().any(|team| team.name == *name));
        AgentSpec { team, ..spec }
    }

    fn archetype_spec(&self, archetype: &Arc<Archetype>, write_acl: WriteAcl) -> AgentSpec {
        let config = &archetype.config;
        let access = self.archetype_access.get(&archetype.name).cloned().unwrap_or_else(|| {
            let legacy = config.legacy_tools.as_deref();
            Arc::new(access::resolve(&self.groups, config.access.as_ref(), &BTreeSet::new(), legacy, None))
        });
        AgentSpec {
            archetype: Arc::clone(archetype),
            access,
            write_acl,
            model: self.llm.resolve(&config.model),
            limits: TurnLimits::of(&self.limits, &config.limits, config.model.max_tokens),
            skills: config.skills.clone(),
            restart: RestartPlan::default(),
            team: None,
        }
    }

    fn narrowed(&self, mut spec: AgentSpec, overrides: &Value) -> Result<AgentSpec, Refusal> {
        let map = match overrides {
            Value::Null => return Ok(spec),
            Value::Object(map) => map,
            _ => return Err(wrong("overrides", "must be an object", allowed_keys())),
        };
        for (key, value) in map {
            match key.as_str() {
                "model" => self.narrow_model(&mut spec, value)?,
                "max_tokens" => {
                    let tokens = smaller(key, value, spec.limits.answer_tokens)?;
                    spec.limits.answer_tokens = tokens;
                    spec.model.max_tokens = Some(tokens);
                }
                "turn_rounds_max" => {
                    spec.limits.turn_rounds_max = smaller(key, value, spec.limits.turn_rounds_max)?;
                }
                "tools" => spec.access = Arc::new(self.narrow_tools(&spec.access, value)?),
                other => {
                    let near = nearest(other, OVERRIDE_KEYS).map(|near| format!("did you mean `{near}`? "));
                    let hint = format!("{}{}", near.unwrap_or_default(), allowed_keys());
                    return Err(wrong(&format!("overrides.{}", clip(other, 60)), "is not something to override", hint));
                }
            }
        }
        Ok(spec)
    }

    fn narrow_model(&self, spec: &mut AgentSpec, value: &Value) -> Result<(), Refusal> {
        let own_provider = spec.model.provider.clone().unwrap_or_default();
        let own_model = spec.model.model.clone().unwrap_or_default();
        let fallbacks = std::mem::take(&mut spec.model.fallback_models);
        let choices = || std::iter::once(own_model.as_str()).chain(fallbacks.iter().map(String::as_str));
        let wanted = value.as_str().unwrap_or_default();
        let qualified = wanted == format!("{own_provider}/{own_model}");
        if wanted == own_model || qualified {
            spec.model.fallback_models = fallbacks;
            return Ok(());
        }
        let Some(chosen) = fallbacks.iter().find(|entry| {
            let (provider, model) = self.llm.fallback_target(&own_provider, entry);
            *entry == wanted || model == wanted || format!("{provider}/{model}") == wanted
        }) else {
            let list: Vec<&str> = choices().collect();
            return Err(wrong(
                "overrides.model",
                &format!("`{}` is not among the archetype's models", clip(wanted, 80)),
                format!("it may be one of: {}", list.join(", ")),
            ));
        };
        let (provider, model) = self.llm.fallback_target(&own_provider, chosen);
        spec.model.provider = Some(provider.to_owned());
        spec.model.model = Some(model.to_owned());
        // Entries without a provider mean the archetype's own, which the choice may just have changed.
        let rest = fallbacks.iter().filter(|entry| *entry != chosen).map(|entry| {
            let (provider, model) = self.llm.fallback_target(&own_provider, entry);
            format!("{provider}/{model}")
        });
        spec.model.fallback_models = rest.collect();
        Ok(())
    }

    fn narrow_tools(&self, access: &ToolAccess, value: &Value) -> Result<ToolAccess, Refusal> {
        let field = "overrides.tools";
        let list = value.as_array().filter(|list| list.len() <= TOOLS_MAX);
        let Some(list) = list else {
            return Err(wrong(field, "must be a list of at most 500 tool names", "for example [\"workspace.read\"]"));
        };
        let mut allowed = BTreeSet::new();
        for item in list {
            let word =
                item.as_str().ok_or_else(|| wrong(field, "holds something that is not a name", allowed_keys()))?;
            let tools = self.groups.extra().expand(word);
            if tools.is_empty() {
                let hint = self.groups.extra().hint(word);
                return Err(wrong(field, &format!("there is no tool `{}`", clip(word, 80)), hint));
            }
            // A pattern means those of its tools that the archetype has; a single name must be one that it has.
            let has = |tool: &&String| [false, true].into_iter().any(|outside| self.grants(access, tool, outside));
            let had: BTreeSet<String> = tools.iter().filter(has).cloned().collect();
            if had.is_empty() {
                return Err(wrong(
                    field,
                    &format!("`{}` is not among the archetype's tools", clip(word, 80)),
                    "overrides only take away; leave it out, or use an archetype that has it",
                ));
            }
            allowed.extend(had);
        }
        Ok(access::narrow(access, &allowed))
    }
}

fn allowed_keys() -> String {
    format!("overrides may have: {}", OVERRIDE_KEYS.join(", "))
}

fn wrong(field: &str, what: &str, hint: impl Into<String>) -> Refusal {
    Refusal::new(Code::InvalidArguments, format!("{field}: {what}"))
        .hint(hint)
        .details(serde_json::json!({ "field": field }))
}

fn smaller(key: &str, value: &Value, most: u32) -> Result<u32, Refusal> {
    value
        .as_u64()
        .filter(|number| *number >= 1 && *number <= u64::from(most))
        .and_then(|number| u32::try_from(number).ok())
        .ok_or_else(|| {
            wrong(&format!("overrides.{key}"), &format!("must be a number from 1 to {most}"), "overrides only narrow")
        })
}

#[cfg(test)]
#[path = "spec_tests.rs"]
mod tests;
