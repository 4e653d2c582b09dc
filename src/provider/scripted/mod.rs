//! A model that follows rules from a file: `<dir>/<model>.yaml`. For demos, tests and simulation.
//! `README.md` beside this file describes the format. The operator writes the rules, so they are
//! trusted. A limit of steps for each template stops an accidental endless loop.
//!
//! This provider must never keep state of a conversation between two calls. The answer follows from
//! the request alone, so that a resumed turn gets the same answer. Two exceptions: `fail … times`
//! is counted, and a `wait` uses the clock.

mod answer;
mod bounds;
mod check;
mod columns;
mod conversation;
mod filters;
mod json_text;
mod logs;
mod matching;
mod names;
mod pattern;
mod profile;
mod prose;
mod read;
mod render;
mod rules;
mod shapes;
mod template;
mod values;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use ghost_config::problem::Problems;
use ghost_domain::{Clock, Code, Refusal};

use crate::error::{Charge, ErrorKind, ProviderError};
use crate::model::{Deltas, ModelAnswer, ModelRequest, Provider};
use answer::{AnswerBuilder, Step, work_out};
use rules::RuleSet;

pub use bounds::{CALLS_MAX, FILES_MAX, TEXT_MAX};
pub use check::{Survey, misnamed_for, path_of, survey};
pub use read::ToolName;
pub use rules::ScriptDigest;

/// The scripted provider: the rule files of one directory.
pub struct Scripted {
    dir: PathBuf,
    models: BTreeMap<String, Arc<RuleSet>>,
    clock: Arc<dyn Clock>,
    /// How often each `fail` has failed: by model, rule and action.
    failures: Mutex<BTreeMap<(String, usize, usize), u32>>,
}

impl Scripted {
    /// Loads every `<model>.yaml` in `dir`. Symbolic links must not lead out of `dir`.
    ///
    /// # Errors
    /// All problems of all files, each with its line, in one refusal.
    pub fn load(dir: &Path, clock: Arc<dyn Clock>) -> Result<Self, Refusal> {
        // A directory that does not exist is reported by the next function.
        let root = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
        Self::load_within(dir, &root, clock)
    }

    /// Like [`load`](Self::load), for files that may lie anywhere in `root`, a canonical path.
    /// Symbolic links must not lead out of `root`.
    ///
    /// # Errors
    /// The errors of [`load`](Self::load).
    pub fn load_within(dir: &Path, root: &Path, clock: Arc<dyn Clock>) -> Result<Self, Refusal> {
        let models = check::load_all(dir, root).map_err(|problems| refusal(&problems))?;
        Ok(Self { dir: dir.to_owned(), models, clock, failures: Mutex::default() })
    }

    /// The rule files with the digests of their texts.
    pub fn files(&self) -> impl Iterator<Item = (&Path, ScriptDigest)> {
        self.models.values().map(|rules| (rules.file.as_path(), rules.digest))
    }

    /// Whether this `fail` must still fail; if so, the failure is counted.
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

#[async_trait]
impl Provider for Scripted {
    async fn complete(&self, request: &ModelRequest, deltas: &mut dyn Deltas) -> Result<ModelAnswer, ProviderError> {
        let rules = self.models.get(&request.model).ok_or_else(|| {
            let known: Vec<&str> = self.models.keys().map(String::as_str).collect();
            ProviderError::new(
                ErrorKind::UnknownModel,
                format!("no rules `{}.yaml` in {}; there are: {}", request.model, self.dir.display(), known.join(", ")),
            )
        })?;
        let (own, asked) = (Arc::clone(rules), request.clone());
        // Rules may work on megabytes of text, so they run on a thread that may block.
        let course = tokio::task::spawn_blocking(move || work_out(&own, &asked)).await.map_err(|error| {
            let message = format!("a rule of {} panicked: {error}", rules.file.display());
            ProviderError::new(ErrorKind::BadRequest, message).charge(Charge::Nothing)
        })?;
        let mut said = AnswerBuilder::default();
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

#[cfg(test)]
mod problem_tests;
#[cfg(test)]
mod reviewer_tests;
#[cfg(test)]
mod tests;
