//! The main job: its input is copied into the workspace once, under a name that follows from its content, and its end
//! is seen in the event feed (issue 2, 11).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ghost_commons::{feed::Subscription, jobs};
use ghost_config::plan::{JobPlan, Plan};
use ghost_domain::budget::next_day;
use ghost_domain::event::{EventFilter, EventKind};
use ghost_domain::text::shown;
use ghost_domain::write_acl::WorkspacePath;
use ghost_domain::{Code, Job, Limits, Refusal, Scope, Timestamp};
use ghost_world::World;
use rustix::fs::Access;
use sha2::{Digest, Sha256};

/// Directory of the workspace that inputs are copied into.
const INPUTS: &str = "inputs";
/// Directories inside a job's input.
const DEPTH_MAX: usize = 8;
/// Between two attempts to get a job going again, or to write its end down.
const AGAIN: Duration = Duration::from_secs(30);
/// Attempts after the first to get a job going again.
const TRIES: u32 = 20;

/// One file of a job's input.
pub struct Input {
    path: WorkspacePath,
    bytes: Vec<u8>,
}

/// Reads the input of a world's main job: that of `given`, else the world's own. Nothing if the world has no job.
///
/// # Errors
/// When the input is missing, empty, too large, or holds what cannot be taken in; when there is no job to take `given`.
pub fn read(plan: &Plan, given: Option<PathBuf>) -> impl Future<Output = Result<Vec<Input>, Refusal>> + use<> {
    let limits = plan.limits.clone();
    let dir = match (&plan.job, given) {
        (Some(job), given) => Ok(Some(given.unwrap_or_else(|| job.input.clone()))),
        (None, None) => Ok(None),
        (None, Some(_)) => Err(Refusal::new(Code::InvalidArguments, "this world has no job that takes an input")
            .hint("add a `job:` section to world-config.yaml, or leave --input out")),
    };
    async move {
        let Some(dir) = dir? else { return Ok(Vec::new()) };
        tokio::task::spawn_blocking(move || read_input(&dir, &limits))
            .await
            .map_err(|error| Refusal::new(Code::Internal, format!("reading the input failed: {error}")))?
    }
}

/// Checks, before anything runs, that the workspace has a place for the input: directories where directories must be, and
/// leave to write in them. Changes nothing.
///
/// # Errors
/// `Unavailable` with the directory that is in the way.
pub fn check_place(workspace: &Path, files: &[Input]) -> Result<(), Refusal> {
    if files.is_empty() {
        return Ok(());
    }
    let base = workspace.join(INPUTS).join(job_id(files));
    for file in files {
        let target = base.join(file.path.as_str());
        let kind = target.symlink_metadata().ok().map(|facts| facts.is_file());
        // What is there was taken in before and is not written again.
        if kind == Some(true) {
            continue;
        }
        let refuse = |at: &Path, what: &str, hint: &str| {
            let message = format!("the job's input cannot be taken in: {} {what}", at.display());
            Err(Refusal::new(Code::Unavailable, message).hint(hint))
        };
        if kind == Some(false) {
            return refuse(&target, "is not a file", "move it away");
        }
        let Some(dir) = target.ancestors().skip(1).find(|dir| dir.symlink_metadata().is_ok()) else { continue };
        if !dir.is_dir() {
            return refuse(dir, "is not a directory", "move it away");
        }
        if rustix::fs::access(dir, Access::WRITE_OK | Access::EXEC_OK).is_err() {
            return refuse(dir, "cannot be written", "make it writable, or give another directory with --data");
        }
    }
    Ok(())
}

/// Takes the job in, unless that was done before, and gives its record and the words that its lead is told. An unfinished
/// job that stands still is begun again where it is.
///
/// # Errors
/// When the workspace or the store refuses.
pub async fn begin(world: &World, plan: &JobPlan, files: &[Input]) -> Result<(Job, String), Refusal> {
    let job_id = job_id(files);
    let base = format!("{INPUTS}/{job_id}");
    // Written before the job is recorded: a crash between the two writes the same bytes again.
    let workspace = &world.engine().office.workspace;
    for file in files {
        let path = file.path.under(&base);
        if workspace.hash(&path).await?.is_none() {
            workspace.write_atomic(&path, &file.bytes).await?;
        }
    }
    let count = u32::try_from(files.len()).unwrap_or(u32::MAX);
    let brief =
        plan.brief.replace("{job_id}", &job_id).replace("{input}", &base).replace("{files}", &count.to_string());
    let (cx, lead, words) = (world.cx().clone(), plan.lead.clone(), brief.clone());
    let job = world
        .store()
        .write(move |w| {
            Box::pin(async move {
                let (job, new) = jobs::begin(w, &cx, &job_id, count, &lead, words.clone()).await?;
                if !new {
                    jobs::revive(w, &cx, &job.job_id, &lead, words).await?;
                }
                Ok::<_, Refusal>(job)
            })
        })
        .await?;
    Ok((job, brief))
}

/// Gets a job going again that stands still. Gives whether it did; not if something is at work, or the store cannot write.
async fn revived(world: &World, plan: &JobPlan, job: &Job, brief: &str) -> Result<bool, Refusal> {
    match revive(world, plan, job, brief).await {
        Err(refusal) if refusal.code == Code::Unavailable => {
            tracing::warn!(%refusal, "the job cannot be begun again yet");
            Ok(false)
        }
        other => other,
    }
}

async fn revive(world: &World, plan: &JobPlan, job: &Job, brief: &str) -> Result<bool, Refusal> {
    let (cx, job_id, lead, brief) = (world.cx().clone(), job.job_id.clone(), plan.lead.clone(), brief.to_owned());
    world.store().write(move |w| Box::pin(async move { jobs::revive(w, &cx, &job_id, &lead, brief).await })).await
}

/// The first 16 hexadecimal digits of the hash over names and contents, in order of name.
fn job_id(files: &[Input]) -> String {
    let mut hasher = Sha256::new();
    for file in files {
        hasher.update(file.path.as_str().as_bytes());
        hasher.update([0]);
        hasher.update((file.bytes.len() as u64).to_le_bytes());
        hasher.update(&file.bytes);
    }
    hasher.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Reads the input directory: regular files only, in order of path, bounded in number, size and depth. Hidden files are
/// passed over; symbolic links are not followed.
fn read_input(dir: &Path, limits: &Limits) -> Result<Vec<Input>, Refusal> {
    let refuse_with = |what: String, hint: String| Err(Refusal::new(Code::InvalidArguments, what).hint(hint));
    let refuse = |what: String| refuse_with(what, "give --input DIR a folder of text files".to_owned());
    let smaller = |setting: &str| format!("raise limits.{setting} in world-config.yaml, or give less at once");
    if !dir.is_dir() {
        return refuse(format!("the input {} is not a directory", dir.display()));
    }
    let mut found: Vec<(String, PathBuf)> = Vec::new();
    let mut queue = vec![(String::new(), dir.to_owned(), 0)];
    while let Some((prefix, at, depth)) = queue.pop() {
        if depth > DEPTH_MAX {
            return refuse_with(
                format!("the input is more than {DEPTH_MAX} directories deep at {}", at.display()),
                format!("move what lies deeper up; files may lie at most {DEPTH_MAX} directories below the input"),
            );
        }
        let entries = std::fs::read_dir(&at)
            .map_err(|error| Refusal::new(Code::Unavailable, format!("cannot read {}: {error}", at.display())))?;
        for entry in entries {
            let entry = entry
                .map_err(|error| Refusal::new(Code::Unavailable, format!("cannot read {}: {error}", at.display())))?;
            let name = match entry.file_name().into_string() {
                Ok(name) => name,
                Err(name) => {
                    let name = shown(&name.to_string_lossy(), 120);
                    return refuse_with(
                        format!("the file name `{name}` in {} is not UTF-8", at.display()),
                        "rename it, or leave it out of the input".to_owned(),
                    );
                }
            };
            let kind = entry
                .file_type()
                .map_err(|error| Refusal::new(Code::Unavailable, format!("cannot look at {name}: {error}")))?;
            if name.starts_with('.') {
                continue;
            }
            let path = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
            if kind.is_dir() {
                queue.push((path, entry.path(), depth + 1));
            } else if kind.is_file() {
                found.push((path, entry.path()));
            }
            if found.len() > limits.job_files_max as usize {
                return refuse_with(
                    format!("the input has more than {} files (limits.job_files_max)", limits.job_files_max),
                    smaller("job_files_max"),
                );
            }
        }
    }
    if found.is_empty() {
        return refuse(format!("the input {} holds no files", dir.display()));
    }
    found.sort();
    let mut total = 0usize;
    let mut files = Vec::with_capacity(found.len());
    for (path, from) in found {
        let length = std::fs::metadata(&from).map(|meta| meta.len()).unwrap_or(u64::MAX);
        if length > u64::from(limits.job_bytes) {
            return refuse_with(
                format!("{path} alone has more than {} bytes (limits.job_bytes)", limits.job_bytes),
                smaller("job_bytes"),
            );
        }
        let bytes = std::fs::read(&from)
            .map_err(|error| Refusal::new(Code::Unavailable, format!("cannot read {}: {error}", from.display())))?;
        total = total.saturating_add(bytes.len());
        if total > limits.job_bytes as usize {
            return refuse_with(
                format!("the input has more than {} bytes (limits.job_bytes)", limits.job_bytes),
                smaller("job_bytes"),
            );
        }
        let checked = WorkspacePath::parse(&path, false).map_err(|refusal| {
            Refusal::new(
                Code::InvalidArguments,
                format!("the input file {path:?} cannot be taken in: {}", refusal.message),
            )
            .hint("rename it, or leave it out of the input")
        })?;
        files.push(Input { path: checked, bytes });
    }
    Ok(files)
}

/// Follows the feed until the job's result is there: a file under the result directory that names the job, and the end of
/// the turn that wrote it. Gives the job's record with its end.
///
/// A raised budget, or the next day's, gets a job going again that had come to a stand; `still` is told, once for each reason, of a job that
/// nothing works on.
pub async fn follow(
    world: Arc<World>,
    plan: JobPlan,
    job: Job,
    brief: String,
    still: impl Fn(&str) + Send,
) -> Result<Job, Refusal> {
    if job.finished_at.is_some() {
        return Ok(job);
    }
    let kinds = [
        EventKind::ArtifactCreated,
        EventKind::TurnFinished,
        EventKind::BudgetSet,
        EventKind::BudgetExhausted,
        EventKind::DeadLetterHeld,
    ];
    let filter =
        EventFilter { kinds: kinds.iter().map(|kind| kind.as_str().into()).collect(), ..EventFilter::default() };
    let mut after = 0;
    let began = world.store().last_seq();
    let mut told = String::new();
    let mut writer: Option<(String, String)> = None;
    // When it is tried to get the job going again, and how often it is tried after that: something else may be at work just
    // then, or the store may be unable to write.
    let mut again: Option<(Timestamp, u32)> = None;
    loop {
        let mut events = Subscription::open(world.store(), Some(after), filter.clone(), true).await?;
        loop {
            let next = tokio::select! {
                next = events.next() => next,
                () = world.cx().ports.clock.sleep_until(again.map_or(Timestamp(0), |(at, _)| at)), if again.is_some() => {
                    let tries = again.take().map_or(0, |(_, tries)| tries);
                    if !revived(&world, &plan, &job, &brief).await? && tries > 0 {
                        again = Some((world.cx().now().plus(AGAIN), tries - 1));
                    }
                    continue;
                }
            };
            let event = match next {
                Ok(Some(event)) => event,
                Ok(None) => return Err(Refusal::new(Code::Unavailable, "the world stopped before the job ended")),
                // Behind: read on from storage.
                Err(_) => {
                    after = events.seen();
                    break;
                }
            };
            let text = |field: &str| event.payload.get(field).and_then(|value| value.as_str()).unwrap_or_default();
            if event.kind == EventKind::ArtifactCreated {
                let path = text("path");
                let within =
                    path.strip_prefix(plan.result.trim_end_matches('/')).is_some_and(|rest| rest.starts_with('/'));
                if within && path.contains(&job.job_id) {
                    writer = Some((path.to_owned(), text("turn_id").to_owned()));
                }
            } else if let Some((path, turn_id)) = &writer
                && text("turn_id") == turn_id
                && text("status") == "finished"
            {
                let (cx, job_id, path) = (world.cx().clone(), job.job_id.clone(), path.clone());
                loop {
                    let (cx, job_id, path) = (cx.clone(), job_id.clone(), path.clone());
                    let finished = world
                        .store()
                        .write(move |w| Box::pin(async move { jobs::finish(w, &cx, &job_id, &path).await }))
                        .await;
                    match finished {
                        Ok(finished) => return Ok(finished.unwrap_or(job)),
                        // A full disk: the result is there, and so it is written down as soon as that can be.
                        Err(refusal) if refusal.code == Code::Unavailable => {
                            tracing::warn!(%refusal, "the end of the job cannot be written down yet");
                            world.cx().ports.clock.sleep(AGAIN).await;
                        }
                        Err(refusal) => return Err(refusal),
                    }
                }
            } else if event.seq > began {
                // What happened before is history: a job that stood still then was begun again when this daemon started.
                if event.kind == EventKind::BudgetSet {
                    again = Some((world.cx().now(), TRIES));
                    continue;
                }
                if event.kind == EventKind::BudgetExhausted {
                    let scope = event.payload.pointer("/details/scope").and_then(|scope| scope.as_str());
                    let daily = matches!(scope.unwrap_or_default().parse(), Ok(Scope::Day(_)));
                    again = daily.then(|| (next_day(event.ts), TRIES)).or(again);
                    continue;
                }
                let why = match event.kind {
                    EventKind::TurnFinished if text("status") == "finished" => "its lead said no more".to_owned(),
                    _ => text("reason").to_owned(),
                };
                let stands = world.store().read(|r| Box::pin(async move { jobs::stands_still(r).await })).await?;
                if stands && why != told {
                    still(&why);
                    told = why;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    #[test]
    fn what_is_too_much_is_told_with_its_bound_and_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let refused = |limits: &Limits| {
            let refusal = read_input(dir.path(), limits).err().unwrap();
            (refusal.message, refusal.hint.unwrap())
        };
        let deep = dir.path().join("1/2/3/4/5/6/7/8");
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::write(deep.join("a"), "12345").unwrap();
        std::fs::write(dir.path().join("b"), "12345").unwrap();
        assert_eq!(read_input(dir.path(), &Limits::default()).unwrap().len(), 2);

        let (what, hint) = refused(&Limits { job_files_max: 1, ..Limits::default() });
        assert!(what.contains("more than 1 files") && hint.contains("limits.job_files_max"), "{what}: {hint}");
        for (job_bytes, told) in [(9, "more than 9 bytes"), (4, "alone has more than 4 bytes")] {
            let (what, hint) = refused(&Limits { job_bytes, ..Limits::default() });
            assert!(what.contains(told) && hint.contains("limits.job_bytes"), "{what}: {hint}");
        }
        std::fs::create_dir(deep.join("9")).unwrap();
        let (what, hint) = refused(&Limits::default());
        assert!(what.contains("more than 8 directories deep") && hint.contains("at most 8"), "{what}: {hint}");
        std::fs::remove_dir(deep.join("9")).unwrap();
        let name = std::ffi::OsString::from_vec(b"caf\xe9.md".to_vec());
        std::fs::write(dir.path().join(name), "x").unwrap();
        let (what, hint) = refused(&Limits::default());
        assert!(what.contains(".md` in ") && hint.starts_with("rename it"), "{what}: {hint}");
    }
}
