//! Computes the changes of a reload: compares two plans and lists the added, changed, dropped and
//! unchanged parts. The world applies the list; operators read it first.
//!
//! A part whose behaviour would differ must never be reported as unchanged.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use ghost_domain::{Agent, AgentId};
use serde::Serialize;

use crate::plan::{AgentPlan, Plan, ProviderKind};

/// The largest number of agents that are listed as no longer able to run.
const CANNOT_RUN_SHOWN_MAX: usize = 200;

/// The difference between a running world and a new plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReloadPlan {
    /// Agents that are new in the file and will be created.
    pub added: Vec<AgentId>,
    /// Agents that are new in the file but exist already.
    pub returning: BTreeMap<AgentId, Returning>,
    /// Agents that could run before and no longer can, with the reason. Includes agents created at
    /// run time.
    pub cannot_run: BTreeMap<AgentId, String>,
    /// Agents that could not run before and now can.
    pub repaired: Vec<AgentId>,
    /// Agents that change.
    pub changed: Vec<AgentChange>,
    /// Agents that the file no longer names. They are stopped and kept.
    pub dropped: Vec<AgentId>,
    /// The number of agents that do not change.
    pub unchanged: usize,
    /// Archetypes that change, with their changed parts. Agents created at run time follow them.
    pub archetypes: BTreeMap<String, Vec<String>>,
    /// Changed parts of the world itself: `laws`, `teams`, `limits`, ….
    pub world: Vec<String>,
    /// Changed budgets by scope, with the effect on the limits that the file sets.
    pub budgets: BTreeMap<String, &'static str>,
    /// Changed rule files of scripted models: `added`, `changed` or `removed`. Paths are relative
    /// to the world where possible.
    pub scripts: BTreeMap<PathBuf, String>,
    /// Changed skills: `added`, `changed` or `removed`.
    pub skills: BTreeMap<String, String>,
    /// Effects on the channels and cron jobs that the file declares, one line each.
    pub declared: Vec<String>,
    /// Changed parts that a running daemon keeps as they are: `data_dir`, `listen.grpc`, ….
    pub next_start: Vec<String>,
}

/// Changes of files that a plan does not contain: each `added`, `changed` or `removed`.
#[derive(Clone, Debug, Default)]
pub struct FileChanges {
    /// Rule files of scripted models, by path.
    pub scripts: BTreeMap<PathBuf, &'static str>,
    /// Skills, by name.
    pub skills: BTreeMap<String, &'static str>,
}

impl FileChanges {
    /// Compares two maps. Returns the keys that differ, each `added`, `changed` or `removed`.
    #[must_use]
    pub fn of<K: Ord + Clone, V: PartialEq>(
        before: &BTreeMap<K, V>,
        after: &BTreeMap<K, V>,
    ) -> BTreeMap<K, &'static str> {
        let gone = before.keys().filter(|key| !after.contains_key(*key)).map(|key| (key.clone(), "removed"));
        let new = after.iter().filter_map(|(key, value)| match before.get(key) {
            None => Some((key.clone(), "added")),
            Some(was) if was != value => Some((key.clone(), "changed")),
            Some(_) => None,
        });
        gone.chain(new).collect()
    }
}

/// The effect of a reload on an existing agent that the file names and did not name before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Return {
    /// The file had dropped the agent. It starts again.
    Starts,
    /// An operator stopped the agent, or it does not start by itself.
    StaysStopped,
    /// The agent runs: it was created at run time under this id.
    Runs,
}

/// An existing agent that the file names again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Returning {
    /// The effect of the reload on the agent.
    pub how: Return,
    /// The fields that change, by their names in `world-config.yaml`.
    pub fields: Vec<String>,
}

impl Returning {
    fn line(&self, agent_id: &AgentId) -> String {
        let (sign, words) = match self.how {
            Return::Starts => ('>', "in the world file again"),
            Return::StaysStopped => ('~', "in the world file again; stays stopped"),
            Return::Runs => ('~', "belongs to the world file from now on"),
        };
        let mut line = format!("{sign} agent {agent_id}: {words}");
        if !self.fields.is_empty() {
            line.push_str(&format!("; changes: {}", self.fields.join(", ")));
        }
        line
    }
}

/// One agent that changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AgentChange {
    /// The id of the agent.
    pub agent_id: AgentId,
    /// The changed fields, by their names in the world file. `archetype.<part>` stands for a change
    /// of its archetype.
    pub fields: Vec<String>,
}

impl ReloadPlan {
    /// Moves agents that exist already from `added` to `returning`. A comparison of files cannot
    /// know them.
    pub fn returning(&mut self, agents: BTreeMap<AgentId, Returning>) {
        self.added.retain(|agent_id| !agents.contains_key(agent_id));
        self.returning = agents;
    }

    /// Whether nothing changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.added.is_empty()
            && self.returning.is_empty()
            && self.cannot_run.is_empty()
            && self.repaired.is_empty()
            && self.budgets.is_empty()
            && self.changed.is_empty()
            && self.dropped.is_empty()
            && self.archetypes.is_empty()
            && self.world.is_empty()
            && self.scripts.is_empty()
            && self.skills.is_empty()
            && self.declared.is_empty()
            && self.next_start.is_empty()
    }
}

/// Compares the running plan with the plan that was just loaded, and includes the changes of other
/// files.
#[must_use]
pub fn diff(old: &Plan, new: &Plan, files: &FileChanges) -> ReloadPlan {
    let before: BTreeMap<&AgentId, &AgentPlan> = old.agents.iter().map(|agent| (&agent.agent_id, agent)).collect();
    let after: BTreeSet<&AgentId> = new.agents.iter().map(|agent| &agent.agent_id).collect();
    let archetypes = archetypes(old, new);
    let mut plan = ReloadPlan {
        archetypes,
        world: names(&world(old, new)),
        budgets: budgets(old, new),
        next_start: names(&next_start(old, new)),
        ..ReloadPlan::default()
    };
    for agent in &new.agents {
        let Some(was) = before.get(&agent.agent_id) else {
            plan.added.push(agent.agent_id.clone());
            continue;
        };
        let mut fields = names(&agent_fields(was, agent));
        if script_of(new, agent).is_some_and(|file| files.scripts.contains_key(&file)) {
            fields.push("script".to_owned());
        }
        if was.archetype == agent.archetype {
            let brought = plan.archetypes.get(&agent.archetype).into_iter().flatten();
            fields.extend(brought.map(|field| format!("archetype.{field}")));
        }
        if fields.is_empty() {
            plan.unchanged += 1;
        } else {
            plan.changed.push(AgentChange { agent_id: agent.agent_id.clone(), fields });
        }
    }
    let within = |file: &PathBuf| file.strip_prefix(&new.dir).map_or_else(|_| file.clone(), Path::to_owned);
    plan.skills = files.skills.iter().map(|(name, what)| (name.clone(), (*what).to_owned())).collect();
    plan.scripts = files.scripts.iter().map(|(file, what)| (within(file), (*what).to_owned())).collect();
    plan.dropped = old.agents.iter().map(|agent| &agent.agent_id).filter(|id| !after.contains(id)).cloned().collect();
    plan
}

/// The fields of a recorded agent that change if `new` replaces `old`, by their names in the world
/// file. If the agent cannot run under one of the plans, only its name, archetype and team are
/// compared.
#[must_use]
pub fn record_fields(old: (&Plan, &Agent), new: (&Plan, &Agent)) -> Vec<String> {
    let ((old_plan, was), (new_plan, is)) = (old, new);
    let mut fields = names(&[
        ("name", was.name != is.name),
        ("archetype", was.archetype != is.archetype),
        ("team", was.team != is.team),
    ]);
    if let (Ok(was), Ok(is)) = (old_plan.spec_for(was), new_plan.spec_for(is)) {
        fields.extend(names(&[
            ("restart", was.restart != is.restart),
            ("access", was.access != is.access),
            ("write_acl", was.write_acl != is.write_acl),
            ("model", was.model != is.model),
            ("limits", was.limits != is.limits),
        ]));
    }
    fields
}

/// The rule file that an agent's model follows, if the model is scripted.
fn script_of(plan: &Plan, agent: &AgentPlan) -> Option<PathBuf> {
    let choice = plan.llm.resolve(&agent.model);
    let provider = plan.llm.providers.get(&choice.provider?)?;
    let dir = provider.dir.as_ref().filter(|_| provider.kind == ProviderKind::Scripted)?;
    Some(dir.join(format!("{}.yaml", choice.model?)))
}

fn names(list: &[(&str, bool)]) -> Vec<String> {
    list.iter().filter(|(_, differs)| *differs).map(|(name, _)| (*name).to_owned()).collect()
}

fn agent_fields(old: &AgentPlan, new: &AgentPlan) -> [(&'static str, bool); 9] {
    [
        ("name", old.name != new.name),
        ("archetype", old.archetype != new.archetype),
        ("team", old.team != new.team),
        ("autostart", old.autostart != new.autostart),
        ("restart", old.restart != new.restart),
        ("access", old.access != new.access),
        ("write_acl", old.write_acl != new.write_acl),
        ("model", old.model != new.model),
        ("limits", old.limits != new.limits),
    ]
}

fn archetypes(old: &Plan, new: &Plan) -> BTreeMap<String, Vec<String>> {
    let mut changed = BTreeMap::new();
    for (name, is) in &new.archetypes {
        let fields = match old.archetypes.get(name) {
            None => vec!["added".to_owned()],
            Some(was) => names(&[
                ("soul", was.soul != is.soul),
                ("goal", was.goal != is.goal),
                ("agent", was.agent != is.agent),
                ("user", was.user != is.user),
                ("config", was.config != is.config),
                ("access", old.archetype_access.get(name) != new.archetype_access.get(name)),
            ]),
        };
        if !fields.is_empty() {
            changed.insert(name.clone(), fields);
        }
    }
    for name in old.archetypes.keys().filter(|name| !new.archetypes.contains_key(*name)) {
        changed.insert(name.clone(), vec!["removed".to_owned()]);
    }
    changed
}

fn budgets(old: &Plan, new: &Plan) -> BTreeMap<String, &'static str> {
    let by_scope = |plan: &Plan| plan.budgets.iter().map(|(scope, limits)| (scope.to_string(), *limits)).collect();
    let changes = FileChanges::of(&by_scope(old), &by_scope(new));
    let words = |(scope, what)| match what {
        "removed" => (scope, "no longer in the world file; the limit that the file set is removed"),
        _ => (scope, "set as in the world file"),
    };
    changes.into_iter().map(words).collect()
}

fn world(old: &Plan, new: &Plan) -> [(&'static str, bool); 25] {
    [
        ("world.id", old.world_id != new.world_id),
        ("world.name", old.name != new.name),
        ("laws", old.laws != new.laws),
        ("tools", old.tools_md != new.tools_md),
        ("agents_may_create", old.creatable != new.creatable),
        ("teams", old.teams != new.teams),
        ("world.intensity", old.root_intensity != new.root_intensity),
        ("tool_privileges", old.groups != new.groups),
        ("llm", old.llm != new.llm),
        ("limits", old.limits != new.limits),
        ("chat", old.chat_wake != new.chat_wake),
        ("tasks", old.owner_may_update_tasks != new.owner_may_update_tasks),
        ("knowledge", old.knowledge != new.knowledge),
        ("skills", old.skills.roots() != new.skills.roots()),
        ("toolboxes", old.toolboxes != new.toolboxes),
        ("secrets_env", old.secret_env != new.secret_env),
        ("job", old.job != new.job),
        ("channels", old.webhooks != new.webhooks || old.reactions != new.reactions),
        ("metrics", old.metrics_open != new.metrics_open),
        ("http", old.http != new.http),
        ("heartbeat", old.heartbeats != new.heartbeats),
        ("approvals", old.approvals != new.approvals),
        ("coding", old.coding != new.coding),
        ("droids", !old.droids.is_same(&new.droids)),
        ("cli_policy", old.cli_policy.settings() != new.cli_policy.settings()),
    ]
}

/// The parts that a daemon uses only when it starts.
fn next_start(old: &Plan, new: &Plan) -> [(&'static str, bool); 7] {
    [
        ("data_dir", old.places.data_dir != new.places.data_dir),
        ("workspace_dir", old.places.workspace_dir != new.places.workspace_dir),
        ("listen.grpc", old.places.grpc != new.places.grpc),
        ("listen.http", old.places.http != new.places.http),
        ("storage", old.places.storage != new.places.storage),
        ("sandbox", old.sandbox != new.sandbox),
        ("web", old.web != new.web),
    ]
}

impl fmt::Display for ReloadPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return write!(f, "nothing changes ({} agents)", self.unchanged);
        }
        for name in &self.world {
            writeln!(f, "~ {name}")?;
        }
        for name in &self.next_start {
            writeln!(f, "~ {name}: takes effect at the next start")?;
        }
        for (scope, what) in &self.budgets {
            writeln!(f, "~ budget {scope}: {what}")?;
        }
        for (name, fields) in &self.archetypes {
            writeln!(f, "~ archetype {name}: {}", fields.join(", "))?;
        }
        for (file, what) in &self.scripts {
            writeln!(f, "~ script {}: {what}", file.display())?;
        }
        for (name, what) in &self.skills {
            writeln!(f, "~ skill {name}: {what}")?;
        }
        for id in &self.added {
            writeln!(f, "+ agent {id}")?;
        }
        for (agent_id, returning) in &self.returning {
            writeln!(f, "{}", returning.line(agent_id))?;
        }
        for change in &self.changed {
            writeln!(f, "~ agent {}: {}", change.agent_id, change.fields.join(", "))?;
        }
        for id in &self.dropped {
            writeln!(f, "- agent {id}: no longer in the world file; stopped and kept")?;
        }
        for line in &self.declared {
            writeln!(f, "{line}")?;
        }
        for id in &self.repaired {
            writeln!(f, "> agent {id}: can run again")?;
        }
        for (id, why) in self.cannot_run.iter().take(CANNOT_RUN_SHOWN_MAX) {
            writeln!(f, "! agent {id}: fails; its mail waits: {why}")?;
        }
        if self.cannot_run.len() > CANNOT_RUN_SHOWN_MAX {
            writeln!(f, "! {} more agents fail", self.cannot_run.len() - CANNOT_RUN_SHOWN_MAX)?;
        }
        write!(f, "{} agent{} unchanged", self.unchanged, if self.unchanged == 1 { "" } else { "s" })
    }
}

#[cfg(test)]
#[path = "diff_tests.rs"]
mod tests;
