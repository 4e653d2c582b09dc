//! Runs a command line in this process and captures its output.

use std::ffi::OsString;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use crate::cli;
use crate::discovery::Environment;
use crate::output::Output;

/// A writer that collects its bytes.
#[derive(Clone, Default)]
pub struct Sink(Arc<Mutex<Vec<u8>>>);

impl Sink {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()).unwrap()
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Exit code and output of a command.
pub struct Ran {
    pub code: u8,
    pub out: String,
    pub err: String,
}

impl Ran {
    /// Standard output as one JSON value.
    pub fn json(&self) -> Value {
        assert_eq!(self.code, 0, "{}", self.err);
        serde_json::from_str(&self.out).unwrap()
    }

    /// Standard output as one JSON value on each line.
    pub fn lines(&self) -> Vec<Value> {
        self.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Standard error as one JSON value.
    pub fn refusal(&self) -> Value {
        serde_json::from_str(&self.err).unwrap()
    }
}

/// Runs `ghostctl` with these arguments, against `endpoint`.
pub async fn ghostctl(endpoint: &str, args: &[&str]) -> Ran {
    let environment = Environment { endpoint: Some(endpoint.to_owned()), ..Environment::default() };
    let args = std::iter::once("ghostctl").chain(args.iter().copied()).map(OsString::from);
    let (out, mut err) = (Sink::default(), Sink::default());
    let code = cli::run(args, &environment, &mut Output::new(Box::new(out.clone()), None), &mut err).await;
    Ran { code, out: out.text(), err: err.text() }
}
