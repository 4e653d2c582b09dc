//! Reads all rule files of a directory and reports every problem with its line.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use ghost_config::problem::{Hint, Problem, Problems, Severity};
use ghost_config::{Unread, directory_within, first_line, misspelt, text_of, unreadable};

use super::read::{FILE_MAX, ReadFile, ToolName, read};
use super::rules::RuleSet;

/// Explains which rule files a directory needs.
const EACH_MODEL: &str = "a scripted provider needs a `<model>.yaml` for each of its models";
/// Maximum rule files in one directory.
pub const FILES_MAX: usize = 256;
/// Files that are read at the same time.
const THREADS_MAX: usize = 4;

/// The result of [`survey`]: a thorough check of the rule files of a directory.
#[derive(Debug, Default)]
pub struct Survey {
    /// All problems, in no particular order.
    pub problems: Vec<Problem>,
    /// The models that have a file, valid or not, with the tool names in that file.
    pub models: BTreeMap<String, Vec<ToolName>>,
}

/// Checks every rule file of a directory for `ghostd check`. It reports everything that keeps a
/// world from starting, and also the problems that a start would find only when it reaches a rule.
/// The files must lie in `root`, a canonical path.
#[must_use]
pub fn survey(dir: &Path, root: &Path) -> Survey {
    let mut survey = Survey::default();
    match read_all(dir, root, true) {
        Err(problem) => survey.problems.push(problem),
        Ok(files) => {
            for (model, file) in files {
                survey.problems.extend(file.problems);
                survey.models.insert(model, file.tools);
            }
        }
    }
    survey
}

/// The file with the rules of `model`, or `None` if the model's name cannot be a file name in
/// `dir`.
#[must_use]
pub fn path_of(dir: &Path, model: &str) -> Option<PathBuf> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let fits = !model.is_empty() && model.len() <= 100 && !model.starts_with('.') && model.chars().all(plain);
    fits.then(|| dir.join(format!("{model}.yaml")))
}

/// Loads every `<model>.yaml` of a directory, which must lie in `root`, a canonical path.
pub(super) fn load_all(dir: &Path, root: &Path) -> Result<BTreeMap<String, Arc<RuleSet>>, Problems> {
    let (mut models, mut problems) = (BTreeMap::new(), Vec::new());
    for (model, file) in read_all(dir, root, false).map_err(|problem| Problems(vec![problem]))? {
        problems.extend(file.problems);
        models.extend(file.rules.map(|rules| (model, Arc::new(rules))));
    }
    if problems.is_empty() { Ok(models) } else { Err(Problems::sorted(problems)) }
}

/// Reads the file of each model. With `compile`, templates and expressions are compiled too.
fn read_all(dir: &Path, root: &Path, compile: bool) -> Result<Vec<(String, ReadFile)>, Problem> {
    let texts: Vec<Text> = names(dir, root)?.into_iter().map(|model| found(dir, root, model)).collect();
    let files = each(&texts, |Text { model, file, text }| match text {
        Ok(text) => read(text, file, model, compile),
        Err(problem) => ReadFile { rules: None, tools: Vec::new(), problems: vec![problem.clone()] },
    });
    Ok(texts.into_iter().map(|text| text.model).zip(files).collect())
}

/// Runs `work` for each item, several at a time, and returns the results in order. A world can
/// start only after the last file is compiled, so files are read in parallel.
fn each<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(items.len())));
    let worker = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { return };
            let result = work(item);
            // The list is complete between any two calls, so a panic of another thread does not
            // damage it.
            done.lock().unwrap_or_else(PoisonError::into_inner).push((at, result));
        }
    };
    thread::scope(|scope| {
        // The number of cores is not queried: that takes as long as reading a file.
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
fn names(dir: &Path, root: &Path) -> Result<Vec<String>, Problem> {
    if dir.is_dir() && directory_within(dir, root).is_none() {
        let message = "it is a symbolic link that leaves the world's directory".to_owned();
        return Err(problem(dir, message, "copy the directory with its rule files into the world's"));
    }
    let failed = |error: std::io::Error| problem(dir, format!("cannot be read: {error}"), no_directory(dir, &error));
    let (mut names, mut misnamed) = (Vec::new(), None);
    for entry in fs::read_dir(dir).map_err(failed)?.take(FILES_MAX * 8) {
        let name = entry.map_err(failed)?.file_name();
        let Some(name) = name.to_str() else { continue };
        match name.strip_suffix(".yaml") {
            Some(model) => names.push(model.to_owned()),
            None => misnamed = misnamed.or_else(|| Some((name.to_owned(), misnamed_for(name)?.to_owned()))),
        }
    }
    names.sort();
    match names.len() {
        0 => {
            let hint = match misnamed {
                Some((name, model)) => format!("rename `{name}` to `{model}.yaml`: rule files end in `.yaml`"),
                None => EACH_MODEL.to_owned(),
            };
            Err(problem(dir, "has no rule files".to_owned(), hint))
        }
        1..=FILES_MAX => Ok(names),
        _ => {
            let message = format!("holds more than {FILES_MAX} rule files");
            Err(problem(dir, message, "move the unused files to another directory"))
        }
    }
}

/// A problem of a whole file or directory.
fn problem(file: &Path, message: String, hint: impl Into<Hint>) -> Problem {
    let (hint, field) = (hint.into(), String::new());
    Problem { severity: Severity::Error, file: file.to_owned(), line: first_line(file), field, message, hint }
}

/// The hint for a directory of rule files that cannot be read.
fn no_directory(dir: &Path, error: &std::io::Error) -> String {
    if error.kind() != std::io::ErrorKind::NotFound {
        return unreadable(error).to_owned();
    }
    let name = dir.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    match dir.parent().and_then(|parent| misspelt(parent, name)) {
        Some(near) => format!("did you mean `{near}`? Rename it to `{name}`"),
        None => format!("make it: {EACH_MODEL}"),
    }
}

/// The model of a rule file with a wrong ending: `lead` for `lead.yml` and `lead.YAML`.
#[must_use]
pub fn misnamed_for(name: &str) -> Option<&str> {
    let (model, ending) = name.rsplit_once('.')?;
    let other = ending != "yaml" && ["yaml", "yml"].contains(&ending.to_ascii_lowercase().as_str());
    (other && !model.is_empty()).then_some(model)
}

/// The text of a rule file, or the problem of reading it.
struct Text {
    model: String,
    file: PathBuf,
    text: Result<String, Problem>,
}

fn found(dir: &Path, root: &Path, model: String) -> Text {
    match path_of(dir, &model) {
        Some(file) => {
            let most = u64::try_from(FILE_MAX).unwrap_or(u64::MAX);
            let text = text_of(&file, root, most).map_err(|Unread { line, message, hint }| {
                let larger = file.metadata().is_ok_and(|meta| meta.len() > most);
                let hint = if larger { "shorten it: rules may share texts with `vars` and `let`" } else { hint };
                Problem { line, ..problem(&file, message, hint) }
            });
            Text { model, file, text }
        }
        None => {
            let file = dir.join(format!("{model}.yaml"));
            let hint = "a model's name consists of letters, digits, `-`, `_` and `.`, and begins with no dot";
            let text = Err(problem(&file, "no model can be called that".to_owned(), hint));
            Text { model, file, text }
        }
    }
}
