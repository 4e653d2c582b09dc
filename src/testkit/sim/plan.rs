//! The plan of a simulated world: five to twelve agents, all but one in two teams, tight budgets for two agents,
//! and limits that are small enough to be reached.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ghost_config::access::{self, Groups};
use ghost_config::plan::{
    AgentLimits, AgentPlan, Archetype, ArchetypeConfig, LlmPlan, ModelChoice, Origins, Plan, ProviderKind,
    ProviderPlan, RestartPlan, TeamPlan,
};
use ghost_domain::Price;
use ghost_domain::restart::{Intensity, Strategy};
use ghost_domain::write_acl::WriteAcl;
use ghost_domain::{AgentId, BudgetLimits, Limits, Money, Refusal, Scope};

use super::chance::Dice;
use super::tools::{MARK, OUTSIDE, POISON};

/// Name of the only provider.
pub(crate) const PROVIDER: &str = "sim";
/// The only archetype. Agents may create agents from it.
pub(crate) const WORKER: &str = "worker";

/// The tools that the simulated model calls. Fewer tools make the simulation faster.
const TOOLS: [&str; 15] = [
    "syscall.message.send",
    "syscall.broadcast",
    "syscall.task.create",
    "syscall.task.update",
    "syscall.task.list",
    "syscall.ask",
    "syscall.inbox.read",
    "syscall.agent.list",
    "syscall.agent.create",
    "syscall.session.status",
    "workspace.read",
    "workspace.write",
    OUTSIDE,
    MARK,
    POISON,
];

/// The plan of the provider.
pub(crate) fn provider() -> ProviderPlan {
    ProviderPlan {
        kind: ProviderKind::OpenAi,
        base_url: None,
        api_key_env: None,
        concurrency: 4,
        attempts: 3,
        retry_base: Duration::from_millis(500),
        retry_cap: Duration::from_secs(10),
        idle_timeout: Duration::from_secs(60),
        dir: None,
        headers: BTreeMap::new(),
        query: BTreeMap::new(),
        extra_body: serde_json::Map::new(),
        api: None,
    }
}

/// The plan of the world of `seed` in the directory `dir`.
pub(crate) fn plan(seed: u64, dir: &Path) -> Result<Plan, Refusal> {
    let mut dice = Dice::new(seed, "plan");
    let count = dice.between(5, 12);
    let names: Vec<AgentId> = (0..count).map(|index| format!("a{index}").parse()).collect::<Result<_, _>>()?;
    let half = names.len() / 2;
    // The last agent is in no team.
    let (alpha, beta) = (&names[..half], &names[half..names.len() - 1]);
    let strategy = *dice.pick(Strategy::ALL).unwrap_or(&Strategy::OneForOne);
    let wide = Intensity { max: 12, window: Duration::from_secs(60) };
    let team = |name: &str, strategy, agents: &[AgentId]| TeamPlan {
        name: name.to_owned(),
        strategy,
        intensity: wide,
        agents: agents.to_vec(),
    };
    let open = access::resolve(&Groups::default(), None, &BTreeSet::new(), None, None);
    let used = TOOLS.into_iter().map(str::to_owned).collect();
    let tools = Arc::new(access::narrow(&open, &used));
    let team_of = |agent_id: &AgentId| {
        let name = if alpha.contains(agent_id) { "alpha" } else { "beta" };
        (alpha.contains(agent_id) || beta.contains(agent_id)).then(|| name.to_owned())
    };
    let short =
        RestartPlan { intensity: Intensity { max: 1, window: Duration::from_secs(60) }, ..RestartPlan::default() };
    let agents = names.iter().map(|agent_id| AgentPlan {
        agent_id: agent_id.clone(),
        name: agent_id.to_string(),
        archetype: WORKER.to_owned(),
        team: team_of(agent_id),
        autostart: true,
        // A dead letter resets the count of crashes, so only a low limit is ever reached.
        restart: if team_of(agent_id).is_none() { short } else { RestartPlan::default() },
        access: Arc::clone(&tools),
        write_acl: WriteAcl::own_directory(agent_id),
        model: ModelChoice { fallback_models: vec!["small".to_owned()], ..ModelChoice::default() },
        limits: AgentLimits::default(),
        line: 1,
    });
    let price = Price { input: Money(3_000_000), output: Money(15_000_000), ..Price::default() };
    let prices = BTreeMap::from([("large".to_owned(), price), ("small".to_owned(), price)]);
    let tight = BudgetLimits { tokens: Some(dice.between(10_000, 80_000)), money: None };
    let poor = BudgetLimits { tokens: None, money: Some(Money(dice.between(50_000, 300_000))) };
    let agents: Vec<AgentPlan> = agents.collect();
    Ok(Plan {
        world_id: "simulated".into(),
        name: "Simulated".into(),
        dir: PathBuf::from(dir),
        laws: "Be brief.".into(),
        tools_md: String::new(),
        archetypes: BTreeMap::from([(WORKER.to_owned(), archetype())]),
        archetype_access: BTreeMap::from([(WORKER.to_owned(), tools)]),
        creatable: BTreeSet::from([WORKER.to_owned()]),
        agents: agents.into(),
        teams: vec![team("alpha", Strategy::OneForOne, alpha), team("beta", strategy, beta)],
        root_intensity: wide,
        groups: Groups::default(),
        llm: LlmPlan {
            default_provider: PROVIDER.into(),
            default_model: "large".into(),
            providers: BTreeMap::from([(PROVIDER.to_owned(), provider())]),
            prices,
            ..LlmPlan::default()
        },
        origins: Origins::default(),
        limits: limits(),
        budgets: vec![
            (Scope::World, BudgetLimits { tokens: Some(50_000_000), money: None }),
            (Scope::Agent(names[0].clone()), tight),
            (Scope::Agent(names[1].clone()), poor),
        ],
        chat_wake: ghost_domain::ChatWake::Mentions,
        owner_may_update_tasks: true,
        knowledge: Vec::new(),
        skills: Arc::default(),
        toolboxes: Default::default(),
        secret_env: BTreeSet::new(),
        job: None,
        metrics_open: false,
        http: ghost_config::plan::HttpPlan::default(),
        places: ghost_config::plan::PlacesPlan::default(),
        sandbox: ghost_config::plan::SandboxPlan::default(),
        approvals: ghost_config::plan::ApprovalsPlan::default(),
        coding: ghost_config::plan::CodingPlan::default(),
        droids: ghost_config::plan::DroidsPlan::default(),
        web: None,
        cli_policy: Arc::new(ghost_policy::Policy::new(ghost_policy::shipped())),
        reactions: ghost_domain::Reactions::Minimal,
        webhooks: BTreeMap::new(),
        heartbeats: BTreeMap::new(),
        archetype_heartbeats: BTreeMap::new(),
        declared: ghost_domain::Declared::default(),
        warnings: Vec::new(),
    })
}

fn archetype() -> Arc<Archetype> {
    Arc::new(Archetype {
        name: WORKER.to_owned(),
        soul: "A worker.".into(),
        goal: "Work.".into(),
        agent: "As it comes.".into(),
        user: String::new(),
        config: ArchetypeConfig::default(),
    })
}

fn limits() -> Limits {
    Limits {
        inbox_max: 6,
        hops_max: 4,
        turn_mail_max: 4,
        turn_rounds_max: 5,
        turn_seconds: 90,
        call_seconds: 10,
        model_seconds: 15,
        calls_per_answer: 3,
        calls_parallel: 2,
        answer_tokens: 1_000,
        session_tokens: 400,
        dynamic_agents_max: 3,
        sleep_after_seconds: 10,
        sweep_seconds: 20,
        stop_grace_seconds: 4,
        ..Limits::default()
    }
}
