//! Warns about settings that a model does not support: thinking, a temperature, a longer answer, an
//! API.
//!
//! A warning must never prevent the start of a world, or concern a model whose capabilities are
//! unknown.

use std::collections::BTreeSet;

use ghost_domain::AgentId;
use ghost_domain::model_facts::{Api, ModelFacts, Thinking, ThinkingControl};
use ghost_domain::text::clip;

use crate::plan::{ModelChoice, Origin, Plan, ProviderKind};
use crate::problem::{Problem, Problems, Severity};

/// Checks the agents of `plan` and the archetypes that agents may be created from. Returns a
/// warning for each setting that the model does not support.
#[must_use]
pub fn model_warnings(plan: &Plan) -> Vec<Problem> {
    let mut warnings = Warnings { plan, found: Vec::new(), apis: BTreeSet::new() };
    for agent in &plan.agents {
        warnings.check(Some(&agent.agent_id), &agent.archetype, &agent.model);
    }
    for name in &plan.creatable {
        if let Some(archetype) = plan.archetypes.get(name) {
            warnings.check(None, name, &archetype.config.model);
        }
    }
    // Agents of the same archetype produce equal warnings, which `sorted` removes.
    Problems::sorted(warnings.found).0
}

struct Warnings<'p> {
    plan: &'p Plan,
    found: Vec<Problem>,
    /// Models whose `api` was reported.
    apis: BTreeSet<String>,
}

impl Warnings<'_> {
    fn check(&mut self, agent: Option<&AgentId>, archetype: &str, choice: &ModelChoice) {
        let llm = &self.plan.llm;
        let resolved = llm.resolve(choice);
        let (Some(provider), Some(model)) = (&resolved.provider, &resolved.model) else { return };
        let (provider, model) = (provider.as_str(), model.as_str());
        let fallbacks = choice.fallback_models.iter().map(|entry| llm.fallback_target(provider, entry));
        for (at, (provider, model)) in std::iter::once((provider, model)).chain(fallbacks).enumerate() {
            // An unknown provider is reported elsewhere.
            let Some(plan) = llm.providers.get(provider) else { continue };
            let facts = llm.facts(plan.kind, provider, model);
            let shown = clip(&format!("{provider}/{model}"), 120);
            self.api(provider, &shown, &facts);
            let origin_of = |key: &'static str| self.origin(agent, archetype, key, (provider, model));
            let mut found = Vec::new();
            if let (Some(wanted), Some(limit)) = (choice.max_tokens, facts.output_tokens)
                && u64::from(wanted) > limit
            {
                let message = format!("`{shown}` answers with at most {limit} tokens, and {wanted} are asked for");
                found.push((origin_of("max_tokens"), message, format!("write at most {limit}, or name another model")));
            }
            // A fallback model ignores settings that it does not support, so only the first model
            // is checked.
            if at == 0 {
                if choice.temperature.is_some() && !facts.temperature {
                    let message = format!("`{shown}` does not accept a temperature: it is not sent");
                    found.push((origin_of("temperature"), message, "remove it, or name another model".to_owned()));
                }
                let thinking = choice.thinking.and_then(|wanted| thinking(plan.kind, &facts, wanted));
                if let Some((what, hint)) = thinking {
                    found.push((origin_of("thinking"), format!("`{shown}` {what}"), hint));
                }
            }
            let as_problem = |(origin, message, hint): (Origin, String, String)| {
                origin.problem(Severity::Warning, message, format!("{hint}{}", self.source()))
            };
            let problems: Vec<Problem> = found.into_iter().map(as_problem).collect();
            self.found.extend(problems);
        }
    }

    fn api(&mut self, provider: &str, shown: &str, facts: &ModelFacts) {
        let set = self.plan.llm.providers.get(provider).and_then(|plan| plan.api);
        let (Some(set), Some(needs)) = (set, facts.api) else { return };
        if set == needs || !self.apis.insert(shown.to_owned()) {
            return;
        }
        let what = match needs {
            Api::Responses => "takes tools only through the API `responses`",
            Api::Chat => "has only the API `chat`",
        };
        let message = format!("`{shown}` {what}, and `api: {}` is set", set.as_str());
        let hint = format!("write `api: {}`, or remove it{}", needs.as_str(), self.source());
        self.found.push(self.plan.origins.provider(provider, "api").problem(Severity::Warning, message, hint));
    }

    /// The position of `key`: in the agent's entry, else in its archetype, else where the model is
    /// named.
    fn origin(&self, agent: Option<&AgentId>, archetype: &str, key: &'static str, model: (&str, &str)) -> Origin {
        let origins = &self.plan.origins;
        let own = agent.and_then(|id| origins.agent_settings.get(&(id.clone(), key)));
        let found = own.or_else(|| origins.archetype_settings.get(&(archetype.to_owned(), key)));
        found.cloned().unwrap_or_else(|| origins.model(model.0, model.1))
    }

    /// The end of a hint: the date of the list and how to correct it.
    fn source(&self) -> String {
        format!("; if the list of {} is wrong, correct it in `llm.models_file`", self.plan.llm.models.as_of())
    }
}

/// Describes the problem if the model does not support `wanted`, with a hint.
fn thinking(kind: ProviderKind, facts: &ModelFacts, wanted: Thinking) -> Option<(String, String)> {
    let least = facts.thinking_tokens.map_or(0, |(least, _)| least);
    let always = match facts.thinking {
        ThinkingControl::AlwaysAdaptive => true,
        ThinkingControl::Effort => facts.efforts.first().is_some_and(|least| least != "none"),
        // Gemini turns thinking off with a budget of 0; the other APIs do it with a word.
        ThinkingControl::Budget => kind == ProviderKind::Gemini && least > 0,
        _ => false,
    };
    match (facts.thinking, wanted) {
        (ThinkingControl::Never, Thinking::None) => None,
        (ThinkingControl::Never, _) => {
            let hint = "remove `thinking`, or name a model that thinks";
            Some((format!("does not think, and `{}` is asked for", wanted.as_str()), hint.to_owned()))
        }
        (_, Thinking::None) if always => {
            let little = facts.efforts.first().map(|word| format!(", which is `{word}`")).unwrap_or_default();
            let hint = "write `low`, or name another model";
            Some((format!("always thinks: it is set to its least effort{little}"), hint.to_owned()))
        }
        _ => None,
    }
}

#[cfg(test)]
#[path = "model_warnings_tests.rs"]
mod tests;
