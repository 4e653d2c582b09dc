//! The rule files of scripted models as a world uses them: that each model has one, and that the tools which they name are
//! there, and among those of the agents that follow them.
//!
//! Must never: read a rule file, or decide what an agent may use.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ghost_config::access::ToolAccess;
use ghost_config::plan::{ModelChoice, Origin, Plan, ProviderKind};
use ghost_config::{Hint, Problem, Severity, first_line};
use ghost_domain::text::{clip, nearest};
use ghost_domain::tool_catalogue::{canonical, glob};
use ghost_provider::scripted::{Survey, ToolName, misnamed_for, path_of};

use crate::error_suppression::ErrorSuppression;

/// Who follows a script.
struct Follower<'p> {
    who: String,
    /// Its id; `None` of agents that are still to be created, which may be called anything.
    agent_id: Option<&'p str>,
    access: &'p ToolAccess,
}

/// Everyone whose model is scripted from `dir`, by model: the agents of the world file, and the archetypes that agents may
/// be created from; but those whose models are in doubt.
fn followers<'p>(plan: &'p Plan, dir: &Path, suppression: &ErrorSuppression) -> BTreeMap<String, Vec<Follower<'p>>> {
    let mut found: BTreeMap<String, Vec<Follower<'p>>> = BTreeMap::new();
    let agents = plan
        .agents
        .iter()
        .filter(|agent| suppression.knows_models_of(&agent.archetype))
        .map(|agent| (&agent.model, agent.agent_id.to_string(), Some(agent.agent_id.as_str()), &*agent.access));
    let created = plan.creatable.iter().filter(|name| suppression.knows_models_of(name)).filter_map(|name| {
        let (archetype, access) = (plan.archetypes.get(name)?, plan.archetype_access.get(name)?);
        Some((&archetype.config.model, format!("agents created as `{name}`"), None, &**access))
    });
    for (choice, who, agent_id, access) in agents.chain(created) {
        for model in scripted_models(plan, choice, dir) {
            found.entry(model).or_default().push(Follower { who: who.clone(), agent_id, access });
        }
    }
    found
}

/// The models of a choice, fall-backs among them, that are scripted from `dir`.
fn scripted_models(plan: &Plan, choice: &ModelChoice, dir: &Path) -> BTreeSet<String> {
    let choice = plan.llm.resolve(choice);
    let own = choice.provider.unwrap_or_default();
    let first = choice.model.iter().map(|model| (own.as_str(), model.as_str()));
    // One with a slash that names no provider of the world is told where it is written.
    let others = choice.fallback_models.iter().map(|entry| plan.llm.fallback_target(&own, entry));
    let others = others.filter(|(_, model)| !model.contains('/'));
    let here = |name: &str| {
        let provider = plan.llm.providers.get(name).filter(|provider| provider.kind == ProviderKind::Scripted);
        provider.is_some_and(|provider| provider.dir.as_deref() == Some(dir))
    };
    first.chain(others).filter(|(provider, _)| here(provider)).map(|(_, model)| model.to_owned()).collect()
}

/// The models that someone thinks with and that have no rule file in `dir`; `is_there` says whether a file is.
pub(crate) fn missing(
    plan: &Plan,
    dir: &Path,
    is_there: impl Fn(&Path) -> bool,
    suppression: &ErrorSuppression,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (model, followers) in followers(plan, dir, suppression) {
        let path = path_of(dir, &model);
        if path.as_deref().is_some_and(&is_there) {
            continue;
        }
        let who: Vec<String> = followers.into_iter().map(|follower| follower.who).collect();
        let named = named(plan, dir, &model);
        let (origin, message, hint) = match path {
            Some(file) => {
                let who = clip(&who.join(", "), 200);
                let (origin, message) = if named.is_flag() {
                    let file =
                        Path::new(dir.file_name().unwrap_or_default()).join(file.file_name().unwrap_or_default());
                    let message = format!("there is no rule file {}; {who} would follow it", file.display());
                    (named, message)
                } else {
                    let message = format!("the rule file is missing; {who} would follow it");
                    (Origin { file, ..Origin::default() }, message)
                };
                let names = names_in(dir);
                let hint = match meant_for(&model, &names) {
                    Some(name) => format!("rename `{name}` to `{model}.yaml`"),
                    None => match near_model(&model, &names).filter(|name| is_there(&dir.join(format!("{name}.yaml"))))
                    {
                        Some(near) => format!("did you mean the model `{near}`?"),
                        None => "write it, or name another model".to_owned(),
                    },
                };
                (origin, message, hint)
            }
            None => {
                let message = format!("`{}` cannot be the name of a rule file", clip(&model, 80));
                let hint = "name a model of letters, digits, `-`, `_` and `.` that begins with no dot";
                (named, message, hint.to_owned())
            }
        };
        problems.push(origin.problem(Severity::Error, message, hint));
    }
    problems
}

/// Where a model that is scripted from `dir` is named.
fn named(plan: &Plan, dir: &Path, model: &str) -> Origin {
    let here = plan
        .llm
        .providers
        .iter()
        .filter(|(_, provider)| provider.kind == ProviderKind::Scripted && provider.dir.as_deref() == Some(dir));
    let mut names = here.map(|(name, _)| name.as_str());
    let key = |name: &&str| plan.origins.models.contains_key(&((*name).to_owned(), model.to_owned()));
    let first = names.clone().next().unwrap_or_default();
    plan.origins.model(names.find(key).unwrap_or(first), model)
}

/// Warnings of the files in `dir` that would be rule files under another ending, but those for the models that `missing`
/// has told of.
pub(crate) fn misnamed(dir: &Path, missing: &[Problem]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for name in names_in(dir) {
        let Some(model) = misnamed_for(&name) else { continue };
        let told = |problem: &Problem| problem.file.file_stem().is_some_and(|stem| stem == model);
        if !missing.iter().any(told) {
            let message = "the file is not read: rule files end in `.yaml`".to_owned();
            let hint = format!("rename it to `{model}.yaml`, or take it away");
            let file = dir.join(&name);
            problems.push(problem(Severity::Warning, &file, first_line(&file), "", message, hint));
        }
    }
    problems
}

fn names_in(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().take(1_000);
    let mut names: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// The file that was probably meant to be the one of `model`: it has another ending, or other capitals.
fn meant_for<'n>(model: &str, names: &'n [String]) -> Option<&'n str> {
    let is = |name: &&String| {
        let stem = name.strip_suffix(".yaml").or_else(|| misnamed_for(name));
        stem.is_some_and(|stem| stem.eq_ignore_ascii_case(model))
    };
    names.iter().find(is).map(String::as_str)
}

/// The model whose rule file has the nearest name.
fn near_model<'n>(model: &str, names: &'n [String]) -> Option<&'n str> {
    nearest(model, names.iter().filter_map(|name| name.strip_suffix(".yaml")))
}

/// What is wrong with the tools that scripts name. `built` are the tools of this build. While access rules are in doubt, nobody
/// is said to lack a tool.
pub(crate) fn tools(
    plan: &Plan,
    dir: &Path,
    survey: &Survey,
    built: &BTreeSet<String>,
    suppression: &ErrorSuppression,
) -> Vec<Problem> {
    let followers = followers(plan, dir, suppression);
    let mut problems = Vec::new();
    for (model, names) in &survey.models {
        let Some(file) = path_of(dir, model) else { continue };
        let followers = followers.get(model).map(Vec::as_slice).unwrap_or_default();
        for tool in names {
            let found = tool_problem(plan, tool, followers, built, !suppression.access);
            problems.extend(
                found.map(|(severity, message, hint)| problem(severity, &file, tool.line, &tool.field, message, hint)),
            );
        }
    }
    problems
}

fn tool_problem(
    plan: &Plan,
    tool: &ToolName,
    followers: &[Follower<'_>],
    built: &BTreeSet<String>,
    sure: bool,
) -> Option<(Severity, String, String)> {
    let extra = plan.groups.extra();
    let shown = clip(&tool.name, 80);
    let name = canonical(&tool.name).unwrap_or(&tool.name);
    if !built.contains(name) {
        if extra.expand(name).iter().any(|known| known == name) {
            let message = format!("`{shown}` is not built yet: nobody can call it");
            let hint = "call another tool until it is, or leave the call out".to_owned();
            return tool.called.then_some((Severity::Warning, message, hint));
        }
        let near = nearest(
            &tool.name,
            built.iter().map(String::as_str).chain(extra.words().filter(|word| !word.contains(':'))),
        );
        let hint = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => "docs/tools.md lists those that there are".to_owned(),
        };
        return Some((Severity::Error, format!("there is no tool `{shown}`"), hint));
    }
    if !tool.called || !sure {
        return None;
    }
    let has = |access: &ToolAccess| [false, true].into_iter().any(|outside| plan.grants(access, name, outside));
    let meant = meant(plan, followers, &tool.agents);
    let without: Vec<&str> =
        meant.iter().filter(|follower| !has(follower.access)).map(|follower| &*follower.who).collect();
    if without.is_empty() {
        return None;
    }
    let who = clip(&without.join(", "), 200);
    // A script that several share may hold rules that are meant for one of them.
    let severity = if without.len() == meant.len() { Severity::Error } else { Severity::Warning };
    let hint = "give the archetype a group that has it under `## Tool Access`, or call another tool".to_owned();
    Some((severity, format!("`{shown}` is not among the tools of {who}"), hint))
}

/// The followers that a rule for `agents` is for; all, if it names none. Who is still to be created may have any id that
/// is free, so a rule with a name of one who is there is not for them.
fn meant<'f, 'p>(plan: &Plan, followers: &'f [Follower<'p>], agents: &[String]) -> Vec<&'f Follower<'p>> {
    let fits = |id: &str| agents.iter().any(|pattern| glob(pattern, id));
    let taken = |pattern: &String| plan.agents.iter().any(|agent| agent.agent_id.as_str() == pattern);
    let for_new = agents.is_empty() || !agents.iter().all(taken);
    followers
        .iter()
        .filter(|follower| match follower.agent_id {
            Some(id) => agents.is_empty() || fits(id),
            None => for_new,
        })
        .collect()
}

fn problem(
    severity: Severity,
    file: &Path,
    line: usize,
    field: &str,
    message: String,
    hint: impl Into<Hint>,
) -> Problem {
    Problem { severity, file: file.to_owned(), line, field: field.to_owned(), message, hint: hint.into() }
}
