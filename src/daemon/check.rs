//! `ghostd check`: everything that is wrong or doubtful with the files of a world, in one list. Also what a start or a
//! reload says that was refused because of them.
//!
//! Must never: stop at a file that cannot be read, start anything, or open a database.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ghost_config::load::WORLD_FILE;
use ghost_config::plan::{Plan, ProviderKind};
use ghost_config::{Problem, Problems, Severity};
use ghost_provider::{Providers, scripted};

use crate::loading::{Env, Overrides, of_models};
use crate::ports::SystemClock;
use crate::{prices, scripts};

/// Where rule files lie in a world whose own file cannot be read.
const SCRIPTS: &str = "scripts";

/// Looks at every file of the world at `world_dir` and gives what it finds, sorted by file and line. `tools` are the names
/// of tools besides the built-in ones.
#[must_use]
pub fn check(world_dir: &Path, overrides: &Overrides, env: Env<'_>, tools: &[String]) -> Problems {
    let (plan, Problems(mut found)) = ghost_config::examine(world_dir, env);
    let shown = ghost_config::shown_dir(world_dir);
    match plan {
        Some(mut plan) => {
            let sure = !found.iter().any(is_about_access);
            let mut more: Vec<Problem> = overrides.apply(&mut plan).err().into_iter().collect();
            for (_, refusal) in Providers::refusals(&plan.llm, env, &(Arc::new(SystemClock) as _)) {
                more.push(of_models(refusal, &plan));
            }
            more.extend(prices::unpriced(&plan));
            let mut built: BTreeSet<String> =
                ghost_tools::builtins::all().into_iter().map(|tool| tool.spec.name).collect();
            built.extend(tools.iter().cloned());
            for dir in script_dirs(&plan) {
                let survey = scripted::survey(&dir, &plan.dir);
                more.extend(scripts::tools(&plan, &dir, &survey, &built, sure));
                let is_there = |file: &Path| {
                    file.file_stem().and_then(|stem| stem.to_str()).is_some_and(|stem| survey.models.contains_key(stem))
                };
                if !survey.models.is_empty() {
                    let missing = scripts::missing(&plan, &dir, is_there);
                    more.extend(scripts::misnamed(&dir, &missing));
                    more.extend(missing);
                }
                more.extend(survey.problems);
            }
            found.extend(more);
            found = found.into_iter().map(|problem| as_shown(problem, &plan.dir, &shown, world_dir)).collect();
        }
        None => {
            let dir = shown.join(SCRIPTS);
            if dir.is_dir()
                && let Ok(root) = shown.canonicalize()
            {
                found.extend(scripted::survey(&dir, &root).problems);
            }
        }
    }
    Problems::sorted(found)
}

/// The directories with rule files that scripted providers name, each once.
fn script_dirs(plan: &Plan) -> BTreeSet<PathBuf> {
    let scripted = plan.llm.providers.values().filter(|provider| provider.kind == ProviderKind::Scripted);
    scripted.filter_map(|provider| provider.dir.clone()).collect()
}

/// The plan knows its directory by its real name; people know it, and a world file of another name, by what they `typed`.
fn as_shown(mut problem: Problem, real: &Path, shown: &Path, typed: &Path) -> Problem {
    if typed != shown && problem.file == real.join(WORLD_FILE) {
        problem.file = typed.to_owned();
    } else if let Ok(rest) = problem.file.strip_prefix(real) {
        problem.file = shown.join(rest);
    }
    problem
}

/// Whether a problem leaves it open who may use what.
fn is_about_access(problem: &Problem) -> bool {
    let lists = ["tool_privileges", "access", "toolboxes", "skills", "agents", "overrides"];
    let sections = ["Tool Access", "Toolbox", "Tools", "Skills"];
    let first = problem.field.split(['.', '[']).next().unwrap_or_default();
    problem.severity == Severity::Error && (lists.contains(&first) || sections.contains(&first))
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
