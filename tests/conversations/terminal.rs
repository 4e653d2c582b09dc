//! `ghostctl talk` on a terminal: a person types, sees streamed text, hands over, and interrupts.

use std::io::{Read as _, Write as _};
use std::process::{Child, Stdio};
use std::sync::{Arc, Condvar, Mutex};

use ghost_testkit::blackbox::{Deadline, TestEnvironment};
use pty_process::blocking::{Command, Pty, open};
use rustix::termios::LocalModes;

use crate::desk::desk;

/// The text on the screen so far, and whether the terminal was closed.
type Shown = Arc<(Mutex<(String, bool)>, Condvar)>;

/// A terminal that runs `ghostctl talk`.
struct Terminal {
    keys: Arc<Pty>,
    shown: Shown,
    child: Child,
}

impl Terminal {
    fn start(test_env: &TestEnvironment, args: &[&str]) -> Self {
        let (pty, inside) = open().unwrap();
        pty.resize(pty_process::Size::new(24, 80)).unwrap();
        let command = test_env.ctl_command(&[&["--timeout", "60s", "talk"], args].concat());
        let child = Command::from(command).spawn(inside).unwrap();
        let (keys, shown) = (Arc::new(pty), Shown::default());
        let (screen, writes) = (Arc::clone(&keys), Arc::clone(&shown));
        std::thread::spawn(move || {
            let mut bytes = [0; 4_096];
            // Reading fails when the program has ended.
            while let Ok(read @ 1..) = (&*screen).read(&mut bytes) {
                writes.0.lock().unwrap().0.push_str(&String::from_utf8_lossy(&bytes[..read]));
                writes.1.notify_all();
            }
            writes.0.lock().unwrap().1 = true;
            writes.1.notify_all();
        });
        Self { keys, shown, child }
    }

    fn press(&self, keys: &str) {
        (&*self.keys).write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the screen has these words. Returns its whole text.
    fn wait_for(&self, words: &str) -> String {
        let deadline = Deadline::seconds(60);
        let mut shown = self.shown.0.lock().unwrap();
        loop {
            if shown.0.contains(words) {
                return shown.0.clone();
            }
            assert!(!shown.1 && !deadline.passed(), "no {words:?} in\n{}", shown.0);
            shown = self.shown.1.wait_timeout(shown, deadline.left()).unwrap().0;
        }
    }

    /// Waits for its end. Returns its exit code and the screen's text.
    fn end(mut self) -> (Option<i32>, String) {
        let deadline = Deadline::seconds(60);
        let code = deadline.until("the end of talk", || match self.child.try_wait() {
            Ok(Some(status)) => Ok(status.code()),
            other => Err(format!("{other:?}")),
        });
        // The last output may not have arrived yet.
        let mut shown = self.shown.0.lock().unwrap();
        while !shown.1 {
            assert!(!deadline.passed(), "the screen never goes dark:\n{}", shown.0);
            shown = self.shown.1.wait_timeout(shown, deadline.left()).unwrap().0;
        }
        (code, shown.0.clone())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The program may already have ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The conversation id on the screen.
fn conversation(shown: &str) -> String {
    let rest = shown.split("-- conversation ").nth(1).unwrap();
    rest.split_whitespace().next().unwrap().to_owned()
}

#[test]
fn a_person_types_sees_streamed_text_and_hands_over() {
    let (test_env, world) = desk("");
    let daemon = test_env.up(&world, &[]);
    let terminal = Terminal::start(&test_env, &["ada"]);
    terminal.press("tell me a story\n");
    let begun = terminal.wait_for("ada> Once upon a time");
    assert!(!begun.contains("The end."), "the answer is still being made");
    let whole = terminal.wait_for("The end.");
    let id = conversation(&whole);
    assert_eq!(whole.matches("Once upon a time").count(), 1, "what came as it was written is not printed again");
    // An invalid command is reported, and the talk continues.
    terminal.press("/handoff zed\n");
    terminal.wait_for("-- not done: ");
    terminal.press("/dance\n");
    terminal.wait_for("/handoff AGENT");
    terminal.press("/handoff ben\n");
    terminal.wait_for("-- ben ");
    terminal.press("hello\n");
    terminal.wait_for("ben> Here is ben.");
    terminal.press("act please\n");
    terminal.wait_for("👍");
    terminal.wait_for("ben> Done, and unsupported.");
    // Ctrl-D ends the input.
    terminal.press("\u{4}");
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains(&format!("ghostctl talk ben --conversation {id}")), "{shown}");
    // The conversation continues after the existing entries.
    let again = Terminal::start(&test_env, &["ben", "--conversation", &id]);
    again.wait_for(&format!("-- conversation {id} with ben"));
    again.press("once more\n");
    let shown = again.wait_for("ben> Here is ben.");
    assert!(!shown.contains("Once upon a time"), "{shown}");
    again.press("/quit\n");
    assert_eq!(again.end().0, Some(0));
    daemon.stop();
}

#[test]
fn an_interrupted_talk_does_not_cancel_the_answer() {
    let (test_env, world) = desk("");
    let daemon = test_env.up(&world, &[]);
    let terminal = Terminal::start(&test_env, &["ada"]);
    terminal.press("take your time\n");
    let id = conversation(&terminal.wait_for(" with ada"));
    // Ctrl-C leaves the talk but does not cancel the turn.
    terminal.press("\u{3}");
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("ghostctl talk ada --conversation"), "{shown}");
    assert!(!shown.contains("Slowly said."), "it was not waited for: {shown}");
    Deadline::seconds(60).until("the answer", || {
        let entries = test_env.json(&["conversation", "show", &id])["entries"].clone();
        if entries[1]["content"] == "Slowly said." { Ok(()) } else { Err(entries.to_string()) }
    });
    daemon.stop();
}

/// The messages of the only conversation from outside, in order.
fn messages_of(test_env: &TestEnvironment, id: &str) -> Vec<String> {
    let shown = test_env.json(&["conversation", "show", id]);
    let entries = shown["entries"].as_array().unwrap().iter();
    let texts = entries.filter(|entry| entry["direction"] == "in");
    texts.map(|entry| entry["content"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_line_can_be_edited_recalled_and_is_not_mixed_with_output() {
    let (test_env, world) = desk("");
    let daemon = test_env.up(&world, &[]);
    let terminal = Terminal::start(&test_env, &["ada"]);
    terminal.wait_for("you> ");
    // Three steps to the left, one letter inserted.
    terminal.press("hllo\u{1b}[D\u{1b}[D\u{1b}[De\r");
    let shown = terminal.wait_for("ada> Here is ada.");
    let id = conversation(&shown);
    // The previous line with a word added.
    terminal.press("\u{1b}[A again\r");
    let deadline = Deadline::seconds(60);
    deadline.until("the second message", || match messages_of(&test_env, &id) {
        texts if texts == ["hello", "hello again"] => Ok(()),
        texts => Err(format!("{texts:?}")),
    });
    terminal.press("/help\r");
    terminal.wait_for("-- /attach PATH");
    // A missing file is refused at once, and nothing is sent.
    terminal.press("/attach nothing.md\r");
    terminal.wait_for("-- not done: ");
    terminal.press("without it\r");
    deadline.until("the third message", || match messages_of(&test_env, &id) {
        texts if texts.last().is_some_and(|last| last == "without it") => Ok(()),
        texts => Err(format!("{texts:?}")),
    });
    deadline.until("the answer to it", || {
        let entries = test_env.json(&["conversation", "show", &id])["entries"].clone();
        if entries.as_array().unwrap().len() == 6 { Ok(()) } else { Err(entries.to_string()) }
    });
    // A half-typed line stays unchanged while another message arrives in the same conversation.
    terminal.press("half a li");
    terminal.wait_for("half a li");
    let mut other = test_env.ctl_command(&["talk", "ada", "--conversation", &id]);
    let mut other = other.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    other.stdin.take().unwrap().write_all(b"from elsewhere\n").unwrap();
    assert!(other.wait().unwrap().success());
    terminal.wait_for("> from elsewhere");
    terminal.press("ne\r");
    deadline.until("the last message", || match messages_of(&test_env, &id) {
        texts if texts.last().is_some_and(|last| last == "half a line") => Ok(()),
        texts => Err(format!("{texts:?}")),
    });
    terminal.press("\u{4}");
    let keys = Arc::clone(&terminal.keys);
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(0), "{shown}");
    // The terminal's settings are restored.
    let modes = rustix::termios::tcgetattr(&*keys).unwrap().local_modes;
    assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO), "{modes:?}");
    // When a conversation continues, its earlier lines are in the input history.
    let again = Terminal::start(&test_env, &["ada", "--conversation", &id]);
    again.wait_for("you> ");
    again.press("\u{1b}[A!\r");
    deadline.until("the line of another day", || match messages_of(&test_env, &id) {
        texts if texts.last().is_some_and(|last| last == "half a line!") => Ok(()),
        texts => Err(format!("{texts:?}")),
    });
    again.press("/quit\r");
    assert_eq!(again.end().0, Some(0));
    daemon.stop();
}
