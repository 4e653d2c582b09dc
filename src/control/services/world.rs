//! The `World` service: status of the world, and operations on the whole world.
//!
//! The service must never make decisions that belong to `ghost-world` or `ghost-operations`.
//!
//! Pause and reload run in transactions of the world. So the service looks for a stored answer before,
//! and stores the answer after. If the daemon dies in between, a repetition runs the operation again,
//! which then changes nothing.

mod reload;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ghost_domain::text::one_line;
use ghost_domain::transcript::TokenUsage;
use ghost_domain::usage::Spending;
use ghost_domain::{Activity, AgentKind, AgentStatus, Code, Job, Limits, Refusal};
use ghost_operations::status::{self, Facts};
use ghost_operations::{clock, root_limits};
use ghost_proto::v1::{
    self, ConfirmClockRequest, ConfirmClockResponse, LimitsRequest, LimitsResponse, ModelOutage, NamedCount, NearBound,
    PauseRequest, PauseResponse, ReflectRequest, ReflectResponse, ReloadRequest, ReloadResponse, ResolveIdRequest,
    ResolveIdResponse, ResourcesRequest, ResourcesResponse, ResumeRequest, ResumeResponse, ShutdownRequest,
    ShutdownResponse, StatusRequest, WorldStatus,
};
use ghost_sandbox::Protection;
use ghost_store::tables::UsageFilter;
use ghost_tools::AgentControl;
use ghost_world::{Directory, World};
use serde::{Deserialize, Serialize};

use super::cost::usage_sums;
use crate::control::Control;
use crate::convert::input;
use crate::dispatch::{Mutation, Query, Result};
use crate::host::Usage;
use crate::{convert, queries};

/// Largest length of a reason, in characters.
const REASON_MAX: usize = 1_000;

pub(crate) async fn pause(cx: Mutation, request: PauseRequest) -> Result<PauseResponse> {
    let reason = input::line_if("reason", request.reason.as_deref(), REASON_MAX)?;
    let stored = set_paused(&cx, true, reason.as_deref()).await?;
    tracing::info!(principal = %cx.by, reason, changed = stored.changed, "the world is paused");
    Ok(PauseResponse { paused: true, changed: stored.changed, open_turns: stored.open_turns })
}

pub(crate) async fn resume(cx: Mutation, _: ResumeRequest) -> Result<ResumeResponse> {
    let stored = set_paused(&cx, false, None).await?;
    Ok(ResumeResponse { paused: false, changed: stored.changed })
}

pub(crate) async fn confirm_clock(cx: Mutation, _: ConfirmClockRequest) -> Result<ConfirmClockResponse> {
    let changed = cx.once(clock::confirm).await?;
    Ok(ConfirmClockResponse { changed })
}

pub(crate) async fn reload(cx: Mutation, request: ReloadRequest) -> Result<ReloadResponse> {
    let dry_run = request.dry_run;
    // A separate task: if the caller disconnects, a new plan must not stay current without its
    // records.
    let done = tokio::spawn(async move { reload_files(&cx, dry_run).await });
    let lost = |_| Err(Refusal::new(Code::Internal, "the reload could not be finished").hint("ask again"));
    done.await.unwrap_or_else(lost).map(reload::cut)
}

pub(crate) async fn shutdown(cx: Mutation, request: ShutdownRequest) -> Result<ShutdownResponse> {
    let grace_ms = request.grace_ms;
    // A separate task: if the caller disconnects after the request was recorded, the shutdown must
    // still happen.
    let begun = tokio::spawn(async move { begin_shutdown(&cx, grace_ms).await });
    let lost = |_| Err(Refusal::new(Code::Internal, "the shutdown could not be started").hint("ask again"));
    begun.await.unwrap_or_else(lost)
}

pub(crate) async fn limits(cx: Query, _: LimitsRequest) -> Result<LimitsResponse> {
    let (current, defaults) = (cx.world.ctx().limits().table(), Limits::default().table());
    let rows = current.into_iter().zip(defaults).zip(Limits::meanings());
    let mut limits = Vec::new();
    for (((name, value, least, most), (_, default_value, ..)), meaning) in rows {
        let (name, meaning) = (name.to_owned(), one_line(&meaning.replace('`', "")));
        limits.push(v1::Limit { name, value, default_value, least, most, meaning });
    }
    Ok(LimitsResponse { limits })
}

pub(crate) async fn resolve_id(cx: Query, request: ResolveIdRequest) -> Result<ResolveIdResponse> {
    let ResolveIdRequest { kind, prefix } = &request;
    let found = queries::beginning_with(&cx.world, kind, prefix).await?;
    Ok(ResolveIdResponse { full_id: found })
}

/// The models that are down.
fn models_down(world: &World) -> Vec<ModelOutage> {
    let redactor = &world.ctx().redactor;
    let down = world.engine().models_down().into_iter();
    down.map(|down| ModelOutage {
        provider: down.provider,
        model: redactor.redact(&down.model),
        reason: redactor.redact(&down.outage.reason),
        since_ms: down.outage.since.0,
        probe_at_ms: down.outage.probe_at.0,
        probes: down.outage.probes,
    })
    .collect()
}

/// The stored answer of a pause or resume.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Paused {
    changed: bool,
    open_turns: u64,
}

pub(crate) async fn status(cx: Query, _: StatusRequest) -> Result<WorldStatus> {
    let Control { world, endpoints, .. } = &*cx;
    let dynamic_agents = world.directory().len_dynamic();
    let (facts, budgets, bounds, clock) = world
        .read(move |r| {
            let now = r.ctx.now();
            let budgets = status::near(r, now)?;
            let clock = clock::state(r)?;
            Ok::<_, Refusal>((Facts::read(r)?, budgets, root_limits::near(r, dynamic_agents)?, clock))
        })
        .await?;
    let spent = match &facts.job {
        Some(job) => spent(&cx, UsageFilter { root_id: Some(job.root_id), ..UsageFilter::default() }).await?,
        None => Spending::default(),
    };
    let (plan, directory, ctx) = (world.plan(), world.directory(), world.ctx());
    let (agents_by_status, agents_by_activity) = population(&cx);
    let problems = world.problems().await;
    Ok(WorldStatus {
        world_id: plan.world_id.clone(),
        name: plan.name.clone(),
        version: env!("CARGO_PKG_VERSION").into(),
        node: ctx.node.to_string(),
        started_at_ms: directory.started_at().0,
        paused: directory.is_paused(),
        agents_by_status: named(&agents_by_status, |status| status.as_str()),
        agents_by_activity: named(&agents_by_activity, |activity| activity.as_str()),
        open_turns: facts.open_turns.into(),
        parked_turns: facts.parked_turns.into(),
        turns_ended: named(&cx.tallies.read().turns, |status| status),
        waiting_agents: ctx.waiting_agents() as u64,
        models_down: models_down(world),
        inbox_total: facts.inbox_total,
        dead_letters_held: facts.dead_letters.into(),
        approvals_pending: facts.approvals_pending.into(),
        last_seq: world.store().last_seq(),
        budgets_near_bound: budgets.iter().map(convert::budget).collect(),
        bounds_near: (directory.waiting() > 0)
            .then(|| awake(directory))
            .into_iter()
            .chain(bounds)
            .map(|near| NearBound { limit: near.limit, about: near.about, value: near.value, most: near.most })
            .collect(),
        warnings: problems
            .into_values()
            .chain(clock.warning())
            .map(|trouble| one_line(&trouble))
            .chain(plan.warnings.iter().map(|warning| one_line(&warning.bare().to_string())))
            .collect(),
        endpoints: endpoints.to_vec(),
        job: facts.job.map(|facts| job(facts, spent)),
        now_at_ms: ctx.now().0,
        sandbox: Some(sandbox(world)),
        loops_down: world
            .loops()
            .down()
            .into_iter()
            .map(|down| v1::LoopDown {
                name: down.name.into(),
                error: one_line(&down.error),
                since_ms: down.since.0,
                failures: down.failures,
            })
            .collect(),
    })
}

async fn set_paused(cx: &Mutation, paused: bool, reason: Option<&str>) -> Result<Paused> {
    let world = &cx.world;
    if let Some(stored) = cx.answered().await? {
        return Ok(stored);
    }
    let changed = world.directory().is_paused() != paused;
    world.set_paused_because(&cx.by, paused, reason).await?;
    let open_turns = open_turns(cx).await?;
    cx.answer(Paused { changed, open_turns }).await
}

async fn reload_files(cx: &Mutation, dry_run: bool) -> Result<ReloadResponse> {
    let world = &cx.world;
    // A dry run has no effect, so a repetition is harmless.
    if !dry_run && let Some(stored) = cx.answered().await? {
        return Ok(stored);
    }
    let done = match world.reload(&cx.by, dry_run).await {
        Ok(done) => done,
        // Not stored, so that the same request can be sent again after the files are corrected.
        Err(refusal) => return reload::refused(&refusal).ok_or(refusal),
    };
    if dry_run {
        return Ok(reload::done(&done.plan, &[], false));
    }
    cx.answer(reload::done(&done.plan, &world.plan().warnings, true)).await
}

async fn begin_shutdown(cx: &Mutation, grace_ms: Option<u64>) -> Result<ShutdownResponse> {
    let ctx = cx.world.ctx();
    let grace = grace_ms.map(|ms| with_grace(&ctx.limits(), ms)).transpose()?;
    // A store that is away must not keep the daemon from stopping. Then nobody knows how many turns are open.
    let open_turns = match open_turns(cx).await {
        Err(refusal) if refusal.code == Code::Unavailable => 0,
        counted => counted?,
    };
    let first = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&first);
    // Stored before the shutdown starts: a client that repeats its request later must not stop the
    // next daemon.
    let stored = cx.once(move |_, _| {
        flag.store(true, Ordering::Release);
        Ok(open_turns)
    });
    let open_turns = match stored.await {
        // A store that cannot write, for example because the disk is full, must not keep the daemon
        // from stopping.
        Err(refusal) if refusal.code == Code::Unavailable => {
            tracing::warn!(%refusal, "the request to stop could not be stored");
            first.store(true, Ordering::Release);
            open_turns
        }
        other => other?,
    };
    if first.load(Ordering::Acquire) {
        if let Some(limits) = grace {
            // Used only for the shutdown.
            ctx.set_limits(limits);
        }
        (cx.on_shutdown)(&cx.by);
    }
    Ok(ShutdownResponse { accepted: true, open_turns })
}

pub(crate) async fn reflect(cx: Query, _: ReflectRequest) -> Result<ReflectResponse> {
    let world = &cx.world;
    let agents = queries::all_agents(world).await?;
    let sums = usage_sums(&cx, UsageFilter::default()).await?;
    let (plan, directory, now) = (world.plan(), world.directory(), world.ctx().now());
    let activities = directory.activities();
    let tokens = sums.iter().fold(TokenUsage::default(), |all, sum| TokenUsage {
        input: all.input.saturating_add(sum.tokens.input),
        output: all.output.saturating_add(sum.tokens.output),
        cache_read: all.cache_read.saturating_add(sum.tokens.cache_read),
        cache_write: all.cache_write.saturating_add(sum.tokens.cache_write),
    });
    let spent = Spending::of(&sums);
    let living = agents.iter().filter(|agent| !agent.is_deleted());
    let agents = living.map(|agent| convert::agent(agent, activities.get(&agent.agent_id).copied()));
    let (agents, agents_truncated) = queries::within_bytes(agents, false);
    Ok(ReflectResponse {
        world_id: plan.world_id.clone(),
        name: plan.name.clone(),
        now_at_ms: now.0,
        uptime_ms: u64::try_from(now.since(directory.started_at()).as_millis()).unwrap_or(u64::MAX),
        agents,
        agents_truncated,
        token_usage: Some(convert::token_usage(tokens)),
        cost_micros: spent.cost.0,
        unpriced_tokens: spent.unpriced_tokens,
    })
}

pub(crate) async fn resources(cx: Query, _: ResourcesRequest) -> Result<ResourcesResponse> {
    let world = &cx.world;
    let data_dir = world.engine().services.data_dir().map(std::path::Path::to_owned);
    let usage = tokio::task::spawn_blocking(move || Usage::read(data_dir.as_deref()))
        .await
        .map_err(|error| Refusal::new(Code::Internal, format!("the usage of the host could not be read: {error}")))?;
    // With PostgreSQL there is no file of it here.
    let store_bytes = match usage.store_bytes {
        0 => world.store().read_latest(|r| Ok::<_, Refusal>(r.store_bytes()?)).await?,
        bytes => bytes,
    };
    let activities = world.directory().activities();
    let actors = activities.values().filter(|activity| **activity != Activity::Asleep).count();
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    Ok(ResourcesResponse {
        process_cpu_ms: usage.cpu_ms,
        process_rss_bytes: usage.rss_bytes,
        host_cpus: usage.cpus,
        host_load_milli: usage.load_milli,
        host_memory_total_bytes: usage.memory_total,
        host_memory_available_bytes: usage.memory_available,
        disk_total_bytes: usage.disk_total,
        disk_available_bytes: usage.disk_available,
        store_bytes,
        actors: actors as u64,
        tasks: tasks as u64,
    })
}

async fn spent(cx: &Control, filter: UsageFilter) -> Result<Spending> {
    Ok(Spending::of(&usage_sums(cx, filter).await?))
}

async fn open_turns(cx: &Control) -> Result<u64> {
    let facts = cx.world.store().read(Facts::read).await?;
    Ok(facts.open_turns.into())
}

/// The number of agents by status, and of running agents by activity.
pub(crate) fn population(control: &Control) -> (BTreeMap<AgentStatus, u64>, BTreeMap<Activity, u64>) {
    let (mut statuses, mut activities) = (BTreeMap::new(), BTreeMap::new());
    // Droids come and go; `ghostctl droid list` counts them.
    for ((kind, status, activity), count) in control.world.directory().population() {
        if kind == AgentKind::Droid {
            continue;
        }
        *statuses.entry(status).or_default() += count;
        if status == AgentStatus::Running {
            *activities.entry(activity).or_default() += count;
        }
    }
    (statuses, activities)
}

fn named<T>(counts: &BTreeMap<T, u64>, name: impl Fn(&T) -> &str) -> Vec<NamedCount> {
    counts.iter().map(|(what, count)| NamedCount { name: name(what).into(), count: *count }).collect()
}

/// Where commands run, and what keeps them inside.
fn sandbox(world: &World) -> v1::SandboxStatus {
    let services = &world.engine().services;
    let report = services.sandbox().map(|sandbox| sandbox.report().clone()).unwrap_or_default();
    v1::SandboxStatus {
        kind: services.plan().sandbox.kind.as_str().into(),
        absent: services.without_sandbox().map(one_line),
        protections: Protection::names(report.in_force).into_iter().map(str::to_owned).collect(),
        missing: report.missing,
        image: Some(report.image).filter(|image| !image.is_empty()),
    }
}

/// The bound on awake agents while some wait for a place: how many are awake or wait, and how many may be awake.
fn awake(directory: &Directory) -> root_limits::NearBound {
    let (held, places) = directory.held_places();
    let value = held.saturating_add(directory.waiting()) as u64;
    root_limits::NearBound { limit: "awake_max".into(), about: String::new(), value, most: places as u64 }
}

fn job(job: Job, spent: Spending) -> v1::Job {
    v1::Job {
        state: if job.finished_at.is_some() { "finished" } else { "running" }.into(),
        job_id: job.job_id,
        files: job.files,
        result_path: job.result_path,
        cost_micros: spent.cost.0,
        unpriced_tokens: spent.unpriced_tokens,
        root_id: job.root_id.to_string(),
        started_at_ms: job.started_at.0,
        finished_at_ms: job.finished_at.map(|at| at.0),
    }
}

/// The limits with another grace period, rounded up to seconds.
fn with_grace(limits: &Limits, grace_ms: u64) -> Result<Limits> {
    let seconds = grace_ms.div_ceil(1_000);
    match u32::try_from(seconds) {
        Ok(seconds) if seconds <= GRACE_MAX => Ok(Limits { stop_grace_seconds: seconds, ..limits.clone() }),
        _ => Err(input::bad("grace_ms", format!("is more than {GRACE_MAX} seconds"))
            .hint("give a shorter time; interrupted turns continue at the next start")),
    }
}

/// Largest grace period in seconds, as for `limits.stop_grace_seconds`.
const GRACE_MAX: u32 = 3_600;

#[cfg(test)]
mod tests;
