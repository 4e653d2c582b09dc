//! The lines of the user: from a pipe, or from a prompt at a terminal, a line editor with history. Both are read in a
//! thread of their own. Output that arrives meanwhile is printed above the prompt. The terminal is always left in its
//! earlier mode.

use std::io::{self, BufRead, Read as _, Write};
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
    (one && matches!(order(content), Order::Say(_))).then(|| content.to_owned())
}

/// Lines that are read ahead.
const QUEUE: usize = 8;
/// Longest message in bytes: the upper bound of `limits.message_bytes`.
pub const MESSAGE_MAX: usize = 1024 * 1024;

/// The meaning of an input line.
#[derive(Debug, PartialEq, Eq)]
pub enum Order {
    /// Send this message.
    Say(String),
    /// `/attach PATH`
    Attach(String),
    /// `/handoff AGENT`
    Handoff(String),
    /// `/approve ID allow-once|allow-always|deny [NOTE]`, as it was typed.
    Approve(String),
    /// `/help`
    Help,
    /// `/quit`
    Quit,
    /// An empty line.
    Nothing,
    /// An unknown command, or one without its argument.
    Unknown(String),
}

/// Parses a line. A message that starts with two slashes is sent with one.
pub fn order(line: &str) -> Order {
    let line = line.trim();
    let Some(command) = line.strip_prefix('/').filter(|rest| !rest.starts_with('/')) else {
        let text = line.strip_prefix('/').unwrap_or(line);
        return if text.is_empty() { Order::Nothing } else { Order::Say(text.to_owned()) };
    };
    let (word, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
    let rest = rest.trim();
    match word {
        "attach" if !rest.is_empty() => Order::Attach(rest.to_owned()),
        "approve" if !rest.is_empty() => Order::Approve(line.to_owned()),
        "handoff" if !rest.is_empty() => Order::Handoff(rest.to_owned()),
        "help" | "?" => Order::Help,
        "quit" | "exit" | "bye" => Order::Quit,
        _ => Order::Unknown(word.to_owned()),
    }
}

/// Reads the next line; `None` at the end. A line that is too long is returned with one byte more than the maximum. The
/// rest of it is skipped, so that it is not read as another message.
fn line(input: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    if input.by_ref().take(MESSAGE_MAX as u64 + 2).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    if line.len() > MESSAGE_MAX + 1 && !line.ends_with(b"\n") {
        input.skip_until(b'\n')?;
    }
    Ok(Some(line))
}

/// The text of line `number`. Invalid UTF-8 is refused, because replacement characters would change the message.
fn text(line: Vec<u8>, number: u64) -> Result<String, Failure> {
    let text = match String::from_utf8(line) {
        Ok(text) => text,
        // The caller refuses this line for its length. It may be truncated within a character, so
        // invalid UTF-8 does not matter.
        Err(error) if error.as_bytes().len() > MESSAGE_MAX => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        Err(error) => {
            let at = error.utf8_error().valid_up_to() + 1;
            let what = format!("line {number} of standard input is not UTF-8 from byte {at} on");
            return Err(Failure::new("invalid_arguments", what).hint("the line was not sent; messages must be UTF-8"));
        }
    };
    Ok(text.trim_end_matches(['\n', '\r']).to_owned())
}

/// The lines of standard input, until its end.
pub fn lines() -> mpsc::Receiver<Result<String, Failure>> {
    let (sender, receiver) = mpsc::channel(QUEUE);
    // The thread ends with the process: a blocking read cannot be cancelled.
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        for number in 1.. {
            let (next, last) = match line(&mut input) {
                Ok(Some(line)) => (text(line, number), false),
                Ok(None) => return,
                Err(error) => {
                    let what = format!("cannot read line {number} of standard input: {error}");
                    (Err(Failure::new("internal", what).hint("pipe a text into ghostctl")), true)
                }
            };
            if sender.blocking_send(next).is_err() || last {
                return;
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_messages_or_commands() {
        for (line, wanted) in [
            ("Hello there. ", Order::Say("Hello there.".into())),
            ("//etc is a path", Order::Say("/etc is a path".into())),
            ("/attach a b.md", Order::Attach("a b.md".into())),
            ("/handoff mux", Order::Handoff("mux".into())),
            ("/approve 01 deny no", Order::Approve("/approve 01 deny no".into())),
            ("/quit", Order::Quit),
            ("  ", Order::Nothing),
            ("/attach", Order::Unknown("attach".into())),
            ("/help", Order::Help),
            ("/exit", Order::Quit),
            ("/dance", Order::Unknown("dance".into())),
        ] {
            assert_eq!(order(line), wanted, "{line}");
        }
    }

    #[test]
    fn an_overlong_line_is_one_line() {
        let long = "x".repeat(MESSAGE_MAX * 5);
        let written = format!("one\r\n{long}\n{}\ntwo", "é".repeat(MESSAGE_MAX));
        let mut input = written.as_bytes();
        let mut next = || line(&mut input).unwrap().map(|line| text(line, 1).unwrap());
        assert_eq!(next().as_deref(), Some("one"));
        assert!(next().is_some_and(|line| line.len() > MESSAGE_MAX));
        assert!(next().is_some_and(|line| line.len() > MESSAGE_MAX));
        assert_eq!(next().as_deref(), Some("two"));
        assert_eq!(next(), None);
    }

    #[test]
    fn invalid_utf8_is_refused_with_its_line_number() {
        let refused = text(b"caf\xe9\n".to_vec(), 7).unwrap_err();
        assert_eq!(refused.exit_code(), 2);
        assert!(refused.message.contains("line 7 ") && refused.message.contains("byte 4 "), "{}", refused.message);
        assert_eq!(text("café\r\n".as_bytes().to_vec(), 7).unwrap(), "café");
    }
}
