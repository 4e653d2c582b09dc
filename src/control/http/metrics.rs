//! The world in figures, in the text format of Prometheus.
//!
//! Must never: name what grows without bound (roots, turns) in a label.

use std::fmt::Write;

use ghost_commons::status::{self, Facts};
use ghost_domain::{Activity, AgentStatus, Refusal};
use ghost_tools::AgentControl;

use crate::control::Control;
use crate::host;
use crate::services::population;

/// All figures. Reads the store once.
pub(super) async fn text(control: &Control) -> Result<String, Refusal> {
    let world = &control.world;
    let now = world.cx().now();
    let (facts, budgets) = world
        .store()
        .read(move |r| {
            Box::pin(async move { Ok::<_, Refusal>((Facts::read(r).await?, status::bounded(r, now).await?)) })
        })
        .await?;
    let (statuses, activities) = population(control);
    let now = world.cx().now();
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
    page.single("ghost_open_turns", "gauge", "Turns under way.", facts.open_turns.into());
    page.single(
        "ghost_parked_turns",
        "gauge",
        "Open turns that wait for a model that is down, or for a budget.",
        facts.parked_turns.into(),
    );
    page.single("ghost_inbox_total", "gauge", "Mail pending in all inboxes.", facts.inbox_total);
    page.single(
        "ghost_dead_letters_held",
        "gauge",
        "Dead letters that wait for an operator.",
        facts.dead_letters.into(),
    );
    let last_seq = u64::try_from(world.store().last_seq()).unwrap_or(0);
    page.single("ghost_last_seq", "gauge", "Sequence of the newest event.", last_seq);
    // The sequence rises by one from event to event, over the life of the world.
    page.single("ghost_events_total", "counter", "Events since the world was made.", last_seq);
    page.single("ghost_event_readers", "gauge", "Event streams that are open.", control.readers.open() as u64);
    let cut_off = control.readers.cut_off();
    page.single("ghost_event_readers_cut_off_total", "counter", "Event streams cut off because they lagged.", cut_off);
    page.single("ghost_paused", "gauge", "1 while no new turn may begin.", world.directory().is_paused().into());

    for (name, kind, help, figure) in BUDGETS {
        page.family(name, kind, help);
        for budget in &budgets {
            if let Some(value) = figure(budget) {
                page.row(name, &[("scope", &budget.scope.to_string())], value);
            }
        }
    }

    let providers = world.engine().providers();
    page.family("ghost_model_calls_queued", "gauge", "Model calls that wait for a slot.");
    for entry in providers.iter() {
        page.row("ghost_model_calls_queued", &[("provider", &entry.name)], entry.pool.queued() as u64);
    }
    page.family("ghost_model_calls_in_use", "gauge", "Model calls under way.");
    for entry in providers.iter() {
        page.row("ghost_model_calls_in_use", &[("provider", &entry.name)], entry.pool.in_use() as u64);
    }

    page.single("process_resident_memory_bytes", "gauge", "Resident memory of the daemon.", host::rss_bytes());
    let uptime = now.since(world.directory().started_at()).as_secs();
    page.single("ghost_uptime_seconds", "gauge", "Since the daemon serves the world.", uptime);
    Ok(page.0)
}

type Figure = fn(&ghost_domain::Budget) -> Option<u64>;

/// The figures of budgets that have a limit, but for roots.
const BUDGETS: [(&str, &str, &str, Figure); 7] = [
    ("ghost_budget_tokens_spent", "gauge", "Tokens spent.", |budget| Some(budget.spent_tokens)),
    ("ghost_budget_tokens_reserved", "gauge", "Tokens held for calls under way.", |budget| {
        Some(budget.reserved_tokens)
    }),
    ("ghost_budget_tokens_limit", "gauge", "Limit in tokens.", |budget| budget.limits.tokens),
    ("ghost_budget_micros_spent", "gauge", "Millionths of a dollar spent.", |budget| Some(budget.spent_money.0)),
    ("ghost_budget_tokens_unpriced", "gauge", "Tokens spent without a known price.", |budget| {
        Some(budget.unpriced_tokens)
    }),
    ("ghost_budget_micros_reserved", "gauge", "Millionths of a dollar held for calls under way.", |budget| {
        Some(budget.reserved_money.0)
    }),
    ("ghost_budget_micros_limit", "gauge", "Limit in millionths of a dollar.", |budget| {
        budget.limits.money.map(|money| money.0)
    }),
];

#[derive(Default)]
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string does not fail.
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn row(&mut self, name: &str, labels: &[(&str, &str)], value: u64) {
        self.0.push_str(name);
        for (at, (label, text)) in labels.iter().enumerate() {
            let _ = write!(self.0, "{}{label}=\"{}\"", if at == 0 { '{' } else { ',' }, escaped(text));
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{close} {value}");
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: u64) {
        self.family(name, kind, help);
        self.row(name, &[], value);
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
        page.row("b", &[("x", "q\"\\\n"), ("y", "z")], 2);
        assert_eq!(page.0, "# HELP a An a.\n# TYPE a gauge\na 1\nb{x=\"q\\\"\\\\\\n\",y=\"z\"} 2\n");
    }
}
