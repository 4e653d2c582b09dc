//! Reading the configuration: the files, the model flags over them, the providers they name.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use ghost_config::models::check_base_url;
use ghost_config::plan::{Plan, ProviderKind};
use ghost_config::{Hint, Problem, Problems, Severity};
use ghost_domain::time::Clock;
use ghost_domain::{Code, Refusal};
use ghost_provider::scripted::Vetted;
use ghost_provider::{Providers, Recording};
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

impl Overrides {
    /// Puts the flags over what the files say.
    pub(crate) fn apply(&self, plan: &mut Plan) -> Result<(), Problem> {
        let Some(name) = &self.provider else { return Ok(()) };
        let done = plan.override_models(name, self.model.as_deref(), self.base_url.as_deref());
        done.map_err(|refusal| self.of_flags(refusal))
    }

    /// What is wrong with the flags: not with a file.
    fn of_flags(&self, refusal: Refusal) -> Problem {
        let bad_url = self.base_url.as_deref().is_some_and(|url| check_base_url(url).is_err());
        Problem {
            severity: Severity::Error,
            file: if bad_url { "--base-url" } else { "--provider" }.into(),
            line: 0,
            field: String::new(),
            message: refusal.message,
            hint: Hint::of(refusal.hint, "`ghostd up --help` says what the flags take"),
        }
    }
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

/// Loads what a world is made of. Starts nothing.
///
/// # Errors
/// Problems that keep it from being loaded, not all of them: [`check`](crate::check()) tells all.
pub fn load(
    world_dir: &Path,
    overrides: &Overrides,
    env: Env<'_>,
    clock: Arc<dyn Clock>,
    recordings: BTreeMap<String, Recording>,
) -> Result<Loaded, Problems> {
    complete(ghost_config::load(world_dir, env)?, overrides, env, clock, recordings, &Vetted::default())
}

/// What [`load`] does once the files of configuration are read. Rule files that `vetted` vouches for are read when their
/// models are first asked.
///
/// # Errors
/// As [`load`].
pub fn complete(
    mut plan: Plan,
    overrides: &Overrides,
    env: Env<'_>,
    clock: Arc<dyn Clock>,
    recordings: BTreeMap<String, Recording>,
    vetted: &Vetted,
) -> Result<Loaded, Problems> {
    overrides.apply(&mut plan).map_err(|problem| Problems(vec![problem]))?;
    let built = Providers::build_with(&plan.llm, env, clock, recordings, vetted);
    let providers = built.map_err(|refusal| Problems(vec![of_models(refusal, &plan)]))?;
    let mut problems = Vec::new();
    for provider in plan.llm.providers.values().filter(|provider| provider.kind == ProviderKind::Scripted) {
        if let Some(dir) = &provider.dir {
            problems.extend(crate::scripts::missing(&plan, dir, |file| file.is_file()));
        }
    }
    plan.warnings.extend(crate::prices::unpriced(&plan));
    if problems.is_empty() { Ok(Loaded { plan, providers }) } else { Err(Problems::sorted(problems)) }
}

/// What is wrong with the providers, as a problem of the world file.
pub(crate) fn of_models(refusal: Refusal, plan: &Plan) -> Problem {
    Problem {
        severity: Severity::Error,
        file: plan.dir.join("world-config.yaml"),
        line: 0,
        field: "llm".into(),
        message: refusal.message,
        hint: Hint::of(refusal.hint, "see that what `llm` says of this provider is right"),
    }
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
