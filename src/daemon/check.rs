//! `ghostd check`: finds all errors and warnings in the files of a world and lists them together. A
//! start or reload that is refused because of the files shows the same list.
//!
//! The check must never stop at an unreadable file, start anything, or open a database.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ghost_config::load::WORLD_FILE;
use ghost_config::plan::{Plan, ProviderKind};
use ghost_config::{Problem, Problems, Severity, model_warnings};
use ghost_provider::{Providers, scripted};

use crate::loading::{Env, Overrides, of_provider};
use crate::ports::SystemClock;
use crate::{prices, recordings, scripts, toolbox_check};

/// The directory of rule files, for a world whose `world-config.yaml` cannot be read.
const SCRIPTS: &str = "scripts";

/// Checks every file of the world at `world_dir`. Returns the problems, sorted by file and line. `tools` are the
/// names of tools besides the built-in ones.
///
/// Checks across files (models, prices, tools in rule files) run only if the configuration has no error. Otherwise
/// most of their problems would only follow from that error.
#[must_use]
pub fn check(world_dir: &Path, overrides: &Overrides, env: Env<'_>, tools: &[String]) -> Problems {
    let (plan, Problems(mut found)) = ghost_config::examine(world_dir, env);
    let shown = ghost_config::shown_dir(world_dir);
    let Some(mut plan) = plan else {
        // The world file cannot say where the rule files are.
        let dir = shown.join(SCRIPTS);
        if dir.is_dir()
            && let Ok(root) = shown.canonicalize()
        {
            found.extend(scripted::survey(&dir, &root).problems);
        }
        return Problems::sorted(found);
    };
    found.extend(overrides.apply(&mut plan).err());
    let valid = found.iter().all(|problem| problem.severity != Severity::Error);
    if valid {
        let refusals = Providers::refusals(&plan.llm, env, &(Arc::new(SystemClock) as _));
        found.extend(refusals.into_iter().map(|unbuilt| of_provider(unbuilt, &plan)));
        found.extend(recordings::missing(&plan));
        found.extend(prices::unpriced(&plan));
        found.extend(model_warnings(&plan));
        found.extend(toolbox_check::problems(&plan));
    }
    let mut built: BTreeSet<String> = ghost_tools::builtins::all().into_iter().map(|tool| tool.spec.name).collect();
    built.extend(tools.iter().cloned());
    for toolbox in plan.toolboxes.values() {
        built.extend(toolbox.tool_names().map(|tool| toolbox.full(tool)));
    }
    for dir in script_dirs(&plan) {
        let survey = scripted::survey(&dir, &plan.dir);
        if valid {
            found.extend(scripts::tools(&plan, &dir, &survey, &built));
            let is_there = |file: &Path| {
                file.file_stem().and_then(|stem| stem.to_str()).is_some_and(|stem| survey.models.contains_key(stem))
            };
            if !survey.models.is_empty() {
                let missing = scripts::missing(&plan, &dir, is_there);
                found.extend(scripts::misnamed(&dir, &missing));
                found.extend(missing);
            }
        }
        found.extend(survey.problems);
    }
    Problems::sorted(found.into_iter().map(|problem| as_shown(problem, &plan.dir, &shown, world_dir)).collect())
}

/// The errors in the rule files of a world. A start reads these files, but does not compile their templates and
/// regular expressions.
pub(crate) fn rule_file_errors(plan: &Plan) -> Vec<Problem> {
    let problems = script_dirs(plan).into_iter().flat_map(|dir| scripted::survey(&dir, &plan.dir).problems);
    problems.filter(|problem| problem.severity == Severity::Error).collect()
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
