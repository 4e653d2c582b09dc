//! `ghostd demo`: runs a world's main job, kills its daemon with SIGKILL several times, and then
//! proves from the database that nothing was lost or done twice.
//!
//! The demonstration must never write outside the directory that it creates, spend money, or
//! succeed if the proof fails.

mod daemon;
mod proof;

use std::fs::DirBuilder;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use ghost_config::plan::JobPlan;
use ghost_domain::{Code, Refusal};

use self::daemon::{Daemon, Until};
use self::proof::Proof;
use crate::failure::Failure;
use crate::page::Style;

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
        let proof = proof::read(&options.dir.join(DATA), job, names)?;
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
