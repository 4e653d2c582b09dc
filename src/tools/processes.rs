//! Background commands: they survive the turn that began them, not the daemon. The daemon keeps the end of their
//! output in memory.
//!
//! A background command must never be reachable for another agent, outlive its deadline, or hold more memory than
//! [`LOG_MAX`] bytes of output.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use ghost_domain::time::Clock;
use ghost_domain::{AgentId, Refusal, Timestamp, refusal};
use ghost_operations::Result;
use ghost_sandbox::{Captured, Command, Feed, Finished, NotTaken, Sandbox};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Bytes of output that are kept of each command: the last ones.
pub const LOG_MAX: usize = 256 * 1024;
/// Commands of one agent that have ended and are kept. The oldest is forgotten first.
const ENDED_MAX: usize = 16;
/// Commands of all agents that have ended and are kept.
const ENDED_ALL_MAX: usize = 256;

/// The state of a background command.
#[derive(Clone, Debug)]
pub enum ProcessState {
    /// It runs.
    Running,
    /// It ended by itself, or at a bound.
    Ended(Box<Finished>),
    /// The agent, its end or an operator killed it.
    Killed,
    /// The sandbox failed. What the command did is not known.
    Lost(Refusal),
}

/// The last bytes of an output, by their position in the whole.
#[derive(Debug, Default)]
struct Log {
    kept: VecDeque<u8>,
    /// Bytes before the kept ones.
    dropped: u64,
    /// The position up to which the agent has polled.
    polled: u64,
}

/// A piece of an output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// The text. Bytes that are not UTF-8 are replacement characters.
    pub text: String,
    /// Position of its first byte in the whole output.
    pub offset: u64,
    /// Position after its last byte.
    pub next_offset: u64,
    /// Bytes of the whole output so far.
    pub bytes: u64,
    /// Bytes that were asked for and are not kept any more.
    pub missed: u64,
}

impl Log {
    fn end(&self) -> u64 {
        self.dropped + self.kept.len() as u64
    }

    fn push(&mut self, bytes: &[u8]) {
        self.kept.extend(bytes);
        let over = self.kept.len().saturating_sub(LOG_MAX);
        self.kept.drain(..over);
        self.dropped += over as u64;
    }

    /// At most `limit` bytes from `offset` on, without a character cut at the end.
    fn read(&self, offset: u64, limit: usize) -> Piece {
        let from = offset.clamp(self.dropped, self.end());
        let skip = usize::try_from(from - self.dropped).unwrap_or(usize::MAX);
        let mut bytes: Vec<u8> = self.kept.iter().skip(skip).take(limit).copied().collect();
        // A character that is cut comes whole with the next piece, unless the output is no UTF-8 at all.
        if let Err(error) = std::str::from_utf8(&bytes)
            && error.error_len().is_none()
            && error.valid_up_to() > 0
        {
            bytes.truncate(error.valid_up_to());
        }
        let next_offset = from + bytes.len() as u64;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Piece { text, offset: from, next_offset, bytes: self.end(), missed: from.saturating_sub(offset) }
    }
}

/// A background command.
#[derive(Debug)]
pub struct Process {
    /// Its id: unique, and of this start of the daemon.
    pub session_id: String,
    /// The agent that began it.
    pub agent_id: AgentId,
    /// The command line.
    pub line: String,
    /// Where it runs, relative to the workspace.
    pub dir: String,
    /// When it began.
    pub began_at: Timestamp,
    feed: Feed,
    log: Mutex<Log>,
    state: watch::Sender<ProcessState>,
    /// Changes with each piece of output.
    output: watch::Sender<u64>,
    task: OnceLock<AbortHandle>,
    /// Whether it is a background command now.
    kept: AtomicBool,
}

/// Ends a command whose task has ended in any other way, such as a panic.
struct EndGuard(Arc<Process>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        let lost = refusal!(Internal, "the command's task failed").hint("check what it did");
        self.0.end(ProcessState::Lost(lost));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change under these locks leaves a valid value.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Process {
    /// The present state.
    pub fn state(&self) -> ProcessState {
        self.state.borrow().clone()
    }

    /// Whether it runs.
    pub fn runs(&self) -> bool {
        matches!(*self.state.borrow(), ProcessState::Running)
    }

    /// Bytes of output so far.
    pub fn bytes(&self) -> u64 {
        lock(&self.log).end()
    }

    /// Output from `offset` on.
    pub fn read(&self, offset: u64, limit: usize) -> Piece {
        lock(&self.log).read(offset, limit)
    }

    /// The output since the last poll. Waits for some, or for the end of the command, at most `wait`.
    pub async fn poll(&self, clock: &dyn Clock, wait: Duration, limit: usize) -> Piece {
        let (mut output, mut state) = (self.output.subscribe(), self.state.subscribe());
        let news = async {
            loop {
                let has_more = {
                    let log = lock(&self.log);
                    log.end() > log.polled
                };
                if has_more || !self.runs() {
                    return;
                }
                tokio::select! {
                    // The senders live as long as this process, so neither fails.
                    _ = output.changed() => {}
                    _ = state.changed() => {}
                }
            }
        };
        tokio::select! {
            biased;
            () = news => {}
            () = clock.sleep(wait) => {}
        }
        let mut log = lock(&self.log);
        let piece = log.read(log.polled, limit);
        log.polled = piece.next_offset;
        piece
    }

    /// Waits until it has ended.
    pub async fn ended(&self) -> ProcessState {
        let mut state = self.state.subscribe();
        loop {
            let now = state.borrow_and_update().clone();
            if !matches!(now, ProcessState::Running) {
                return now;
            }
            // The sender lives as long as this process, so this does not fail.
            if state.changed().await.is_err() {
                return self.state();
            }
        }
    }

    /// Writes to its standard input.
    ///
    /// # Errors
    /// `Conflict` if it has ended or its input is closed, `RateLimited` if it does not read.
    pub fn write(&self, data: &[u8], close: bool) -> Result<()> {
        let ended = || refusal!(Conflict, "{} does not read any more", self.session_id).hint("poll it to see its end");
        if !self.runs() {
            return Err(ended());
        }
        self.feed.push(data).map_err(|why| match why {
            NotTaken::Closed => ended(),
            NotTaken::Full => {
                refusal!(RateLimited, "{} has not read what was written before; nothing was written", self.session_id)
                    .hint("write less at once, or poll first")
            }
        })?;
        if close {
            self.feed.close();
        }
        Ok(())
    }

    /// Sets the last state, unless there is one. Returns whether it was set.
    fn end(&self, last: ProcessState) -> bool {
        self.state.send_if_modified(|state| {
            let runs = matches!(state, ProcessState::Running);
            if runs {
                *state = last;
            }
            runs
        })
    }

    /// Kills its whole tree, unless it has ended.
    pub fn kill(&self) {
        if self.end(ProcessState::Killed)
            && let Some(task) = self.task.get()
        {
            // Dropping the command's future kills its tree.
            task.abort();
        }
    }
}

/// Kills a command unless it was let go: while a call waits for its command, the end of the call is its end.
#[derive(Debug)]
pub struct Guard(Option<Arc<Process>>);

impl Guard {
    /// The command.
    pub fn process(&self) -> Option<&Arc<Process>> {
        self.0.as_ref()
    }

    /// Lets the command go on in the background.
    pub fn release(mut self) {
        self.0 = None;
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(process) = self.0.take() {
            process.kill();
        }
    }
}

/// The background commands of a world.
#[derive(Debug, Default)]
pub struct Processes {
    /// Names this start of the daemon in ids.
    boot: OnceLock<String>,
    next: AtomicU64,
    all: Mutex<BTreeMap<String, Arc<Process>>>,
}

/// A command to run in the background.
pub struct NewProcess {
    /// The command. Its deadline is the longest time that it may run.
    pub command: Command,
    /// The command line, for lists.
    pub line: String,
}

impl Processes {
    /// Starts a command. It is killed when the guard is dropped, unless [`keep`](Self::keep) has taken it over. `boot` names
    /// this start of the daemon when the first command begins.
    pub fn start(
        &self,
        sandbox: &Arc<dyn Sandbox>,
        clock: &Arc<dyn Clock>,
        boot: impl FnOnce() -> String,
        new: NewProcess,
        watch_output: impl Fn(&[u8]) + Send + Sync + 'static,
    ) -> Guard {
        let boot = self.boot.get_or_init(boot);
        let session_id = format!("run-{boot}-{}", self.next.fetch_add(1, Ordering::Relaxed) + 1);
        let process = Arc::new(Process {
            session_id,
            agent_id: new.command.agent_id.clone(),
            line: new.line,
            dir: new.command.dir.clone(),
            began_at: clock.now(),
            feed: new.command.feed.clone().unwrap_or_default(),
            log: Mutex::default(),
            state: watch::Sender::new(ProcessState::Running),
            output: watch::Sender::new(0),
            task: OnceLock::new(),
            kept: AtomicBool::new(false),
        });
        let (sandbox, running) = (Arc::clone(sandbox), Arc::clone(&process));
        let task = tokio::spawn(async move {
            let end = EndGuard(Arc::clone(&running));
            let progress = |piece: &[u8]| {
                lock(&running.log).push(piece);
                running.output.send_modify(|pieces| *pieces = pieces.wrapping_add(1));
                watch_output(piece);
            };
            let last = match sandbox.run(new.command, &progress).await {
                // The log of a kept command has the end of its output already.
                Ok(finished) if running.kept.load(Ordering::Acquire) => ProcessState::Ended(Box::new(Finished {
                    stdout: Captured::default(),
                    stderr: Captured::default(),
                    ..finished
                })),
                Ok(finished) => ProcessState::Ended(Box::new(finished)),
                Err(refusal) => ProcessState::Lost(refusal),
            };
            running.end(last);
            drop(end);
        });
        // Set once: this is the only place.
        let _ = process.task.set(task.abort_handle());
        Guard(Some(process))
    }

    /// Whether an agent that may have `most` background commands may have another one.
    pub fn has_room(&self, agent_id: &AgentId, most: u32) -> bool {
        let all = lock(&self.all);
        all.values().filter(|one| one.agent_id == *agent_id && one.runs()).count() < most as usize
    }

    /// Takes a running command over as a background command of its agent, at most `most` of each agent. `None` if the
    /// agent has so many already; the command is then killed.
    pub fn keep(&self, guard: Guard, most: u32) -> Option<Arc<Process>> {
        let process = guard.process().cloned()?;
        if !self.has_room(&process.agent_id, most) {
            return None;
        }
        process.kept.store(true, Ordering::Release);
        let mut all = lock(&self.all);
        let mut ended: Vec<(Timestamp, String, bool)> = all
            .values()
            .filter(|one| !one.runs())
            .map(|one| (one.began_at, one.session_id.clone(), one.agent_id == process.agent_id))
            .collect();
        ended.sort();
        let own = ended.iter().filter(|(.., own)| *own).count();
        let old_own = ended.iter().filter(|(.., own)| *own).take((own + 1).saturating_sub(ENDED_MAX));
        let old = ended.iter().take((ended.len() + 1).saturating_sub(ENDED_ALL_MAX));
        for (_, session_id, _) in old_own.chain(old) {
            all.remove(session_id);
        }
        all.insert(process.session_id.clone(), Arc::clone(&process));
        drop(all);
        guard.release();
        Some(process)
    }

    /// The background commands of an agent, oldest first.
    pub fn of(&self, agent_id: &AgentId) -> Vec<Arc<Process>> {
        let mut own: Vec<_> = lock(&self.all).values().filter(|one| one.agent_id == *agent_id).cloned().collect();
        own.sort_by_key(|one| (one.began_at, one.session_id.len(), one.session_id.clone()));
        own
    }

    /// One background command of an agent.
    ///
    /// # Errors
    /// `OutcomeUnknown` if it began before the daemon's last start, and `NotFound`.
    pub fn one(&self, agent_id: &AgentId, session_id: &str) -> Result<Arc<Process>> {
        if let Some(process) = lock(&self.all).get(session_id).filter(|one| one.agent_id == *agent_id) {
            return Ok(Arc::clone(process));
        }
        let boot = session_id.strip_prefix("run-").and_then(|rest| rest.rsplit_once('-')).map(|(boot, _)| boot);
        if let Some(boot) = boot.filter(|boot| boot.len() == 8 && boot.bytes().all(|byte| byte.is_ascii_hexdigit()))
            && self.boot.get().is_none_or(|own| own != boot)
        {
            return Err(refusal!(
                OutcomeUnknown,
                "{session_id} was lost: the daemon has started again since, and its command was killed"
            )
            .hint("check what it did before you run it again"));
        }
        Err(Refusal::not_found("background command", session_id, None).hint("list them with tool.process"))
    }

    /// Forgets a background command; a running one is killed.
    pub fn remove(&self, process: &Process) {
        process.kill();
        lock(&self.all).remove(&process.session_id);
    }

    /// Kills and forgets the background commands that began before an agent was created: those of an earlier agent with
    /// its id.
    pub fn end_before(&self, agent_id: &AgentId, created_at: Timestamp) {
        for process in self.of(agent_id) {
            if process.began_at < created_at {
                self.remove(&process);
            }
        }
    }

    /// Kills and forgets all background commands of an agent that was stopped or deleted, or has failed.
    pub fn end_all_of(&self, agent_id: &AgentId) {
        for process in self.of(agent_id) {
            self.remove(&process);
        }
    }
}

#[cfg(test)]
mod tests {
    use ghost_domain::Code;

    use super::*;

    #[test]
    fn a_log_keeps_its_end_and_cuts_no_character() {
        let mut log = Log::default();
        log.push("äb".as_bytes());
        assert_eq!(log.read(0, 2), Piece { text: "ä".into(), next_offset: 2, bytes: 3, ..Piece::default() });
        assert_eq!(log.read(2, 9).text, "b");
        let piece = log.read(0, 1);
        assert_eq!((piece.next_offset, piece.text.as_str()), (1, "\u{fffd}"), "a poll always goes on");
        log.push(&vec![b'x'; LOG_MAX]);
        let piece = log.read(0, 4);
        assert_eq!((piece.text.as_str(), piece.offset, piece.missed, piece.bytes), ("xxxx", 3, 3, LOG_MAX as u64 + 3));
        let last = log.read(u64::MAX, 4);
        assert_eq!((last.text.as_str(), last.next_offset), ("", LOG_MAX as u64 + 3));
    }

    #[test]
    fn an_id_of_an_earlier_start_is_lost_and_any_other_unknown() {
        let processes = Processes::default();
        let ada: AgentId = "ada".parse().unwrap();
        let code = |id: &str| processes.one(&ada, id).map(drop).unwrap_err().code;
        assert_eq!(code("run-0197d2a0-1"), Code::OutcomeUnknown);
        assert_eq!(code("run-x-1"), Code::NotFound);
        processes.boot.set("0197d2a0".into()).unwrap();
        assert_eq!((code("run-0197d2a0-1"), code("run-0197d2a1-1")), (Code::NotFound, Code::OutcomeUnknown));
    }
}
