//! The input of the world's main job: the files of a folder, read completely and with limits, the job's name that follows from
//! them, and what a job that is paid for is expected to take, before any model is asked. A part of an input is never accepted.

use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use ghost_config::plan::{JobExpectation, Plan};
use ghost_domain::text::shown;
use ghost_domain::write_acl::WorkspacePath;
use ghost_domain::{Code, Limits, Money, Price, Refusal, RootId, Scope};
use ghost_provider::{is_free, price, tokens_of_bytes};
use ghost_store::Store;
use rustix::fs::{Access, Mode, OFlags, openat};
use sha2::{Digest, Sha256};

/// Directory of the workspace that inputs are copied into.
pub(crate) const INPUTS: &str = "inputs";
/// Directories inside a job's input.
const DEPTH_MAX: usize = 8;
/// Maximum files of the input that one refusal names.
const NAMED_MAX: usize = 20;
/// The hint for an input that is not a folder.
const A_FOLDER: &str = "give --input DIR a folder of text files";

/// One file of a job's input.
pub(crate) struct Input {
    pub(crate) path: WorkspacePath,
    pub(crate) bytes: Vec<u8>,
}

/// A job's input.
#[derive(Default)]
pub(crate) struct Folder {
    /// The files, in order of path.
    pub(crate) files: Vec<Input>,
    /// What was left out, in order of path: hidden files and directories, links, and what is neither a file nor a directory.
    pub(crate) skipped: Vec<String>,
}

/// Reads the input of a world's main job: the directory `given`, else the world's own. Empty if the
/// world has no job.
///
/// # Errors
/// When the input is missing, empty, too large, or has files that cannot be accepted; when the
/// world has no job for `given`.
pub(crate) fn read(plan: &Plan, given: Option<PathBuf>) -> impl Future<Output = Result<Folder, Refusal>> + use<> {
    let limits = plan.limits.clone();
    let dir = match (&plan.job, given) {
        (Some(job), given) => Ok(Some(given.unwrap_or_else(|| job.input.clone()))),
        (None, None) => Ok(None),
        (None, Some(_)) => Err(Refusal::new(Code::InvalidArguments, "this world has no job that takes an input")
            .hint("add a `job:` section to world-config.yaml, or omit --input")),
    };
    async move {
        let Some(dir) = dir? else { return Ok(Folder::default()) };
        tokio::task::spawn_blocking(move || read_input(&dir, &limits))
            .await
            .map_err(|error| Refusal::new(Code::Internal, format!("reading the input failed: {error}")))?
    }
}

/// The refusal for a part of the input that cannot be read.
fn unreadable(path: &Path, error: &std::io::Error) -> Refusal {
    let message = format!("the job's input cannot be read: {}: {error}", path.display());
    Refusal::new(Code::Unavailable, message).hint(ghost_config::unreadable(error))
}

/// Checks, before anything runs, that the workspace can hold the input: existing paths of
/// directories are directories, and the daemon may write in them. Changes nothing.
///
/// # Errors
/// `Unavailable` with the path that prevents the copy.
pub(crate) fn check_place(workspace: &Path, files: &[Input]) -> Result<(), Refusal> {
    if files.is_empty() {
        return Ok(());
    }
    let base = workspace.join(INPUTS).join(job_id(files));
    for file in files {
        let target = base.join(file.path.as_str());
        let kind = target.symlink_metadata().ok().map(|facts| facts.is_file());
        // An existing file was copied before and is not written again.
        if kind == Some(true) {
            continue;
        }
        let refuse = |at: &Path, what: &str, hint: &str| {
            let message = format!("the job's input cannot be copied: {} {what}", at.display());
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

/// The first 16 hexadecimal digits of the hash over names and contents, in order of name.
pub(crate) fn job_id(files: &[Input]) -> String {
    let mut hasher = Sha256::new();
    for file in files {
        hasher.update(file.path.as_str().as_bytes());
        hasher.update([0]);
        hasher.update((file.bytes.len() as u64).to_le_bytes());
        hasher.update(&file.bytes);
    }
    hex::encode(&hasher.finalize()[..8])
}

/// Reads the input directory: regular files only, in order of path, limited in number, size and
/// depth. Hidden files are skipped; symbolic links are not followed.
fn read_input(dir: &Path, limits: &Limits) -> Result<Folder, Refusal> {
    let smaller = |what: String, setting: &str| {
        let hint = format!("raise limits.{setting} in world-config.yaml, or give less at once");
        Refusal::new(Code::TooLarge, what).hint(hint)
    };
    let mut found: Vec<(String, PathBuf)> = Vec::new();
    // Files that cannot be accepted, with the reasons. All of them are reported at once.
    let mut unusable: Vec<String> = Vec::new();
    let mut skipped: Vec<String> = Vec::new();
    let mut queue = vec![(String::new(), dir.to_owned(), 0)];
    check_folder(dir)?;
    while let Some((prefix, at, depth)) = queue.pop() {
        if depth > DEPTH_MAX {
            let what = format!("the input is more than {DEPTH_MAX} directories deep at {}", at.display());
            let hint = format!("move deeper files up: files may be at most {DEPTH_MAX} directories below the input");
            return Err(Refusal::new(Code::TooLarge, what).hint(hint));
        }
        let entries = std::fs::read_dir(&at).map_err(|error| unreadable(&at, &error))?;
        for entry in entries {
            let entry = entry.map_err(|error| unreadable(&at, &error))?;
            let kind = entry.file_type().map_err(|error| unreadable(&entry.path(), &error))?;
            if entry.file_name().as_bytes().starts_with(b".") || !(kind.is_dir() || kind.is_file()) {
                let name = shown(&entry.file_name().to_string_lossy(), 120);
                skipped.push(if prefix.is_empty() { name } else { format!("{}/{name}", shown(&prefix, 200)) });
                continue;
            }
            let Ok(name) = entry.file_name().into_string() else {
                let name = shown(&entry.file_name().to_string_lossy(), 120);
                unusable.push(format!("`{name}` in {}: its name is not UTF-8", at.display()));
                continue;
            };
            let path = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
            if kind.is_dir() {
                queue.push((path, entry.path(), depth + 1));
            } else {
                if let Err(refusal) = WorkspacePath::parse(&path, false) {
                    unusable.push(format!("`{}`: {}", shown(&path, 200), refusal.message));
                }
                found.push((path, entry.path()));
            }
            if found.len() > limits.job_files_max as usize {
                let what = format!("the input has more than {} files (limits.job_files_max)", limits.job_files_max);
                return Err(smaller(what, "job_files_max"));
            }
        }
    }
    if !unusable.is_empty() {
        return Err(cannot_be_taken(unusable));
    }
    if found.is_empty() {
        return Err(
            Refusal::new(Code::InvalidArguments, format!("the input {} has no files", dir.display())).hint(A_FOLDER)
        );
    }
    found.sort();
    let mut total = 0usize;
    let mut files = Vec::with_capacity(found.len());
    for (path, from) in found {
        let alone = |bytes: u64| bytes > u64::from(limits.job_bytes);
        let file = open_below(dir, &path).map_err(|error| unreadable(&from, &error))?;
        let length = file.metadata().map_err(|error| unreadable(&from, &error))?.len();
        let mut bytes = Vec::new();
        if !alone(length) {
            // The file may grow while it is read.
            let most = u64::from(limits.job_bytes) + 1;
            file.take(most).read_to_end(&mut bytes).map_err(|error| unreadable(&from, &error))?;
        }
        if alone(length.max(bytes.len() as u64)) {
            let what = format!("{path} alone has more than {} bytes (limits.job_bytes)", limits.job_bytes);
            return Err(smaller(what, "job_bytes"));
        }
        total = total.saturating_add(bytes.len());
        if total > limits.job_bytes as usize {
            let what = format!("the input has more than {} bytes (limits.job_bytes)", limits.job_bytes);
            return Err(smaller(what, "job_bytes"));
        }
        files.push(Input { path: WorkspacePath::parse(&path, false)?, bytes });
    }
    skipped.sort();
    Ok(Folder { files, skipped })
}

/// Opens the regular file at `path` below `dir`. Whoever may write to the folder can put a link or a pipe in the place of what
/// was found there: no link is followed, and nothing is waited for.
fn open_below(dir: &Path, path: &str) -> std::io::Result<std::fs::File> {
    let mut at = rustix::fs::open(dir, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    for part in Path::new(path) {
        at = openat(&at, part, OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
    }
    let file = std::fs::File::from(at);
    if file.metadata()?.is_file() { Ok(file) } else { Err(std::io::ErrorKind::InvalidInput.into()) }
}

/// Checks that the input is an existing folder.
fn check_folder(dir: &Path) -> Result<(), Refusal> {
    let (code, what) = match std::fs::metadata(dir) {
        Ok(facts) if facts.is_dir() => return Ok(()),
        Ok(_) => (Code::InvalidArguments, "is not a directory"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => (Code::NotFound, "does not exist"),
        Err(error) => return Err(unreadable(dir, &error)),
    };
    Err(Refusal::new(code, format!("the input {} {what}", dir.display())).hint(A_FOLDER))
}

/// The refusal that names the files that cannot be accepted, in order.
fn cannot_be_taken(mut unusable: Vec<String>) -> Refusal {
    unusable.sort();
    let (all, rest) = (unusable.len(), unusable.len().saturating_sub(NAMED_MAX));
    unusable.truncate(NAMED_MAX);
    let more = if rest > 0 { format!("; and {rest} more") } else { String::new() };
    let files = if all == 1 { "a file".to_owned() } else { format!("{all} files") };
    let what = format!("the input has {files} that cannot be accepted: {}{more}", unusable.join("; "));
    Refusal::new(Code::InvalidArguments, what).hint("rename these files, or remove them from the input")
}

/// What a job is expected to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Expectation {
    /// Input tokens of the files alone, and of the whole job as the world states it.
    pub(crate) files: u64,
    /// `None` if the world does not state it.
    pub(crate) job: Option<u64>,
    /// The cost of these input tokens with the dearest of the agents' models; `None` if a price is unknown.
    pub(crate) cost: Option<Money>,
    /// What is left of each budget that bounds the job: its name, tokens and money.
    pub(crate) budgets: Vec<(String, Option<u64>, Option<Money>)>,
}

/// What a job with these files is expected to take. A budget may stop it, an expectation never. `None` if no agent of the world has a model that costs something.
pub(crate) fn expected(plan: &Plan, files: &[Input]) -> Option<Expectation> {
    let prices = plan.agents.iter().filter_map(|agent| {
        let resolved = plan.llm.resolve(&agent.model);
        let (provider, model) = (resolved.provider?, resolved.model?);
        let kind = plan.llm.providers.get(&provider)?.kind;
        let price = price(&plan.llm, &provider, kind, &model);
        (!is_free(kind, price.as_ref())).then_some(price)
    });
    let prices: Vec<_> = prices.collect();
    let dearest = prices.iter().copied().collect::<Option<Vec<_>>>();
    let dearest = dearest.map(|prices| prices.iter().map(Price::dearest_read).max());
    let own = files.iter().map(|file| tokens_of_bytes(file.bytes.len())).sum();
    let job = plan.job.as_ref().and_then(|job| job.expects).map(|expects| in_all(expects, own, files.len()));
    let cost = dearest.map(Option::unwrap_or_default).map(|input| {
        let micros = u128::from(input.0).saturating_mul(job.unwrap_or(own).into()).div_ceil(1_000_000);
        Money(u64::try_from(micros).unwrap_or(u64::MAX))
    });
    (!prices.is_empty()).then_some(Expectation { files: own, job, cost, budgets: Vec::new() })
}

fn in_all(expects: JobExpectation, own: u64, files: usize) -> u64 {
    let each = u64::try_from(files).unwrap_or(u64::MAX).saturating_mul(expects.per_file.into());
    own.saturating_mul(expects.per_token.into()).saturating_add(each).saturating_add(expects.base.into())
}

/// The budgets of the world and of the job's root that have a limit, with what is left of them. `root_tokens` is the
/// limit of a new root; 0 is none.
pub(crate) async fn budgets_of(
    store: &Store,
    root_id: Option<RootId>,
    root_tokens: u64,
) -> Result<Vec<(String, Option<u64>, Option<Money>)>, Refusal> {
    let scopes = [Some(Scope::World), Scope::World.daily(), root_id.map(Scope::Root)];
    let read = store.read_latest(move |r| {
        let mut found = Vec::new();
        for scope in scopes.into_iter().flatten() {
            found.extend(r.budget_get(&scope)?);
        }
        Ok::<_, Refusal>(found)
    });
    let mut held = Vec::new();
    let mut root_is_open = false;
    for budget in read.await? {
        let of_root = matches!(budget.scope, Scope::Root(_));
        root_is_open |= of_root;
        let budget = if of_root { budget.with_default(root_tokens) } else { budget };
        let tokens = budget.limits.tokens.map(|limit| limit.saturating_sub(budget.spent_tokens));
        let money = budget.limits.money.map(|limit| Money(limit.0.saturating_sub(budget.spent_money.0)));
        if tokens.is_some() || money.is_some() {
            let name = if of_root { "the job".to_owned() } else { budget.scope.to_string() };
            held.push((name, tokens, money));
        }
    }
    if !root_is_open && root_tokens > 0 {
        held.push(("the job".to_owned(), Some(root_tokens), None));
    }
    Ok(held)
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
            assert_eq!(refusal.code, Code::TooLarge, "{refusal}");
            (refusal.message, refusal.hint.unwrap())
        };
        let deep = dir.path().join("1/2/3/4/5/6/7/8");
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::write(deep.join("a"), "12345").unwrap();
        std::fs::write(dir.path().join("b"), "12345").unwrap();
        assert_eq!(read_input(dir.path(), &Limits::default()).unwrap().files.len(), 2);

        let (what, hint) = refused(&Limits { job_files_max: 1, ..Limits::default() });
        assert!(what.contains('1') && hint.contains("limits.job_files_max"), "{what}: {hint}");
        for (job_bytes, told) in [(9, "9 bytes"), (4, "4 bytes")] {
            let (what, hint) = refused(&Limits { job_bytes, ..Limits::default() });
            assert!(what.contains(told) && hint.contains("limits.job_bytes"), "{what}: {hint}");
        }
        std::fs::create_dir(deep.join("9")).unwrap();
        let (what, hint) = refused(&Limits::default());
        assert!(what.contains('8') && hint.contains('8'), "{what}: {hint}");
        std::fs::remove_dir(deep.join("9")).unwrap();
    }

    #[test]
    fn what_takes_the_place_of_a_file_is_not_read() {
        let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let link = |target: &Path, at: &str| std::os::unix::fs::symlink(target, dir.path().join(at)).unwrap();
        std::fs::write(outside.path().join("a.md"), "secret").unwrap();
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        std::fs::write(dir.path().join("sub/a.md"), "plain").unwrap();
        link(&outside.path().join("a.md"), "link.md");
        link(outside.path(), "away");
        link(Path::new("sub/a.md"), "near.md");
        let pipe = dir.path().join("pipe.md");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        for path in ["link.md", "away/a.md", "near.md", "pipe.md", "sub", "none.md"] {
            assert!(open_below(dir.path(), path).is_err(), "{path}");
        }
        assert!(open_below(dir.path(), "sub/a.md").is_ok());
    }

    #[test]
    fn what_is_no_folder_and_files_that_cannot_be_taken_in_are_told_all_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let refused = |dir: &Path| read_input(dir, &Limits::default()).err().unwrap();
        let missing = refused(&dir.path().join("missing"));
        assert!(missing.code == Code::NotFound && missing.message.contains("missing"), "{missing}");
        let file = dir.path().join("a file");
        std::fs::write(&file, "x").unwrap();
        let none = refused(&file);
        assert!(none.code == Code::InvalidArguments && none.message.contains("a file"), "{none}");
        std::fs::create_dir(dir.path().join("deep")).unwrap();
        std::os::unix::fs::symlink(&file, dir.path().join("deep/link.md")).unwrap();
        std::fs::write(dir.path().join(".hidden"), "x").unwrap();
        let folder = read_input(dir.path(), &Limits::default()).unwrap();
        assert_eq!((folder.files.len(), folder.skipped), (1, vec![".hidden".to_owned(), "deep/link.md".to_owned()]));

        let names = [b"caf\xe9.md".to_vec(), b"two\nlines.md".to_vec(), b"fine.md".to_vec(), b".\xe9".to_vec()];
        for name in names {
            std::fs::write(dir.path().join(std::ffi::OsString::from_vec(name)), "x").unwrap();
        }
        let both = refused(dir.path());
        assert_eq!(both.code, Code::InvalidArguments);
        assert!(both.message.contains('2'), "{both}");
        assert!(both.message.contains(".md` in ") && both.message.contains("two\\nlines.md"), "{both}");
        assert!(both.hint.is_some());
        let many: Vec<String> = (10..35).map(|n| format!("`{n}`: odd")).collect();
        let told = cannot_be_taken(many).message;
        assert!(told.contains("25") && told.contains("`29`") && !told.contains("`30`"), "{told}");
    }
}
