//! Resolves the agents, teams, budgets and job of `world-config.yaml`: checks that every reference
//! in them has a target.
//!
//! Two entries for the same id, team, budget or write rule must never be accepted.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use ghost_domain::restart::Strategy;
use ghost_domain::text::nearest;
use ghost_domain::write_acl::{WorkspacePath, WriteAcl};
use ghost_domain::{AgentId, BudgetLimits, Limits, Scope};

use crate::access::{self, Groups, ToolAccess};
use crate::archetype;
use crate::files::{directory_within, is_plain_relative};
use crate::kinds::{Name, Parsed};
use crate::near_names;
use crate::plan::{AgentLimits, AgentPlan, Archetype, JobPlan, LlmPlan, TeamPlan};
use crate::problem::Hint;
use crate::providers::{fallback_problems, model_problem};
use crate::reader::{Field, no_such};
use crate::report::did_you_mean;
use crate::typed::Spanned;
use crate::world_file::agents::{AgentEntry, AgentSection};
use crate::world_file::budgets::{Budget, ScopeName};
use crate::world_file::{JobSection, WorldFile};

/// The result of [`agents_and_teams`].
pub struct AgentsAndTeams {
    /// Agents, in the order of the file.
    pub agents: Vec<AgentPlan>,
    /// Teams, in the order of the file.
    pub teams: Vec<TeamPlan>,
    /// The budget limits of every scope that has one.
    pub budgets: Vec<(Scope, BudgetLimits)>,
}

/// Resolves agents, teams and budgets.
pub fn agents_and_teams(
    world: &WorldFile<'_>,
    archetypes: &BTreeMap<String, Arc<Archetype>>,
    shared: &BTreeMap<String, Arc<ToolAccess>>,
    groups: &Groups,
    llm: &LlmPlan,
) -> AgentsAndTeams {
    let mut lines: BTreeMap<&AgentId, usize> = BTreeMap::new();
    for entry in &world.agents {
        if let Some(first) = lines.get(&entry.agent_id) {
            world.place(entry).error(
                format!("a second agent is called `{}`", entry.agent_id),
                format!("the first one is on line {first}; ids are unique in a world"),
            );
        } else {
            lines.insert(&entry.agent_id, world.place(entry).line());
        }
    }
    let known = &world.ids;
    let (teams, membership) = teams(world);
    let own_limits: Vec<AgentLimits> = world.entries().iter().map(|entry| entry.overrides.limits(world)).collect();
    let mut equal: BTreeSet<Arc<ToolAccess>> = shared.values().cloned().collect();
    let agents = world
        .agents
        .iter()
        .filter_map(|entry| {
            // Checked before the archetype is looked up, so that an unknown archetype does not hide
            // these problems.
            let (section, place) = (world.section(entry), world.place(entry));
            let extra = own_groups(world, section, groups);
            let write_acl = write_acl(world, entry);
            let own_limits = &own_limits[entry.entry];
            if let Some(message) = above_world(own_limits, &world.limits) {
                place.warn(message, "raise `limits`, or omit it here");
            }
            let (field, name) = world.named(section.archetype.as_ref()?);
            let Some(archetype) = archetypes.get(name) else {
                archetype::no_such(field, archetypes);
                return None;
            };
            let access = access_of(section, archetype, groups, &extra);
            // Thousands of agents with the same rules share one value.
            let access = equal.get(&access).cloned().unwrap_or_else(|| {
                let access = Arc::new(access);
                equal.insert(Arc::clone(&access));
                access
            });
            let (overrides, own_model) = (&section.overrides, section.overrides.choice());
            let model = own_model.over(&archetype.config.model);
            if let Some(problem) = model_problem(&model, llm)
                && model_problem(&archetype.config.model, llm).is_none()
            {
                let field = overrides.provider.as_ref().map_or(place, |provider| world.at(provider));
                field.error(problem, "write `model` under `overrides` too");
            }
            // Problems of the archetype's fallback models are reported in its own file.
            if !own_model.fallback_models.is_empty() {
                for (at, message, hint) in fallback_problems(&model, llm, &world.unread) {
                    overrides.fallback_models.get(at).map_or(place, |model| world.at(model)).error(message, hint);
                }
            }
            Some(AgentPlan {
                agent_id: entry.agent_id.clone(),
                name: entry.name.clone().unwrap_or_else(|| entry.agent_id.to_string()),
                archetype: name.to_owned(),
                team: membership.get(&entry.agent_id).cloned(),
                autostart: section.autostart.unwrap_or(true),
                restart: section.restart.into(),
                access,
                write_acl,
                model,
                limits: limits(own_limits, &archetype.config.limits),
                line: place.line(),
            })
        })
        .collect();
    for (Parsed(id), words) in world.write_acls.iter().filter(|(id, _)| !known.contains(&id.0)) {
        no_agent(world.at(words), id, known);
    }
    let budgets = budgets(world, &teams, archetypes);
    AgentsAndTeams { agents, teams, budgets }
}

fn no_agent(field: &Field<'_>, id: &AgentId, known: &BTreeSet<AgentId>) {
    let near = nearest(id.as_str(), known.iter().map(|id| id.as_str()));
    let hint = near.map_or_else(|| "name it under `agents` first".to_owned(), |near| format!("did you mean `{near}`?"));
    field.error(format!("there is no agent `{id}`"), hint);
}

/// The groups that the agent's entry names. Unknown groups are reported.
fn own_groups(world: &WorldFile<'_>, section: &AgentSection, groups: &Groups) -> BTreeSet<String> {
    let mut own = BTreeSet::new();
    for (field, group) in world.all_named(&section.privilege_groups) {
        if groups.tools(group).is_none() {
            let otherwise = "define it under `tool_privileges`";
            no_such(field, "privilege group", groups.names().collect::<Vec<_>>().iter().copied(), otherwise);
        } else {
            own.insert(group.to_owned());
        }
    }
    own
}

fn access_of(section: &AgentSection, archetype: &Archetype, groups: &Groups, extra: &BTreeSet<String>) -> ToolAccess {
    let config = &archetype.config;
    access::resolve(groups, config.access.as_ref(), extra, config.legacy_tools.as_deref(), section.profile)
}

fn limits(own: &AgentLimits, archetype: &AgentLimits) -> AgentLimits {
    AgentLimits {
        turn_rounds_max: own.turn_rounds_max.or(archetype.turn_rounds_max),
        turn_seconds: own.turn_seconds.or(archetype.turn_seconds),
        context_bytes: own.context_bytes.or(archetype.context_bytes),
        result_view_bytes: own.result_view_bytes.or(archetype.result_view_bytes),
        result_once_bytes: own.result_once_bytes.or(archetype.result_once_bytes),
    }
}

fn write_acl(world: &WorldFile<'_>, entry: &AgentEntry) -> WriteAcl {
    let own = world.section(entry).write_acl.as_ref();
    if let (Some(own), Some(other)) = (own, world.write_acls.get(&Parsed(entry.agent_id.clone()))) {
        world.at(own).error(
            format!("the write rules of `{}` are set twice", entry.agent_id),
            format!("they are also in `write_acls` on line {}; keep one", world.at(other).line()),
        );
    }
    let acl = entry.write_acl.as_ref().or_else(|| world.acls.get(&entry.agent_id));
    acl.cloned().unwrap_or_else(|| WriteAcl::own_directory(&entry.agent_id))
}

/// The teams with their members in start order, and the team of each member.
fn teams(world: &WorldFile<'_>) -> (Vec<TeamPlan>, BTreeMap<AgentId, String>) {
    let mut membership: BTreeMap<AgentId, String> = BTreeMap::new();
    let mut plans: Vec<TeamPlan> = Vec::new();
    for team in &world.teams {
        let Some(Name(name)) = &team.name else { continue };
        if plans.iter().any(|other| other.name == *name) {
            world.at(team).error(format!("a second team is called `{name}`"), "rename it, or put both into one");
            continue;
        }
        let mut agents = Vec::new();
        for agent in &team.agents {
            let (field, id) = (world.at(agent), &agent.0);
            if !world.ids.contains(id) {
                no_agent(field, id, &world.ids);
            } else if let Some(other) = membership.get(id) {
                field.error(format!("`{id}` is already in team `{other}`"), "an agent is in one team");
            } else {
                membership.insert(id.clone(), name.clone());
                agents.push(id.clone());
            }
        }
        let (strategy, intensity) = (team.strategy.unwrap_or(Strategy::OneForOne), team.intensity.into());
        plans.push(TeamPlan { name: name.clone(), strategy, intensity, agents });
    }
    for entry in &world.agents {
        let Some((field, name)) = world.section(entry).team.as_ref().map(|team| world.named(team)) else { continue };
        let Some(plan) = plans.iter_mut().find(|plan| plan.name == name) else {
            // A team with a problem was reported; its members are right.
            if !world.team_names.contains(name) {
                let otherwise = format!("define it: `teams: [{{ name: {name} }}]`");
                no_such(field, "team", world.team_names.iter().map(String::as_str), &otherwise);
            }
            continue;
        };
        match membership.get(&entry.agent_id) {
            None => {
                membership.insert(entry.agent_id.clone(), plan.name.clone());
                plan.agents.push(entry.agent_id.clone());
            }
            Some(listed) if listed != name => {
                field.error(format!("`teams` puts this agent into `{listed}`"), "name one team");
            }
            Some(_) => {}
        }
    }
    (plans, membership)
}

/// The limits of every scope that has one, in total and per day. An agent's daily limit in the
/// world file takes precedence over its archetype's `daily_cost_usd`.
fn budgets(
    world: &WorldFile<'_>,
    teams: &[TeamPlan],
    archetypes: &BTreeMap<String, Arc<Archetype>>,
) -> Vec<(Scope, BudgetLimits)> {
    let mut found: BTreeMap<Scope, (usize, Budget)> = BTreeMap::new();
    let mut add = |scope: Scope, budget: &Spanned<Budget>| found.insert(scope, (world.at(budget).line(), budget.value));
    if let Some(budget) = &world.budgets.world {
        add(Scope::World, budget);
    }
    for (ScopeName(name), budget) in &world.budgets.team {
        if teams.iter().all(|team| team.name != *name) {
            let shown = ghost_domain::text::clip(name, 64);
            let otherwise = format!("define it: `teams: [{{ name: {shown} }}]`");
            let hint = did_you_mean(name, teams.iter().map(|team| team.name.as_str()), &otherwise);
            world.at(budget).error(format!("there is no team `{shown}`"), hint);
        } else {
            add(Scope::Team(name.clone()), budget);
        }
    }
    for (ScopeName(Parsed(id)), budget) in &world.budgets.agent {
        match world.ids.contains(id) {
            true => drop(add(Scope::Agent(id.clone()), budget)),
            false => no_agent(world.at(budget), id, &world.ids),
        }
    }
    for entry in &world.agents {
        let Some(budget) = &world.section(entry).budget else { continue };
        if let Some((line, _)) = add(Scope::Agent(entry.agent_id.clone()), budget) {
            let hint = format!("it is also in `budgets` on line {line}; keep one");
            world.at(budget).error(format!("the budget of `{}` is set twice", entry.agent_id), hint);
        }
    }
    let mut limits: BTreeMap<Scope, BudgetLimits> = BTreeMap::new();
    for entry in &world.agents {
        let archetype = world.section(entry).archetype.as_ref().and_then(|name| archetypes.get(&name.0));
        let money = archetype.and_then(|archetype| archetype.config.daily_money);
        let day = Scope::Agent(entry.agent_id.clone()).daily();
        limits.extend(day.zip(money).map(|(day, money)| (day, BudgetLimits { tokens: None, money: Some(money) })));
    }
    for (scope, (_, entry)) in found {
        limits.extend(scope.daily().zip(entry.day));
        limits.extend(entry.whole.map(|whole| (scope, whole)));
    }
    limits.into_iter().collect()
}

/// Checks the main job: its input directory, lead, brief and result path.
pub fn job(world: &WorldFile<'_>, section: &JobSection, dir: &Path) -> Option<JobPlan> {
    let (field, input) = world.named(section.input.as_ref()?);
    let found = is_plain_relative(input).then(|| directory_within(&dir.join(input), dir)).flatten();
    if found.is_none() {
        let hint = match near_names::misspelt(dir, input) {
            Some(near) => format!("did you mean `{near}`? Name it here, or rename it"),
            None => "name a directory within the world, such as input".to_owned(),
        };
        field.error(format!("there is no directory `{}` in the world", field.shown()), hint);
    }
    let lead = section.lead.as_ref()?;
    if !world.ids.contains(&lead.0) {
        no_agent(world.at(lead), lead, &world.ids);
    }
    let (field, brief) = world.named(section.brief.as_ref()?);
    for name in placeholders(brief).filter(|name| !PLACEHOLDERS.contains(name)) {
        let hint = did_you_mean(name, PLACEHOLDERS.iter().copied(), "remove it");
        field.error(format!("there is no placeholder `{{{name}}}`"), hint);
    }
    let (field, result) = world.named(section.result.as_ref()?);
    let result = match WorkspacePath::parse(result, false) {
        Ok(path) => path.as_str().to_owned(),
        Err(refusal) => {
            let hint = Hint::of(refusal.hint, "write a path relative to the workspace, such as output/reports");
            field.error(format!("`{}` is not a path in the workspace", field.shown()), hint);
            return None;
        }
    };
    Some(JobPlan { input: found?, lead: lead.0.clone(), brief: brief.to_owned(), result, expects: section.expects })
}

const PLACEHOLDERS: [&str; 4] = ["files", "input", "job_id", "skipped"];

/// The names in braces, such as `input` in `{input}`.
fn placeholders(text: &str) -> impl Iterator<Item = &str> {
    text.split('{').skip(1).filter_map(|rest| {
        let name = rest.split_once('}')?.0;
        let word = !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        word.then_some(name)
    })
}

/// Describes the limits of an agent that have no effect because the world's limits are lower.
/// `context_bytes` is not compared, because it states the size of the model's context window.
pub(crate) fn above_world(own: &AgentLimits, world: &Limits) -> Option<String> {
    let pairs = [
        ("turn_rounds_max", own.turn_rounds_max, world.turn_rounds_max),
        ("turn_seconds", own.turn_seconds, world.turn_seconds),
        ("result_view_bytes", own.result_view_bytes, world.result_view_bytes),
    ];
    let above = pairs.iter().filter(|(_, own, world)| own.is_some_and(|own| own > *world));
    let list: Vec<String> = above.map(|(name, _, world)| format!("{name} stays at {world}")).collect();
    (!list.is_empty()).then(|| format!("the world's limits are lower: {}", list.join(", ")))
}
