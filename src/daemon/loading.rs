//! Reading the configuration: the files, the model flags over them, the providers they name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ghost_config::plan::{Plan, ProviderKind};
use ghost_config::{Problem, Problems, Severity};
use ghost_domain::time::Clock;
use ghost_domain::{Code, Refusal};
use ghost_provider::{Providers, Recording, scripted};
use serde_json::json;

/// The flags that override every archetype's model.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// `--provider`.
    pub provider: Option<String>,
    /// `--model`.
    pub model: Option<String>,
    /// `--base-url`.
    pub base_url: Option<String>,
}

/// A checked configuration.
pub struct Loaded {
    /// The plan.
    pub plan: Plan,
    /// Its providers.
    pub providers: Providers,
}

/// Reads an environment variable.
pub type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Loads and checks everything that a world is made of. Starts nothing.
///
/// # Errors
/// Every problem of the files at once; or the first of the flags and providers.
pub fn load(
    world_dir: &Path,
    overrides: &Overrides,
    env: Env<'_>,
    clock: Arc<dyn Clock>,
    recordings: BTreeMap<String, Recording>,
) -> Result<Loaded, Problems> {
    complete(ghost_config::load(world_dir, env)?, overrides, env, clock, recordings)
}

/// What [`load`] does once the files are read.
///
/// # Errors
/// As [`load`].
pub fn complete(
    mut plan: Plan,
    overrides: &Overrides,
    env: Env<'_>,
    clock: Arc<dyn Clock>,
    recordings: BTreeMap<String, Recording>,
) -> Result<Loaded, Problems> {
    let whole = |refusal: Refusal, plan: &Plan| {
        Problems(vec![Problem {
            severity: Severity::Error,
            file: plan.dir.join("world-config.yaml"),
            line: 0,
            field: "llm".into(),
            message: refusal.message,
            hint: refusal.hint,
        }])
    };
    if let Some(name) = &overrides.provider
        && let Err(refusal) = plan.override_models(name, overrides.model.as_deref(), overrides.base_url.as_deref())
    {
        return Err(whole(refusal, &plan));
    }
    let built = Providers::build_with(&plan.llm, env, clock, recordings);
    // Building reads every rule file, so they are read again only to say what is wrong with them, or that one is not there.
    let mut problems = Vec::new();
    for provider in plan.llm.providers.values() {
        if provider.kind == ProviderKind::Scripted
            && let Some(dir) = &provider.dir
        {
            problems.extend(script_problems(&plan, dir, built.is_err()));
        }
    }
    if !problems.is_empty() {
        return Err(Problems::sorted(problems));
    }
    match built {
        Ok(providers) => Ok(Loaded { plan, providers }),
        Err(refusal) => Err(whole(refusal, &plan)),
    }
}

/// The problems of the rule files that agents of this plan think with: of those that are not there, or of `all`.
fn script_problems(plan: &Plan, dir: &Path, all: bool) -> Vec<Problem> {
    let mut models: Vec<PathBuf> = Vec::new();
    for agent in &plan.agents {
        let choice = plan.llm.resolve(&agent.model);
        let provider = choice.provider.as_deref().and_then(|name| plan.llm.providers.get(name));
        if provider.is_some_and(|provider| provider.dir.as_deref() == Some(dir))
            && let Some(model) = choice.model
        {
            let file = dir.join(format!("{model}.yaml"));
            if !models.contains(&file) && (all || !file.is_file()) {
                models.push(file);
            }
        }
    }
    let mut problems = Vec::new();
    for file in models {
        let model = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        if let Err(found) = scripted::check(dir, &model) {
            problems.extend(found.0);
        }
    }
    problems
}

/// Problems as one refusal, for a reload.
#[must_use]
pub fn problems_refusal(problems: &Problems) -> Refusal {
    let (errors, _) = problems.counts();
    Refusal::new(
        Code::InvalidArguments,
        format!("the configuration has {errors} problems; the world goes on as it was"),
    )
    .hint("`ghostd check` lists them")
    .details(json!({ "problems": problems }))
}
