//! `ghostd check`: finds all errors and warnings in the files of a world and lists them together. A
//! start or reload that is refused because of the files shows the same list.
//!
//! The check must never stop at an unreadable file, start anything, or open a database.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ghost_config::load::WORLD_FILE;
use ghost_config::plan::{Plan, ProviderKind};
use ghost_config::{Problem, Problems, meant_directory, misnamed_directory, model_warnings};
use ghost_provider::{Providers, Unbuilt, scripted};

use crate::error_suppression::ErrorSuppression;
use crate::loading::{Env, Overrides, of_provider};
use crate::ports::SystemClock;
use crate::{prices, recordings, scripts};

/// The directory of rule files, for a world whose `world-config.yaml` cannot be read.
const SCRIPTS: &str = "scripts";

/// Checks every file of the world at `world_dir`. Returns the problems, sorted by file and line. `tools` are the
/// names of tools besides the built-in ones.
#[must_use]
pub fn check(world_dir: &Path, overrides: &Overrides, env: Env<'_>, tools: &[String]) -> Problems {
    let (plan, Problems(mut found)) = ghost_config::examine(world_dir, env);
    let shown = ghost_config::shown_dir(world_dir);
    match plan {
        Some(mut plan) => {
            let suppression = ErrorSuppression::of(&found, &plan, &shown);
            let mut more: Vec<Problem> = overrides.apply(&mut plan).err().into_iter().collect();
            let refusals = Providers::refusals(&plan.llm, env, &(Arc::new(SystemClock) as _));
            for unbuilt in refusals.into_iter().filter(|unbuilt| !follows(unbuilt, &plan)) {
                more.push(of_provider(unbuilt, &plan));
            }
            more.extend(recordings::missing(&plan));
            if !suppression.facts {
                more.extend(prices::unpriced(&plan, &suppression));
                more.extend(model_warnings(&plan, |archetype| suppression.knows_models_of(archetype)));
            }
            let mut built: BTreeSet<String> =
                ghost_tools::builtins::all().into_iter().map(|tool| tool.spec.name).collect();
            built.extend(tools.iter().cloned());
            for dir in script_dirs(&plan) {
                let survey = scripted::survey(&dir, &plan.dir);
                more.extend(scripts::tools(&plan, &dir, &survey, &built, &suppression));
                let is_there = |file: &Path| {
                    file.file_stem().and_then(|stem| stem.to_str()).is_some_and(|stem| survey.models.contains_key(stem))
                };
                if !survey.models.is_empty() {
                    let missing = scripts::missing(&plan, &dir, is_there, &suppression);
                    more.extend(scripts::misnamed(&dir, &missing));
                    more.extend(missing);
                }
                more.extend(survey.problems);
            }
            found.extend(more);
            found = found.into_iter().map(|problem| as_shown(problem, &plan.dir, &shown, world_dir)).collect();
        }
        None => {
            let misnamed = if shown.join(SCRIPTS).is_dir() { None } else { meant_directory(&shown, SCRIPTS) };
            let dir = shown.join(misnamed.as_deref().unwrap_or(SCRIPTS));
            if dir.is_dir()
                && let Ok(root) = shown.canonicalize()
            {
                let survey = scripted::survey(&dir, &root);
                // The unreadable `world-config.yaml` cannot say whether this directory has rule
                // files, so its content decides.
                if misnamed.is_none() || !survey.models.is_empty() {
                    found.extend(misnamed.map(|_| misnamed_directory(&dir, SCRIPTS)));
                    found.extend(survey.problems);
                }
            }
        }
    }
    Problems::sorted(found)
}

/// Whether a provider lacks a key only because its `base_url` or `api_key_env` is written but cannot be read. That
/// error is already in the list.
fn follows(unbuilt: &Unbuilt, plan: &Plan) -> bool {
    let written = plan.origins.providers.get(&unbuilt.provider).map(|origin| &origin.settings);
    unbuilt.setting == "api_key_env"
        && plan.llm.providers.get(&unbuilt.provider).is_some_and(|provider| provider.api_key_env.is_none())
        && written.is_some_and(|written| written.contains_key("base_url") || written.contains_key("api_key_env"))
}

/// The rule directories of all scripted providers, each once.
fn script_dirs(plan: &Plan) -> BTreeSet<PathBuf> {
    let scripted = plan.llm.providers.values().filter(|provider| provider.kind == ProviderKind::Scripted);
    scripted.filter_map(|provider| provider.dir.clone()).collect()
}

/// Replaces the real path of the world's directory in a problem by the path that the user typed.
fn as_shown(mut problem: Problem, real: &Path, shown: &Path, typed: &Path) -> Problem {
    if typed != shown && problem.file == real.join(WORLD_FILE) {
        problem.file = typed.to_owned();
    } else if let Ok(rest) = problem.file.strip_prefix(real) {
        problem.file = shown.join(rest);
    }
    problem
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
