//! The line that a person writes at a terminal: edited as they are used to, with what was said before a key away, and out
//! of the way of what is said meanwhile.
//!
//! Must never: leave the terminal in another mode than it was found in.

use std::io::{self, Write};
use std::sync::mpsc as plain;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::Validator;
use rustyline::{Config, Context, Editor, Helper};
use tokio::sync::mpsc;

use super::input::{self, Order};
use crate::failure::Failure;

/// What stands before the line.
const PROMPT: &str = "you> ";
/// Lines that are remembered.
const REMEMBERED: usize = 1_000;
/// Erases from the cursor on.
const ERASE_BELOW: &str = "\u{1b}[J";
/// Ends the mode in which a terminal marks what is pasted, in case the editor could not.
const PASTE_MODE_OFF: &str = "\u{1b}[?2004l";

/// Where the lines come from.
pub enum Lines {
    /// From a pipe, or a terminal that edits nothing.
    Plain(mpsc::Receiver<Result<String, Failure>>),
    /// From a person at a prompt.
    Prompt(Prompt),
}

impl Lines {
    /// Whether a line can come now: at a prompt only while it is shown.
    pub fn listen(&self) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Prompt(prompt) => prompt.shown,
        }
    }

    /// Whether a prompt could be shown that is not.
    pub fn can_ask(&self) -> bool {
        !self.listen()
    }

    /// Shows the prompt, if there is one.
    pub fn ask(&mut self) {
        if let Self::Prompt(prompt) = self {
            prompt.show();
        }
    }

    /// The next line; none at the end.
    pub async fn next(&mut self) -> Option<Result<String, Failure>> {
        match self {
            Self::Plain(lines) => lines.recv().await,
            Self::Prompt(prompt) => {
                let line = prompt.lines.recv().await;
                prompt.hide();
                line
            }
        }
    }

    /// Nothing is asked any more: what is printed from here on stands below.
    pub fn close(&mut self) {
        if let Self::Prompt(prompt) = self
            && prompt.shown
        {
            prompt.hide();
            // If the terminal is gone there is nothing left to do for it.
            drop(writeln!(prompt.page.clone(), "{PASTE_MODE_OFF}"));
        }
    }
}

/// What is printed while a prompt may be shown: beside it at once, above it line by line.
#[derive(Clone)]
pub struct Page(Arc<Mutex<Sheet>>);

struct Sheet {
    prompted: bool,
    /// The beginning of a line that waits for its end, below which the prompt stands.
    held: Vec<u8>,
    typed: Typed,
}

/// The line as far as it is written, so that it can be drawn again below what is printed.
// The editor's own printer cannot be used: with it, keys that arrive together are seen one by one as others follow.
#[derive(Clone, Default)]
struct Typed(Arc<Mutex<String>>);

impl Typed {
    fn line(&self) -> MutexGuard<'_, String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hinter for Typed {
    type Hint = String;

    /// Gives no hint, and remembers what is written.
    fn hint(&self, line: &str, _: usize, _: &Context<'_>) -> Option<String> {
        line.clone_into(&mut self.line());
        None
    }
}

impl Completer for Typed {
    type Candidate = String;
}

impl Highlighter for Typed {}
impl Validator for Typed {}
impl Helper for Typed {}

impl Page {
    fn sheet(&self) -> MutexGuard<'_, Sheet> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut sheet = self.sheet();
        if !sheet.prompted {
            return io::stdout().write(bytes);
        }
        sheet.held.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut sheet = self.sheet();
        if !sheet.prompted {
            return io::stdout().flush();
        }
        let Some(end) = sheet.held.iter().rposition(|byte| *byte == b'\n') else { return Ok(()) };
        let lines: Vec<u8> = sheet.held.drain(..=end).collect();
        let mut screen = io::stdout().lock();
        write!(screen, "\r{ERASE_BELOW}{}{PROMPT}{}", String::from_utf8_lossy(&lines), sheet.typed.line())?;
        screen.flush()
    }
}

/// A terminal that echoes nothing and edits nothing, so that what is typed while an answer comes waits for the prompt and
/// does not stand in the answer. Ctrl-C is heard all the same.
struct Quiet(Termios);

impl Quiet {
    fn begin() -> io::Result<Self> {
        let found = tcgetattr(io::stdin())?;
        let mut quiet = found.clone();
        quiet.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON);
        quiet.local_modes.insert(LocalModes::ISIG);
        tcsetattr(io::stdin(), OptionalActions::Drain, &quiet)?;
        Ok(Self(found))
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // A terminal that is gone has no mode.
        let _ = tcsetattr(io::stdin(), OptionalActions::Drain, &self.0);
    }
}

/// A prompt at a terminal.
pub struct Prompt {
    page: Page,
    ask: plain::SyncSender<()>,
    lines: mpsc::Receiver<Result<String, Failure>>,
    shown: bool,
    _quiet: Quiet,
}

impl Prompt {
    /// Opens one that remembers these lines, the oldest first. None if the terminal cannot edit a line.
    pub fn open(remembered: &[String]) -> Option<Self> {
        let mute = ["dumb", "cons25", "emacs"];
        if std::env::var("TERM").is_ok_and(|term| mute.contains(&term.as_str())) {
            return None;
        }
        let config = Config::builder().max_history_size(REMEMBERED).ok()?.auto_add_history(true).build();
        let mut editor = Editor::<Typed, DefaultHistory>::with_config(config).ok()?;
        let typed = Typed::default();
        editor.set_helper(Some(typed.clone()));
        for line in remembered {
            editor.add_history_entry(line.as_str()).ok()?;
        }
        let sheet = Sheet { prompted: false, held: Vec::new(), typed };
        let quiet = Quiet::begin().ok()?;
        let (ask, asked) = plain::sync_channel(1);
        let (said, lines) = mpsc::channel(1);
        // It ends with the process: a read from a terminal cannot be called back.
        std::thread::spawn(move || edit(&mut editor, &asked, &said));
        Some(Self { page: Page(Arc::new(Mutex::new(sheet))), ask, lines, shown: false, _quiet: quiet })
    }

    /// What is to be printed goes here.
    pub fn page(&self) -> Page {
        self.page.clone()
    }

    fn show(&mut self) {
        let mut sheet = self.page.sheet();
        sheet.prompted = true;
        sheet.typed.line().clear();
        drop(sheet);
        self.shown = true;
        // A thread that is gone has closed the lines, which is seen next.
        let _ = self.ask.try_send(());
    }

    fn hide(&mut self) {
        self.shown = false;
        let mut sheet = self.page.sheet();
        sheet.prompted = false;
        let held = std::mem::take(&mut sheet.held);
        // What cannot be printed is missed by nobody: the next words fail as well, and are heard.
        drop(io::stdout().write_all(&held));
    }
}

/// Asks for a line each time that it is told to, until the end.
fn edit(
    editor: &mut Editor<Typed, DefaultHistory>,
    asked: &plain::Receiver<()>,
    said: &mpsc::Sender<Result<String, Failure>>,
) {
    while asked.recv().is_ok() {
        let line = loop {
            match editor.readline(PROMPT) {
                Ok(line) => break Ok(line),
                // Ctrl-D and Ctrl-C: nothing more is said.
                Err(ReadlineError::Eof | ReadlineError::Interrupted) => return,
                Err(ReadlineError::Signal(_)) => {}
                Err(error) => {
                    let what = format!("cannot read from the terminal: {error}");
                    break Err(Failure::new("internal", what).hint("pipe a text into it"));
                }
            }
        };
        let failed = line.is_err();
        if said.blocking_send(line).is_err() || failed {
            return;
        }
    }
}

/// What was said before, as the lines that a person would write again.
pub fn written(content: &str) -> Option<String> {
    let one = content.lines().count() == 1;
    (one && matches!(input::order(content), Order::Say(_))).then(|| content.to_owned())
}
