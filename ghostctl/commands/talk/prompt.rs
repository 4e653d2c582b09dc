//! The prompt at a terminal: a line editor with history. Output that arrives meanwhile is printed above the prompt.
//!
//! The terminal must never be left in another mode than before.

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

/// The prompt text.
const PROMPT: &str = "you> ";
/// Lines of history.
const REMEMBERED: usize = 1_000;
/// Escape sequence: erase from the cursor to the end of the screen.
const ERASE_BELOW: &str = "\u{1b}[J";
/// Escape sequence: end bracketed paste mode, in case the editor could not.
const PASTE_MODE_OFF: &str = "\u{1b}[?2004l";

/// The source of input lines.
pub enum Lines {
    /// A pipe, or a terminal without line editing.
    Plain(mpsc::Receiver<Result<String, Failure>>),
    /// A prompt at a terminal.
    Prompt(Prompt),
}

impl Lines {
    /// Whether a line can arrive now: with a prompt, only while it is shown.
    pub fn listen(&self) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Prompt(prompt) => prompt.shown,
        }
    }

    /// Whether there is a prompt that is not shown.
    pub fn can_ask(&self) -> bool {
        !self.listen()
    }

    /// Shows the prompt, if there is one.
    pub fn ask(&mut self) {
        if let Self::Prompt(prompt) = self {
            prompt.show();
        }
    }

    /// The next line; `None` at the end of input.
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

    /// Hides the prompt permanently. Later output is printed below it.
    pub fn close(&mut self) {
        if let Self::Prompt(prompt) = self
            && prompt.shown
        {
            prompt.hide();
            // An error means that the terminal is gone.
            drop(writeln!(prompt.page.clone(), "{PASTE_MODE_OFF}"));
        }
    }
}

/// Output that does not disturb the prompt. While the prompt is shown, whole lines are printed above it; otherwise
/// bytes are printed at once.
#[derive(Clone)]
pub struct Page(Arc<Mutex<Sheet>>);

struct Sheet {
    prompted: bool,
    /// An incomplete line, printed when its end arrives.
    held: Vec<u8>,
    typed: Typed,
}

/// The typed text, needed to redraw the prompt below printed lines.
// The editor's own external printer is not used: with it, keys that arrive together are handled one at a time, each
// only when another key follows.
#[derive(Clone, Default)]
struct Typed(Arc<Mutex<String>>);

impl Typed {
    fn line(&self) -> MutexGuard<'_, String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hinter for Typed {
    type Hint = String;

    /// Gives no hint; records the typed text.
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

/// Turns off echo and line editing of the terminal until dropped. So text typed during an answer waits for the prompt
/// and does not appear within the answer. Ctrl-C still works.
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
        // An error means that the terminal is gone.
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
    /// Opens a prompt with this history, oldest line first. `None` if the terminal cannot edit a line.
    pub fn open(remembered: &[String]) -> Option<Self> {
        let without_editing = ["dumb", "cons25", "emacs"];
        if std::env::var("TERM").is_ok_and(|term| without_editing.contains(&term.as_str())) {
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
        let (line_sender, lines) = mpsc::channel(1);
        // The thread ends with the process: a read from a terminal cannot be cancelled.
        std::thread::spawn(move || edit(&mut editor, &asked, &line_sender));
        Some(Self { page: Page(Arc::new(Mutex::new(sheet))), ask, lines, shown: false, _quiet: quiet })
    }

    /// The output to use while the prompt exists.
    pub fn page(&self) -> Page {
        self.page.clone()
    }

    fn show(&mut self) {
        let mut sheet = self.page.sheet();
        sheet.prompted = true;
        sheet.typed.line().clear();
        drop(sheet);
        self.shown = true;
        // If the thread has ended, it has closed `lines`, and `next` returns `None`.
        let _ = self.ask.try_send(());
    }

    fn hide(&mut self) {
        self.shown = false;
        let mut sheet = self.page.sheet();
        sheet.prompted = false;
        let held = std::mem::take(&mut sheet.held);
        // An error is reported by the next write.
        drop(io::stdout().write_all(&held));
    }
}

/// Reads one line each time the prompt is shown, until the end of input.
fn edit(
    editor: &mut Editor<Typed, DefaultHistory>,
    asked: &plain::Receiver<()>,
    line_sender: &mpsc::Sender<Result<String, Failure>>,
) {
    while asked.recv().is_ok() {
        let line = loop {
            match editor.readline(PROMPT) {
                Ok(line) => break Ok(line),
                // Ctrl-D and Ctrl-C end the conversation.
                Err(ReadlineError::Eof | ReadlineError::Interrupted) => return,
                Err(ReadlineError::Signal(_)) => {}
                Err(error) => {
                    let what = format!("cannot read from the terminal: {error}");
                    break Err(Failure::new("internal", what).hint("pipe a text into ghostctl"));
                }
            }
        };
        let failed = line.is_err();
        if line_sender.blocking_send(line).is_err() || failed {
            return;
        }
    }
}

/// An earlier message as a history line; `None` if it has several lines or would be read as a command.
pub fn history_line(content: &str) -> Option<String> {
    let one = content.lines().count() == 1;
    (one && matches!(input::order(content), Order::Say(_))).then(|| content.to_owned())
}
