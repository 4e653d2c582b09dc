//! The rule files of a directory: read all at once, and every problem of every one told with its line.
//!
//! Must never: stop at the first problem, or read a file of unbounded size.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use ghost_config::problem::{Problem, Problems, Severity};

use super::FILES_MAX;
use super::read::{FILE_MAX, ReadFile, ToolName, read};
use super::script::Script;
use super::vetted::{Vetted, digest_of};

/// Files that are read at the same time.
const THREADS_MAX: usize = 4;

/// What a thorough look at the rule files of a directory found.
#[derive(Debug, Default)]
pub struct Survey {
    /// Everything that is wrong, in no order.
    pub problems: Vec<Problem>,
    /// The models that have a file, broken or not, with the tools that it names as they stand.
    pub models: BTreeMap<String, Vec<ToolName>>,
}

/// Looks at every rule file of a directory for `ghostd check`: at all that keeps a world from starting, and at what a start
/// leaves for when a rule is reached.
#[must_use]
pub fn survey(dir: &Path) -> Survey {
    let mut survey = Survey::default();
    match names(dir) {
        Err(problem) => survey.problems.push(problem),
        Ok(names) => {
            let texts: Vec<Text> = names.into_iter().map(|model| text_of(dir, model)).collect();
            let found = each(&texts, |Text { model, file, text }| match text {
                Ok(text) => read(text, file, model, true),
                Err(problem) => ReadFile { rules: None, tools: Vec::new(), problems: vec![problem.clone()] },
            });
            for (Text { model, .. }, found) in texts.into_iter().zip(found) {
                survey.problems.extend(found.problems);
                survey.models.insert(model, found.tools);
            }
        }
    }
    survey
}

/// The file with the rules of `model`. A model's name is a file's: anything that could leave the directory is none.
#[must_use]
pub fn path_of(dir: &Path, model: &str) -> Option<PathBuf> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let fits = !model.is_empty() && model.len() <= 100 && !model.starts_with('.') && model.chars().all(plain);
    fits.then(|| dir.join(format!("{model}.yaml")))
}

/// Loads every `<model>.yaml` of a directory. Those that `vetted` vouches for are read when their rules are asked for.
pub(super) fn load_all(dir: &Path, vetted: &Vetted) -> Result<BTreeMap<String, Script>, Problems> {
    let names = names(dir).map_err(|problem| Problems(vec![problem]))?;
    let (mut scripts, mut problems, mut unknown) = (BTreeMap::new(), Vec::new(), Vec::new());
    for Text { model, file, text } in names.into_iter().map(|model| text_of(dir, model)) {
        match text {
            Ok(text) => {
                let digest = digest_of(&text);
                if vetted.knows(&digest) {
                    scripts.insert(model.clone(), Script::unread(model, file, digest, text));
                } else {
                    unknown.push((model, file, text, digest));
                }
            }
            Err(problem) => problems.push(problem),
        }
    }
    let read = each(&unknown, |(model, file, text, _)| read(text, file, model, false));
    for ((model, file, _, digest), found) in unknown.into_iter().zip(read) {
        problems.extend(found.problems);
        scripts.extend(found.rules.map(|rules| (model.clone(), Script::read(model, file, digest, rules))));
    }
    if problems.is_empty() { Ok(scripts) } else { Err(Problems::sorted(problems)) }
}

/// What comes of `work` for each item, several at a time: a world starts when the last is compiled.
fn each<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(items.len())));
    let worker = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { return };
            let result = work(item);
            // The list is whole between any two calls, whoever panicked.
            done.lock().unwrap_or_else(PoisonError::into_inner).push((at, result));
        }
    };
    thread::scope(|scope| {
        // Asking how many cores there are takes as long as a file.
        for _ in 1..THREADS_MAX.min(items.len()) {
            scope.spawn(worker);
        }
        worker();
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

/// The models that have a rule file.
fn names(dir: &Path) -> Result<Vec<String>, Problem> {
    let unreadable = |error: std::io::Error| problem(dir, format!("cannot be read: {error}"), None);
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(unreadable)?.take(FILES_MAX * 8) {
        if let Some(model) = entry.map_err(unreadable)?.file_name().to_str().and_then(|name| name.strip_suffix(".yaml"))
        {
            names.push(model.to_owned());
        }
    }
    names.sort();
    match names.len() {
        0 => {
            let hint = "a scripted provider needs a `<model>.yaml` for each of its models";
            Err(problem(dir, "holds no rule files".to_owned(), Some(hint)))
        }
        1..=FILES_MAX => Ok(names),
        _ => Err(problem(dir, format!("holds more than {FILES_MAX} rule files"), None)),
    }
}

/// A problem of a file as a whole.
fn problem(file: &Path, message: String, hint: Option<&str>) -> Problem {
    let (hint, field) = (hint.map(str::to_owned), String::new());
    Problem { severity: Severity::Error, file: file.to_owned(), line: 0, field, message, hint }
}

/// A rule file as it was found.
struct Text {
    model: String,
    file: PathBuf,
    text: Result<String, Problem>,
}

fn text_of(dir: &Path, model: String) -> Text {
    match path_of(dir, &model) {
        Some(file) => {
            let text = text_in(&file).map_err(|message| problem(&file, message, None));
            Text { model, file, text }
        }
        None => {
            let file = dir.join(format!("{model}.yaml"));
            let hint = "a model's name consists of letters, digits, `-`, `_` and `.`, and begins with no dot";
            let text = Err(problem(&file, "no model can be called that".to_owned(), Some(hint)));
            Text { model, file, text }
        }
    }
}

fn text_in(path: &Path) -> Result<String, String> {
    let file = fs::File::open(path).map_err(|error| format!("cannot be read: {error}"))?;
    let mut text = String::new();
    let most = u64::try_from(FILE_MAX).unwrap_or(u64::MAX).saturating_add(1);
    file.take(most).read_to_string(&mut text).map_err(|error| format!("cannot be read: {error}"))?;
    if text.len() > FILE_MAX {
        return Err(format!("is larger than {FILE_MAX} bytes"));
    }
    Ok(text)
}
