//! Which provider and model an agent thinks with: the kinds of providers, the defaults of a world, and the flags of
//! `ghostd up` that override them.
//!
//! Must never: hold a key, or guess a provider from a model's name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ghost_domain::text::nearest;
use ghost_domain::{Code, Refusal};

use crate::plan::{LlmPlan, ModelChoice, Plan, ProviderKind, ProviderPlan};

/// The model of agents that name none, at a `scripted` or `recorded` provider.
pub const SCRIPTED_MODEL: &str = "default";

impl ProviderPlan {
    /// A provider of `kind` with every setting at its default, for the world in `world_dir`.
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
    /// This choice, with what it leaves open taken from `base`. A choice of another provider or model does not inherit
    /// the fall-back models, which belong to the model that they stand in for.
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
    /// `choice` with the world's defaults filled in: `provider` and `model` are always there.
    #[must_use]
    pub fn resolve(&self, choice: &ModelChoice) -> ModelChoice {
        let provider = choice.provider.clone().unwrap_or_else(|| self.default_provider.clone());
        let model = choice.model.clone().unwrap_or_else(|| self.model_at(&provider));
        ModelChoice { provider: Some(provider), model: Some(model), ..choice.clone() }
    }

    /// The model of agents that name none, at `provider`. Empty if there is none to assume, which a plan never has for
    /// a choice that an agent uses: loading reports it.
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

    /// The provider and the model that a fall-back entry names: `provider/model` if the part before the first `/` is a
    /// provider of the world, else a model of `own_provider` (model names may hold slashes).
    #[must_use]
    pub fn fallback_target<'a>(&self, own_provider: &'a str, entry: &'a str) -> (&'a str, &'a str) {
        match entry.split_once('/') {
            Some((provider, model)) if self.providers.contains_key(provider) && !model.is_empty() => (provider, model),
            _ => (own_provider, entry),
        }
    }
}

impl Plan {
    /// Makes every agent think with one provider (`ghostd up --provider`). `name` is a provider of the world file or a
    /// kind. Without `model`, agents that already use that provider keep their model, and the others take the world's
    /// default model if it belongs to that provider. `base_url` replaces the provider's own; a provider that the file
    /// does not name then sends a key only if its usual variable was set.
    ///
    /// # Errors
    /// `InvalidArguments` if no provider is called that, or if no model is known for some archetype. The plan is
    /// unchanged then.
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
        let swap = |choice: &ModelChoice| -> Option<ModelChoice> {
            let own = self.llm.resolve(choice);
            let stays = model.is_none() && own.provider.as_deref() == Some(name);
            let model = if stays { own.model.unwrap_or_default() } else { default_model.clone() };
            let fallback_models = if stays {
                let own_here = |entry: &String| self.llm.fallback_target(name, entry).0 == name;
                choice.fallback_models.iter().filter(|entry| own_here(entry)).cloned().collect()
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
                swap(&archetype.config.model).ok_or_else(|| missing(format!("archetype {}", archetype.name)))?;
            Arc::make_mut(archetype).config.model = choice;
        }
        let mut agents = self.agents.clone();
        for agent in &mut agents {
            agent.model = swap(&agent.model).ok_or_else(|| missing(format!("agent {}", agent.agent_id)))?;
        }
        self.secret_env.extend(provider.api_key_env.clone());
        // Nobody thinks with another server or recording any more: what it lacks, such as a key, must keep nobody from
        // starting.
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
        // A server of one's own seldom wants a key; without an address, a missing key must be reported.
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
            .hint(format!("{near}known are: {}", known().join(", ")))
    }
}

/// Checks that `model` can be the name of a model.
///
/// # Errors
/// `InvalidArguments` if it is empty or has more than 200 bytes.
pub fn check_model(model: &str) -> Result<(), Refusal> {
    if model.trim().is_empty() || model.len() > 200 {
        return Err(Refusal::new(Code::InvalidArguments, "--model is empty or longer than 200 bytes")
            .hint("name a model of that provider, or leave --model out"));
    }
    Ok(())
}

/// Checks that `url` can be an address of a provider.
///
/// # Errors
/// `InvalidArguments` unless it is `http://` or `https://` with a host, without white space, of at most 2,000 bytes.
pub fn check_base_url(url: &str) -> Result<(), Refusal> {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let fits = rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'))
        && url.len() <= 2_000
        && !url.chars().any(|c| c.is_whitespace() || c.is_control());
    if fits {
        Ok(())
    } else {
        Err(Refusal::new(Code::InvalidArguments, "the base URL is not an address of a server")
            .hint("write it as http://HOST:PORT/PATH or https://HOST/PATH"))
    }
}

#[cfg(test)]
#[path = "models_tests.rs"]
mod tests;
