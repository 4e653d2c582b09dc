//! What a person sees in the terminal of `ghostd up`: who does what and what is said as it happens. Progress, not a log.

use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use ghost_domain::event::{Event, EventFilter};
use ghost_domain::usage::Spending;
use ghost_domain::{AgentId, Job, Money, Timestamp};
use ghost_rules::feed::Subscription;
use ghost_store::Store;

use crate::job::Standing;
use crate::narration::Narrator;
use crate::page::Style;

/// What the line of a daemon that serves begins with; those of its agents' work follow. A demonstration reads it.
pub(crate) const SERVING: &str = "  listening on ";
/// What the line of a job's result begins with. A demonstration reads it.
pub(crate) const RESULT: &str = "  result  ";

/// Where progress is written. Cheap to clone.
#[derive(Clone)]
pub struct Terminal {
    out: Arc<Mutex<Box<dyn Write + Send>>>,
    style: Style,
}

impl Terminal {
    /// A terminal that writes plain lines to `out`.
    pub fn new(out: impl Write + Send + 'static) -> Self {
        Self::styled(out, Style::default())
    }

    /// A terminal that writes to `out` in a style.
    pub fn styled(out: impl Write + Send + 'static, style: Style) -> Self {
        Self { out: Arc::new(Mutex::new(Box::new(out))), style }
    }

    /// A terminal that shows nothing.
    #[must_use]
    pub fn silent() -> Self {
        Self::new(std::io::sink())
    }

    fn line(&self, text: &str) {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        // A terminal that was closed is no reason to stop working.
        let _ = writeln!(out, "{text}").and_then(|()| out.flush());
    }

    /// The world serves.
    pub fn ready(&self, world: &str, endpoints: &[String], data: &Path) {
        self.line(&self.style.paint("1", &format!("{world} is up. Data: {}", data.display())));
        for endpoint in endpoints {
            self.line(&format!("{SERVING}{endpoint}"));
        }
    }

    /// A job was taken in, or goes on.
    pub fn job(&self, job: &Job) {
        self.line(&format!("Job {} ({} files) is under way.", job.job_id, job.files));
    }

    /// The job was done in an earlier run: nothing is worked on, and the result lies where it did, unless it was taken away.
    pub fn job_was_done(&self, job: &Job, workspace: &Path, lead: &AgentId) {
        let result = workspace.join(job.result_path.as_deref().unwrap_or_default());
        let (id, files, result, there) = (&job.job_id, job.files, result.display(), result.exists());
        if there {
            return self.line(&format!("Job {id} ({files} files) was done before: {result}"));
        }
        self.line(&format!("Job {id} ({files} files) was done before, but its result is gone: {result}"));
        self.line(&format!("  To have it made again, ask for it: `ghostctl send {lead} \"job_id: {id}\"`."));
    }

    /// Nothing works on the job, and it is not done.
    pub fn job_stands(&self, job_id: &str, standing: &Standing) {
        self.line(&self.style.paint("33", &format!("Job {job_id} stands still: {}", standing.why)));
        let fit = standing.idle.iter().filter(|(_, unfit)| unfit.is_none());
        let starts: Vec<String> = fit.map(|(id, _)| format!("`ghostctl agent start {id}`")).collect();
        if !starts.is_empty() {
            self.line(&format!("  {}: then it goes on where it is.", starts.join(", ")));
        }
        for (agent_id, unfit) in &standing.idle {
            if let Some(unfit) = unfit {
                self.line(&format!("  {agent_id} cannot be started: {unfit}"));
            }
        }
        for watch in &standing.watches {
            self.line(&format!("  `ghostctl watch cancel {watch}` if it is not to wait for that."));
        }
        if !standing.failed && !standing.idle.is_empty() {
            return;
        }
        self.line("  Repair the cause: `ghostctl turn list --status failed` and `ghostctl task list` show it. `ghostctl agent start AGENT` starts one that is");
        self.line(
            "  stopped or has failed. A deleted agent that the world file names comes back with `ghostctl reload`;",
        );
        self.line("  `ghostctl task update TASK_ID --owner AGENT` gives its tasks to another.");
        self.line("  Then raise the budget or start ghostd again: it goes on where it is.");
    }

    /// The world is paused, so nothing will happen.
    pub fn paused(&self) {
        self.line("The world is paused: no turn begins until `ghostctl resume`.");
    }

    /// The job is done.
    pub fn job_done(&self, job: &Job, workspace: &Path, spent: Spending, free: bool) {
        let path = job.result_path.as_deref().unwrap_or_default();
        let took = job.finished_at.map(|at| at.since(job.started_at).as_secs_f64()).unwrap_or_default();
        self.line("");
        self.line(&self.style.paint("1;32", &format!("Job {} is done after {took:.1} s.", job.job_id)));
        self.line(&format!("{RESULT}{}", workspace.join(path).display()));
        self.line(&format!("  cost    {}", cost(spent, free)));
        self.line("Still serving. `ghostctl status` looks around; Ctrl-C or `ghostctl shutdown` ends it.");
    }

    /// The end begins.
    pub fn stopping(&self, reason: &str) {
        self.line(&format!("Stopping ({reason}): letting turns under way finish."));
    }

    /// Shows what happens until the store closes, with the time since `begun`. A terminal that cannot keep up skips ahead; the
    /// feed has it all.
    pub async fn watch(self, store: Store, begun: Timestamp) {
        let mut narrator = Narrator::new(self.style.verbose);
        loop {
            let Ok(mut events) = Subscription::open(&store, None, EventFilter::default(), true).await else { return };
            loop {
                match events.next().await {
                    Ok(Some(event)) => {
                        log(&event);
                        if let Some(told) = narrator.take(&event) {
                            self.line(&self.style.lay_out(&told, begun));
                        }
                    }
                    Ok(None) => return,
                    Err(_) => break,
                }
            }
        }
    }
}

/// An event as a line of the log, for who runs with `GHOST_LOG=info`; what is streamed only, at `debug`.
fn log(event: &Event) {
    let agent_id = event.agent_id.as_ref().map_or("-", |id| id.as_str());
    if event.kind.is_ephemeral() {
        tracing::debug!(seq = event.seq, kind = event.kind.as_str(), agent_id, payload = %event.payload);
    } else {
        tracing::info!(seq = event.seq, kind = event.kind.as_str(), agent_id, payload = %event.payload);
    }
}

/// What something cost, as far as anybody knows. Models that are files of rules or recordings are `free`, and their tokens are
/// nobody's thoughts.
fn cost(spent: Spending, free: bool) -> String {
    let Spending { tokens, cost, unpriced_tokens } = spent;
    if free && cost == Money(0) {
        return "nothing: the models are scripts and recordings, which think for free".to_owned();
    }
    match unpriced_tokens {
        0 => format!("{cost} for {tokens} tokens"),
        unpriced if unpriced == tokens => format!("unknown: the models of {tokens} tokens have no known price"),
        unpriced => {
            format!("{cost} for {tokens} tokens, and what {unpriced} of them cost whose models have no known price")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of a stand, line by line, without the first.
    fn advice(idle: &[(&str, Option<&str>)], failed: bool, watches: &[&str]) -> Vec<String> {
        #[derive(Clone, Default)]
        struct Page(Arc<Mutex<Vec<u8>>>);
        impl Write for Page {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.lock().unwrap().write(bytes)
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let idle = idle.iter().map(|(id, unfit)| (id.parse().unwrap(), unfit.map(str::to_owned))).collect();
        let watches = watches.iter().map(|name| (*name).to_owned()).collect();
        let page = Page::default();
        Terminal::new(page.clone()).job_stands("7", &Standing { why: "so".into(), idle, failed, watches });
        let text = String::from_utf8(page.0.lock().unwrap().clone()).unwrap();
        let mut lines = text.lines().map(str::to_owned);
        assert_eq!(lines.next().as_deref(), Some("Job 7 stands still: so"));
        lines.collect()
    }

    #[test]
    fn of_a_stand_is_said_who_can_be_started_and_what_has_to_be_mended() {
        let starts = |names: &str| format!("  {names}: then it goes on where it is.");
        let (both, ann) = ("`ghostctl agent start ann`, `ghostctl agent start zed`", "`ghostctl agent start ann`");
        assert_eq!(advice(&[("ann", None), ("zed", None)], false, &[]), [starts(both)]);
        let unfit = [("ann", None), ("zed", Some("the world file does not name `zed` (delete it)"))];
        let lines = advice(&unfit, false, &[]);
        assert_eq!(
            lines,
            [starts(ann), "  zed cannot be started: the world file does not name `zed` (delete it)".into()]
        );
        assert_eq!(advice(&unfit[1..], false, &[]), lines[1..]);
        let lines = advice(&[("ann", None)], true, &[]);
        assert!(lines[0] == starts(ann) && lines[1].starts_with("  Repair the cause: "), "{lines:?}");
        assert_eq!(advice(&[], false, &[]), lines[1..], "nobody goes on by being started");
        assert_eq!(advice(&[], false, &["lea/w"])[0], "  `ghostctl watch cancel lea/w` if it is not to wait for that.");
    }

    #[test]
    fn an_unknown_price_is_not_shown_as_none() {
        let spent = |cost, tokens, unpriced_tokens| Spending { tokens, cost: Money(cost), unpriced_tokens };
        let of = |cost, tokens, unpriced_tokens| super::cost(spent(cost, tokens, unpriced_tokens), false);
        assert!(!super::cost(spent(0, 900, 0), true).contains("900"), "nobody thought");
        assert_eq!(of(0, 900, 0), "$0.00 for 900 tokens");
        assert!(of(0, 900, 900).starts_with("unknown"));
        assert!(of(5, 900, 400).contains("$0.000005") && of(5, 900, 400).contains("400 of them"));
    }
}
