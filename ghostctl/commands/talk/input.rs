//! Reads lines from standard input in a separate thread, so that answers can be printed at the same time.

use std::io::{self, BufRead, Read as _};

use tokio::sync::mpsc;

use crate::failure::Failure;

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
