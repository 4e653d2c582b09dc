//! Commands for the whole world: `status`, `pause`, `resume`, `reload`, `confirm-clock`, `shutdown` and `config`.

use std::time::Duration;

use ghost_proto::v1::{ConfigProblem, Limit, NamedCount, PlanChange, WorldStatus};
use serde_json::json;

use crate::arguments::{millis, optional_text, parse_duration};
use crate::commands::prelude::*;
use crate::endpoint::Process;
use crate::failure::{came_from_the_daemon, is_connection_failure};
use crate::text::{cost, dollars, one_line, plural};
use crate::wait::{Deadline, pause};

#[derive(Debug, clap::Subcommand)]
pub enum World {
    /// Show the state of the world
    ///
    /// Examples:
    ///   ghostctl status
    ///   ghostctl --json status | jq .open_turns
    #[command(verbatim_doc_comment)]
    Status {},
    /// Pause the world: no new turn starts; open turns finish, and messages wait
    ///
    /// Examples:
    ///   ghostctl pause --reason 'provider maintenance'
    ///   ghostctl resume
    #[command(verbatim_doc_comment)]
    Pause {
        /// Record this reason in the event feed
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Resume a paused world
    ///
    /// Examples:
    ///   ghostctl resume
    #[command(verbatim_doc_comment)]
    Resume {},
    Reload(Reload),
    /// Confirm that the daemon's clock is right after a jump, so that old records are deleted again
    ///
    /// Examples:
    ///   date
    ///   ghostctl confirm-clock
    #[command(verbatim_doc_comment)]
    ConfirmClock {},
    /// Stop the daemon and wait until it has stopped
    ///
    /// Examples:
    ///   ghostctl shutdown
    ///   ghostctl shutdown --grace 5s
    #[command(verbatim_doc_comment)]
    Shutdown {
        /// Let open turns finish within this time (default: the world's setting)
        #[arg(long = "grace", id = "grace_ms", value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true)]
        grace: Option<Duration>,
    },
}

impl World {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request_id = new_request_id();
        match self {
            Self::Status {} => {
                let status = client.call(v1::StatusRequest {}).await?;
                Ok(Answer::new(&status, text(&status, &client.view)))
            }
            Self::Pause { reason } => {
                let request = v1::PauseRequest { request_id, reason: optional_text(reason)? };
                let answer = client.call(request).await?;
                let state = if answer.changed { "paused" } else { "already paused" };
                Ok(Answer::new(&answer, format!("{state}; {} will finish", plural(answer.open_turns, "open turn"))))
            }
            Self::Resume {} => {
                let answer = client.call(v1::ResumeRequest { request_id }).await?;
                Ok(Answer::new(&answer, if answer.changed { "resumed" } else { "the world was not paused" }))
            }
            Self::Reload(verb) => verb.run(client).await,
            Self::ConfirmClock {} => {
                let answer = client.call(v1::ConfirmClockRequest { request_id }).await?;
                let text = if answer.changed { "the clock is confirmed" } else { "there was no jump to confirm" };
                Ok(Answer::new(&answer, text))
            }
            Self::Shutdown { grace } => {
                shutdown(client, v1::ShutdownRequest { request_id, grace_ms: grace.map(millis) }).await
            }
        }
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
    let mut shown = vec![
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
    ];
    // A world without commands needs no line about them.
    if let Some(sandbox) = status.sandbox.as_ref().filter(|sandbox| sandbox.kind != "none") {
        let state = match &sandbox.absent {
            Some(why) => format!("absent: {}", one_line(why, 400)),
            None => sandbox.protections.join(", "),
        };
        shown.push(("sandbox", format!("{}: {state}", sandbox.kind)));
        shown.extend(sandbox.image.iter().map(|image| ("  image", one_line(image, 400))));
        shown.extend(sandbox.missing.iter().map(|missing| ("  lacks", one_line(missing, 400))));
    }
    for down in &status.models_down {
        let (since, probes) = (view.when(down.since_ms), plural(down.probes, "probe"));
        let why = format!("since {since}, {probes}: {}", one_line(&down.reason, 200));
        shown.push(("model down", format!("{} of {}, {why}", down.model, down.provider)));
    }
    if let Some(job) = &status.job {
        let result = job.result_path.as_deref().map(|path| format!(", result in {path}")).unwrap_or_default();
        let (files, cost) = (plural(job.files, "file"), cost(job.cost_micros, job.unpriced_tokens));
        shown.push(("job", format!("{} {}: {files}, {cost}{result}", job.job_id, job.state)));
    }
    for budget in &status.budgets_near_bound {
        let tokens = budget.limit_tokens.map(|limit| format!("{} of {limit} tokens", budget.spent_tokens));
        let money = budget.limit_micros.map(|limit| format!("{} of {}", dollars(budget.spent_micros), dollars(limit)));
        let spent: Vec<String> = tokens.into_iter().chain(money).collect();
        shown.push(("budget", format!("{}: {} spent", budget.scope, spent.join(", "))));
    }
    for near in &status.bounds_near {
        let about = if near.about.is_empty() { String::new() } else { format!(" of {}", near.about) };
        shown.push(("limit", format!("{}{about}: {} of {}", near.limit, near.value, near.most)));
    }
    for down in &status.loops_down {
        let since = format!("{}: down since {}", down.name, view.when(down.since_ms));
        let why = format!("{since}, failed {}: {}", plural(down.failures, "time"), one_line(&down.error, 400));
        shown.push(("loop", why));
    }
    let warnings = status.warnings.iter().map(|warning| format!("warning: {}\n", one_line(warning, 400)));
    fields(view.screen, &shown) + &warnings.collect::<String>()
}

/// Read the world's files again and apply the changes
///
/// Examples:
///   ghostctl reload --dry-run
///   ghostctl reload
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Reload {
    /// Show the changes without applying them
    #[arg(long)]
    dry_run: bool,
}

const CHANGES: &[Column<PlanChange>] = columns![
    "ACTION" action, "SUBJECT" subject, "DETAIL" detail,
];

impl Reload {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = v1::ReloadRequest { request_id: new_request_id(), dry_run: self.dry_run };
        let answer = client.call(request).await?;
        // What keeps the changes from being applied comes first.
        let (errors, warnings): (Vec<_>, Vec<_>) =
            answer.problems.iter().partition(|problem| problem.severity == "error");
        let failure = (!errors.is_empty()).then(|| {
            let errors = plural(errors.len() as u64, "error");
            Failure::new("invalid_arguments", format!("the world's files have {errors}; nothing was changed"))
                .hint("`ghostd check` shows the same without a running world")
        });
        let mut text: String = errors.into_iter().chain(warnings).map(problem_text).collect();
        if !answer.changes.is_empty() {
            text.push_str(&table(&answer.changes, &client.view, CHANGES));
        } else if failure.is_none() {
            text.push_str("no changes\n");
        }
        if !answer.applied && failure.is_none() {
            text.push_str("dry run: nothing was applied\n");
        }
        let json = json!({ "applied": answer.applied, "changes": answer.changes, "problems": answer.problems });
        Ok(Answer { failure, ..Answer::new(&json, text) })
    }
}

/// A problem as `error: file:line: field: message`, with the hint on the next line.
fn problem_text(problem: &ConfigProblem) -> String {
    let line = if problem.line > 0 { format!(":{}", problem.line) } else { String::new() };
    let field = if problem.field.is_empty() { String::new() } else { format!("{}: ", problem.field) };
    let hint = problem.hint.as_deref().map(|hint| format!("  hint: {hint}\n")).unwrap_or_default();
    format!("{}: {}{line}: {field}{}\n{hint}", problem.severity, problem.file, problem.message)
}

/// How often to check whether the daemon still listens.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

async fn shutdown(client: &Client, request: v1::ShutdownRequest) -> Result<Answer, Failure> {
    let deadline = Deadline::after(client.timeout);
    // The daemon answers now. So if it does not listen later, it has stopped.
    let status = client.call(v1::StatusRequest {}).await?;
    let process = Process::behind(&client.endpoint).await;
    let mut open_turns = status.open_turns;
    // The daemon's reason for not stopping yet, if it gave one.
    let mut refused = None;
    loop {
        let answer = deadline.within(client.once(request.clone())).await;
        match answer {
            None => return Err(refused.unwrap_or_else(|| still_there(client))),
            Some(Ok(answer)) => {
                open_turns = answer.open_turns;
                break;
            }
            // It may have stopped before it could answer. If it still listens, repeat the same request.
            Some(Err(status)) if is_connection_failure(&status) => {
                if !client.endpoint.listens() {
                    break;
                }
                if came_from_the_daemon(&status) {
                    refused = Some(status.into());
                }
                if deadline.remaining() <= POLL_INTERVAL {
                    return Err(refused.unwrap_or_else(|| still_there(client)));
                }
                pause(POLL_INTERVAL).await;
            }
            Some(Err(status)) => return Err(status.into()),
        }
    }
    // The daemon closes its listeners after its database, and takes a few more steps before the process ends.
    while client.endpoint.listens() || process.as_ref().is_some_and(|process| !process.ended()) {
        if deadline.remaining() <= POLL_INTERVAL {
            return Err(still_there(client));
        }
        pause(POLL_INTERVAL).await;
    }
    let json = json!({ "stopped": true, "world_id": status.world_id, "open_turns": open_turns });
    Ok(Answer::new(&json, format!("{} has stopped", status.name)))
}

fn still_there(client: &Client) -> Failure {
    Failure::new("timeout", format!("ghostd at {} has not stopped yet", client.endpoint))
        .hint("it is still stopping; wait, or use a shorter --grace")
}

#[derive(Debug, clap::Subcommand)]
pub enum Config {
    /// Show every limit of the running world: its value, default and range
    ///
    /// Examples:
    ///   ghostctl config show
    ///   ghostctl config show inbox
    ///   ghostctl config show --changed
    #[command(verbatim_doc_comment)]
    Show {
        /// Show only limits whose name contains this text
        name: Option<String>,
        /// Show only limits that differ from their default
        #[arg(long)]
        changed: bool,
    },
}

const LIMITS: &[Column<Limit>] = columns![
    "LIMIT" name, "VALUE" value, "DEFAULT" default_value,
    "RANGE" => |limit, _| format!("{} to {}", limit.least, limit.most),
    "MEANING" meaning,
];

impl Config {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let Self::Show { name, changed } = self;
        let mut limits = client.call(v1::LimitsRequest {}).await?.limits;
        limits.retain(|limit| !changed || limit.value != limit.default_value);
        if let Some(name) = &name {
            limits.retain(|limit| limit.name.contains(name.trim_start_matches("limits.")));
        }
        Ok(Rows::from(limits).answer(&client.view, LIMITS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_has_its_location_and_hint() {
        let problem = ConfigProblem {
            severity: "error".into(),
            file: "world-config.yaml".into(),
            line: 12,
            field: "agents[1].archetype".into(),
            message: "there is no archetype `edtor`".into(),
            hint: Some("did you mean `editor`?".into()),
        };
        let line = "error: world-config.yaml:12: agents[1].archetype: there is no archetype `edtor`\n";
        assert_eq!(problem_text(&problem), format!("{line}  hint: did you mean `editor`?\n"));
        let bare = ConfigProblem { line: 0, field: String::new(), hint: None, ..problem };
        assert_eq!(problem_text(&bare), "error: world-config.yaml: there is no archetype `edtor`\n");
    }
}
