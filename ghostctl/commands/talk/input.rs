//! Lines from standard input, read in a thread of their own so that answers can come meanwhile.

use std::io::{self, BufRead, Read as _};

use tokio::sync::mpsc;

use crate::failure::Failure;

/// Lines that wait to be said.
const QUEUE: usize = 8;
/// Bytes of the longest message that any world takes: the most that `limits.message_bytes` can be.
pub const MESSAGE_MAX: usize = 1024 * 1024;

/// What a line asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Order {
    /// This is said.
    Say(String),
    /// `/attach PATH`
    Attach(String),
    /// `/handoff AGENT`
    Handoff(String),
    /// `/help`
    Help,
    /// `/quit`
    Quit,
    /// Nothing.
    Nothing,
    /// A command that there is not.
    Unknown(String),
}

/// Reads a line. A message may begin with a slash if it begins with two.
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
        "handoff" if !rest.is_empty() => Order::Handoff(rest.to_owned()),
        "help" | "?" => Order::Help,
        "quit" | "exit" | "bye" => Order::Quit,
        _ => Order::Unknown(word.to_owned()),
    }
}

/// The next line, if there is one. Of one that is too long there is enough to see that; the rest is passed over, so that it
/// is never taken for a message of its own.
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

/// The text of the line `number`. What is not text is refused: with other characters in its place it would be another
/// message.
fn text(line: Vec<u8>, number: u64) -> Result<String, Failure> {
    let text = match String::from_utf8(line) {
        Ok(text) => text,
        // Refused for its length; it may have been cut within a character.
        Err(error) if error.as_bytes().len() > MESSAGE_MAX => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        Err(error) => {
            let at = error.utf8_error().valid_up_to() + 1;
            let what = format!("line {number} of standard input is not UTF-8 from its byte {at} on");
            return Err(Failure::new("invalid_arguments", what).hint("it was not said; a message is UTF-8 text"));
        }
    };
    Ok(text.trim_end_matches(['\n', '\r']).to_owned())
}

/// The lines of standard input, until its end.
pub fn lines() -> mpsc::Receiver<Result<String, Failure>> {
    let (sender, receiver) = mpsc::channel(QUEUE);
    // It ends with the process: a read from a terminal cannot be called back.
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        for number in 1.. {
            let (next, last) = match line(&mut input) {
                Ok(Some(line)) => (text(line, number), false),
                Ok(None) => return,
                Err(error) => {
                    let what = format!("cannot read line {number} of standard input: {error}");
                    (Err(Failure::new("internal", what).hint("pipe a text into it")), true)
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
    fn a_line_that_is_too_long_stays_one_line() {
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
    fn what_is_not_text_is_refused_with_its_line() {
        let refused = text(b"caf\xe9\n".to_vec(), 7).unwrap_err();
        assert_eq!(refused.exit_code(), 2);
        assert_eq!(refused.message, "line 7 of standard input is not UTF-8 from its byte 4 on");
        assert_eq!(text("café\r\n".as_bytes().to_vec(), 7).unwrap(), "café");
    }
}
