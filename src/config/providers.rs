//! Builds the providers of a world and checks the models that its files name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::archetype::Loaded;
use crate::files::read_text;
use crate::kinds::Name;
use crate::model_list::ModelList;
use crate::models::SCRIPTED_MODEL;
use crate::plan::{LlmPlan, ModelChoice, Origin, Origins, ProviderKind, ProviderOrigin, ProviderPlan};
use crate::problem::{Hint, Severity};
use crate::reader::{Field, no_such};
use crate::report::{FileReport, Report};
use crate::substitute::Env;
use crate::typed::Spanned;
use crate::world_file::WorldFile;
use crate::world_file::agents::AgentSection;
use crate::yaml;

/// The hint for an unknown provider.
const UNDEFINED: &str = "define it under `llm.providers` in the world file";

/// Builds the providers: those that the file defines, and each kind that is named without a
/// definition.
pub(crate) fn llm(
    world: &WorldFile<'_>,
    loaded: &BTreeMap<String, Loaded>,
    dir: &Path,
    env: Env<'_>,
    report: &Report,
    file: &FileReport<'_>,
) -> (LlmPlan, Origins) {
    let mut origins = Origins { world_file: file.path().to_owned(), ..Origins::default() };
    let mut providers: BTreeMap<String, ProviderPlan> = BTreeMap::new();
    for (Name(name), section) in &world.llm.providers {
        let Some(entry) = world.providers.get(name) else { continue };
        let base = ProviderPlan::of_kind(entry.kind, dir);
        let [retry_base, retry_cap] = [section.retry_base, section.retry_cap].map(|time| time.map(|time| time.0));
        let mut plan = ProviderPlan {
            base_url: section.base_url.as_ref().map(|url| url.0.clone()),
            api_key_env: section.api_key_env.as_ref().map(|name| name.0.clone()),
            concurrency: section.concurrency.map_or(base.concurrency, |count| count.u32()),
            attempts: section.attempts.map_or(base.attempts, |count| count.u32()),
            retry_base: retry_base.unwrap_or(base.retry_base.min(retry_cap.unwrap_or(base.retry_base))),
            retry_cap: retry_cap.unwrap_or(base.retry_cap.max(retry_base.unwrap_or(base.retry_cap))),
            idle_timeout: section.idle_timeout.map_or(base.idle_timeout, |time| time.0),
            dir: entry.dir.as_ref().map(|relative| dir.join(relative)).or(base.dir.clone()),
            kind: entry.kind,
            headers: entry.sent.headers.clone(),
            query: entry.sent.query.clone(),
            extra_body: entry.sent.extra_body.clone(),
            api: entry.sent.api,
        };
        // Send the usual key only to the kind's own address, or if the file names the variable. If
        // one of the two settings is present but invalid, that was reported; then send no key.
        if !["base_url", "api_key_env"].iter().any(|setting| entry.settings.contains_key(setting)) {
            plan.api_key_env = base.api_key_env;
        }
        providers.insert(name.clone(), plan);
        let origin = ProviderOrigin { named: entry.origin.clone(), settings: entry.settings.clone() };
        origins.providers.insert(name.clone(), origin);
    }
    let mut ensure_provider =
        |name: &str, providers: &mut BTreeMap<String, ProviderPlan>, named: &dyn Fn() -> Origin| {
            if !providers.contains_key(name)
                && !world.unread.contains(name)
                && let Some(kind) = ProviderKind::named(name).filter(|kind| *kind != ProviderKind::Recorded)
            {
                providers.insert(name.to_owned(), ProviderPlan::of_kind(kind, dir));
                let origin = ProviderOrigin { named: named(), ..ProviderOrigin::default() };
                origins.providers.insert(name.to_owned(), origin);
            }
            // A provider whose entry is invalid still exists, so it must not be reported as
            // unknown.
            providers.contains_key(name) || world.unread.contains(name)
        };
    let known: Vec<String> = {
        let kinds = ProviderKind::ALL.iter().map(|(name, _)| (*name).to_owned()).filter(|name| name != "recorded");
        providers.keys().cloned().chain(kinds).collect()
    };
    let known = || known.iter().map(String::as_str);
    let default_provider = world.llm.default_provider.as_ref().map_or("scripted", |name| &name.0).to_owned();
    let default_origin = || match &world.llm.default_provider {
        Some(default) => world.at(default).origin(),
        None => Origin { file: file.path().to_owned(), line: 1, field: "llm".to_owned() },
    };
    if !ensure_provider(&default_provider, &mut providers, &default_origin)
        && let Some(default) = &world.llm.default_provider
    {
        no_such(world.at(default), "provider", known(), UNDEFINED);
    }
    for name in world.entries().iter().filter_map(|agent| agent.overrides.provider.as_ref()) {
        if !ensure_provider(name, &mut providers, &|| world.at(name).origin()) {
            no_such(world.at(name), "provider", known(), UNDEFINED);
        }
    }
    for loaded in loaded.values() {
        let named = || loaded.origin(loaded.lines.provider, "LLM.provider");
        if let Some(name) = &loaded.archetype.config.model.provider
            && !ensure_provider(name, &mut providers, &named)
        {
            let message = format!("there is no provider `{}`", ghost_domain::text::clip(name, 80));
            let hint = crate::report::did_you_mean(name, known(), UNDEFINED);
            report.push(named().problem(Severity::Error, message, hint));
        }
    }
    // A kind may precede the `/` of a fallback model. The meaning of `kind/model` must not depend
    // on whether another setting names that kind.
    for (choice, origins) in choices(world, loaded) {
        for (index, entry) in choice.fallback_models.iter().enumerate() {
            if let Some((name, _)) = entry.split_once('/') {
                // If the part is not a provider, it belongs to a model's name, or the problem is
                // reported later.
                let _ = ensure_provider(name, &mut providers, &|| origins.fallback(index));
            }
        }
    }
    let local = providers.get(&default_provider).is_some_and(|plan| plan.kind.is_local());
    let default_model = match (&world.llm.default_model, local) {
        (Some(model), _) => model.0.clone(),
        (None, true) => SCRIPTED_MODEL.to_owned(),
        (None, false) => String::new(),
    };
    let usual = ProviderKind::ALL.iter().filter_map(|(_, kind)| kind.usual_key_env());
    let keys_present = usual.filter(|name| env(name).is_some_and(|key| !key.is_empty())).map(str::to_owned).collect();
    for provider in providers.values() {
        // Register keys, so that no message shows a key that the file contains by mistake.
        if let Some(name) = &provider.api_key_env
            && let Some(key) = env(name)
        {
            file.whole().substituted(&key, &format!("${{{name}}}"));
        }
    }
    let prices = world.llm.prices.iter().filter_map(|(name, section)| Some((name.clone(), section.price()?))).collect();
    let world_dir = dir.to_owned();
    origins.models_file = world.llm.models_file.as_ref().map(|name| beside(file.path(), name));
    let models = models(world, providers.keys(), dir, env, file);
    let llm = LlmPlan { default_provider, default_model, providers, prices, models, keys_present, world_dir };
    record_models(world, loaded, &llm, &mut origins);
    record_settings(world, loaded, &mut origins);
    (llm, origins)
}

/// The list of known models: the shipped list, extended with the world's own.
fn models<'p>(
    world: &WorldFile<'_>,
    providers: impl Iterator<Item = &'p String>,
    dir: &Path,
    env: Env<'_>,
    world_file: &FileReport<'_>,
) -> Arc<ModelList> {
    let shipped = ModelList::shipped();
    let Some(name) = &world.llm.models_file else { return shipped };
    let file = world_file.whole().file(beside(world_file.path(), name));
    let text = read_text(&dir.join(&name.0), dir, yaml::FILE_MAX as u64, &file);
    let Some(root) = text.and_then(|text| yaml::parse(&text, &file, env)) else { return shipped };
    let providers: Vec<&str> = providers.map(String::as_str).collect();
    Arc::new((*shipped).clone().merged(ModelList::read(&Field::root(&root, &file), &providers)))
}

/// The path of a file beside `world-config.yaml`, as messages name it.
fn beside(world_file: &Path, name: &str) -> PathBuf {
    world_file.parent().unwrap_or(Path::new("")).join(name)
}

/// Records where the settings of each model choice are.
fn record_settings(world: &WorldFile<'_>, loaded: &BTreeMap<String, Loaded>, origins: &mut Origins) {
    for (name, loaded) in loaded {
        let lines = loaded.lines;
        let settings =
            [("temperature", lines.temperature), ("max_tokens", lines.max_tokens), ("thinking", lines.thinking)];
        for (key, line) in settings.into_iter().filter(|(_, line)| *line > 0) {
            let origin = loaded.origin(line, &format!("LLM.{key}"));
            origins.archetype_settings.insert((name.clone(), key), origin);
        }
    }
    for agent in &world.agents {
        for (key, field) in world.section(agent).overrides.settings(world) {
            origins.agent_settings.insert((agent.agent_id.clone(), key), field.origin());
        }
    }
}

/// The position of a model choice.
enum Chosen<'c, 'n> {
    Archetype(&'c Loaded),
    Agent(&'c WorldFile<'n>, &'c AgentSection),
}

impl Chosen<'_, '_> {
    fn model(&self) -> Option<Origin> {
        match self {
            Self::Archetype(loaded) => {
                Some(loaded.origin(loaded.lines.model, "LLM.model")).filter(|index| index.line > 0)
            }
            Self::Agent(world, section) => section.overrides.model.as_ref().map(|model| world.at(model).origin()),
        }
    }

    /// The position of the fallback model with this index.
    fn fallback(&self, index: usize) -> Origin {
        match self {
            Self::Archetype(loaded) => loaded.origin(loaded.lines.fallbacks, "LLM.fallback_models"),
            Self::Agent(world, section) => {
                let model = section.overrides.fallback_models.get(index);
                model.map(|model| world.at(model).origin()).unwrap_or_default()
            }
        }
    }
}

/// Every model choice of the files: archetypes, then the entries of agents.
fn choices<'c, 'n>(
    world: &'c WorldFile<'n>,
    loaded: &'c BTreeMap<String, Loaded>,
) -> impl Iterator<Item = (ModelChoice, Chosen<'c, 'n>)> {
    let archetypes = loaded.values().map(|loaded| (loaded.archetype.config.model.clone(), Chosen::Archetype(loaded)));
    let agent = |section: &'c Spanned<AgentSection>| (section.overrides.choice(), Chosen::Agent(world, &section.value));
    archetypes.chain(world.entries().iter().map(agent))
}

/// Records where each model is first named.
fn record_models(world: &WorldFile<'_>, loaded: &BTreeMap<String, Loaded>, llm: &LlmPlan, origins: &mut Origins) {
    let mut note = |(provider, model): (&str, &str), origin: Origin| {
        origins.models.entry((provider.to_owned(), model.to_owned())).or_insert(origin);
    };
    if let Some(model) = &world.llm.default_model {
        note((&llm.default_provider, model), world.at(model).origin());
    }
    for (choice, origins) in choices(world, loaded) {
        // An agent without a provider uses its archetype's.
        let archetype = || match &origins {
            Chosen::Archetype(_) => None,
            Chosen::Agent(_, section) => Some(&loaded.get(&section.archetype.as_ref()?.0)?.archetype.config.model),
        };
        let own_provider = choice.provider.as_deref().or_else(|| archetype()?.provider.as_deref());
        let own_provider = own_provider.unwrap_or(&llm.default_provider);
        if let (Some(model), Some(origin)) = (&choice.model, origins.model()) {
            note((own_provider, model), origin);
        }
        for (index, entry) in choice.fallback_models.iter().enumerate() {
            note(llm.fallback_target(own_provider, entry), origins.fallback(index));
        }
    }
}

/// The message if `choice` has no model.
pub(crate) fn model_problem(choice: &ModelChoice, llm: &LlmPlan) -> Option<String> {
    let resolved = llm.resolve(choice);
    let provider = resolved.provider.unwrap_or_default();
    let empty = resolved.model.unwrap_or_default().is_empty();
    // An unknown provider was already reported.
    (empty && llm.providers.contains_key(&provider)).then(|| format!("no model is named for provider `{provider}`"))
}

/// Finds unknown providers in the fallback models of `choice`. At a scripted provider, an entry
/// with a slash must name a provider, because names of rule files have no slash. A recorded
/// provider must be defined. Returns the index of each wrong entry. Providers in `unread` were
/// already reported.
pub(crate) fn fallback_problems(
    choice: &ModelChoice,
    llm: &LlmPlan,
    unread: &BTreeSet<String>,
) -> Vec<(usize, String, Hint)> {
    let own_provider = choice.provider.as_deref().unwrap_or(&llm.default_provider);
    let scripted = |name: &str| llm.providers.get(name).is_some_and(|plan| plan.kind == ProviderKind::Scripted);
    let mut problems = Vec::new();
    for (index, entry) in choice.fallback_models.iter().enumerate() {
        let Some((name, _)) = entry.split_once('/') else { continue };
        let kind = ProviderKind::named(name);
        if unread.contains(name) || !scripted(own_provider) && kind.is_none() {
            continue;
        }
        if llm.fallback_target(own_provider, entry) != (own_provider, entry.as_str()) {
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
        problems.push((index, message, hint));
    }
    problems
}
