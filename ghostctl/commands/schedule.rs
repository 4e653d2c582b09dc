//! `ghostctl timer`, `cron` and `watch`: what wakes agents, by time or by a change of a file. A lookup never returns a
//! schedule of another kind.

use ghost_proto::v1::{JobOptions, Schedule, ScheduleRun};
use serde_json::Value;

use crate::arguments::{from_0, from_1, optional_text, parse_instant, parse_span_ms, text_or_stdin, whole_number};
use crate::commands::prelude::*;
use crate::text::one_line;

#[derive(Debug, clap::Subcommand)]
pub enum Timer {
    /// Set a timer that sends an agent one reminder; a timer with the same name is replaced
    ///
    /// Examples:
    ///   ghostctl timer set chora standup --in 10m --message 'Write the report'
    ///   ghostctl timer set chora launch --at 2026-11-30T18:00:00Z --message 'Publish it'
    #[command(verbatim_doc_comment)]
    #[command(group(clap::ArgGroup::new("when").required(true).args(["after_ms", "at_ms"])))]
    Set {
        /// Agent id
        #[arg(id = "agent_id", value_name = "AGENT")]
        agent: String,
        /// Name of the timer
        #[arg(value_name = "NAME")]
        name: String,
        /// Fire after this time, such as 90s or 1h30m
        #[arg(long = "in", value_name = "TIME", value_parser = parse_span_ms, allow_hyphen_values = true)]
        after_ms: Option<i64>,
        /// Fire at this time (ISO 8601; UTC if it has no zone)
        #[arg(long = "at", id = "at_ms", value_name = "T", value_parser = parse_instant, allow_hyphen_values = true)]
        at: Option<i64>,
        /// Send this text (default: the timer's name); - reads standard input
        #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
        message: Option<String>,
    },
    #[command(flatten)]
    Listed(Listed),
    Cancel(Cancel),
}

impl Timer {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        match self {
            Self::Set { agent: agent_id, name, after_ms, at: at_ms, message } => {
                let message = optional_text(message)?.unwrap_or_default();
                let request = v1::SetScheduleRequest { agent_id, name, message, after_ms, at_ms, ..<_>::default() };
                set(client, "timer", request).await
            }
            Self::Listed(verb) => verb.run(client, "timer").await,
            Self::Cancel(verb) => verb.run(client, "timer").await,
        }
    }
}

#[derive(Debug, clap::Subcommand)]
pub enum Watch {
    /// Notify an agent when a file or directory of the workspace changes
    ///
    /// Examples:
    ///   ghostctl watch add chora inbox shared/inbox --changes created --message 'Read what came in'
    ///   ghostctl watch add chora all projects --recursive
    #[command(verbatim_doc_comment)]
    Add {
        /// Agent id
        #[arg(id = "agent_id", value_name = "AGENT")]
        agent: String,
        /// Name of the watch
        #[arg(value_name = "NAME")]
        name: String,
        /// Path relative to the workspace; `.` is the whole workspace
        #[arg(value_name = "PATH")]
        path: String,
        /// Watch everything below the directory
        #[arg(long)]
        recursive: bool,
        /// Report only these changes: created, modified, removed, renamed (default: all)
        #[arg(long, value_name = "C,C", value_delimiter = ',')]
        changes: Vec<String>,
        /// Report changes within this many milliseconds together
        #[arg(long = "debounce-ms", value_name = "MS", value_parser = from_0::<u32>)]
        debounce_ms: Option<u32>,
        /// Send this text with the notification
        #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true, allow_hyphen_values = true)]
        message: String,
    },
    #[command(flatten)]
    Listed(Listed),
    Cancel(Cancel),
}

impl Watch {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        match self {
            Self::Add { agent: agent_id, name, path, recursive, changes, debounce_ms, message } => {
                let (path, message) = (Some(path), text_or_stdin(message)?);
                let what = v1::SetScheduleRequest { agent_id, name, message, path, recursive, ..<_>::default() };
                set(client, "watch", v1::SetScheduleRequest { changes, debounce_ms, ..what }).await
            }
            Self::Listed(verb) => verb.run(client, "watch").await,
            Self::Cancel(verb) => verb.run(client, "watch").await,
        }
    }
}

#[derive(Debug, clap::Subcommand)]
pub enum Cron {
    Add(Box<Add>),
    #[command(flatten)]
    Listed(Listed),
    /// Run a job now, in addition to its schedule
    Run {
        /// Job id, or AGENT/NAME
        #[arg(id = "schedule_id", value_name = "ID")]
        id: String,
    },
    /// Enable a job; runs missed while it was disabled are not made up
    Enable(Job),
    /// Disable a job without removing it
    Disable(Job),
    Cancel(Cancel),
}

/// Add a cron job for an agent; a job with the same name is replaced
///
/// Examples:
///   ghostctl cron add chora mail --cron '0 9 * * 1-5' --zone Europe/Berlin --message 'Read the mail'
///   ghostctl cron add chora pulse --every 1h --message 'Look around' --missed run_once
///   ghostctl cron add chora digest --cron '0 18 * * *' --session isolated --deliver announce --to news --run-timeout 2m --message 'Write the digest'
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
#[command(group(clap::ArgGroup::new("when").required(true).args(["cron", "every_ms", "at_ms"])))]
pub struct Add {
    /// Agent id
    #[arg(id = "agent_id", value_name = "AGENT")]
    agent: String,
    /// Name of the job
    #[arg(value_name = "NAME")]
    name: String,
    /// Run by this cron expression: minute hour day month weekday, with optional seconds in front
    #[arg(long, value_name = "EXPR", allow_hyphen_values = true)]
    cron: Option<String>,
    /// Evaluate --cron in this time zone, such as Europe/Berlin (default: UTC)
    #[arg(long, value_name = "Z", conflicts_with_all = ["every_ms", "at_ms"])]
    zone: Option<String>,
    /// Run at this interval, such as 15m or 1h30m
    #[arg(long = "every", id = "every_ms", value_name = "TIME", value_parser = parse_span_ms, allow_hyphen_values = true)]
    every_ms: Option<i64>,
    /// Count the intervals of --every from this time (ISO 8601; default: now)
    #[arg(long = "anchor", id = "anchor_ms", value_name = "T", requires = "every_ms", value_parser = parse_instant, allow_hyphen_values = true)]
    anchor: Option<i64>,
    /// Run once at this time (ISO 8601); the job is removed afterwards
    #[arg(long = "at", id = "at_ms", value_name = "T", value_parser = parse_instant, allow_hyphen_values = true)]
    at: Option<i64>,
    /// Give the agent this instruction; - reads standard input
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    message: String,
    /// Handle runs missed while the daemon was down: skip or run_once
    #[arg(long, value_name = "POLICY")]
    missed: Option<String>,
    /// Run as a message in the agent's main session (main, the default) or in a separate turn (isolated)
    #[arg(long, value_name = "S")]
    session: Option<String>,
    /// Set the payload kind: systemEvent with main, agentTurn with isolated
    #[arg(long, value_name = "P")]
    payload: Option<String>,
    /// Wake the agent now, or with its next-heartbeat
    #[arg(long, value_name = "MODE")]
    wake: Option<String>,
    /// Deliver the last text of an isolated turn: none, announce (the default) or webhook
    #[arg(long, value_name = "HOW")]
    deliver: Option<String>,
    /// Deliver to this target: last, a channel or a conversation id; for webhook: NAME or NAME/THREAD
    #[arg(long, value_name = "TARGET")]
    to: Option<String>,
    /// Limit the duration of an isolated turn, such as 90s
    #[arg(long = "run-timeout", id = "timeout_seconds", value_name = "TIME", value_parser = parse_span_ms, allow_hyphen_values = true)]
    run_timeout: Option<i64>,
    /// Limit the model calls of an isolated turn
    #[arg(long = "max-rounds", value_name = "N", value_parser = from_1::<u32>)]
    max_rounds: Option<u32>,
    /// Use this model for an isolated turn: MODEL or PROVIDER/MODEL
    #[arg(long, value_name = "M")]
    model: Option<String>,
}

/// The job to enable or disable.
#[derive(Debug, clap::Args)]
pub struct Job {
    /// Job id, or AGENT/NAME
    #[arg(id = "schedule_id", value_name = "ID")]
    id: String,
}

impl Cron {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        match self {
            Self::Add(verb) => verb.run(client).await,
            Self::Listed(verb) => verb.run(client, "cron").await,
            Self::Run { id } => {
                let Schedule { schedule_id, agent_id, name, .. } = find(client, "cron", &id).await?;
                let request = v1::RunScheduleRequest { request_id: new_request_id(), schedule_id };
                let run = client.call(request).await?;
                let note = run.note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
                Ok(Answer::new(&run, format!("run {} of {agent_id}/{name}: {}{note}", run.run, run.status)))
            }
            Self::Enable(job) => job.enable(client, true).await,
            Self::Disable(job) => job.enable(client, false).await,
            Self::Cancel(verb) => verb.run(client, "cron").await,
        }
    }
}

impl Add {
    async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = v1::SetScheduleRequest {
            agent_id: self.agent,
            name: self.name,
            message: text_or_stdin(self.message)?,
            missed: self.missed,
            at_ms: self.at,
            // The parser refuses negative values.
            every_ms: self.every_ms.map(i64::unsigned_abs),
            anchor_ms: self.anchor,
            cron: self.cron,
            zone: self.zone,
            session: self.session,
            payload: self.payload,
            wake: self.wake,
            deliver: self.deliver,
            to: self.to,
            timeout_seconds: self.run_timeout.map(whole_seconds).transpose()?,
            max_rounds: self.max_rounds,
            model: self.model,
            ..v1::SetScheduleRequest::default()
        };
        set(client, "cron", request).await
    }
}

/// Milliseconds as whole seconds, the unit of a job's timeout.
fn whole_seconds(ms: i64) -> Result<u32, Failure> {
    match u32::try_from(ms / 1_000) {
        Ok(seconds) if ms % 1_000 == 0 => Ok(seconds),
        _ => {
            Err(Failure::new("invalid_arguments", "--run-timeout must be whole seconds").hint("write it as 90s or 2m"))
        }
    }
}

impl Job {
    async fn enable(self, client: &Client, enabled: bool) -> Result<Answer, Failure> {
        let schedule_id = find(client, "cron", &self.id).await?.schedule_id;
        let request = v1::EnableScheduleRequest { request_id: new_request_id(), schedule_id, enabled };
        Ok(now(&client.call(request).await?, &client.view))
    }
}

async fn set(client: &Client, kind: &str, request: v1::SetScheduleRequest) -> Result<Answer, Failure> {
    let request = v1::SetScheduleRequest { request_id: new_request_id(), kind: kind.to_owned(), ..request };
    Ok(now(&client.call(request).await?, &client.view))
}

/// The answer of a command that set or changed a schedule.
fn now(schedule: &Schedule, view: &View) -> Answer {
    let next = match (schedule.enabled, schedule.next_at_ms) {
        (false, _) => "is disabled".to_owned(),
        (true, Some(at)) => format!("runs next at {}", view.when(at)),
        (true, None) => "is set".to_owned(),
    };
    let Schedule { kind, name, agent_id, schedule_id, .. } = schedule;
    Answer::new(schedule, format!("{kind} {name} of {agent_id} {next}\n{schedule_id}"))
}

/// Cancel one and remove it; the record of its runs is kept
#[derive(Debug, clap::Args)]
pub struct Cancel {
    /// Schedule id, or AGENT/NAME
    #[arg(id = "schedule_id", value_name = "ID")]
    id: String,
}

impl Cancel {
    async fn run(self, client: &Client, kind: &str) -> Result<Answer, Failure> {
        let schedule_id = find(client, kind, &self.id).await?.schedule_id;
        let request = v1::CancelScheduleRequest { request_id: new_request_id(), schedule_id };
        let schedule = client.call(request).await?;
        let text = format!("{} {} of {} cancelled", schedule.kind, schedule.name, schedule.agent_id);
        Ok(Answer::new(&schedule, text))
    }
}

/// The lists of `timer`, `cron` and `watch`.
#[derive(Debug, clap::Subcommand)]
pub enum Listed {
    /// List them with the next time and the status of the last run
    List {
        /// Show only those of this agent
        #[arg(long = "agent", id = "agent_id", value_name = "AGENT")]
        agent: Option<String>,
    },
    /// List the runs of one, newest first, including refused and skipped runs
    Runs {
        /// Schedule id, or AGENT/NAME; only the id works for one that is removed
        #[arg(id = "schedule_id", value_name = "ID")]
        id: String,
        /// Print at most N rows, 1 to 1000
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = listed_runs)]
        limit: u32,
    },
}

/// The daemon lists at most this many runs.
const RUNS_MAX: u32 = 1_000;

fn listed_runs(text: &str) -> Result<u32, String> {
    whole_number(text, 1, RUNS_MAX.into())
}

const SCHEDULES: &[Column<Schedule>] = columns![
    "AGENT" agent_id, "NAME" name,
    "WHEN" => rule,
    "NEXT" => |schedule, view| match (schedule.enabled, schedule.next_at_ms) {
        (false, _) => "off".to_owned(),
        (true, at) => or_dash(at.map(|at| format!("{} ({})", view.moment(at), view.age(at)))),
    },
    "LAST" => |schedule, view| or_dash(schedule.last_at_ms.map(|at| view.when(at))),
    "LAST RUN" => |schedule, _| or_dash(schedule.last_status.clone()),
    "SESSION" => |schedule, _| options(schedule).session,
    "TO" => |schedule, _| or_dash(Some(options(schedule).to).filter(|to| !to.is_empty())),
    "TIMEOUT" => |schedule, _| or_dash(options(schedule).timeout_seconds.map(|seconds| format!("{seconds} s"))),
    "ROUNDS" => |schedule, _| or_dash(options(schedule).max_rounds.map(|rounds| rounds.to_string())),
    "MODEL" => |schedule, _| or_dash(options(schedule).model),
    "CONVERSATION" => |schedule, _| or_dash(schedule.conversation_id.clone()),
    "ID" schedule_id,
];

/// Only a cron job can run as an isolated turn, with limits and a delivery target of its own.
const OF_JOBS: [&str; 5] = ["SESSION", "TO", "TIMEOUT", "ROUNDS", "MODEL"];

const RUNS: &[Column<ScheduleRun>] = columns![
    "RUN" run, "SLOT" moment slot_at_ms, "STATUS" status,
    "LATE" => |run, _| if run.late { "yes" } else { "" }.to_owned(),
    "MISSED" missed, "NOTE" note,
];

fn or_dash(value: Option<String>) -> String {
    value.unwrap_or_else(|| "-".to_owned())
}

fn options(schedule: &Schedule) -> JobOptions {
    schedule.options.clone().unwrap_or_default()
}

impl Listed {
    async fn run(self, client: &Client, kind: &str) -> Result<Answer, Failure> {
        match self {
            Self::List { agent } => {
                let columns = SCHEDULES.iter().filter(|(head, _)| kind == "cron" || !OF_JOBS.contains(head));
                let columns: Vec<Column<Schedule>> = columns.copied().collect();
                Ok(all_of_kind(client, kind, agent).await?.answer(&client.view, &columns))
            }
            Self::Runs { id, limit } => {
                let schedule_id = match id.contains('/') {
                    true => find(client, kind, &id).await?.schedule_id,
                    false => full_id(client, IdKind::SCHEDULE, id).await?,
                };
                let found = client.call(v1::ListRunsRequest { schedule_id, limit }).await;
                let rows = found.map_err(|failure| add_name_hint(kind, failure))?.runs;
                let full = rows.len() >= limit as usize;
                let note = full.then(|| match limit {
                    RUNS_MAX => Note::Cut(format!("only the newest {RUNS_MAX} are shown; the daemon lists no more")),
                    limit => Note::Word(format!("only the newest {limit} are shown; use --limit to see more")),
                });
                Ok(Rows { rows, note }.answer(&client.view, RUNS))
            }
        }
    }
}

/// When a schedule runs, in a few words.
fn rule(schedule: &Schedule, view: &View) -> String {
    let when: Value = serde_json::from_str(&schedule.when_json).unwrap_or_default();
    let text = |key: &str| when[key].as_str().unwrap_or_default().to_owned();
    match when["type"].as_str() {
        Some("at") => match text("at").parse::<jiff::Timestamp>() {
            Ok(at) => view.moment(at.as_millisecond()),
            Err(_) => text("at"),
        },
        Some("every") => format!("every {} s", when["every_ms"].as_u64().unwrap_or_default() / 1_000),
        Some("cron") => match when["zone"].as_str() {
            Some(zone) => format!("{} {zone}", text("expression")),
            None => format!("{} UTC", text("expression")),
        },
        Some("change") => {
            let path = text("path");
            let path = if path.is_empty() { ".".to_owned() } else { path };
            if when["recursive"] == true { format!("{path} (recursive)") } else { path }
        }
        _ => String::new(),
    }
}

/// All schedules of a kind.
async fn all_of_kind(client: &Client, kind: &str, agent_id: Option<String>) -> Result<Rows<Schedule>, Failure> {
    let request = v1::ListSchedulesRequest { agent_id, kind: Some(kind.to_owned()), ..<_>::default() };
    pages(client, &Bound::ALL, request).await
}

/// The schedule with this id or `<agent>/<name>`. A schedule of another kind is not found, so that, for example,
/// `timer cancel` cannot cancel a cron job.
async fn find(client: &Client, kind: &str, text: &str) -> Result<Schedule, Failure> {
    if let Some((agent, name)) = text.split_once('/') {
        let schedules = all_of_kind(client, kind, Some(agent.to_owned())).await?.rows;
        return schedules.into_iter().find(|schedule| schedule.name == name).ok_or_else(|| not_found(kind, text));
    }
    let schedule_id = full_id(client, IdKind::SCHEDULE, text.to_owned()).await?;
    let found = client.call(v1::GetScheduleRequest { schedule_id }).await;
    let found = found.map_err(|failure| add_name_hint(kind, failure))?;
    if found.kind == kind { Ok(found) } else { Err(not_found(kind, text)) }
}

/// Adds the form AGENT/NAME to the hint of a refused id. The daemon itself accepts only ids.
fn add_name_hint(kind: &str, failure: Failure) -> Failure {
    match failure.code.as_str() {
        "invalid_arguments" => failure.hint(format!("use its id or AGENT/NAME; `ghostctl {kind} list` shows both")),
        _ => failure,
    }
}

fn not_found(kind: &str, text: &str) -> Failure {
    let text = one_line(text, 100);
    let what = if kind == "cron" { "cron job" } else { kind };
    Failure::new("not_found", format!("there is no {what} `{text}`"))
        .hint(format!("see `ghostctl {kind} list`; a finished one is removed, and its runs are found by its id"))
}
