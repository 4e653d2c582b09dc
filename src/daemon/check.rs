//! `ghostd check`: finds all errors and warnings in the files of a world and lists them together. A start or reload that is
//! refused because of the files shows the same list. The check does not stop at an unreadable file, starts nothing, and opens no
//! database.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ghost_config::load::WORLD_FILE;
use ghost_config::plan::toolbox::{McpPlan, McpTransport, ResultForm, ToolboxKind, ToolboxPlan, ToolboxRuntime};
use ghost_config::plan::{Plan, ProviderKind, SandboxKind};
use ghost_config::{Problem, Problems, Severity, model_warnings};
use ghost_provider::{Providers, scripted};
use ghost_tools::builtins::schema_problem;

use crate::loading::{Env, Overrides, of_provider};
use crate::model_checks::{self, problem};
use crate::ports::SystemClock;
use crate::recordings;

/// The directory of rule files, for a world whose `world-config.yaml` cannot be read.
const SCRIPTS: &str = "scripts";

/// Checks every file of the world at `world_dir`. Returns the problems, sorted by file and line. `tools` are the
/// names of tools besides the built-in ones.
///
/// Checks across files (models, prices, tools in rule files) run only if the configuration has no error. Otherwise
/// most of their problems would only follow from that error.
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
        found.extend(model_checks::unpriced(&plan));
        found.extend(model_warnings(&plan));
        found.extend(toolbox_problems(&plan));
    }
    let mut built: BTreeSet<String> = ghost_tools::builtins::all().into_iter().map(|tool| tool.spec.name).collect();
    built.extend(tools.iter().cloned());
    for toolbox in plan.toolboxes.values() {
        built.extend(toolbox.tool_names().map(|tool| toolbox.full(tool)));
    }
    for dir in script_dirs(&plan) {
        let survey = scripted::survey(&dir, &plan.dir);
        if valid {
            found.extend(model_checks::tools(&plan, &dir, &survey, &built));
            let is_there = |file: &Path| {
                file.file_stem().and_then(|stem| stem.to_str()).is_some_and(|stem| survey.models.contains_key(stem))
            };
            if !survey.models.is_empty() {
                let missing = model_checks::missing(&plan, &dir, is_there);
                found.extend(model_checks::misnamed(&dir, &missing));
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

/// What only a whole world shows of its toolboxes: a start would leave their tools out, or refuse every call. Starts no program
/// and asks no server.
fn toolbox_problems(plan: &Plan) -> Vec<Problem> {
    let mut found = Vec::new();
    let file = plan.dir.join(WORLD_FILE);
    let world = |message, hint: &str| problem(Severity::Warning, &file, 1, "toolboxes", message, hint.to_owned());
    if plan.sandbox.kind == SandboxKind::None {
        let needy: Vec<&str> = plan
            .toolboxes
            .values()
            .filter(|one| one.skill.is_none() && needs_sandbox(one))
            .map(|one| &*one.name)
            .collect();
        if !needy.is_empty() {
            let message = format!("there is no `sandbox`, so the tools of {} are absent", needy.join(", "));
            found.push(world(message, "add `sandbox: { kind: local }`, or `docker`"));
        }
    }
    let counts_money = plan.budgets.iter().any(|(_, limits)| limits.money.is_some());
    if counts_money && plan.coding.run_budget.is_none() {
        let agents: Vec<String> = plan.toolboxes.values().flat_map(|toolbox| coding_agents(toolbox)).collect();
        if !agents.is_empty() {
            let message = format!("a budget counts money, so no run of {} begins", agents.join(", "));
            found.push(world(message, "say what one run may cost: `coding: { run_budget: 2.00 }`"));
        }
    }
    // The toolboxes of skills are checked with the skills, and can stop nothing.
    for toolbox in plan.toolboxes.values().filter(|toolbox| toolbox.skill.is_none()) {
        let ToolboxKind::Commands { tools, .. } = &toolbox.kind else { continue };
        for tool in tools {
            let Some(message) = schema_problem(&tool.parameters) else { continue };
            let (file, field) = (toolbox.dir.join("toolbox.yaml"), format!("tools.{}.parameters", tool.name));
            let hint = "correct the schema; no call could match it".to_owned();
            found.push(problem(Severity::Error, &file, 1, &field, message, hint));
        }
    }
    found
}

fn needs_sandbox(toolbox: &ToolboxPlan) -> bool {
    match &toolbox.kind {
        ToolboxKind::Commands { runtime, .. } => *runtime == ToolboxRuntime::Sandbox,
        ToolboxKind::Mcp(McpPlan { transport, .. }) => matches!(transport, McpTransport::Stdio { .. }),
    }
}

/// The full names of the coding agents in a toolbox.
fn coding_agents(toolbox: &ToolboxPlan) -> Vec<String> {
    let ToolboxKind::Commands { tools, .. } = &toolbox.kind else { return Vec::new() };
    let is_one = |form: &ResultForm| matches!(form, ResultForm::Acp(_) | ResultForm::CodingAgent(_));
    tools.iter().filter(|tool| is_one(&tool.result)).map(|tool| toolbox.full(&tool.name)).collect()
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
