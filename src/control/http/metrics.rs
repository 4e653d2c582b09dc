//! The world in figures, in the text format of Prometheus.
//!
//! Must never: name what grows without bound (roots, turns) in a label.

use ghost_domain::{Activity, AgentStatus, Money, Refusal};
use ghost_rules::status::{self, Facts};
use ghost_tools::AgentControl;

use super::exposition::Page;
use crate::control::Control;
use crate::host;
use crate::services::population;
use crate::tallies::Counts;

/// All figures. Reads the store once.
pub(super) async fn text(control: &Control) -> Result<String, Refusal> {
    let world = &control.world;
    let now = world.ctx().now();
    let (facts, budgets) = world
        .store()
        .read(move |r| {
            Box::pin(async move { Ok::<_, Refusal>((Facts::read(r).await?, status::bounded(r, now).await?)) })
        })
        .await?;
    let (statuses, activities) = population(control);
    let now = world.ctx().now();
    let mut page = Page::default();

    page.family("ghost_agents", "gauge", "Agents by status.");
    for status in AgentStatus::ALL {
        let count = statuses.get(status).copied().unwrap_or(0);
        page.row("ghost_agents", &[("status", status.as_str())], count);
    }
    page.family("ghost_agents_running", "gauge", "Running agents by what they do.");
    for activity in Activity::ALL {
        let count = activities.get(activity).copied().unwrap_or(0);
        page.row("ghost_agents_running", &[("activity", activity.as_str())], count);
    }
    page.single("ghost_open_turns", "gauge", "Turns under way.", facts.open_turns);
    page.single(
        "ghost_parked_turns",
        "gauge",
        "Open turns that wait for a model that is down, or for a budget.",
        facts.parked_turns,
    );
    page.single("ghost_inbox_messages", "gauge", "Mail pending in all inboxes.", facts.inbox_total);
    page.single("ghost_dead_letters_held", "gauge", "Dead letters that wait for an operator.", facts.dead_letters);
    let last_seq = u64::try_from(world.store().last_seq()).unwrap_or(0);
    page.single("ghost_last_seq", "gauge", "Sequence of the newest event.", last_seq);
    // The sequence rises by one from event to event, over the life of the world.
    page.single("ghost_events_total", "counter", "Events since the world was made.", last_seq);
    page.single("ghost_event_readers", "gauge", "Event streams that are open.", control.readers.open());
    let cut_off = control.readers.cut_off();
    page.single("ghost_event_readers_cut_off_total", "counter", "Event streams cut off because they lagged.", cut_off);
    page.single("ghost_paused", "gauge", "1 while no new turn may begin.", u8::from(world.directory().is_paused()));

    for (name, help, figure) in BUDGETS {
        page.family(name, "gauge", help);
        for budget in &budgets {
            if let Some(value) = figure(budget) {
                page.row(name, &[("scope", &budget.scope.to_string())], value);
            }
        }
    }

    let providers = world.engine().providers();
    page.family("ghost_model_calls_queued", "gauge", "Model calls that wait for a slot.");
    for entry in providers.iter() {
        page.row("ghost_model_calls_queued", &[("provider", &entry.name)], entry.pool.queued());
    }
    page.family("ghost_model_calls_in_use", "gauge", "Model calls under way.");
    for entry in providers.iter() {
        page.row("ghost_model_calls_in_use", &[("provider", &entry.name)], entry.pool.in_use());
    }

    happened(&mut page, &control.tallies.read());

    let uptime = now.since(world.directory().started_at()).as_secs();
    page.single("ghost_uptime_seconds", "gauge", "Since the daemon serves the world.", uptime);
    page.family("ghost_build_info", "gauge", "1, with the version of the daemon.");
    page.row("ghost_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    process(&mut page);
    Ok(page.text())
}

/// What happened since the daemon started.
fn happened(page: &mut Page, counts: &Counts) {
    page.family("ghost_turns_total", "counter", "Turns that ended since the daemon started, by how they ended.");
    for (status, count) in &counts.turns {
        page.row("ghost_turns_total", &[("status", status)], count);
    }
    page.family("ghost_turn_duration_seconds", "histogram", "How long turns took that began since the daemon started.");
    page.histogram("ghost_turn_duration_seconds", &[], &counts.turns_took);
    page.family(
        "ghost_tool_calls_total",
        "counter",
        "Tool calls that ended since the daemon started, by how they ended.",
    );
    for ((tool, status), count) in &counts.tools {
        page.row("ghost_tool_calls_total", &[("tool", tool), ("status", status)], count);
    }
    page.family("ghost_tool_call_duration_seconds", "histogram", "How long tool calls took.");
    page.histogram("ghost_tool_call_duration_seconds", &[], &counts.tools_took);
    page.family("ghost_model_calls_total", "counter", "Model calls since the daemon started, by how they ended.");
    for (model, of) in &counts.models {
        page.row("ghost_model_calls_total", &[("model", model), ("outcome", "answered")], of.answered);
        page.row("ghost_model_calls_total", &[("model", model), ("outcome", "failed")], of.failed);
    }
    page.family("ghost_model_retries_total", "counter", "Model calls that followed a failed one of the same turn.");
    for (model, of) in &counts.models {
        page.row("ghost_model_retries_total", &[("model", model)], of.retries);
    }
    page.family("ghost_model_tokens_total", "counter", "Tokens; those of the cache are among the input.");
    for (model, of) in &counts.models {
        let sorts = [
            ("input", of.input),
            ("output", of.output),
            ("cache_read", of.cache_read),
            ("cache_write", of.cache_write),
        ];
        for (sort, count) in sorts {
            page.row("ghost_model_tokens_total", &[("model", model), ("sort", sort)], count);
        }
    }
    page.family("ghost_model_cost_dollars_total", "counter", "What is known of the price of model calls.");
    for (model, of) in &counts.models {
        page.row("ghost_model_cost_dollars_total", &[("model", model)], Money(of.micros).usd());
    }
    page.family("ghost_model_call_duration_seconds", "histogram", "How long answered model calls took.");
    for (model, of) in &counts.models {
        page.histogram("ghost_model_call_duration_seconds", &[("model", model)], &of.took);
    }
}

/// The process, under the names that Prometheus' own libraries give.
#[allow(clippy::cast_precision_loss)] // far below 2^53
fn process(page: &mut Page) {
    let process = host::Process::read();
    let cpu = process.cpu_ms as f64 / 1_000.0;
    page.single("process_cpu_seconds_total", "counter", "Processor time of the daemon.", cpu);
    page.single("process_resident_memory_bytes", "gauge", "Resident memory of the daemon.", process.resident);
    page.single("process_virtual_memory_bytes", "gauge", "Virtual memory of the daemon.", process.virtual_size);
    page.single("process_open_fds", "gauge", "File descriptors that are open.", process.open_fds);
    page.single("process_max_fds", "gauge", "File descriptors that may be open.", process.max_fds);
    page.single(
        "process_start_time_seconds",
        "gauge",
        "When the daemon started, since the Unix epoch.",
        process.started,
    );
}

type Figure = fn(&ghost_domain::Budget) -> Option<f64>;

/// The figures of budgets that have a limit, but for roots.
#[allow(clippy::cast_precision_loss)] // far below 2^53
const BUDGETS: [(&str, &str, Figure); 7] = [
    ("ghost_budget_tokens_spent", "Tokens spent.", |budget| Some(budget.spent_tokens as f64)),
    ("ghost_budget_tokens_reserved", "Tokens held for calls under way.", |budget| Some(budget.reserved_tokens as f64)),
    ("ghost_budget_tokens_limit", "Limit in tokens.", |budget| budget.limits.tokens.map(|tokens| tokens as f64)),
    ("ghost_budget_tokens_unpriced", "Tokens spent without a known price.", |budget| {
        Some(budget.unpriced_tokens as f64)
    }),
    ("ghost_budget_dollars_spent", "Dollars spent.", |budget| Some(budget.spent_money.usd())),
    ("ghost_budget_dollars_reserved", "Dollars held for calls under way.", |budget| Some(budget.reserved_money.usd())),
    ("ghost_budget_dollars_limit", "Limit in dollars.", |budget| budget.limits.money.map(Money::usd)),
];
