//! The proof of a demonstration, from the database and the workspace after the job.
//!
//! The proof must never change either, or rely on the output of a daemon.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use ghost_config::plan::JobPlan;
use ghost_domain::event::{EventFilter, EventKind};
use ghost_domain::journal::Step;
use ghost_domain::{Code, Refusal, Turn, TurnStatus};
use ghost_store::sqlite::SqliteOptions;
use ghost_store::tables::TurnFilter;
use ghost_store::{StoreError, Tx};

use crate::data_dir::DataDir;
use crate::database;
use crate::ports::system_ports;
use crate::storage::Database;
use crate::workspace_dir::{WORKSPACE, WorkspaceDir};

/// Maximum number of rows in one read.
const PAGE: u32 = 1_000;

/// The counts of which the proof consists.
#[derive(Debug, Default)]
pub(super) struct Proof {
    turns: usize,
    finished: usize,
    open: usize,
    resumed: usize,
    messages: usize,
    /// Messages that were consumed by more than one turn.
    shared: usize,
    /// Messages that are still in an inbox.
    waiting: u64,
    started: usize,
    answered: usize,
    calls: usize,
    /// Calls with more than one recorded outcome.
    repeated: usize,
    /// Whether the main job is done.
    done: bool,
    /// Files in the job's result directory.
    results: Vec<PathBuf>,
    files: usize,
    /// Number of input files that the result names.
    named: usize,
}

/// A line of the proof.
pub(super) struct Line {
    pub(super) what: &'static str,
    pub(super) found: String,
    pub(super) holds: bool,
}

impl Proof {
    /// Whether no mail and no open turn is left.
    pub(super) fn is_at_rest(&self) -> bool {
        self.waiting == 0 && self.open == 0
    }

    /// The lines of the proof. `kills` is the number of times that the daemon was killed.
    pub(super) fn lines(&self, kills: usize) -> Vec<Line> {
        let line = |what, holds, found| Line { what, found, holds };
        let unfinished = self.turns - self.finished;
        let cut = self.started.saturating_sub(self.answered);
        vec![
            line("kills", kills == super::KILLS, format!("the daemon was killed {kills} times with SIGKILL")),
            line(
                "turns",
                unfinished == 0,
                format!("{} finished, {unfinished} not; {} were interrupted and resumed", self.finished, self.resumed),
            ),
            line(
                "messages",
                self.shared == 0 && self.waiting == 0,
                format!(
                    "{} consumed, each in one turn; {} in several, {} waiting",
                    self.messages, self.shared, self.waiting
                ),
            ),
            line(
                "model calls",
                true,
                format!("{} answered; {cut} were interrupted before their answer and asked again", self.answered),
            ),
            line(
                "tool calls",
                self.repeated == 0,
                format!("{} with one outcome each, {} with several", self.calls, self.repeated),
            ),
            line(
                "briefing",
                self.done && self.results.len() == 1 && self.named == self.files,
                format!(
                    "{} in {}, which names {} of {} files",
                    self.results.len(),
                    self.results.first().map_or_else(|| "no place".to_owned(), |path| path.display().to_string()),
                    self.named,
                    self.files
                ),
            ),
        ]
    }
}

/// Reads the proof from a data directory that no daemon uses, for a job with these input files.
///
/// # Errors
/// If the directory is in use, or if its database or the result cannot be read.
pub(super) fn read(data: &Path, plan: &JobPlan, files: &[String]) -> Result<Proof, Refusal> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| Refusal::new(Code::Internal, format!("the runtime cannot start: {error}")))?;
    let mut proof = runtime.block_on(async {
        let ports = system_ports();
        let data_dir = DataDir::lock(data, &*ports.clock).await?;
        let sqlite = Database::Sqlite(SqliteOptions::default());
        let store = database::open(&data_dir, &WorkspaceDir::within(&data_dir), sqlite).await?;
        let proof = store.read(recorded).await;
        store.close().await;
        proof.map_err(Refusal::from)
    })?;
    let results = data.join(WORKSPACE).join(&plan.result);
    let unread = |error: std::io::Error| {
        Refusal::new(Code::Unavailable, format!("cannot read the result in {}: {error}", results.display()))
    };
    for entry in std::fs::read_dir(&results).map_err(unread)? {
        proof.results.push(entry.map_err(unread)?.path());
    }
    if let [result] = &proof.results[..] {
        let text = std::fs::read_to_string(result).map_err(unread)?;
        proof.named = files.iter().filter(|name| text.contains(name.as_str())).count();
    }
    proof.files = files.len();
    Ok(proof)
}

/// The part of the proof that is in the database.
fn recorded(r: &mut Tx) -> Result<Proof, StoreError> {
    let mut proof = Proof { waiting: r.inbox_total()?, ..Proof::default() };
    proof.done = matches!(&r.job_list(None, 2)?[..], [job] if job.finished_at.is_some());
    let mut readers = BTreeMap::<_, usize>::new();
    for turn in all_turns(r)? {
        proof.turns += 1;
        proof.finished += usize::from(turn.status == TurnStatus::Finished);
        proof.open += usize::from(turn.status == TurnStatus::Open);
        for message in r.messages_of_turn(turn.turn_id)? {
            *readers.entry(message.message_id).or_default() += 1;
        }
        let mut outcomes = BTreeMap::<_, usize>::new();
        for row in r.journal_of(turn.turn_id)? {
            match row.step {
                Step::ModelStarted { .. } => proof.started += 1,
                Step::ModelAnswered { .. } => proof.answered += 1,
                Step::CallFinished { call_id, .. } => *outcomes.entry(call_id).or_default() += 1,
                _ => {}
            }
        }
        proof.calls += outcomes.len();
        proof.repeated += outcomes.values().filter(|&&outcomes| outcomes > 1).count();
    }
    proof.messages = readers.len();
    proof.shared = readers.values().filter(|&&turns| turns > 1).count();
    proof.resumed = resumed(r)?;
    Ok(proof)
}

fn all_turns(r: &mut Tx) -> Result<Vec<Turn>, StoreError> {
    let mut turns: Vec<Turn> = Vec::new();
    loop {
        let after = turns.last().map(|turn| (turn.started_at, turn.turn_id));
        let page = r.turn_list(&TurnFilter { after, limit: PAGE, ..TurnFilter::default() })?;
        if page.is_empty() {
            return Ok(turns);
        }
        turns.extend(page);
    }
}

/// Number of turns that resumed after a start.
fn resumed(r: &mut Tx) -> Result<usize, StoreError> {
    let filter = EventFilter { kinds: vec![EventKind::TurnResumed.as_str().to_owned()], ..EventFilter::default() };
    let (mut turns, mut after) = (BTreeSet::new(), 0);
    loop {
        let (events, last_read) = r.event_list(after, &filter, PAGE)?;
        turns.extend(events.iter().filter_map(|event| event.payload["turn_id"].as_str().map(str::to_owned)));
        if last_read <= after {
            return Ok(turns.len());
        }
        after = last_read;
    }
}
