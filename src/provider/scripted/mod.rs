//! A model that follows rules from a file: `<dir>/<model>.yaml`. For demos, tests and simulation. The format is in
//! `README.md` beside this file.
//!
//! Must never: hold anything of a conversation between two calls. What it answers follows from the conversation that it
//! is shown, so that a resumed turn gets the same answer; only `fail … times` counts, and waiting is on the Clock. Nor may it
//! hold the thread that asks for longer than [`budget::UNITS_AT_ONCE`] takes.

mod answer;
mod bounds;
mod budget;
mod check;
mod code;
mod conversation;
mod filters;
mod guarded;
mod guards;
mod lets;
mod logs;
mod matching;
mod names;
mod pattern;
mod prose;
mod read;
mod render;
mod rules;
mod script;
mod shapes;
mod template;
mod values;
mod vetted;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use ghost_config::problem::Problems;
use ghost_domain::{Clock, Code, Refusal};

use crate::error::{Charge, ErrorKind, ProviderError};
use crate::model::{Deltas, ModelAnswer, ModelRequest, Provider};
use crate::worker_threads::WorkerThreads;
use answer::{Course, Said, Step, work_out};
use budget::Budget;
use rules::RuleSet;
use script::Script;

pub use bounds::{CALLS_MAX, FILES_MAX, TEXT_MAX};
pub use check::{Survey, misnamed_for, path_of, survey};
pub use read::ToolName;
pub use vetted::{ScriptDigest, Vetted};

/// The scripted provider: the rule files of one directory.
pub struct Scripted {
    dir: PathBuf,
    models: BTreeMap<String, Script>,
    clock: Arc<dyn Clock>,
    /// How often a `fail` has failed: by model, rule and action.
    failures: Mutex<BTreeMap<(String, usize, usize), u32>>,
    /// Where answers are worked out that take long.
    threads: WorkerThreads,
}

impl Scripted {
    /// Loads every `<model>.yaml` in `dir`; all of them must lie in it. Files that `vetted` vouches for are held as text until
    /// a model is asked.
    ///
    /// # Errors
    /// Every problem of every other file, each with its line, in one refusal.
    pub fn load(dir: &Path, clock: Arc<dyn Clock>, vetted: &Vetted) -> Result<Self, Refusal> {
        // One that is not there is told as such.
        let root = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
        Self::load_within(dir, &root, clock, vetted)
    }

    /// As [`load`](Self::load), for files that may lie anywhere in `root`, a canonical path: symbolic links lead no further.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_within(dir: &Path, root: &Path, clock: Arc<dyn Clock>, vetted: &Vetted) -> Result<Self, Refusal> {
        let models = check::load_all(dir, root, vetted).map_err(|problems| refusal(&problems))?;
        Ok(Self { dir: dir.to_owned(), models, clock, failures: Mutex::default(), threads: WorkerThreads::default() })
    }

    /// The rule files with what they say: all of them are good.
    pub fn files(&self) -> impl Iterator<Item = (&Path, ScriptDigest)> {
        self.models.values().map(|script| (script.file.as_path(), script.digest))
    }

    /// Whether this failure is still due, counting it if so.
    fn fails(&self, model: &str, rule: usize, action: usize, times: Option<u32>) -> bool {
        let Some(times) = times else { return true };
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let so_far = failures.entry((model.to_owned(), rule, action)).or_default();
        let due = *so_far < times;
        if due {
            *so_far += 1;
        }
        due
    }
}

fn refusal(problems: &Problems) -> Refusal {
    let shown: Vec<String> = problems.0.iter().take(20).map(ToString::to_string).collect();
    let more = problems.0.len().saturating_sub(shown.len());
    let more = if more > 0 { format!("\nand {more} more") } else { String::new() };
    Refusal::new(Code::InvalidArguments, format!("rule files have problems:\n{}{more}", shown.join("\n")))
}

/// Work aside is of no use any more once this is dropped.
#[derive(Default)]
struct Wanted(Arc<AtomicBool>);

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[async_trait]
impl Provider for Scripted {
    async fn complete(&self, request: &ModelRequest, deltas: &mut dyn Deltas) -> Result<ModelAnswer, ProviderError> {
        let script = self.models.get(&request.model).ok_or_else(|| {
            let known: Vec<&str> = self.models.keys().map(String::as_str).collect();
            ProviderError::new(
                ErrorKind::UnknownModel,
                format!("no rules `{}.yaml` in {}; there are: {}", request.model, self.dir.display(), known.join(", ")),
            )
        })?;
        let rules = script.rules().await?;
        let budget = Budget::at_once();
        let mut course = work_out(rules, request, &budget);
        if course.failed.is_some() && budget.is_used_up() {
            // It follows from the conversation alone, so nothing of it has happened yet.
            course = self.work_out_aside(rules, request).await?;
        }
        let mut said = Said::default();
        for step in course.steps {
            match step {
                Step::Wait(duration) => self.clock.sleep(duration).await,
                Step::Fail(at, fail) => {
                    if self.fails(&rules.model, course.rule, at, fail.times) {
                        return Err(ProviderError::new(fail.kind, &fail.message).retry_after(fail.retry_after));
                    }
                }
                Step::Think(text) => said.think(text, deltas),
                Step::Say(text) => said.say(&text, deltas),
                Step::Call(block) => said.call(block),
            }
        }
        match course.failed {
            Some(error) => Err(error),
            None => Ok(said.answer(request)),
        }
    }
}

impl Scripted {
    /// Works out an answer that takes long on a thread that nobody else waits for. Whoever gives the call up ends that.
    async fn work_out_aside(&self, rules: &Arc<RuleSet>, request: &ModelRequest) -> Result<Course, ProviderError> {
        let wanted = Wanted::default();
        let (rules, request, budget) = (Arc::clone(rules), request.clone(), Budget::whole(&wanted.0));
        let work = async move { work_out(&rules, &request, &budget) };
        let failed = |kind, words| ProviderError::new(kind, words).charge(Charge::Nothing);
        let work = self.threads.begin(work).await.map_err(|error| {
            failed(ErrorKind::Overloaded, format!("there is no thread to work the answer out on: {error}"))
        })?;
        work.end().await.map_err(|error| {
            failed(ErrorKind::BadRequest, format!("working the answer out by its rules panicked: {error}"))
        })
    }
}

#[cfg(test)]
mod growth_tests;
#[cfg(test)]
mod guarded_tests;
#[cfg(test)]
mod problem_tests;
#[cfg(test)]
mod reviewer_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod time_tests;
