//! Loads the configuration: the files, then the model flags, then the providers.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use ghost_config::models::{check_base_url, check_model};
use ghost_config::plan::{Origin, Plan, ProviderKind, ProviderOrigin};
use ghost_config::{Hint, Problem, Problems, Severity};
use ghost_domain::time::Clock;
use ghost_domain::{Code, Refusal};
use ghost_provider::{Providers, Recording, Unbuilt};
use serde_json::json;

use crate::{model_checks, recordings};

/// The model flags of `ghostd up`. They override the model of every archetype.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// The value of `--provider`.
    pub provider: Option<String>,
    /// The value of `--model`.
    pub model: Option<String>,
    /// The value of `--base-url`.
    pub base_url: Option<String>,
}

impl Overrides {
    /// Applies the flags to a plan.
    pub(crate) fn apply(&self, plan: &mut Plan) -> Result<(), Problem> {
        let Some(name) = &self.provider else { return Ok(()) };
        let done = plan.override_models(name, self.model.as_deref(), self.base_url.as_deref());
        done.map_err(|refusal| self.of_flags(refusal))?;
        self.note(name, plan);
        Ok(())
    }

    /// A problem with the flags. It is in no file.
    fn of_flags(&self, refusal: Refusal) -> Problem {
        let bad_url = self.base_url.as_deref().is_some_and(|url| check_base_url(url).is_err());
        let bad_model = self.model.as_deref().is_some_and(|model| check_model(model).is_err());
        let flag = match (bad_url, bad_model) {
            (true, _) => "--base-url",
            (false, true) => "--model",
            (false, false) => "--provider",
        };
        let hint = Hint::of(refusal.hint, "`ghostd up --help` describes the flags");
        Origin::flag(flag).problem(Severity::Error, refusal.message, hint)
    }

    /// Records which parts of the plan come from the flags, so that their problems are not reported
    /// for a file.
    fn note(&self, name: &str, plan: &mut Plan) {
        let origins = &mut plan.origins;
        let named = || ProviderOrigin { named: Origin::flag("--provider"), ..ProviderOrigin::default() };
        let provider = origins.providers.entry(name.to_owned()).or_insert_with(named);
        if self.base_url.is_some() {
            provider.settings.insert("base_url", Origin::flag("--base-url"));
        }
        if let Some(model) = &self.model {
            origins.models.insert((name.to_owned(), model.clone()), Origin::flag("--model"));
        } else {
            // An agent that used another provider now uses this provider's default model.
            let model = (name.to_owned(), plan.llm.default_model.clone());
            origins.models.entry(model).or_insert_with(|| Origin::flag("--provider"));
        }
    }
}

/// A configuration without errors.
pub struct Loaded {
    /// The plan, with the flags applied.
    pub plan: Plan,
    /// The providers of the plan, ready for calls.
    pub providers: Providers,
}

/// Reads an environment variable.
pub type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Loads a world's configuration. Blocks while it reads, and starts nothing.
///
/// # Errors
/// The first problems that prevent it. [`check`](crate::check()) finds all problems.
pub fn load(world_dir: &Path, overrides: &Overrides, env: Env<'_>, clock: Arc<dyn Clock>) -> Result<Loaded, Problems> {
    let plan = plan_of(world_dir, overrides, env)?;
    // Few worlds have a recorded provider, so most need no runtime for this.
    let recorded = plan.llm.providers.values().any(|provider| provider.kind == ProviderKind::Recorded);
    let recordings = if recorded {
        let unread = |refusal| Unbuilt { provider: String::new(), setting: "dir", refusal };
        let read = recordings::here(recordings::read_all(&plan.llm)).map_err(unread).flatten();
        read.map_err(|unbuilt| Problems(vec![of_provider(unbuilt, &plan)]))?
    } else {
        BTreeMap::new()
    };
    complete(plan, env, clock, recordings)
}

/// The first half of [`load`]: reads the files and applies the flags.
pub(crate) fn plan_of(world_dir: &Path, overrides: &Overrides, env: Env<'_>) -> Result<Plan, Problems> {
    let mut plan = ghost_config::load(world_dir, env)?;
    overrides.apply(&mut plan).map_err(|problem| Problems(vec![problem]))?;
    let missing = recordings::missing(&plan);
    if missing.is_empty() { Ok(plan) } else { Err(Problems::sorted(missing)) }
}

/// The second half of [`load`], after the files are read and the flags applied.
///
/// # Errors
/// The same as [`load`].
pub fn complete(
    mut plan: Plan,
    env: Env<'_>,
    clock: Arc<dyn Clock>,
    recordings: BTreeMap<String, Recording>,
) -> Result<Loaded, Problems> {
    let built = Providers::build_with(&plan.llm, env, clock, recordings);
    let providers = built.map_err(|unbuilt| Problems(vec![of_provider(unbuilt, &plan)]))?;
    let mut problems = Vec::new();
    for provider in plan.llm.providers.values().filter(|provider| provider.kind == ProviderKind::Scripted) {
        if let Some(dir) = &provider.dir {
            problems.extend(model_checks::missing(&plan, dir, |file| file.is_file()));
        }
    }
    plan.warnings.extend(model_checks::unpriced(&plan));
    plan.warnings.extend(ghost_config::model_warnings(&plan));
    if problems.is_empty() { Ok(Loaded { plan, providers }) } else { Err(Problems::sorted(problems)) }
}

/// The problem of a provider that cannot be built, at the place in the files that causes it.
pub(crate) fn of_provider(unbuilt: Unbuilt, plan: &Plan) -> Problem {
    let Unbuilt { provider, setting, refusal } = unbuilt;
    let hint = Hint::of(refusal.hint, "check the settings of this provider under `llm`");
    plan.origins.provider(&provider, setting).problem(Severity::Error, refusal.message, hint)
}

/// All problems as one refusal, for a reload.
pub fn problems_refusal(problems: &Problems) -> Refusal {
    let (errors, _) = problems.counts();
    Refusal::new(
        Code::InvalidArguments,
        format!("the configuration has {errors} problems; the world runs on unchanged"),
    )
    .hint("`ghostd check` lists them")
    .details(json!({ "problems": problems }))
}

/// Why a daemon did not start, or failed later.
#[derive(Debug)]
pub enum Failure {
    /// The configuration has problems.
    Problems(Problems),
    /// Any other error.
    Refused(Refusal),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}
