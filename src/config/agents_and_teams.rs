//! Resolves the agents, teams, budgets and job of `world-config.yaml`: checks that every reference
//! in them has a target.
//!
//! Two entries for the same id, team, budget or write rule must never be accepted.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use ghost_domain::text::nearest;
use ghost_domain::write_acl::{WorkspacePath, WriteAcl};
use ghost_domain::{AgentId, BudgetLimits, Limits, Scope};

use crate::access::{self, Groups, ToolAccess};
use crate::archetype;
use crate::files::{directory_within, is_plain_relative};
use crate::near_names;
use crate::plan::{AgentLimits, AgentPlan, Archetype, JobPlan, LlmPlan, TeamPlan};
use crate::problem::Hint;
use crate::providers::{fallback_problems, model_problem};
use crate::reader::{Field, no_such};
use crate::report::did_you_mean;
use crate::world_file::agents::AgentEntry;
use crate::world_file::budgets::BudgetEntry;
use crate::world_file::{JobEntry, WorldFile};

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
            entry.field.error(
                format!("a second agent is called `{}`", entry.agent_id),
                format!("the first one is on line {first}; ids are unique in a world"),
            );
        } else {
            lines.insert(&entry.agent_id, entry.field.line());
        }
    }
    let known: BTreeSet<&AgentId> = lines.keys().copied().collect();
    let (teams, membership) = teams(world, &known);
    let mut equal: BTreeSet<Arc<ToolAccess>> = shared.values().cloned().collect();
    let agents = world
        .agents
        .iter()
        .filter_map(|entry| {
            // Checked before the archetype is looked up, so that an unknown archetype does not hide
            // these problems.
            let extra = own_groups(entry, groups);
            let write_acl = write_acl(world, entry);
            if let Some(message) = above_world(&entry.limits, &world.limits) {
                entry.field.warn(message, "raise `limits`, or omit it here");
            }
            let (field, name) = entry.archetype.as_ref()?;
            let Some(archetype) = archetypes.get(*name) else {
                archetype::no_such(field, archetypes);
                return None;
            };
            let access = access_of(entry, archetype, groups, &extra);
            // Thousands of agents with the same rules share one value.
            let access = equal.get(&access).cloned().unwrap_or_else(|| {
                let access = Arc::new(access);
                equal.insert(Arc::clone(&access));
                access
            });
            let model = entry.model.choice.over(&archetype.config.model);
            if let Some(problem) = model_problem(&model, llm)
                && model_problem(&archetype.config.model, llm).is_none()
            {
                let field = entry.model.provider.as_ref().unwrap_or(&entry.field);
                field.error(problem, "write `model` under `overrides` too");
            }
            // Problems of the archetype's fallback models are reported in its own file.
            if !entry.model.choice.fallback_models.is_empty() {
                for (at, message, hint) in fallback_problems(&model, llm, &world.llm.unread) {
                    entry.model.fallbacks.get(at).unwrap_or(&entry.field).error(message, hint);
                }
            }
            Some(AgentPlan {
                agent_id: entry.agent_id.clone(),
                name: entry.name.clone().unwrap_or_else(|| entry.agent_id.to_string()),
                archetype: (*name).to_owned(),
                team: membership.get(&entry.agent_id).cloned(),
                autostart: entry.autostart,
                restart: entry.restart,
                access,
                write_acl,
                model,
                limits: limits(&entry.limits, &archetype.config.limits),
                line: entry.field.line(),
            })
        })
        .collect();
    for (id, (field, _)) in world.write_acls.iter().filter(|(id, _)| !known.contains(id)) {
        no_agent(field, id, &known);
    }
    let budgets = budgets(world, &known, &teams, archetypes);
    AgentsAndTeams { agents, teams, budgets }
}

fn no_agent(field: &Field<'_>, id: &AgentId, known: &BTreeSet<&AgentId>) {
    let near = nearest(id.as_str(), known.iter().map(|id| id.as_str()));
    let hint = near.map_or_else(|| "name it under `agents` first".to_owned(), |near| format!("did you mean `{near}`?"));
    field.error(format!("there is no agent `{id}`"), hint);
}

/// The groups that the agent's entry names. Unknown groups are reported.
fn own_groups(entry: &AgentEntry<'_>, groups: &Groups) -> BTreeSet<String> {
    let mut own = BTreeSet::new();
    for (field, group) in &entry.groups {
        if groups.tools(group).is_none() {
            let otherwise = "define it under `tool_privileges`";
            no_such(field, "privilege group", groups.names().collect::<Vec<_>>().iter().copied(), otherwise);
        } else {
            own.insert((*group).to_owned());
        }
    }
    own
}

fn access_of(entry: &AgentEntry<'_>, archetype: &Archetype, groups: &Groups, extra: &BTreeSet<String>) -> ToolAccess {
    let config = &archetype.config;
    access::resolve(groups, config.access.as_ref(), extra, config.legacy_tools.as_deref(), entry.profile)
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

fn write_acl(world: &WorldFile<'_>, entry: &AgentEntry<'_>) -> WriteAcl {
    match (&entry.write_acl, world.write_acls.get(&entry.agent_id)) {
        (Some((field, acl)), other) => {
            if let Some((other, _)) = other {
                field.error(
                    format!("the write rules of `{}` are set twice", entry.agent_id),
                    format!("they are also in `write_acls` on line {}; keep one", other.line()),
                );
            }
            acl.clone()
        }
        (None, Some((_, acl))) => acl.clone(),
        (None, None) => WriteAcl::own_directory(&entry.agent_id),
    }
}

/// The teams with their members in start order, and the team of each member.
fn teams(world: &WorldFile<'_>, known: &BTreeSet<&AgentId>) -> (Vec<TeamPlan>, BTreeMap<AgentId, String>) {
    let mut membership: BTreeMap<AgentId, String> = BTreeMap::new();
    let mut plans: Vec<TeamPlan> = Vec::new();
    for team in &world.teams {
        if plans.iter().any(|other| other.name == team.name) {
            team.field.error(format!("a second team is called `{}`", team.name), "rename it, or put both into one");
            continue;
        }
        let mut agents = Vec::new();
        for (field, id) in &team.agents {
            if !known.contains(id) {
                no_agent(field, id, known);
            } else if let Some(other) = membership.get(id) {
                field.error(format!("`{id}` is already in team `{other}`"), "an agent is in one team");
            } else {
                membership.insert(id.clone(), team.name.clone());
                agents.push(id.clone());
            }
        }
        plans.push(TeamPlan { name: team.name.clone(), strategy: team.strategy, intensity: team.intensity, agents });
    }
    for entry in &world.agents {
        let Some((field, name)) = &entry.team else { continue };
        let Some(plan) = plans.iter_mut().find(|plan| plan.name == *name) else {
            let otherwise = format!("define it: `teams: [{{ name: {name} }}]`");
            no_such(field, "team", world.teams.iter().map(|team| team.name.as_str()), &otherwise);
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
    known: &BTreeSet<&AgentId>,
    teams: &[TeamPlan],
    archetypes: &BTreeMap<String, Arc<Archetype>>,
) -> Vec<(Scope, BudgetLimits)> {
    let mut found: BTreeMap<Scope, (usize, BudgetEntry)> = BTreeMap::new();
    for (field, scope, limits) in &world.budgets {
        match scope {
            Scope::Agent(id) if !known.contains(id) => no_agent(field, id, known),
            Scope::Team(name) if teams.iter().all(|team| team.name != *name) => {
                let shown = ghost_domain::text::clip(name, 64);
                let otherwise = format!("define it: `teams: [{{ name: {shown} }}]`");
                let hint = did_you_mean(name, teams.iter().map(|team| team.name.as_str()), &otherwise);
                field.error(format!("there is no team `{shown}`"), hint);
            }
            _ => {
                found.insert(scope.clone(), (field.line(), *limits));
            }
        }
    }
    for entry in &world.agents {
        let Some((field, limits)) = &entry.budget else { continue };
        let scope = Scope::Agent(entry.agent_id.clone());
        if let Some((line, _)) = found.get(&scope) {
            let hint = format!("it is also in `budgets` on line {line}; keep one");
            field.error(format!("the budget of `{}` is set twice", entry.agent_id), hint);
        }
        found.insert(scope, (field.line(), *limits));
    }
    let mut limits: BTreeMap<Scope, BudgetLimits> = BTreeMap::new();
    for entry in &world.agents {
        let archetype = entry.archetype.as_ref().and_then(|(_, name)| archetypes.get(*name));
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
pub fn job(entry: &JobEntry<'_>, known: &BTreeSet<&AgentId>, dir: &Path) -> Option<JobPlan> {
    let (field, input) = &entry.input;
    let found = is_plain_relative(input).then(|| directory_within(&dir.join(input), dir)).flatten();
    if found.is_none() {
        let hint = match near_names::misspelt(dir, input) {
            Some(near) => format!("did you mean `{near}`? Name it here, or rename it"),
            None => "name a directory within the world, such as input".to_owned(),
        };
        field.error(format!("there is no directory `{}` in the world", field.shown()), hint);
    }
    let (field, lead) = &entry.lead;
    if !known.contains(lead) {
        no_agent(field, lead, known);
    }
    let (field, brief) = &entry.brief;
    for name in placeholders(brief).filter(|name| !PLACEHOLDERS.contains(name)) {
        let hint = did_you_mean(name, PLACEHOLDERS.iter().copied(), "remove it");
        field.error(format!("there is no placeholder `{{{name}}}`"), hint);
    }
    let (field, result) = &entry.result;
    let result = match WorkspacePath::parse(result, false) {
        Ok(path) => path.as_str().to_owned(),
        Err(refusal) => {
            let hint = Hint::of(refusal.hint, "write a path relative to the workspace, such as output/reports");
            field.error(format!("`{}` is not a path in the workspace", field.shown()), hint);
            return None;
        }
    };
    Some(JobPlan { input: found?, lead: lead.clone(), brief: (*brief).to_owned(), result, expects: entry.expects })
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
