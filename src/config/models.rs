//! Chooses the provider and the model of an agent: defaults of providers and worlds, and the flags
//! of `ghostd up` that override them.
//!
//! A key must never be held here. A provider must never be guessed from a model's name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ghost_domain::text::nearest;
use ghost_domain::{Code, Refusal};

pub use crate::kinds::check_base_url;
use crate::plan::{LlmPlan, ModelChoice, Plan, ProviderKind, ProviderPlan};

/// The default model at a `scripted` or `recorded` provider.
pub const SCRIPTED_MODEL: &str = "default";

impl ProviderPlan {
    /// A provider of `kind` with default settings, for the world in `world_dir`.
    #[must_use]
    pub fn of_kind(kind: ProviderKind, world_dir: &Path) -> Self {
        Self {
            kind,
            base_url: None,
            api_key_env: kind.usual_key_env().map(str::to_owned),
            concurrency: if kind.is_local() { 64 } else { 4 },
            attempts: 3,
            retry_base: Duration::from_millis(500),
            retry_cap: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(60),
            dir: (kind == ProviderKind::Scripted).then(|| scripts_dir(world_dir)),
            headers: BTreeMap::new(),
            query: BTreeMap::new(),
            extra_body: serde_json::Map::new(),
            api: None,
        }
    }
}

fn scripts_dir(world_dir: &Path) -> PathBuf {
    world_dir.join("scripts")
}

impl ModelChoice {
    /// This choice, with absent values taken from `base`. If this choice names a provider or a
    /// model, the fallback models of `base` are not inherited: they belong to the model of `base`.
    #[must_use]
    pub fn over(&self, base: &Self) -> Self {
        let same = self.provider.is_none() && self.model.is_none();
        Self {
            provider: self.provider.clone().or_else(|| base.provider.clone()),
            model: self.model.clone().or_else(|| base.model.clone()),
            fallback_models: if self.fallback_models.is_empty() && same {
                base.fallback_models.clone()
            } else {
                self.fallback_models.clone()
            },
            temperature: self.temperature.or(base.temperature),
            max_tokens: self.max_tokens.or(base.max_tokens),
            thinking: self.thinking.or(base.thinking),
        }
    }
}

impl LlmPlan {
    /// `choice` with the world's defaults filled in: `provider` and `model` are always set.
    #[must_use]
    pub fn resolve(&self, choice: &ModelChoice) -> ModelChoice {
        let provider = choice.provider.clone().unwrap_or_else(|| self.default_provider.clone());
        let model = choice.model.clone().unwrap_or_else(|| self.model_at(&provider));
        ModelChoice { provider: Some(provider), model: Some(model), ..choice.clone() }
    }

    /// The model of agents that name none, at `provider`. Empty if there is no default. In a valid
    /// plan no agent's choice is affected: loading reports that.
    pub(crate) fn model_at(&self, provider: &str) -> String {
        let local = self.providers.get(provider).is_some_and(|plan| plan.kind.is_local());
        if provider == self.default_provider {
            self.default_model.clone()
        } else if local {
            SCRIPTED_MODEL.to_owned()
        } else {
            String::new()
        }
    }

    /// The provider and the model of a fallback entry. `provider/model` if the part before the
    /// first `/` is a provider of the world; otherwise a model of `own_provider` (model names may
    /// contain slashes).
    #[must_use]
    pub fn fallback_target<'a>(&self, own_provider: &'a str, entry: &'a str) -> (&'a str, &'a str) {
        match entry.split_once('/') {
            Some((provider, model)) if self.providers.contains_key(provider) && !model.is_empty() => (provider, model),
            _ => (own_provider, entry),
        }
    }
}

impl Plan {
    /// Makes every agent use one provider (`ghostd up --provider`). `name` is a provider of
    /// `world-config.yaml` or a kind. Without `model`, agents that already use that provider keep
    /// their model. The others get the world's default model if it belongs to that provider.
    /// `base_url` replaces the provider's address. A provider that the file does not define then
    /// sends a key only if its usual variable is set.
    ///
    /// # Errors
    ///
    /// `InvalidArguments` if the provider is unknown, or if some archetype or agent has no model.
    /// The plan is then unchanged.
    pub fn override_models(&mut self, name: &str, model: Option<&str>, base_url: Option<&str>) -> Result<(), Refusal> {
        let mut provider = match (self.llm.providers.get(name), ProviderKind::named(name)) {
            (Some(plan), _) => plan.clone(),
            (None, Some(kind)) => self.fresh_provider(kind, base_url.is_some())?,
            (None, None) => return Err(self.unknown_provider(name)),
        };
        if let Some(url) = base_url {
            check_base_url(url)?;
            provider.base_url = Some(url.to_owned());
        }
        model.map_or(Ok(()), check_model)?;
        let default_model = match model {
            Some(model) => model.to_owned(),
            None if name == self.llm.default_provider => self.llm.default_model.clone(),
            None if provider.kind.is_local() => SCRIPTED_MODEL.to_owned(),
            None => String::new(),
        };
        let switched = |choice: &ModelChoice| -> Option<ModelChoice> {
            let own = self.llm.resolve(choice);
            let keeps_model = model.is_none() && own.provider.as_deref() == Some(name);
            let model = if keeps_model { own.model.unwrap_or_default() } else { default_model.clone() };
            let fallback_models = if keeps_model {
                let same_provider = |entry: &String| self.llm.fallback_target(name, entry).0 == name;
                choice.fallback_models.iter().filter(|entry| same_provider(entry)).cloned().collect()
            } else {
                Vec::new()
            };
            let filled = !model.is_empty();
            filled.then(|| ModelChoice {
                provider: Some(name.to_owned()),
                model: Some(model),
                fallback_models,
                ..choice.clone()
            })
        };
        let missing = |who: String| {
            Refusal::new(Code::InvalidArguments, format!("no model is known for {who} at provider `{name}`"))
                .hint("name one with --model")
        };
        let mut archetypes = self.archetypes.clone();
        for archetype in archetypes.values_mut() {
            let choice =
                switched(&archetype.config.model).ok_or_else(|| missing(format!("archetype {}", archetype.name)))?;
            Arc::make_mut(archetype).config.model = choice;
        }
        let mut agents = self.agents.clone();
        for agent in &mut agents {
            agent.model = switched(&agent.model).ok_or_else(|| missing(format!("agent {}", agent.agent_id)))?;
        }
        if self.droids.model.is_some() {
            let choice = switched(&ModelChoice::default()).ok_or_else(|| missing("droids".to_owned()))?;
            self.droids.model = choice.model.map(|model| format!("{name}/{model}"));
        }
        self.secret_env.extend(provider.api_key_env.clone());
        // Remove providers that no agent uses any more. Otherwise a missing key, for example, would
        // keep the world from starting.
        self.llm.providers.retain(|_, other| other.kind == ProviderKind::Scripted);
        self.llm.providers.insert(name.to_owned(), provider);
        self.llm.default_provider = name.to_owned();
        self.llm.default_model = default_model;
        self.archetypes = archetypes;
        self.agents = agents;
        Ok(())
    }

    fn fresh_provider(&self, kind: ProviderKind, has_base_url: bool) -> Result<ProviderPlan, Refusal> {
        if kind == ProviderKind::Recorded {
            return Err(Refusal::new(
                Code::InvalidArguments,
                "a recorded provider needs the directory of its recording",
            )
            .hint("define it in the world file under llm.providers with `kind: recorded` and `dir:`"));
        }
        let mut plan = ProviderPlan::of_kind(kind, &self.dir);
        let set = plan.api_key_env.as_ref().is_some_and(|name| self.llm.keys_present.contains(name));
        // A private server seldom needs a key. Without an address, a missing key must be reported.
        if has_base_url && !set {
            plan.api_key_env = None;
        }
        Ok(plan)
    }

    fn unknown_provider(&self, name: &str) -> Refusal {
        let known = || {
            let kinds = ProviderKind::ALL.iter().map(|(known, _)| *known).filter(|known| *known != "recorded");
            let mut all: Vec<&str> = self.llm.providers.keys().map(String::as_str).chain(kinds).collect();
            all.sort_unstable();
            all.dedup();
            all
        };
        let near = nearest(name, known()).map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
        let shown = ghost_domain::text::clip(name, 80);
        Refusal::new(Code::InvalidArguments, format!("there is no provider `{shown}`"))
            .hint(format!("{near}known: {}", known().join(", ")))
    }
}

/// Checks that `model` is a valid name of a model.
///
/// # Errors
/// `InvalidArguments` if it is empty or has more than 200 bytes.
pub fn check_model(model: &str) -> Result<(), Refusal> {
    if model.trim().is_empty() || model.len() > 200 {
        return Err(Refusal::new(Code::InvalidArguments, "--model is empty or longer than 200 bytes")
            .hint("name a model of that provider, or omit --model"));
    }
    Ok(())
}

#[cfg(test)]
#[path = "models_tests.rs"]
mod tests;
