//! Loads a world. Reads `world-config.yaml`, the toolbox manifests it lists, skills and archetypes,
//! in that order. Checks every reference between them. Returns a plan, or every problem at once.
//!
//! Loading must never stop at the first problem if later problems can still be found. A plan with
//! an error must never be returned as valid.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use ghost_domain::tool_catalogue;
use ghost_domain::{AgentId, Declared, Limits};

use crate::access::{self, Groups, TASK_UPDATE};
use crate::agents_and_teams::{self, above_world};
use crate::archetype::{self, Loaded};
use crate::archetype_config::Known;
use crate::dangerous;
use crate::declared;
use crate::droids;
use crate::extra_tools::ExtraTools;
pub use crate::files::WORLD_FILE;
use crate::files::read_text;
use crate::grantees::People;
use crate::heartbeat::{self, HeartbeatBlock};
use crate::knowledge;
use crate::node::Node;
use crate::plan::{
    AgentPlan, ApprovalsPlan, Archetype, ArchetypeConfig, CodingPlan, HeartbeatPlan, LlmPlan, Plan, ProviderKind,
    ToolboxPlan, WebhookPlan,
};
use crate::problem::{Hint, Problems, Severity};
use crate::providers::{fallback_problems, llm, model_problem};
use crate::reader::{Field, no_such};
use crate::report::{FileReport, Report, did_you_mean};
use crate::skill_roots::{SkillSources, read_skills};
use crate::substitute::Env;
use crate::toolbox::{self, Bases};
use crate::typed::Spanned;
use crate::world_file::channels::{WEBHOOKS_MAX, WebhookSection};
use crate::world_file::commands::CliPolicySection;
use crate::world_file::{self, ApprovalsSection, Named, WorldFile};
use crate::world_paths::WorldPaths;
use crate::yaml;

/// Loads the world at `path`, which is its directory or its world file. `env` reads environment
/// variables, for `${NAME}` and to check which keys are set. Their values are never shown.
///
/// # Errors
///
/// All problems, warnings included, if at least one is an error. Otherwise the warnings are in
/// [`Plan::warnings`].
pub fn load(path: &Path, env: Env<'_>) -> Result<Plan, Problems> {
    match examine(path, env) {
        (Some(mut plan), problems) if !problems.has_errors() => {
            plan.warnings = problems.0;
            Ok(plan)
        }
        (_, problems) => Err(problems),
    }
}

/// Like [`load`], for callers that check further. Returns all problems, and the part of the plan
/// that could be built. Do not run a plan that comes with errors: references in it may be invalid.
#[must_use]
pub fn examine(path: &Path, env: Env<'_>) -> (Option<Plan>, Problems) {
    let report = Report::default();
    let plan = WorldPaths::of(path, &report).and_then(|paths| build(&paths, &report, env));
    (plan, report.finish())
}

fn build(paths: &WorldPaths, report: &Report, env: Env<'_>) -> Option<Plan> {
    let file = report.file(&paths.shown_file);
    let text = || read_text(&paths.file, &paths.dir, yaml::FILE_MAX as u64, &file);
    let parse = |text: String| yaml::parse(&text, &file, env);
    let Some(node) = paths.exists.then(text).flatten().and_then(parse) else {
        check_other_files(paths, report, env);
        return None;
    };
    resolve(paths, &node, &file, env)
}

fn heartbeat_source<'s>(own: Option<&'s HeartbeatBlock>, config: &'s ArchetypeConfig) -> heartbeat::Source<'s> {
    heartbeat::Source { own, archetype: config.heartbeat.as_ref(), text: config.heartbeat_text.as_deref() }
}

/// Warns of each HEARTBEAT.md that no agent reads, because none of its archetype has a heartbeat.
fn warn_of_unread_heartbeats(
    loaded: &BTreeMap<String, Loaded>,
    agents: &[AgentPlan],
    (of_agents, of_archetypes): (&BTreeMap<AgentId, HeartbeatPlan>, &BTreeMap<String, HeartbeatPlan>),
    report: &Report,
) {
    for (name, archetype) in loaded {
        let has_text =
            archetype.archetype.config.heartbeat_text.as_deref().is_some_and(|text| !heartbeat::is_blank(text));
        let has_heartbeat = of_archetypes.contains_key(name)
            || agents.iter().any(|agent| agent.archetype == *name && of_agents.contains_key(&agent.agent_id));
        if has_text && !has_heartbeat {
            let file = archetype.config_path.with_file_name("HEARTBEAT.md");
            report.file(&file).warn(
                0,
                "",
                format!("no agent of archetype `{name}` has a heartbeat, so this text is not used"),
                "write `heartbeat: { every: 30m }` in the world file, or remove this file",
            );
        }
    }
}

/// Reads everything that the world file, parsed as `node`, refers to.
fn resolve(paths: &WorldPaths, node: &Node, file: &FileReport<'_>, env: Env<'_>) -> Option<Plan> {
    let report = file.whole();
    let root = Field::root(node, file);
    let Some(world) = world_file::read(&root) else {
        check_other_files(paths, report, env);
        return None;
    };

    let bases = Bases::of(&paths.dir);
    let toolboxes = toolbox::toolboxes(&world, &bases, report, env);
    let mut extra = ExtraTools::default();
    for (source, toolbox) in &toolboxes {
        toolbox.allowed.iter().for_each(|tool| extra.insert(&toolbox.name, tool));
        if toolbox.is_broken {
            // Its name may be what is wrong. Then the directory shows what the others call it.
            let directory = Path::new(source).parent().and_then(Path::file_name).and_then(|name| name.to_str());
            [Some(toolbox.name.as_str()), directory].into_iter().flatten().for_each(|name| extra.broken(name));
        }
    }
    let sources = SkillSources {
        named: world.skills.roots.as_ref().map(|roots| world.all_named(roots)),
        bundled: world.all_named(&world.skills.bundled),
    };
    let (skills, of_skills) = read_skills(&sources, &toolboxes, &bases, &mut extra, (report, env));
    let skill_names = skills.all().keys().cloned().collect();
    let groups = groups(&world, extra);

    let known = Known {
        groups: groups.names().collect(),
        extra: groups.extra(),
        toolboxes: &toolboxes,
        skills: &skill_names,
        whole: true,
    };
    let loaded = archetype::load_all(&paths.dir, &paths.shown, &known, report);
    let (llm, origins) = llm(&world, &loaded, &paths.dir, env, report, file);
    check_configs(&loaded, &llm, &world, report);

    let archetypes: BTreeMap<String, Arc<Archetype>> =
        loaded.iter().map(|(name, loaded)| (name.clone(), Arc::clone(&loaded.archetype))).collect();
    let archetype_access: BTreeMap<String, Arc<access::ToolAccess>> = archetypes
        .iter()
        .map(|(name, archetype)| {
            let config = &archetype.config;
            let none = BTreeSet::new();
            let access = access::resolve(&groups, config.access.as_ref(), &none, config.legacy_tools.as_deref(), None);
            (name.clone(), Arc::new(access))
        })
        .collect();
    for group in world.cli_policy.iter().flat_map(CliPolicySection::groups) {
        let (known, (field, name)) = (groups.names().collect::<Vec<_>>(), world.named(group));
        if !known.contains(&name) {
            no_such(field, "privilege group", known.iter().copied(), "write it under `tool_privileges`");
        }
    }
    let members = agents_and_teams::agents_and_teams(&world, &archetypes, &archetype_access, &groups, &llm);
    let creatable = creatable(&world, &archetypes);
    let scripts = llm.providers.values().filter(|provider| provider.kind == ProviderKind::Scripted);
    dangerous::report_lost(
        &world,
        &groups,
        &dangerous::Members { archetypes: &archetypes, of_archetypes: &archetype_access, agents: &members.agents },
        &scripts.filter_map(|provider| provider.dir.as_deref()).collect(),
        file,
    );

    // Problems of an agent are reported at its own entry, not where it is named.
    let ids: BTreeSet<&AgentId> = world.ids.iter().collect();
    let job = world.job.as_ref().and_then(|job| agents_and_teams::job(&world, job, &paths.dir));
    let webhooks = webhooks(&world, env);
    let people = People { archetypes: &archetypes, groups: Some(&groups), agents: Some(ids) };
    let seeds = knowledge::seeds(&paths.dir, &paths.shown, &people, &world.limits, report);
    let sources: Vec<(&AgentId, heartbeat::Source<'_>)> = world
        .agents
        .iter()
        .filter_map(|entry| {
            let section = world.section(entry);
            let archetype = archetypes.get(&section.archetype.as_ref()?.0)?;
            Some((&entry.agent_id, heartbeat_source(section.heartbeat.as_ref(), &archetype.config)))
        })
        .collect();
    let heartbeats = heartbeat::heartbeats(world.heartbeat.as_ref(), &sources);
    let only_own = heartbeat::only_own(&sources);
    let archetype_heartbeats: BTreeMap<String, HeartbeatPlan> = archetypes
        .iter()
        .filter_map(|(name, archetype)| {
            Some((
                name.clone(),
                heartbeat_source(None, &archetype.config).heartbeat(world.heartbeat.as_ref(), only_own)?,
            ))
        })
        .collect();
    warn_of_unread_heartbeats(&loaded, &members.agents, (&heartbeats, &archetype_heartbeats), report);
    let (laws, tools_md) = paths.markdowns(report);
    let (id, name) = paths.identity(&world, &root, file)?;
    let mut secret_env: BTreeSet<String> = world.secrets_env.iter().map(|name| name.0.clone()).collect();
    // Commands may print what they get; it is redacted on every way out.
    secret_env.extend(world.sandbox.passthrough_env.iter().cloned());
    secret_env.extend(world.sandbox.remote.iter().map(|remote| remote.token_env.clone()));
    secret_env.extend(llm.providers.values().filter_map(|provider| provider.api_key_env.clone()));
    secret_env.extend(world.providers.values().flat_map(|entry| entry.sent.variables.iter().cloned()));
    secret_env.extend(world.web.iter().flat_map(|web| web.key_variables()).map(str::to_owned));
    let toolboxes: BTreeMap<String, Arc<ToolboxPlan>> =
        toolboxes.into_values().filter_map(|toolbox| toolbox.plan).chain(of_skills).map(named).collect();
    secret_env.extend(toolboxes.values().flat_map(|toolbox| toolbox.secrets()).map(str::to_owned));
    secret_env.extend(webhooks.values().map(|webhook| webhook.secret_env.clone()));
    let places = world.places().plan(&paths.dir);
    secret_env.extend(places.storage.url_env().map(str::to_owned));
    let approvals = approvals(&world, groups.extra());
    let droids = droids::droids(&world, groups.extra(), &llm);
    let mut plan = Plan {
        world_id: id,
        name,
        dir: paths.dir.clone(),
        laws,
        tools_md,
        archetypes,
        archetype_access,
        creatable,
        agents: members.agents.into(),
        teams: members.teams,
        root_intensity: world.world.intensity.into(),
        groups,
        llm,
        origins,
        limits: world.limits.clone(),
        budgets: members.budgets,
        chat_wake: world.chat.wake,
        owner_may_update_tasks: world.tasks.owner_may_update,
        knowledge: seeds,
        skills: Arc::new(skills),
        toolboxes,
        secret_env,
        job,
        metrics_open: world.metrics.open,
        http: world.http.clone(),
        places,
        sandbox: world.sandbox.clone().within(&paths.dir),
        approvals,
        coding: CodingPlan { run_budget: world.coding.run_budget.map(|usd| usd.0) },
        droids,
        cli_policy: Arc::new(ghost_policy::Policy::new(world.policy.clone())),
        web: world.web.clone(),
        webhooks,
        reactions: world.channels.reactions,
        declared: Declared::default(),
        heartbeats,
        archetype_heartbeats,
        warnings: Vec::new(),
    };
    // Checking jobs needs the plan, to look up models and webhooks.
    plan.declared = declared::declared(&world, &plan);
    check_job_lead(&world, &plan);
    warn_of_search_keys(&plan, env, file);
    warn_of_heartbeat_targets(&plan, file);
    world.places().check(&root, &plan, env);
    Some(plan)
}

fn named(toolbox: ToolboxPlan) -> (String, Arc<ToolboxPlan>) {
    (toolbox.name.clone(), Arc::new(toolbox))
}

/// Warns of a heartbeat whose alerts go to a channel that the file does not declare: they would not be delivered.
fn warn_of_heartbeat_targets(plan: &Plan, file: &FileReport<'_>) {
    let channels: Vec<&str> = plan.declared.channels.iter().map(|channel| channel.channel.as_str()).collect();
    let heartbeats = plan.heartbeats.values().chain(plan.archetype_heartbeats.values());
    let targets: BTreeSet<&str> = heartbeats.map(|heartbeat| heartbeat.target.as_str()).collect();
    for target in targets.into_iter().filter(|target| !["none", "last"].contains(target) && !channels.contains(target))
    {
        let hint =
            did_you_mean(target, channels.iter().copied(), "name it under `chat_channels`, or write none or last");
        file.warn(0, "heartbeat.target", format!("`chat_channels` has no channel `{target}`"), hint);
    }
}

/// Warns of keys that are not set: agents then do not have the search that needs them.
fn warn_of_search_keys(plan: &Plan, env: Env<'_>, file: &FileReport<'_>) {
    for name in plan.web.iter().flat_map(|web| web.key_variables()) {
        if env(name).is_none_or(|key| key.trim().is_empty()) {
            let message = format!("`{name}` is not set: no agent has the search that needs it");
            file.warn(0, "web", message, "set it to the key of the service, or remove the section");
        }
    }
}

/// Checks that the lead of the main job may close the job's task. Otherwise the job would never end.
fn check_job_lead(world: &WorldFile<'_>, plan: &Plan) {
    let Some(entry) = &world.job else { return };
    let Some(named) = &entry.lead else { return };
    let (field, lead) = (world.at(named), &named.0);
    let lead = plan.agents.iter().find(|agent| agent.agent_id == *lead);
    if let Some(lead) = lead.filter(|lead| !plan.grants(&lead.access, TASK_UPDATE, false)) {
        field.error(
            format!("{} cannot close the task of the job: `{TASK_UPDATE}` is not among its tools", lead.agent_id),
            "give it a group that has the tool, or set `tasks: { owner_may_update: true }`",
        );
    }
}

/// Checks the other files if the world file cannot be read. Only problems within each file are
/// found.
fn check_other_files(paths: &WorldPaths, report: &Report, env: Env<'_>) {
    let (toolboxes, mut extra) = (BTreeMap::new(), ExtraTools::default());
    let bases = Bases::of(&paths.dir);
    let (skills, _) = read_skills(&SkillSources::default(), &toolboxes, &bases, &mut extra, (report, env));
    let skill_names = skills.all().keys().cloned().collect();
    let known =
        Known { groups: BTreeSet::new(), extra: &extra, toolboxes: &toolboxes, skills: &skill_names, whole: false };
    let loaded = archetype::load_all(&paths.dir, &paths.shown, &known, report);
    let archetypes = loaded.into_iter().map(|(name, loaded)| (name, loaded.archetype)).collect();
    let people = People { archetypes: &archetypes, groups: None, agents: None };
    knowledge::seeds(&paths.dir, &paths.shown, &people, &Limits::default(), report);
    paths.markdowns(report);
}

/// Checks the references of webhooks.
fn webhooks(world: &WorldFile<'_>, env: Env<'_>) -> BTreeMap<String, WebhookPlan> {
    let webhooks = &world.channels.webhooks;
    for webhook in webhooks.values().skip(WEBHOOKS_MAX).take(1) {
        let message = format!("there are more than {WEBHOOKS_MAX} webhooks");
        world.at(webhook).error(message, "let one webhook serve several threads");
    }
    let plan = |webhook: &Spanned<WebhookSection>| {
        if let Some(agent) = webhook.agent.as_ref().filter(|agent| !world.ids.contains(&agent.0)) {
            let known = world.ids.iter().map(AgentId::as_str);
            no_such(world.at(agent), "agent", known, "name it under `agents` first");
        }
        if let Some(name) = &webhook.secret_env
            && env(name).is_none_or(|secret| secret.is_empty())
        {
            let message = format!("`{}` is not set: nothing is taken from this webhook or sent to it", name.0);
            world.at(webhook).warn(message, "set it to a long random text that the other side knows, too");
        }
        Some(WebhookPlan {
            url: webhook.url.as_ref()?.0.clone(),
            secret_env: webhook.secret_env.as_ref()?.0.clone(),
            agent: webhook.agent.as_ref()?.0.clone(),
            tolerance: webhook.tolerance(),
            actions: webhook.actions(),
        })
    };
    webhooks.iter().filter_map(|(name, webhook)| Some((name.0.clone(), plan(webhook)?))).collect()
}

/// Checks the words of groups and builds the groups.
fn groups(world: &WorldFile<'_>, extra: ExtraTools) -> Groups {
    let mut words: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (group, list) in world.tool_privileges.iter().flat_map(|groups| &groups.value) {
        for (field, word) in world.all_named(list) {
            let tools = extra.expand(word);
            if tools.is_empty() {
                field.error(format!("there is no tool `{}`", field.shown()), extra.hint(word));
            } else if tools.iter().all(|name| tool_catalogue::entry(name).is_some_and(|entry| entry.always_on)) {
                field.warn("this tool is always on, so the group has no effect on it", "remove it from the group");
            }
        }
        words.insert(group.0.clone(), list.iter().map(|word| word.0.clone()).collect());
    }
    Groups::new(&words, world.access.default.unwrap_or_default(), world.access.strict_channel_privileges, extra)
}

/// The calls that wait for an operator.
fn approvals(world: &WorldFile<'_>, extra: &ExtraTools) -> ApprovalsPlan {
    let ApprovalsSection { tools, approvers, expires } = &world.approvals;
    ApprovalsPlan {
        tools: extra.expand_all(&world.all_named(tools)),
        approvers: approvers.iter().map(|name| name.0.clone()).collect(),
        expires: expires.map_or(ApprovalsPlan::default().expires, |time| time.0),
    }
}

fn creatable(world: &WorldFile<'_>, archetypes: &BTreeMap<String, Arc<Archetype>>) -> BTreeSet<String> {
    let check = |(field, name): Named<'_>| {
        if !archetypes.contains_key(name) {
            archetype::no_such(field, archetypes);
        }
        name.to_owned()
    };
    world.all_named(&world.agents_may_create).into_iter().map(check).collect()
}

/// Checks that every archetype has a model, and that its limits have an effect.
fn check_configs(loaded: &BTreeMap<String, Loaded>, llm: &LlmPlan, world: &WorldFile<'_>, report: &Report) {
    let mut by_default = Vec::new();
    for loaded in loaded.values() {
        let (model, lines) = (&loaded.archetype.config.model, loaded.lines);
        let report_problem = |line, field, severity, message, hint: Hint| {
            report.push(loaded.origin(line, field).problem(severity, message, hint));
        };
        match (model_problem(model, llm), &world.llm.default_provider) {
            // Then the default provider lacks a model, and the archetype itself is right.
            (Some(problem), Some(default)) if model.provider.is_none() => by_default.push((world.at(default), problem)),
            (Some(problem), _) => {
                let hint = "write `model:` under `## LLM`, or `llm.default_model` in the world file";
                report_problem(lines.llm, "LLM.model", Severity::Error, problem, hint.into());
            }
            (None, _) => {}
        }
        for (_, message, hint) in fallback_problems(model, llm, &world.unread) {
            report_problem(lines.fallbacks, "LLM.fallback_models", Severity::Error, message, hint);
        }
        if let Some(message) = above_world(&loaded.archetype.config.limits, &world.limits) {
            let hint = "raise `limits` in the world file, or omit it here";
            report_problem(lines.limits, "Limits", Severity::Warning, message, hint.into());
        }
    }
    if let Some((field, problem)) = by_default.first() {
        let of = by_default.len();
        let who = if of == 1 { "one archetype names".to_owned() } else { format!("{of} archetypes name") };
        let hint = "write `default_model:` beside it, or `model:` under `## LLM` of each archetype";
        field.error(format!("{problem}, and {who} none either"), hint);
    }
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
