//! The output of `ghostd up`: progress for people, not a log.

use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ghost_domain::event::{Event, EventFilter};
use ghost_domain::usage::Spending;
use ghost_domain::{Job, Money, Timestamp};
use ghost_operations::feed::Subscription;
use ghost_store::Store;

use crate::input::Expectation;
use crate::narration::{Narrator, Sentence};
use crate::page::Folds;
use crate::page::Style;

/// The beginning of the lines with the daemon's addresses. Lines about agents' work come after
/// them. `demo` parses it.
pub(crate) const SERVING: &str = "  listening on ";
/// The beginning of the line with a job's result. `demo` parses it.
pub(crate) const RESULT: &str = "  result  ";

/// The output for progress. A clone writes to the same output.
#[derive(Clone)]
pub struct Terminal {
    out: Arc<Mutex<Out>>,
    style: Style,
}

/// What all clones share.
struct Out {
    writer: Box<dyn Write + Send>,
    folds: Folds,
    /// The time from which sentences count.
    begun: Timestamp,
}

impl Out {
    fn lines(&mut self, lines: impl IntoIterator<Item = String>) {
        // The daemon continues if its terminal is closed.
        let _ =
            lines.into_iter().try_for_each(|line| writeln!(self.writer, "{line}")).and_then(|()| self.writer.flush());
    }

    fn say(&mut self, sentences: &[Sentence], style: &Style) {
        let begun = self.begun;
        self.lines(sentences.iter().map(|sentence| style.lay_out(sentence, begun)));
    }
}

impl Terminal {
    /// A terminal that writes plain lines to `out`.
    pub fn new(out: impl Write + Send + 'static) -> Self {
        Self::styled(out, Style::default())
    }

    /// A terminal that writes to `out` in a style.
    pub fn styled(out: impl Write + Send + 'static, style: Style) -> Self {
        let out = Out { writer: Box::new(out), folds: Folds::default(), begun: Timestamp(0) };
        Self { out: Arc::new(Mutex::new(out)), style }
    }

    /// A terminal that shows nothing.
    pub fn silent() -> Self {
        Self::new(std::io::sink())
    }

    fn line(&self, text: &str) {
        let mut out = self.locked();
        // What was only counted comes before what follows it.
        let rest = out.folds.rest();
        out.say(&rest, &self.style);
        out.lines([text.to_owned()]);
    }

    fn locked(&self) -> MutexGuard<'_, Out> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prints the sentence of an event. Repeats are counted.
    fn tell(&self, sentence: Option<Sentence>, now: Timestamp) {
        let mut out = self.locked();
        let sentences = match sentence {
            Some(sentence) => out.folds.take(sentence),
            None => out.folds.due(now),
        };
        out.say(&sentences, &self.style);
    }

    /// Prints that the world runs, with its data directory, its workspace if that is elsewhere, and its addresses.
    pub fn ready(&self, world: &str, endpoints: &[String], data: &Path, workspace: Option<&Path>) {
        self.line(&self.style.paint("1", &format!("{world} is up. Data: {}", data.display())));
        if let Some(workspace) = workspace {
            self.line(&format!("  workspace    {}", workspace.display()));
        }
        for endpoint in endpoints {
            self.line(&format!("{SERVING}{endpoint}"));
        }
    }

    /// Prints what a job that is paid for is expected to take, and what is left of the budgets that bound it.
    pub(crate) fn job_expects(&self, expectation: &Expectation) {
        let Expectation { files, job, cost, budgets } = expectation;
        let cost = match cost {
            Some(cost) => format!("at most {cost} for them"),
            None => "their price is not known".to_owned(),
        };
        let tokens = match job {
            Some(job) => format!("up to {job} input tokens, of which its files are {files}"),
            None => format!("at least the {files} input tokens of its files"),
        };
        self.line(&format!("  expects {tokens}; {cost}"));
        if budgets.is_empty() {
            self.line("  budget  none holds");
        }
        for (name, tokens, money) in budgets {
            // The work waits at a spent budget, and goes on when an operator raises it.
            let short = job.zip(*tokens).is_some_and(|(job, left)| left < job)
                || expectation.cost.zip(*money).is_some_and(|(cost, left)| left < cost);
            let note = if short { "; that is less, and the work waits there until an operator raises it" } else { "" };
            let left = [tokens.map(|tokens| format!("{tokens} tokens")), money.map(|money| money.to_string())];
            let left: Vec<String> = left.into_iter().flatten().collect();
            self.line(&format!("  budget  {name}: {} left{note}", left.join(" and ")));
        }
    }

    /// Prints that a job has begun or is continued.
    pub fn job(&self, job: &Job) {
        self.line(&format!("Job {} ({}) is under way.", job.job_id, file_count(job.files)));
    }

    /// Prints that the job ended in an earlier run, with its result, and how to run it again if there is no result.
    pub fn job_ended_before(&self, job: &Job, workspace: &Path) {
        let (id, files) = (&job.job_id, file_count(job.files));
        let result = job.result_path.as_ref().map(|path| workspace.join(path));
        match &result {
            Some(result) if result.exists() => {
                return self.line(&format!("Job {id} ({files}) was done before: {}", result.display()));
            }
            Some(result) => {
                let result = result.display();
                self.line(&format!("Job {id} ({files}) was done before, but its result is missing: {result}"));
            }
            None => self.line(&format!("Job {id} ({files}) ended before without a result.")),
        }
        if let Some(task_id) = job.task_id {
            let reopen = format!("ghostctl task update {task_id} --status pending --reopen --note 'once more'");
            self.line(&format!("  To run it again: `{reopen}`."));
        }
    }

    /// Prints that one more part of the job has ended.
    pub fn job_progress(&self, job: &Job, ended: usize, parts: usize) {
        self.line(&format!("Job {}: {ended} of {parts} parts have ended.", job.job_id));
    }

    /// Prints that the world is paused.
    pub fn paused(&self) {
        self.line("The world is paused: no turn begins until `ghostctl resume`.");
    }

    /// Prints that the job has ended.
    pub fn job_done(&self, job: &Job, workspace: &Path, spent: Spending, free: bool) {
        let took = job.finished_at.map(|at| at.since(job.started_at).as_secs_f64()).unwrap_or_default();
        self.line("");
        match &job.result_path {
            Some(path) => {
                self.line(&self.style.paint("1;32", &format!("Job {} is done after {took:.1} s.", job.job_id)));
                self.line(&format!("{RESULT}{}", workspace.join(path).display()));
            }
            None => {
                let task = job.task_id.map(|id| id.to_string()).unwrap_or_default();
                let text = format!("Job {} has ended without a result after {took:.1} s.", job.job_id);
                self.line(&self.style.paint("1;31", &text));
                self.line(&format!("  `ghostctl task get {task}` says why."));
            }
        }
        self.line(&format!("  cost    {}", cost(spent, free)));
        self.line("Still serving. `ghostctl status` shows the world; Ctrl-C or `ghostctl shutdown` ends it.");
    }

    /// Prints that the daemon stops.
    pub fn stopping(&self, reason: &str) {
        self.line(&format!("Stopping ({reason}): letting running turns finish."));
    }

    /// Prints events until the store closes, with the time since `begun`. If the output is too slow, it skips
    /// events; the event feed has all of them.
    pub async fn watch(self, store: Store, begun: Timestamp) {
        let mut narrator = Narrator::new(self.style.verbose);
        self.locked().begun = begun;
        loop {
            let Ok(mut events) = Subscription::open(&store, None, EventFilter::default(), true).await else { return };
            loop {
                match events.next().await {
                    Ok(Some(event)) => {
                        log(&event);
                        self.tell(narrator.take(&event), event.ts);
                    }
                    Ok(None) => return,
                    Err(_) => break,
                }
            }
        }
    }
}

/// Logs an event at `info`; ephemeral events at `debug`.
fn log(event: &Event) {
    let agent_id = event.agent_id.as_ref().map_or("-", |id| id.as_str());
    if event.kind.is_ephemeral() {
        tracing::debug!(seq = event.seq, kind = event.kind.as_str(), agent_id, payload = %event.payload);
    } else {
        tracing::info!(seq = event.seq, kind = event.kind.as_str(), agent_id, payload = %event.payload);
    }
}

/// `1 file`, `2 files`.
fn file_count(files: u32) -> String {
    if files == 1 { "1 file".to_owned() } else { format!("{files} files") }
}

/// The cost as text. `free` says that all models are scripts or recordings. Their tokens cost nothing.
fn cost(spent: Spending, free: bool) -> String {
    let Spending { tokens, cost, unpriced_tokens } = spent;
    if free && cost == Money(0) {
        return "nothing: the models are scripts and recordings".to_owned();
    }
    match unpriced_tokens {
        0 => format!("{cost} for {tokens} tokens"),
        unpriced if unpriced == tokens => format!("unknown: the models of {tokens} tokens have no known price"),
        unpriced => {
            format!("{cost} for {tokens} tokens; {unpriced} of them have no known price and are not included")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_price_is_not_shown_as_none() {
        let spent = |cost, tokens, unpriced_tokens| Spending { tokens, cost: Money(cost), unpriced_tokens };
        let of = |cost, tokens, unpriced_tokens| super::cost(spent(cost, tokens, unpriced_tokens), false);
        assert!(!super::cost(spent(0, 900, 0), true).contains("900"), "free tokens are not shown");
        assert!(of(0, 900, 0).contains("$0.00") && of(0, 900, 0).contains("900"));
        assert!(!of(0, 900, 900).contains('$'));
        assert!(of(5, 900, 400).contains("$0.000005") && of(5, 900, 400).contains("400"));
    }
}
