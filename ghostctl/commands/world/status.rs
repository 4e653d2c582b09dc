//! `ghostctl status`

use ghost_proto::json;
use ghost_proto::v1::world_client::WorldClient;
use ghost_proto::v1::{NamedCount, StatusRequest, WorldStatus};

use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::output::Answer;
use crate::table::fields;
use crate::text::{cost, dollars, one_line, plural};
use crate::view::View;

/// Show the state of the world
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl status\n  ghostctl --json status | jq .open_turns")]
pub struct Status {}

impl Status {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let status = rpc!(client, WorldClient::status, StatusRequest {}).await?;
        Ok(Answer::object(json::value(&status), text(&status, &client.view)))
    }
}

fn counted(counts: &[NamedCount]) -> String {
    counts.iter().map(|count| format!("{} {}", count.count, count.name)).collect::<Vec<_>>().join(", ")
}

fn turns(status: &WorldStatus) -> String {
    let mut text = format!("{} open", status.open_turns);
    if status.parked_turns > 0 {
        text.push_str(&format!(", {} of them parked", status.parked_turns));
    }
    // Those that ended well need no line.
    let unwell = status.turns_ended.iter().filter(|count| ["dead", "failed", "timed_out"].contains(&&*count.name));
    let unwell: Vec<NamedCount> = unwell.cloned().collect();
    if !unwell.is_empty() {
        text.push_str(&format!("; {} since the start", counted(&unwell)));
    }
    if status.waiting_agents > 0 {
        text.push_str(&format!("; {} waiting", plural(status.waiting_agents, "agent")));
    }
    if status.paused {
        text.push_str("; paused, no turn starts");
    }
    text
}

fn text(status: &WorldStatus, view: &View) -> String {
    let mut text = fields(
        view.screen,
        &[
            ("world", format!("{} ({})", status.name, status.world_id)),
            ("daemon", format!("ghostd {} on {}", status.version, status.node)),
            ("started", view.when(status.started_at_ms)),
            ("turns", turns(status)),
            ("agents", counted(&status.agents_by_status)),
            ("activity", counted(&status.agents_by_activity)),
            ("inbox", format!("{} pending", status.inbox_total)),
            ("dead letters", format!("{} held", status.dead_letters_held)),
            ("approvals", format!("{} pending", status.approvals_pending)),
            ("last event", status.last_seq.to_string()),
            ("endpoints", status.endpoints.join(", ")),
        ],
    );
    // A world without commands needs no line about them.
    if let Some(sandbox) = status.sandbox.as_ref().filter(|sandbox| sandbox.kind != "none") {
        let state = match &sandbox.absent {
            Some(why) => format!("{}: absent: {}", sandbox.kind, one_line(why, 400)),
            None => format!("{}: {}", sandbox.kind, sandbox.protections.join(", ")),
        };
        text.push_str(&fields(view.screen, &[("sandbox     ", state)]));
        if let Some(image) = &sandbox.image {
            text.push_str(&fields(view.screen, &[("  image     ", one_line(image, 400))]));
        }
        for missing in &sandbox.missing {
            text.push_str(&fields(view.screen, &[("  lacks     ", one_line(missing, 400))]));
        }
    }
    for down in &status.models_down {
        let model = format!(
            "{} of {}, since {}, {}: {}",
            down.model,
            down.provider,
            view.when(down.since_ms),
            plural(down.probes, "probe"),
            one_line(&down.reason, 200)
        );
        text.push_str(&fields(view.screen, &[("model down  ", model)]));
    }
    if let Some(job) = &status.job {
        let result = job.result_path.as_deref().map(|path| format!(", result in {path}")).unwrap_or_default();
        let job = format!(
            "{} {}: {}, {}{result}",
            job.job_id,
            job.state,
            plural(job.files, "file"),
            cost(job.cost_micros, job.unpriced_tokens)
        );
        text.push_str(&fields(view.screen, &[("job         ", job)]));
    }
    for budget in &status.budgets_near_bound {
        let tokens = budget.limit_tokens.map(|limit| format!("{} of {limit} tokens", budget.spent_tokens));
        let money = budget.limit_micros.map(|limit| format!("{} of {}", dollars(budget.spent_micros), dollars(limit)));
        let spent: Vec<String> = tokens.into_iter().chain(money).collect();
        text.push_str(&fields(
            view.screen,
            &[("budget      ", format!("{}: {} spent", budget.scope, spent.join(", ")))],
        ));
    }
    for near in &status.bounds_near {
        let about = if near.about.is_empty() { String::new() } else { format!(" of {}", near.about) };
        text.push_str(&fields(
            view.screen,
            &[("limit       ", format!("{}{about}: {} of {}", near.limit, near.value, near.most))],
        ));
    }
    for down in &status.loops_down {
        let since = format!("{}: down since {}", down.name, view.when(down.since_ms));
        let why = format!("{since}, failed {}: {}", plural(down.failures, "time"), one_line(&down.error, 400));
        text.push_str(&fields(view.screen, &[("loop        ", why)]));
    }
    for warning in &status.warnings {
        text.push_str(&format!("warning: {}\n", one_line(warning, 400)));
    }
    text
}
