//! Health checks, and the metrics of the daemon in the text format of Prometheus, version 0.0.4.
//!
//! A client without the token must never learn more than whether the daemon is healthy. A label must never have unbounded
//! values, for example roots or turns. A family must never be split over two places, and a sample must never precede its
//! family.

use std::fmt::{Display, Write};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use ghost_domain::event::EventFilter;
use ghost_domain::{Activity, AgentStatus, Code, Money, Refusal};
use ghost_operations::feed::Subscription;
use ghost_operations::status::{self, Facts};
use ghost_tools::AgentControl;
use ghost_world::LoopDown;
use serde_json::json;

use super::guard::{has_token, unauthenticated};
use super::rest::{Failed, Shared};
use crate::control::Control;
use crate::host;
use crate::services::population;
use crate::tallies::{BUCKETS, Counts, Histogram};

/// Timeout of the store check. After it, the store is reported as not responding.
const READY_WITHIN: Duration = Duration::from_secs(5);

/// `GET /healthz`
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// `GET /readyz`
pub(super) async fn readyz(State(rest): Shared) -> Result<&'static str, Failed> {
    let Control { world, closed, .. } = &rest.control;
    if *closed.borrow() || world.directory().is_closing() {
        return Err(Refusal::new(Code::Unavailable, "the daemon is stopping").into());
    }
    if let Some(down) = loop_down(&world.loops().down()) {
        return Err(down.into());
    }
    let answer = async {
        // Opening a subscription checks the store's readers. `answers` checks the writer too.
        Subscription::open(world.store(), None, EventFilter::default(), false).await?;
        world.store().answers().await.map_err(Refusal::from)
    };
    tokio::select! {
        biased;
        result = answer => result.map(|()| "ready\n").map_err(Failed),
        () = world.ctx().ports.clock.sleep(READY_WITHIN) => {
            Err(Refusal::new(Code::Unavailable, "the store does not answer").into())
        }
    }
}

/// The refusal that names the loops that are down, if any.
fn loop_down(down: &[LoopDown]) -> Option<Refusal> {
    if down.is_empty() {
        return None;
    }
    // Only the names: this endpoint needs no token.
    let names: Vec<&str> = down.iter().map(|down| down.name).collect();
    let refusal = Refusal::new(Code::Unavailable, format!("a loop of the daemon is down: {}", names.join(", ")));
    Some(
        refusal
            .details(json!({ "loops_down": names }))
            .hint("it restarts by itself; `ghostctl status` shows the error"),
    )
}

/// `GET /metrics`
pub(super) async fn prometheus(State(rest): Shared, request: Request) -> Response {
    if !rest.control.world.plan().metrics_open && !has_token(&rest, request.method(), request.headers()) {
        return unauthenticated();
    }
    match metrics(&rest.control).await {
        Ok(text) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response(),
        Err(refusal) => Failed(refusal).into_response(),
    }
}

/// All metrics. Reads the store once.
async fn metrics(control: &Control) -> Result<String, Refusal> {
    let world = &control.world;
    let now = world.ctx().now();
    let (facts, budgets) =
        world.store().read(move |r| Ok::<_, Refusal>((Facts::read(r)?, status::bounded(r, now)?))).await?;
    let (statuses, activities) = population(control);
    let now = world.ctx().now();
    let mut page = Page::default();

    let by_status = AgentStatus::ALL.iter().map(|status| (status.as_str(), statuses.get(status).copied().unwrap_or(0)));
    page.labelled("ghost_agents", "gauge", "Agents by status.", "status", by_status);
    let by_activity = Activity::ALL.iter().map(|one| (one.as_str(), activities.get(one).copied().unwrap_or(0)));
    page.labelled("ghost_agents_running", "gauge", "Running agents by activity.", "activity", by_activity);
    let waiting = world.directory().waiting();
    page.single("ghost_agents_waiting", "gauge", "Agents with mail that wait for a place (limits.awake_max).", waiting);
    page.single("ghost_open_turns", "gauge", "Turns under way.", facts.open_turns);
    page.single(
        "ghost_parked_turns",
        "gauge",
        "Open turns that wait for a model that is down, or for a budget.",
        facts.parked_turns,
    );
    page.single("ghost_inbox_messages", "gauge", "Messages pending in all inboxes.", facts.inbox_total);
    page.single("ghost_dead_letters_held", "gauge", "Dead letters that wait for an operator.", facts.dead_letters);
    page.single("ghost_approvals_pending", "gauge", "Calls that wait for an operator.", facts.approvals_pending);
    let last_seq = u64::try_from(world.store().last_seq()).unwrap_or(0);
    page.single("ghost_last_seq", "gauge", "Sequence of the newest event.", last_seq);
    // Sequence numbers rise by one from event to event over the life of the world, so the last one is
    // the count.
    page.single("ghost_events_total", "counter", "Events since the world was created.", last_seq);
    page.single("ghost_event_readers", "gauge", "Open event streams.", control.readers.open());
    let cut_off = control.readers.cut_off();
    page.single(
        "ghost_event_readers_cut_off_total",
        "counter",
        "Event streams disconnected because their readers were too slow.",
        cut_off,
    );
    page.single(
        "ghost_paused",
        "gauge",
        "1 while the world is paused and no new turn starts.",
        u8::from(world.directory().is_paused()),
    );

    for (name, help, value_of) in BUDGETS {
        page.family(name, "gauge", help);
        for budget in &budgets {
            if let Some(value) = value_of(budget) {
                page.row(name, &[("scope", &budget.scope.to_string())], value);
            }
        }
    }

    let providers = world.engine().providers();
    let queued = providers.iter().map(|entry| (entry.name.as_str(), entry.pool.queued()));
    page.labelled("ghost_model_calls_queued", "gauge", "Model calls that wait for a slot.", "provider", queued);
    let in_use = providers.iter().map(|entry| (entry.name.as_str(), entry.pool.in_use()));
    page.labelled("ghost_model_calls_in_use", "gauge", "Model calls under way.", "provider", in_use);

    add_counters(&mut page, &control.tallies.read());

    let uptime = now.since(world.directory().started_at()).as_secs();
    page.single("ghost_uptime_seconds", "gauge", "Seconds since the daemon began to serve the world.", uptime);
    let version = [(env!("CARGO_PKG_VERSION"), 1)];
    page.labelled("ghost_build_info", "gauge", "1, with the version of the daemon.", "version", version);
    process(&mut page);
    Ok(page.text())
}

/// The metrics that are counted since the daemon started.
fn add_counters(page: &mut Page, counts: &Counts) {
    let turns = counts.turns.iter().map(|(status, count)| (status.as_str(), count));
    page.labelled(
        "ghost_turns_total",
        "counter",
        "Turns that ended since the daemon started, by status.",
        "status",
        turns,
    );
    page.family("ghost_turn_duration_seconds", "histogram", "Duration of turns that started since the daemon started.");
    page.histogram("ghost_turn_duration_seconds", &[], &counts.turns_took);
    page.family("ghost_tool_calls_total", "counter", "Tool calls that ended since the daemon started, by status.");
    for ((tool, status), count) in &counts.tools {
        page.row("ghost_tool_calls_total", &[("tool", tool), ("status", status)], count);
    }
    page.family("ghost_tool_call_duration_seconds", "histogram", "Duration of tool calls.");
    page.histogram("ghost_tool_call_duration_seconds", &[], &counts.tools_took);
    page.family("ghost_model_calls_total", "counter", "Model calls since the daemon started, by outcome.");
    for (model, counts_of_model) in &counts.models {
        page.row("ghost_model_calls_total", &[("model", model), ("outcome", "answered")], counts_of_model.answered);
        page.row("ghost_model_calls_total", &[("model", model), ("outcome", "failed")], counts_of_model.failed);
    }
    let retries = counts.models.iter().map(|(model, of_model)| (model.as_str(), of_model.retries));
    let help = "Model calls that followed a failed one of the same turn.";
    page.labelled("ghost_model_retries_total", "counter", help, "model", retries);
    page.family("ghost_model_tokens_total", "counter", "Tokens; the input includes those from the cache.");
    for (model, counts_of_model) in &counts.models {
        let sorts = [
            ("input", counts_of_model.input),
            ("output", counts_of_model.output),
            ("cache_read", counts_of_model.cache_read),
            ("cache_write", counts_of_model.cache_write),
        ];
        for (sort, count) in sorts {
            page.row("ghost_model_tokens_total", &[("model", model), ("sort", sort)], count);
        }
    }
    let costs = counts.models.iter().map(|(model, of_model)| (model.as_str(), Money(of_model.micros).usd()));
    page.labelled("ghost_model_cost_dollars_total", "counter", "Known cost of model calls.", "model", costs);
    page.family("ghost_model_call_duration_seconds", "histogram", "Duration of answered model calls.");
    for (model, counts_of_model) in &counts.models {
        page.histogram("ghost_model_call_duration_seconds", &[("model", model)], &counts_of_model.took);
    }
}

/// Metrics of the process, under the names that Prometheus client libraries use.
#[allow(clippy::cast_precision_loss)] // far below 2^53
fn process(page: &mut Page) {
    let process = host::Process::read();
    let cpu = process.cpu_ms as f64 / 1_000.0;
    page.single("process_cpu_seconds_total", "counter", "CPU time of the daemon.", cpu);
    page.single("process_resident_memory_bytes", "gauge", "Resident memory of the daemon.", process.resident);
    page.single("process_virtual_memory_bytes", "gauge", "Virtual memory of the daemon.", process.virtual_size);
    page.single("process_open_fds", "gauge", "Open file descriptors.", process.open_fds);
    page.single("process_max_fds", "gauge", "Limit of open file descriptors.", process.max_fds);
    page.single(
        "process_start_time_seconds",
        "gauge",
        "Start of the daemon, in seconds since the Unix epoch.",
        process.started,
    );
}

type BudgetValue = fn(&ghost_domain::Budget) -> Option<f64>;

/// The metrics of budgets with a limit, except those of roots.
#[allow(clippy::cast_precision_loss)] // far below 2^53
const BUDGETS: [(&str, &str, BudgetValue); 7] = [
    ("ghost_budget_tokens_spent", "Tokens spent.", |budget| Some(budget.spent_tokens as f64)),
    ("ghost_budget_tokens_reserved", "Tokens reserved for running calls.", |budget| {
        Some(budget.reserved_tokens as f64)
    }),
    ("ghost_budget_tokens_limit", "Limit in tokens.", |budget| budget.limits.tokens.map(|tokens| tokens as f64)),
    ("ghost_budget_tokens_unpriced", "Tokens spent without a known price.", |budget| {
        Some(budget.unpriced_tokens as f64)
    }),
    ("ghost_budget_dollars_spent", "Dollars spent.", |budget| Some(budget.spent_money.usd())),
    ("ghost_budget_dollars_reserved", "Dollars reserved for running calls.", |budget| {
        Some(budget.reserved_money.usd())
    }),
    ("ghost_budget_dollars_limit", "Limit in dollars.", |budget| budget.limits.money.map(Money::usd)),
];

/// A page of metrics.
#[derive(Default)]
struct Page(String);

impl Page {
    /// The whole page.
    fn text(self) -> String {
        self.0
    }

    /// Starts a family. Its samples must follow.
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a `String` does not fail.
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// Writes one sample.
    fn row(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (at, (label, text)) in labels.iter().enumerate() {
            let _ = write!(self.0, "{}{label}=\"{}\"", if at == 0 { '{' } else { ',' }, escaped(text));
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{close} {value}");
    }

    /// Writes a family with one sample.
    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.row(name, &[], value);
    }

    /// Writes a family with one sample for each value of a label.
    fn labelled<'l>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        label: &str,
        samples: impl IntoIterator<Item = (&'l str, impl Display)>,
    ) {
        self.family(name, kind, help);
        for (text, value) in samples {
            self.row(name, &[(label, text)], value);
        }
    }

    /// Writes the samples of one histogram, in seconds.
    #[allow(clippy::cast_precision_loss)] // sums stay far below 2^53 milliseconds
    fn histogram(&mut self, name: &str, labels: &[(&str, &str)], histogram: &Histogram) {
        let bucket = format!("{name}_bucket");
        let mut so_far = 0;
        for (bound, count) in BUCKETS.iter().zip(histogram.buckets) {
            so_far += count;
            let bound = bound.to_string();
            self.row(&bucket, &[labels, &[("le", bound.as_str())]].concat(), so_far);
        }
        self.row(&bucket, &[labels, &[("le", "+Inf")]].concat(), histogram.count);
        self.row(&format!("{name}_sum"), labels, histogram.sum_ms as f64 / 1_000.0);
        self.row(&format!("{name}_count"), labels, histogram.count);
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_written_and_labels_escaped() {
        let mut page = Page::default();
        page.single("a", "gauge", "An a.", 1);
        page.row("b", &[("x", "q\"\\\n"), ("y", "z")], 2.5);
        assert_eq!(page.text(), "# HELP a An a.\n# TYPE a gauge\na 1\nb{x=\"q\\\"\\\\\\n\",y=\"z\"} 2.5\n");
    }

    #[test]
    fn buckets_add_up() {
        let mut page = Page::default();
        let mut histogram = Histogram { count: 3, sum_ms: 1_500, ..Histogram::default() };
        (histogram.buckets[0], histogram.buckets[2]) = (1, 1);
        page.histogram("h", &[("m", "x")], &histogram);
        let text = page.text();
        for line in [
            "h_bucket{m=\"x\",le=\"0.005\"} 1",
            "h_bucket{m=\"x\",le=\"0.1\"} 2",
            "h_bucket{m=\"x\",le=\"600\"} 2",
            "h_bucket{m=\"x\",le=\"+Inf\"} 3",
            "h_sum{m=\"x\"} 1.5",
            "h_count{m=\"x\"} 3",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
