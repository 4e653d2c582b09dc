//! The providers of a world and the models that are named: what the files define, what a bare name stands for, and what is
//! wrong with a choice.

use std::collections::BTreeMap;
use std::path::Path;

use crate::archetype::Loaded;
use crate::models::SCRIPTED_MODEL;
use crate::plan::{LlmPlan, ModelChoice, ProviderKind, ProviderPlan};
use crate::problem::Hint;
use crate::reader::no_such;
use crate::report::{FileReport, Report};
use crate::substitute::Env;
use crate::world_file::WorldFile;

/// What to do about a provider that there is not.
const UNDEFINED: &str = "define it under `llm.providers` in the world file";

/// Makes the providers: those of the file, and each kind that something names without defining it.
pub(crate) fn llm(
    world: &WorldFile<'_>,
    loaded: &BTreeMap<String, Loaded>,
    dir: &Path,
    env: Env<'_>,
    report: &Report,
    file: &FileReport<'_>,
) -> LlmPlan {
    let mut providers: BTreeMap<String, ProviderPlan> = BTreeMap::new();
    for (name, entry) in &world.llm.providers {
        let base = ProviderPlan::of_kind(entry.kind, dir);
        let mut plan = ProviderPlan {
            base_url: entry.base_url.clone(),
            api_key_env: entry.api_key_env.clone(),
            concurrency: entry.concurrency.unwrap_or(base.concurrency),
            attempts: entry.attempts.unwrap_or(base.attempts),
            retry_base: entry.retry_base.unwrap_or(base.retry_base.min(entry.retry_cap.unwrap_or(base.retry_base))),
            retry_cap: entry.retry_cap.unwrap_or(base.retry_cap.max(entry.retry_base.unwrap_or(base.retry_cap))),
            dir: entry.dir.as_ref().map(|relative| dir.join(relative)).or(base.dir.clone()),
            kind: entry.kind,
        };
        // A key goes only where it belongs: to the provider's own address, or where the file sends it by name.
        if plan.base_url.is_none() && plan.api_key_env.is_none() {
            plan.api_key_env = base.api_key_env;
        }
        providers.insert(name.clone(), plan);
    }
    let usable = |name: &str, providers: &mut BTreeMap<String, ProviderPlan>| {
        if !providers.contains_key(name)
            && let Some(kind) = ProviderKind::named(name).filter(|kind| *kind != ProviderKind::Recorded)
        {
            providers.insert(name.to_owned(), ProviderPlan::of_kind(kind, dir));
        }
        providers.contains_key(name)
    };
    let known: Vec<String> = {
        let kinds = ProviderKind::ALL.iter().map(|(name, _)| (*name).to_owned()).filter(|name| name != "recorded");
        providers.keys().cloned().chain(kinds).collect()
    };
    let known = || known.iter().map(String::as_str);
    let default_provider = world.llm.default_provider.as_ref().map_or("scripted", |(_, name)| name).to_owned();
    if !usable(&default_provider, &mut providers)
        && let Some((field, _)) = &world.llm.default_provider
    {
        no_such(field, "provider", known(), UNDEFINED);
    }
    for field in world.agents.iter().filter_map(|agent| agent.model.provider.as_ref().map(|f| (f, &agent.model))) {
        let (field, entry) = field;
        if let Some(name) = &entry.choice.provider
            && !usable(name, &mut providers)
        {
            no_such(field, "provider", known(), UNDEFINED);
        }
    }
    for loaded in loaded.values() {
        if let Some(name) = &loaded.archetype.config.model.provider
            && !usable(name, &mut providers)
        {
            let message = format!("there is no provider `{}`", ghost_domain::text::clip(name, 80));
            let hint = crate::report::did_you_mean(name, known(), UNDEFINED);
            report.file(&loaded.config_path).error(loaded.provider_line, "LLM.provider", message, hint);
        }
    }
    // A kind may stand before the `/` of a fall-back model as it may stand anywhere else: what `kind/model` means must not
    // hang on whether something else happens to name that kind.
    let choices = loaded.values().map(|loaded| &loaded.archetype.config.model);
    for choice in choices.chain(world.agents.iter().map(|agent| &agent.model.choice)) {
        for (name, _) in choice.fallback_models.iter().filter_map(|entry| entry.split_once('/')) {
            // What is no provider is a model with a slash in its name, or is told where the rest is known.
            let _ = usable(name, &mut providers);
        }
    }
    let local = providers.get(&default_provider).is_some_and(|plan| plan.kind.is_local());
    let default_model = match (&world.llm.default_model, local) {
        (Some(model), _) => model.clone(),
        (None, true) => SCRIPTED_MODEL.to_owned(),
        (None, false) => String::new(),
    };
    let usual = ProviderKind::ALL.iter().filter_map(|(_, kind)| kind.usual_key_env());
    let keys_present = usual.filter(|name| env(name).is_some_and(|key| !key.is_empty())).map(str::to_owned).collect();
    for provider in providers.values() {
        // Keys are known from here on, so that no message shows one that the file quotes by mistake.
        if let Some(name) = &provider.api_key_env
            && let Some(key) = env(name)
        {
            file.whole().substituted(&key, &format!("${{{name}}}"));
        }
    }
    let (prices, world_dir) = (world.llm.prices.clone(), dir.to_owned());
    LlmPlan { default_provider, default_model, providers, prices, keys_present, world_dir }
}

/// Why `choice` has no model, if it has none.
pub(crate) fn model_problem(choice: &ModelChoice, llm: &LlmPlan) -> Option<String> {
    let resolved = llm.resolve(choice);
    let provider = resolved.provider.unwrap_or_default();
    let empty = resolved.model.unwrap_or_default().is_empty();
    // An unknown provider has been reported already.
    (empty && llm.providers.contains_key(&provider)).then(|| format!("no model is named for provider `{provider}`"))
}

/// What is wrong with the fall-back models of `choice`: a rule file's name has no slash, so one at a scripted provider
/// means a provider that is not there; and so does a recorded one that is not defined.
pub(crate) fn fallback_problems(choice: &ModelChoice, llm: &LlmPlan) -> Vec<(String, Hint)> {
    let own = choice.provider.as_deref().unwrap_or(&llm.default_provider);
    let scripted = |name: &str| llm.providers.get(name).is_some_and(|plan| plan.kind == ProviderKind::Scripted);
    let mut problems = Vec::new();
    for entry in &choice.fallback_models {
        let Some((name, _)) = entry.split_once('/') else { continue };
        let kind = ProviderKind::named(name);
        if !scripted(own) && kind.is_none() {
            continue;
        }
        if llm.fallback_target(own, entry) != (own, entry.as_str()) {
            continue;
        }
        let shown = ghost_domain::text::clip(name, 80);
        let (message, hint) = if llm.providers.contains_key(name) {
            (format!("`{shown}/` names no model"), "write it as provider/model".into())
        } else {
            let hint = match kind {
                Some(_) => "define it under `llm.providers` in the world file, with its `dir`".into(),
                None => crate::report::did_you_mean(name, llm.providers.keys().map(String::as_str), UNDEFINED),
            };
            (format!("there is no provider `{shown}`"), hint)
        };
        problems.push((message, hint));
    }
    problems
}
