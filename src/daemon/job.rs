//! The main job: its input is copied into the workspace once, under a name that follows from its content, and its end
//! is seen in the event feed (issue 2, 11).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ghost_commons::{feed::Subscription, jobs};
use ghost_config::plan::{JobPlan, Plan};
use ghost_domain::event::{EventFilter, EventKind};
use ghost_domain::write_acl::WorkspacePath;
use ghost_domain::{Code, Job, Limits, Refusal};
use ghost_world::World;
use sha2::{Digest, Sha256};

/// Directory of the workspace that inputs are copied into.
const INPUTS: &str = "inputs";
/// Directories inside a job's input.
const DEPTH_MAX: usize = 8;

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

/// Gets a job going again that stands still.
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
    let refuse =
        |what: String| Err(Refusal::new(Code::InvalidArguments, what).hint("give --input DIR a folder of text files"));
    if !dir.is_dir() {
        return refuse(format!("the input {} is not a directory", dir.display()));
    }
    let mut found: Vec<(String, PathBuf)> = Vec::new();
    let mut queue = vec![(String::new(), dir.to_owned(), 0)];
    while let Some((prefix, at, depth)) = queue.pop() {
        if depth > DEPTH_MAX {
            return refuse(format!("the input is more than {DEPTH_MAX} directories deep at {}", at.display()));
        }
        let entries = std::fs::read_dir(&at)
            .map_err(|error| Refusal::new(Code::Unavailable, format!("cannot read {}: {error}", at.display())))?;
        for entry in entries {
            let entry = entry
                .map_err(|error| Refusal::new(Code::Unavailable, format!("cannot read {}: {error}", at.display())))?;
            let Ok(name) = entry.file_name().into_string() else {
                return refuse(format!("a file name in {} is not UTF-8", at.display()));
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
                return refuse(format!(
                    "the input has more than {} files (limits.job_files_max)",
                    limits.job_files_max
                ));
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
            return refuse(format!("{path} alone is larger than limits.job_bytes"));
        }
        let bytes = std::fs::read(&from)
            .map_err(|error| Refusal::new(Code::Unavailable, format!("cannot read {}: {error}", from.display())))?;
        total = total.saturating_add(bytes.len());
        if total > limits.job_bytes as usize {
            return refuse(format!("the input is larger than {} bytes (limits.job_bytes)", limits.job_bytes));
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
/// A raised budget gets a job going again that had come to a stand; `still` is told, once for each reason, of a job that
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
    let filter = EventFilter {
        kinds: [EventKind::ArtifactCreated, EventKind::TurnFinished, EventKind::BudgetSet, EventKind::DeadLetterHeld]
            .iter()
            .map(|kind| kind.as_str().into())
            .collect(),
        ..EventFilter::default()
    };
    let mut after = 0;
    let began = world.store().last_seq();
    let mut told = String::new();
    let mut writer: Option<(String, String)> = None;
    loop {
        let mut events = Subscription::open(world.store(), Some(after), filter.clone(), true).await?;
        loop {
            let event = match events.next().await {
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
                let finished = world
                    .store()
                    .write(move |w| Box::pin(async move { jobs::finish(w, &cx, &job_id, &path).await }))
                    .await?;
                return Ok(finished.unwrap_or(job));
            } else if event.seq > began {
                // What happened before is history: a job that stood still then was begun again when this daemon started.
                if event.kind == EventKind::BudgetSet {
                    revive(&world, &plan, &job, &brief).await?;
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
