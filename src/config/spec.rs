//! Builds the [`AgentSpec`] of an agent from the [`Plan`] and the agent's record. This works for
//! agents of `world-config.yaml` and for agents created at run time. Overrides of created agents
//! are checked strictly when the agent is created. Later they are applied leniently, because the
//! archetype may have changed.
//!
//! An override must never give an agent more than its archetype has.

use std::collections::BTreeSet;
use std::sync::Arc;

use ghost_domain::text::{clip, nearest};
use ghost_domain::write_acl::WriteAcl;
use ghost_domain::{Agent, AgentId, AgentKind, Code, Limits, Refusal};
use serde_json::Value;

use crate::access::{self, ToolAccess};
use crate::plan::{AgentLimits, AgentPlan, Archetype, ModelChoice, Plan, RestartPlan};

/// The keys that overrides may contain.
pub const OVERRIDE_KEYS: [&str; 4] = ["max_tokens", "model", "tools", "turn_rounds_max"];

/// The largest number of tool names in one override.
const TOOLS_MAX: usize = 500;

/// How strictly overrides are applied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Overrides {
    /// The agent is about to be created: an override that the archetype does not allow is refused.
    Wanted,
    /// The agent exists, and its overrides cannot be edited. Overrides that the archetype no longer
    /// allows are ignored.
    Recorded,
}

/// Everything that the runtime needs to run an agent.
#[derive(Clone, Debug)]
pub struct AgentSpec {
    /// The archetype of the agent.
    pub archetype: Arc<Archetype>,
    /// The tools that the agent may use.
    pub access: Arc<ToolAccess>,
    /// The directories that the agent may write to.
    pub write_acl: WriteAcl,
    /// The model; `provider` and `model` are always set.
    pub model: ModelChoice,
    /// The limits of its turns, never above the world's.
    pub limits: TurnLimits,
    /// The skills that the agent may acquire. `None` means all eligible skills.
    pub skills: Option<BTreeSet<String>>,
    /// The restart rules.
    pub restart: RestartPlan,
    /// The team of the agent. `None` means no team.
    pub team: Option<String>,
}

/// The limits of one agent's turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnLimits {
    /// See [`Limits::turn_rounds_max`].
    pub turn_rounds_max: u32,
    /// See [`Limits::turn_seconds`].
    pub turn_seconds: u32,
    /// See [`Limits::context_bytes`].
    pub context_bytes: u32,
    /// The context window of its model, in tokens of 4 bytes, if the archetype or the agent's entry
    /// sets it. Never above [`Limits::context_bytes`].
    pub window_tokens: Option<u32>,
    /// See [`Limits::result_view_bytes`].
    pub result_view_bytes: u32,
    /// See [`Limits::result_once_bytes`].
    pub result_once_bytes: u32,
    /// See [`Limits::answer_tokens`]; an archetype's `max_tokens` replaces it.
    pub answer_tokens: u32,
}

impl TurnLimits {
    pub(crate) fn of(world: &Limits, own: &AgentLimits, max_tokens: Option<u32>) -> Self {
        let lower = |own: Option<u32>, world: u32| own.map_or(world, |own| own.min(world));
        Self {
            turn_rounds_max: lower(own.turn_rounds_max, world.turn_rounds_max),
            turn_seconds: lower(own.turn_seconds, world.turn_seconds),
            context_bytes: lower(own.context_bytes, world.context_bytes),
            window_tokens: own.context_bytes.map(|own| own.min(world.context_bytes) / 4),
            result_view_bytes: lower(own.result_view_bytes, world.result_view_bytes),
            result_once_bytes: lower(own.result_once_bytes, world.result_once_bytes),
            answer_tokens: max_tokens.unwrap_or(world.answer_tokens),
        }
    }
}

/// The agent cannot run under this plan. The code is always `Conflict`, whatever the cause.
fn cannot_run(refusal: Refusal) -> Refusal {
    Refusal { code: Code::Conflict, ..refusal }
}

impl Plan {
    /// The entry of the world file for an agent.
    #[must_use]
    pub fn agent(&self, agent_id: &AgentId) -> Option<&AgentPlan> {
        self.agents.get(agent_id)
    }

    /// The spec of `agent`.
    ///
    /// # Errors
    ///
    /// `Conflict` with the remedy in the hint: the archetype is missing, the world file no longer
    /// names the persistent agent, the archetype's configuration forbids a start, or the
    /// overrides are invalid.
    pub fn spec_for(&self, agent: &Agent) -> Result<AgentSpec, Refusal> {
        self.spec_of(agent).map_err(cannot_run)
    }

    fn spec_of(&self, agent: &Agent) -> Result<AgentSpec, Refusal> {
        let archetype = || self.archetype_of(&agent.agent_id, &agent.archetype);
        let base = match agent.kind {
            AgentKind::Persistent => self.named_spec(&agent.agent_id, archetype()?)?,
            AgentKind::Dynamic => self.created_spec(agent, archetype()?),
            AgentKind::Droid => return self.droid_spec(agent),
        };
        self.narrowed(base, &agent.overrides, Overrides::Recorded)
    }

    /// Whether `agent` can run: [`spec_for`](Self::spec_for) without the spec.
    ///
    /// # Errors
    ///
    /// Those of [`spec_for`](Self::spec_for).
    pub fn may_run(&self, agent: &Agent) -> Result<(), Refusal> {
        if !agent.overrides.is_null() {
            return self.spec_for(agent).map(drop);
        }
        self.archetype_of(&agent.agent_id, &agent.archetype).map_err(cannot_run)?;
        match agent.kind {
            AgentKind::Persistent => self.named(&agent.agent_id).map(drop).map_err(cannot_run),
            AgentKind::Dynamic | AgentKind::Droid => Ok(()),
        }
    }

    /// Whether an agent of the world file without a record can run.
    ///
    /// # Errors
    ///
    /// `AccessDenied` if the archetype's configuration forbids a start, `NotFound` if there is no
    /// such archetype.
    pub fn may_start(&self, named: &AgentPlan) -> Result<(), Refusal> {
        self.archetype_of(&named.agent_id, &named.archetype).map(drop)
    }

    /// The archetype of an agent, if the archetype allows a start.
    fn archetype_of(&self, agent_id: &AgentId, name: &str) -> Result<&Arc<Archetype>, Refusal> {
        let Some(archetype) = self.archetypes.get(name) else {
            return Err(Refusal::new(
                Code::NotFound,
                format!("{agent_id} cannot run: there is no archetype `{}` any more", clip(name, 80)),
            )
            .hint("put the archetype back and reload, or delete the agent"));
        };
        match &archetype.config.refused {
            None => Ok(archetype),
            Some(reason) => Err(Refusal::new(
                Code::AccessDenied,
                format!("{agent_id} must not start: archetype `{}`: {reason}", archetype.name),
            )
            .hint("correct the archetype or the world file and reload")),
        }
    }

    /// Whether an agent may create an agent from `archetype` with `overrides`.
    ///
    /// # Errors
    ///
    /// `NotFound` with the nearest name for an unknown archetype. `AccessDenied` with the list of
    /// allowed archetypes if agents may not use this one. `InvalidArguments` if the overrides would
    /// widen the rights of the archetype.
    pub fn check_create(&self, archetype: &str, overrides: &Value) -> Result<(), Refusal> {
        let found = self.archetype(archetype)?;
        if !self.creatable.contains(archetype) {
            let list: Vec<&str> = self.creatable.iter().map(String::as_str).collect();
            let hint = if list.is_empty() {
                "agents may not create agents in this world: `agents_may_create` is empty".to_owned()
            } else {
                format!("agents may create: {}", list.join(", "))
            };
            return Err(
                Refusal::new(Code::AccessDenied, format!("agents may not create agents from `{archetype}`")).hint(hint)
            );
        }
        self.check_overrides(found, overrides)
    }

    /// Whether `overrides` only narrow the rights of agents of `archetype`. This part of
    /// [`check_create`](Self::check_create) applies to operators too.
    ///
    /// # Errors
    ///
    /// `NotFound` for an unknown archetype, `AccessDenied` if its configuration forbids a start,
    /// `InvalidArguments` if the overrides would widen the rights of the archetype.
    pub fn check_overrides_of(&self, archetype: &str, overrides: &Value) -> Result<(), Refusal> {
        self.check_overrides(self.archetype(archetype)?, overrides)
    }

    fn check_overrides(&self, archetype: &Arc<Archetype>, overrides: &Value) -> Result<(), Refusal> {
        if let Some(reason) = &archetype.config.refused {
            return Err(Refusal::new(
                Code::AccessDenied,
                format!("agents of archetype `{}` must not start: {reason}", archetype.name),
            )
            .hint("correct the archetype or the world file and reload"));
        }
        let base = self.archetype_spec(archetype, WriteAcl::new(&[])?);
        self.narrowed(base, overrides, Overrides::Wanted).map(drop)
    }

    fn archetype(&self, name: &str) -> Result<&Arc<Archetype>, Refusal> {
        self.archetypes.get(name).ok_or_else(|| {
            let near = nearest(name, self.archetypes.keys().map(String::as_str));
            let refusal = Refusal::not_found("archetype", name, near);
            match near {
                Some(_) => refusal,
                None => {
                    let some: Vec<&str> = self.archetypes.keys().map(String::as_str).take(24).collect();
                    refusal.hint(format!("there are: {}", some.join(", ")))
                }
            }
        })
    }

    /// The entry of the world file for a persistent agent.
    fn named(&self, agent_id: &AgentId) -> Result<&AgentPlan, Refusal> {
        self.agent(agent_id).ok_or_else(|| {
            Refusal::new(Code::NotFound, format!("the world file does not name `{agent_id}`"))
                .hint("it is kept, but stopped; name it in the world file again and reload, or delete it")
        })
    }

    fn named_spec(&self, agent_id: &AgentId, archetype: &Arc<Archetype>) -> Result<AgentSpec, Refusal> {
        let plan = self.named(agent_id)?;
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

    fn narrowed(&self, mut spec: AgentSpec, overrides: &Value, how: Overrides) -> Result<AgentSpec, Refusal> {
        let map = match overrides {
            Value::Null => return Ok(spec),
            Value::Object(map) => map,
            _ => return Err(wrong("overrides", "must be an object", allowed_keys())),
        };
        for (key, value) in map {
            match key.as_str() {
                "model" => self.narrow_model(&mut spec, value, how)?,
                "max_tokens" => {
                    let tokens = smaller(key, value, spec.limits.answer_tokens, how)?;
                    spec.limits.answer_tokens = tokens;
                    spec.model.max_tokens = Some(tokens);
                }
                "turn_rounds_max" => {
                    spec.limits.turn_rounds_max = smaller(key, value, spec.limits.turn_rounds_max, how)?;
                }
                "tools" => spec.access = Arc::new(self.narrow_tools(&spec.access, value, how)?),
                other => {
                    let near = nearest(other, OVERRIDE_KEYS).map(|near| format!("did you mean `{near}`? "));
                    let hint = format!("{}{}", near.unwrap_or_default(), allowed_keys());
                    return Err(wrong(&format!("overrides.{}", clip(other, 60)), "cannot be overridden", hint));
                }
            }
        }
        Ok(spec)
    }

    fn narrow_model(&self, spec: &mut AgentSpec, value: &Value, how: Overrides) -> Result<(), Refusal> {
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
            if how == Overrides::Recorded {
                // The archetype no longer has that model. Use the archetype's models.
                spec.model.fallback_models = fallbacks;
                return Ok(());
            }
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
        // Entries without a provider refer to the archetype's provider, which the choice may just
        // have changed.
        let rest = fallbacks.iter().filter(|entry| *entry != chosen).map(|entry| {
            let (provider, model) = self.llm.fallback_target(&own_provider, entry);
            format!("{provider}/{model}")
        });
        spec.model.fallback_models = rest.collect();
        Ok(())
    }

    fn narrow_tools(&self, access: &ToolAccess, value: &Value, how: Overrides) -> Result<ToolAccess, Refusal> {
        let field = "overrides.tools";
        let list = value.as_array().filter(|list| list.len() <= TOOLS_MAX);
        let Some(list) = list else {
            return Err(wrong(field, "must be a list of at most 500 tool names", "for example [\"workspace.read\"]"));
        };
        let mut allowed = BTreeSet::new();
        for item in list {
            let word =
                item.as_str().ok_or_else(|| wrong(field, "contains something that is not a name", allowed_keys()))?;
            let tools = self.groups.extra().expand(word);
            if tools.is_empty() && how == Overrides::Wanted {
                let hint = self.groups.extra().hint(word);
                return Err(wrong(field, &format!("there is no tool `{}`", clip(word, 80)), hint));
            }
            // A pattern stands for the matching tools that the archetype has. A single name must be
            // a tool of the archetype.
            let has = |tool: &&String| [false, true].into_iter().any(|outside| self.grants(access, tool, outside));
            let had: BTreeSet<String> = tools.iter().filter(has).cloned().collect();
            if had.is_empty() && how == Overrides::Wanted {
                return Err(wrong(
                    field,
                    &format!("`{}` is not among the archetype's tools", clip(word, 80)),
                    "overrides can only remove tools; omit it, or use an archetype that has it",
                ));
            }
            allowed.extend(had);
        }
        Ok(access::narrow(access, &allowed))
    }
}

fn allowed_keys() -> String {
    format!("overrides may contain: {}", OVERRIDE_KEYS.join(", "))
}

fn wrong(field: &str, what: &str, hint: impl Into<String>) -> Refusal {
    Refusal::new(Code::InvalidArguments, format!("{field}: {what}"))
        .hint(hint)
        .details(serde_json::json!({ "field": field }))
}

fn smaller(key: &str, value: &Value, limit: u32, how: Overrides) -> Result<u32, Refusal> {
    let number = value.as_u64().filter(|number| *number >= 1);
    let number = number.map(|number| u32::try_from(number).unwrap_or(u32::MAX));
    let allowed = |number: &u32| *number <= limit || how == Overrides::Recorded;
    number.filter(allowed).map(|number| number.min(limit)).ok_or_else(|| {
        wrong(&format!("overrides.{key}"), &format!("must be a number from 1 to {limit}"), "overrides can only narrow")
    })
}

#[cfg(test)]
#[path = "spec_tests.rs"]
mod tests;
