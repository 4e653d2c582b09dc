//! Checks the models that agents use: that scripted ones have a rule file, that the tools in it exist and that the agents that
//! follow it have these tools; and that models have a price where money is limited. A missing price only warns: the model may
//! never be called.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use ghost_config::access::ToolAccess;
use ghost_config::plan::toolbox::ToolboxKind;
use ghost_config::plan::{ArchetypeConfig, ModelChoice, Origin, Plan, ProviderKind, ToolboxPlan};
use ghost_config::{Hint, Problem, Severity, first_line};
use ghost_domain::Scope;
use ghost_domain::text::{clip, nearest};
use ghost_domain::tool_catalogue::{canonical, glob};
use ghost_provider::price;
use ghost_provider::scripted::{Survey, ToolName, misnamed_for, path_of};

/// An agent, or the agents of an archetype, whose model is a rule file.
struct Follower<'p> {
    who: String,
    /// Id of the agent; `None` for agents that are created later, whose ids are unknown.
    agent_id: Option<&'p str>,
    /// The configuration of the archetype; `None` for droids, which have none.
    archetype: Option<&'p ArchetypeConfig>,
    access: Cow<'p, ToolAccess>,
}

impl Follower<'_> {
    /// Whether it can have the tool, perhaps only in some turns or with some skills.
    fn can_have(&self, plan: &Plan, tool: &str) -> bool {
        let has_it = |toolbox: &&Arc<ToolboxPlan>| toolbox.tool_names().any(|name| toolbox.full(name) == tool);
        let Some(toolbox) = plan.toolboxes.values().find(has_it) else {
            return [false, true].into_iter().any(|outside| plan.grants(&self.access, tool, outside));
        };
        match (&toolbox.skill, self.archetype) {
            (Some(_), _) => self.access.can_access_of_skill(tool),
            (None, Some(archetype)) => plan.grants_of_toolbox((archetype, &self.access), &[], toolbox, tool),
            (None, None) => self.access.can_access_of_toolbox(tool, false),
        }
    }
}

/// The followers of rule files in `dir`, by model: agents of `world-config.yaml`, and archetypes from which agents may be
/// created.
fn followers<'p>(plan: &'p Plan, dir: &Path) -> BTreeMap<String, Vec<Follower<'p>>> {
    let mut found: BTreeMap<String, Vec<Follower<'p>>> = BTreeMap::new();
    let agents = plan.agents.iter().map(|agent| {
        (&agent.model, agent.agent_id.to_string(), Some(agent.agent_id.as_str()), &agent.archetype, &*agent.access)
    });
    let created = plan.creatable.iter().filter_map(|name| {
        let (archetype, access) = (plan.archetypes.get(name)?, plan.archetype_access.get(name)?);
        Some((&archetype.config.model, format!("agents created as `{name}`"), None, name, &**access))
    });
    for (choice, who, agent_id, archetype, access) in agents.chain(created) {
        let archetype = plan.archetypes.get(archetype).map(|archetype| &archetype.config);
        for model in scripted_models(plan, choice, dir) {
            let access = Cow::Borrowed(access);
            found.entry(model).or_default().push(Follower { who: who.clone(), agent_id, archetype, access });
        }
    }
    if let Some((choice, access)) = plan.droid_choice() {
        for model in scripted_models(plan, &choice, dir) {
            let access = Cow::Owned(access.clone());
            found.entry(model).or_default().push(Follower {
                who: "droids".to_owned(),
                agent_id: None,
                archetype: None,
                access,
            });
        }
    }
    found
}

/// The models of a choice, fall-back models included, whose rule files are in `dir`.
fn scripted_models(plan: &Plan, choice: &ModelChoice, dir: &Path) -> BTreeSet<String> {
    let choice = plan.llm.resolve(choice);
    let own = choice.provider.unwrap_or_default();
    let first = choice.model.iter().map(|model| (own.as_str(), model.as_str()));
    // An entry with a slash whose provider does not exist is reported where it is written.
    let others = choice.fallback_models.iter().map(|entry| plan.llm.fallback_target(&own, entry));
    let others = others.filter(|(_, model)| !model.contains('/'));
    let here = |name: &str| {
        let provider = plan.llm.providers.get(name).filter(|provider| provider.kind == ProviderKind::Scripted);
        provider.is_some_and(|provider| provider.dir.as_deref() == Some(dir))
    };
    first.chain(others).filter(|(provider, _)| here(provider)).map(|(_, model)| model.to_owned()).collect()
}

/// A problem for each model that is used and has no rule file in `dir`. `is_there` says whether a file exists.
pub(crate) fn missing(plan: &Plan, dir: &Path, is_there: impl Fn(&Path) -> bool) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (model, followers) in followers(plan, dir) {
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
                let hint = match misnamed_file(&model, &names) {
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

/// The place where a model whose rule file is in `dir` is named.
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

/// Warnings about files in `dir` with a wrong ending. Files of models that `missing` already
/// reports are omitted.
pub(crate) fn misnamed(dir: &Path, missing: &[Problem]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for name in names_in(dir) {
        let Some(model) = misnamed_for(&name) else { continue };
        let reported = |problem: &Problem| problem.file.file_stem().is_some_and(|stem| stem == model);
        if !missing.iter().any(reported) {
            let message = "the file is not read: rule files end in `.yaml`".to_owned();
            let hint = format!("rename it to `{model}.yaml`, or remove it");
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

/// The file that should probably be the rule file of `model`: it has another ending, or other capitals.
fn misnamed_file<'n>(model: &str, names: &'n [String]) -> Option<&'n str> {
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

/// Problems with the tools that rule files name. `built` are the tools of this build.
pub(crate) fn tools(plan: &Plan, dir: &Path, survey: &Survey, built: &BTreeSet<String>) -> Vec<Problem> {
    let followers = followers(plan, dir);
    let mut problems = Vec::new();
    for (model, names) in &survey.models {
        let Some(file) = path_of(dir, model) else { continue };
        let followers = followers.get(model).map(Vec::as_slice).unwrap_or_default();
        for tool in names {
            let found = tool_problem(plan, tool, followers, built);
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
) -> Option<(Severity, String, String)> {
    let extra = plan.groups.extra();
    let shown = clip(&tool.name, 80);
    let name = canonical(&tool.name).unwrap_or(&tool.name);
    if !built.contains(name) {
        if extra.expand(name).iter().any(|known| known == name) {
            let message = format!("`{shown}` is not built yet: no agent can call it");
            let hint = "call another tool until it is, or leave the call out".to_owned();
            return tool.called.then_some((Severity::Warning, message, hint));
        }
        // A server may have more tools than an operator has trusted.
        let server = |toolbox: &&Arc<ToolboxPlan>| {
            let short = name.strip_prefix(&*toolbox.name).is_some_and(|rest| rest.starts_with('.'));
            short && matches!(toolbox.kind, ToolboxKind::Mcp(_))
        };
        if let Some(toolbox) = plan.toolboxes.values().find(server) {
            let short = &name[toolbox.name.len() + 1..];
            let message = format!("`{shown}` is not trusted yet: no agent can call it");
            let hint = format!(
                "trust it with `ghostctl toolbox trust {} {}`, or correct the name",
                toolbox.name,
                clip(short, 80)
            );
            return Some((Severity::Warning, message, hint));
        }
        let near = nearest(
            &tool.name,
            built.iter().map(String::as_str).chain(extra.words().filter(|word| !word.contains(':'))),
        );
        let hint = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => "docs/tools.md lists the tools".to_owned(),
        };
        return Some((Severity::Error, format!("there is no tool `{shown}`"), hint));
    }
    if !tool.called {
        return None;
    }
    let targets = rule_targets(plan, followers, &tool.agents);
    let without: Vec<&str> =
        targets.iter().filter(|follower| !follower.can_have(plan, name)).map(|follower| &*follower.who).collect();
    if without.is_empty() {
        return None;
    }
    let who = clip(&without.join(", "), 200);
    // In a shared rule file, a rule may be for one agent only. So it is an error only if no target
    // has the tool.
    let severity = if without.len() == targets.len() { Severity::Error } else { Severity::Warning };
    let hint = "give the archetype a group that has it under `## Tool Access`, or call another tool".to_owned();
    Some((severity, format!("`{shown}` is not among the tools of {who}"), hint))
}

/// The followers that a rule with this list of `agents` is for; all followers if the list is empty. Agents that are
/// created later can have any free id. So they are targets unless the list has only ids of existing agents.
fn rule_targets<'f, 'p>(plan: &Plan, followers: &'f [Follower<'p>], agents: &[String]) -> Vec<&'f Follower<'p>> {
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

pub(crate) fn problem(
    severity: Severity,
    file: &Path,
    line: usize,
    field: &str,
    message: String,
    hint: impl Into<Hint>,
) -> Problem {
    Problem { severity, file: file.to_owned(), line, field: field.to_owned(), message, hint: hint.into() }
}

/// The agents and budgets that a model without a price affects.
#[derive(Default)]
struct Affected<'p> {
    who: Vec<String>,
    scopes: BTreeSet<&'p Scope>,
}

/// One warning for each model without a price that an agent with a money budget uses, fall-back models included.
pub(crate) fn unpriced(plan: &Plan) -> Vec<Problem> {
    let limited: BTreeSet<&Scope> =
        plan.budgets.iter().filter(|(_, limits)| limits.money.is_some()).map(|(scope, _)| scope).collect();
    if limited.is_empty() {
        return Vec::new();
    }
    let mut affected: BTreeMap<Model, Affected<'_>> = BTreeMap::new();
    let mut check = |who: &dyn Fn() -> String, choice: &ModelChoice, scopes: &[Scope]| {
        let bound: Vec<&Scope> = limited
            .iter()
            .filter(|limited| scopes.iter().any(|scope| is_or_is_daily(limited, scope)))
            .copied()
            .collect();
        if bound.is_empty() {
            return;
        }
        for model in models_without_price(plan, choice) {
            let affected = affected.entry(model).or_default();
            affected.who.push(who());
            affected.scopes.extend(&bound);
        }
    };
    for agent in &plan.agents {
        let own = [Scope::World, Scope::Agent(agent.agent_id.clone())];
        let scopes: Vec<Scope> = own.into_iter().chain(agent.team.clone().map(Scope::Team)).collect();
        check(&|| agent.agent_id.to_string(), &agent.model, &scopes);
    }
    // Agents that are created later pay at least from the world's budget.
    for archetype in plan.creatable.iter().filter_map(|name| plan.archetypes.get(name)) {
        let who = || format!("agents created from {}", archetype.name);
        check(&who, &archetype.config.model, &[Scope::World]);
    }
    if let Some((choice, _)) = plan.droid_choice() {
        check(&|| "droids".to_owned(), &choice, &[Scope::World]);
    }
    affected.into_iter().map(|(model, affected)| unpriced_problem(plan, &model, &affected)).collect()
}

fn is_or_is_daily(limited: &Scope, scope: &Scope) -> bool {
    limited == scope || scope.daily().as_ref() == Some(limited)
}

/// A provider and a model.
type Model = (String, String);

/// The models of a choice, fall-back models included, that have no known price.
fn models_without_price(plan: &Plan, choice: &ModelChoice) -> BTreeSet<Model> {
    let resolved = plan.llm.resolve(choice);
    let (Some(provider), Some(model)) = (&resolved.provider, &resolved.model) else { return BTreeSet::new() };
    let fallbacks = resolved.fallback_models.iter().map(|entry| plan.llm.fallback_target(provider, entry));
    std::iter::once((provider.as_str(), model.as_str()))
        .chain(fallbacks)
        .filter(|(provider, model)| {
            // Another check reports an unknown provider.
            let kind = plan.llm.providers.get(*provider).map(|provider| provider.kind);
            kind.is_some_and(|kind| price(&plan.llm, provider, kind, model).is_none())
        })
        .map(|(provider, model)| (provider.to_owned(), model.to_owned()))
        .collect()
}

/// The warning, at the place where the model is first named.
fn unpriced_problem(plan: &Plan, (provider, model): &Model, affected: &Affected<'_>) -> Problem {
    let origin = plan.origins.model(provider, model);
    let model = format!("{provider}/{model}");
    let model = clip(&model, 120);
    let scopes: Vec<String> = affected.scopes.iter().map(ToString::to_string).collect();
    let message = format!(
        "`{model}` has no price, and money is limited ({}): every call of it is refused, for {}",
        clip(&scopes.join(", "), 200),
        clip(&affected.who.join(", "), 200)
    );
    let hint = format!(
        "write `{model}: {{ input: …, output: … }}` under `llm.prices` in the world file, or limit tokens instead"
    );
    origin.problem(Severity::Warning, message, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings(more: &str) -> Vec<(usize, String)> {
        let dir = tempfile::tempdir().unwrap();
        let world = format!(
            "world: {{ id: test }}\nagents:\n  - {{ id: ada, archetype: worker, team: desk }}\n  - {{ id: ben, archetype: \
             worker, overrides: {{ model: gpt-4o, fallback_models: [spare] }} }}\nteams: [ {{ name: desk }} ]\n\
             llm: {{ default_provider: openai, default_model: nobody-knows, providers: {{ openai: {{ kind: openai, \
             base_url: 'http://127.0.0.1:1' }} }} }}\n{more}"
        );
        for (path, text) in [
            ("world-config.yaml", world.as_str()),
            ("archetype/worker/soul.md", "s"),
            ("archetype/worker/goal.md", "g"),
        ] {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let plan = ghost_config::load(dir.path(), &|_| None).unwrap_or_else(|problems| panic!("{problems}"));
        unpriced(&plan).into_iter().map(|problem| (problem.line, problem.message)).collect()
    }

    #[test]
    fn a_model_without_a_price_gets_a_warning_where_money_is_limited() {
        // Each warning: its line, the model, the scopes and who is affected.
        let warns = |more: &str, expected: &[(usize, [&str; 3])]| {
            let found = warnings(more);
            assert_eq!(found.len(), expected.len(), "{found:?}");
            for ((line, text), (at, parts)) in found.iter().zip(expected) {
                assert!(line == at && parts.iter().all(|part| text.contains(part)), "{at} {parts:?} is not {text}");
            }
        };
        assert_eq!(warnings(""), []);
        assert_eq!(warnings("budgets: { world: { tokens: 5 } }\n"), []);
        let (default, spare) = ("`openai/nobody-knows`", "`openai/spare`");
        // The list has a price for gpt-4o.
        let both = [(6, [default, "world", "ada"]), (4, [spare, "world", "ben"])];
        warns("budgets: { world: { usd: 5 } }\n", &both);
        warns("budgets: { team: { desk: { usd: 5 } } }\n", &[(6, [default, "team:desk", "ada"])]);
        warns("budgets: { agent: { ben: { usd: 5 } } }\n", &[(4, [spare, "agent:ben", "ben"])]);
        let priced = "budgets: { world: { usd: 5 } }\nagents_may_create: [worker]\n";
        assert!(warnings(priced)[0].1.contains("worker"), "new agents pay from the world's budget");
    }
}
