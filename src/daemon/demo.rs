//! `ghostd demo`: runs a world's main job, kills its daemon with SIGKILL several times, and then proves from the database and
//! the workspace that nothing was lost or done twice. It writes only inside the directory that it creates, spends no money, and
//! does not rely on the output of a daemon for its proof.

mod daemon;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::DirBuilder;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use ghost_config::plan::JobPlan;
use ghost_domain::event::{EventFilter, EventKind};
use ghost_domain::journal::Step;
use ghost_domain::{Code, Refusal, Turn, TurnStatus};
use ghost_store::sqlite::SqliteOptions;
use ghost_store::tables::TurnFilter;
use ghost_store::{StoreError, Tx};

use self::daemon::{Daemon, Until};
use crate::data_dir::DataDir;
use crate::database;
use crate::loading::Failure;
use crate::page::Style;
use crate::ports::system_ports;
use crate::storage::Database;
use crate::workspace_dir::{WORKSPACE, WorkspaceDir};

/// Number of times that the daemon is killed.
const KILLS: usize = 3;
/// Maximum number of reads of the proof while the world still has work.
const TRIES_MAX: usize = 10;
/// The job's files, in the directory of the demonstration.
const INPUT: &str = "input";
/// The data directory, in the directory of the demonstration.
const DATA: &str = "data";

/// The options of `ghostd demo`.
#[derive(Debug)]
pub struct DemoOptions {
    /// The `ghostd` to start and kill.
    pub program: PathBuf,
    /// The world's directory.
    pub world_dir: PathBuf,
    /// The directory of the demonstration. It must not exist.
    pub dir: PathBuf,
    /// Number of input files for the job, copied from the world's own input. At least 1.
    pub files: usize,
    /// The style of the output; `verbose` also shows the output of the daemons.
    pub style: Style,
}

/// Runs the demonstration and prints its proof. It blocks until the job is done.
///
/// # Errors
/// If the world cannot be started, has no main job, or has models that may cost money; `Conflict`
/// if the directory exists; `Internal` if the proof fails.
pub fn demo(options: &DemoOptions, env: &dyn Fn(&str) -> Option<String>, out: &mut dyn Write) -> Result<(), Failure> {
    let plan = ghost_config::load(&options.world_dir, env).map_err(Failure::Problems)?;
    if !plan.llm.providers.values().all(|provider| provider.kind.is_local()) {
        let what = format!("the world in {} has models that may cost money", options.world_dir.display());
        return Err(Refusal::new(Code::InvalidArguments, what)
            .hint("give a world whose models are all scripted or recorded, for example worlds/newsroom")
            .into());
    }
    let Some(job) = plan.job else {
        let what = format!("the world in {} has no main job to interrupt", options.world_dir.display());
        return Err(Refusal::new(Code::InvalidArguments, what)
            .hint("add a `job:` section to its world-config.yaml, or give worlds/newsroom")
            .into());
    };
    let names = create_dirs(options, &job)?;
    let mut show = |line: &str| {
        // The demonstration continues if its terminal is closed.
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    };
    show(&options.style.paint("1", &format!("{} files for {}, in {}", names.len(), plan.name, options.dir.display())));
    let kills = run_with_kills(options, names.len(), &mut show)?;
    show(&format!("Proof, read from {}:", options.dir.join(DATA).display()));
    let proof = read_proof_at_rest(options, &job, &names, &mut show)?;
    let mut broken = Vec::new();
    for line in proof.lines(kills) {
        let mark = if line.holds { options.style.paint("32", "ok") } else { options.style.paint("31", "NO") };
        show(&format!("  {mark}  {:<12} {}", line.what, line.found));
        if !line.holds {
            broken.push(line.what);
        }
    }
    if !broken.is_empty() {
        let what = format!("the proof does not hold: {}", broken.join(", "));
        let hint = format!("everything is kept in {}; `--verbose` shows what the daemons print", options.dir.display());
        return Err(Refusal::new(Code::Internal, what).hint(hint).into());
    }
    show(&format!(
        "To run this world again: ghostd up {} --data {}",
        options.world_dir.display(),
        options.dir.join(DATA).display()
    ));
    Ok(())
}

/// Starts the daemon, kills it and starts it again until the job is done. Returns the number of kills.
fn run_with_kills(options: &DemoOptions, files: usize, show: &mut dyn FnMut(&str)) -> Result<usize, Refusal> {
    let mut kills = 0;
    loop {
        let mut daemon = start(options)?;
        // Each file takes several actions, so one action for each file comes well before the end.
        let until = if kills < KILLS { Until::Actions(files) } else { Until::Done };
        let done = daemon.watch(until, &mut echo(options, show))?;
        let (id, seen) = (daemon.id(), daemon.seen());
        if done {
            show(&format!("Start {}: process {id} continued, and the job is done.", kills + 1));
            daemon.watch(Until::Quiet, &mut echo(options, show))?;
            daemon.stop()?;
            return Ok(kills);
        }
        daemon.kill()?;
        kills += 1;
        show(
            &options.style.paint("33", &format!("Start {kills}: agents in process {id} did {seen} actions; kill -9.")),
        );
    }
}

/// Reads the proof. If mail or a turn is left, starts the world again first.
fn read_proof_at_rest(
    options: &DemoOptions,
    job: &JobPlan,
    names: &[String],
    show: &mut dyn FnMut(&str),
) -> Result<Proof, Refusal> {
    let mut tries = 0;
    loop {
        let proof = read_proof(&options.dir.join(DATA), job, names)?;
        tries += 1;
        if proof.is_at_rest() || tries == TRIES_MAX {
            return Ok(proof);
        }
        let mut daemon = start(options)?;
        daemon.watch(Until::Quiet, &mut echo(options, show))?;
        daemon.stop()?;
    }
}

fn start(options: &DemoOptions) -> Result<Daemon, Refusal> {
    Daemon::start(
        &options.program,
        &options.world_dir,
        &options.dir.join(DATA),
        &options.dir.join(INPUT),
        options.style.verbose,
    )
}

/// Shows the output of a daemon, if the output is verbose.
fn echo<'a>(options: &DemoOptions, show: &'a mut dyn FnMut(&str)) -> impl FnMut(&str) + use<'a> {
    let verbose = options.style.verbose;
    move |line| {
        if verbose {
            show(&format!("  {line}"));
        }
    }
}

/// Creates the directory and the job's input files, which are numbered copies of the world's own input. Returns
/// their names.
fn create_dirs(options: &DemoOptions, job: &JobPlan) -> Result<Vec<String>, Refusal> {
    let mut sources: Vec<PathBuf> = std::fs::read_dir(&job.input)
        .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect())
        .map_err(|error| failed("read the input", &job.input, &error))?;
    sources.retain(|path| path.is_file());
    sources.sort();
    if sources.is_empty() {
        let what = format!("the world's own input, {}, has no files", job.input.display());
        return Err(Refusal::new(Code::InvalidArguments, what).hint("put a text file there"));
    }
    DirBuilder::new().mode(0o700).create(&options.dir).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Refusal::new(Code::Conflict, format!("{} is there already", options.dir.display()))
            .hint("give --dir a directory that does not exist, so that nothing of yours is touched"),
        _ => failed("make", &options.dir, &error),
    })?;
    let input = options.dir.join(INPUT);
    std::fs::create_dir(&input).map_err(|error| failed("make", &input, &error))?;
    let mut names = Vec::new();
    for (at, source) in sources.iter().cycle().take(options.files).enumerate() {
        let name = source.file_name().unwrap_or_default().to_string_lossy();
        let name = format!("{:03}-{name}", at + 1);
        let to = input.join(&name);
        std::fs::copy(source, &to).map_err(|error| failed("copy a file to", &to, &error))?;
        names.push(name);
    }
    Ok(names)
}

fn failed(what: &str, path: &Path, error: &std::io::Error) -> Refusal {
    Refusal::new(Code::Unavailable, format!("cannot {what} {}: {error}", path.display()))
}

/// Maximum number of rows in one read.
const PAGE: u32 = 1_000;

/// The counts of which the proof consists.
#[derive(Debug, Default)]
struct Proof {
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
struct Line {
    what: &'static str,
    found: String,
    holds: bool,
}

impl Proof {
    /// Whether no mail and no open turn is left.
    fn is_at_rest(&self) -> bool {
        self.waiting == 0 && self.open == 0
    }

    /// The lines of the proof. `kills` is the number of times that the daemon was killed.
    fn lines(&self, kills: usize) -> Vec<Line> {
        let line = |what, holds, found| Line { what, found, holds };
        let unfinished = self.turns - self.finished;
        let cut = self.started.saturating_sub(self.answered);
        vec![
            line("kills", kills == KILLS, format!("the daemon was killed {kills} times with SIGKILL")),
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
fn read_proof(data: &Path, plan: &JobPlan, files: &[String]) -> Result<Proof, Refusal> {
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
