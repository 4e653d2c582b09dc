//! A toolbox server in the background. It is killed when its value is dropped.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::programs::ghost_toolbox;

/// The server.
#[derive(Debug)]
pub struct ToolboxServer {
    child: Child,
    /// Its address.
    pub url: String,
}

impl ToolboxServer {
    /// The token of every test server.
    pub const TOKEN: &str = "a-token-for-tests-of-the-toolbox";

    /// Starts a server with its files in `dir`, which exists, and waits until it serves. `tls` are the files of a
    /// certificate and its key; `listen` is an address, with the port 0 for any.
    ///
    /// # Errors
    /// What it said when it did not start.
    pub fn start(dir: &Path, listen: &str, tls: Option<(&Path, &Path)>) -> Result<Self, String> {
        let token = dir.join("token");
        let mut options = std::fs::OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&token).expect("the token's file");
        std::io::Write::write_all(&mut &file, Self::TOKEN.as_bytes()).expect("the token is written");
        #[allow(clippy::disallowed_methods, reason = "test support starts the programs under test")]
        let mut command = Command::new(ghost_toolbox());
        command.arg("serve").args(["--listen", listen, "--dir"]).arg(dir.join("server")).arg("--token-file").arg(token);
        if let Some((certificate, key)) = tls {
            command.arg("--tls-cert").arg(certificate).arg("--tls-key").arg(key);
        }
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut line = String::new();
        let out = child.stdout.take().expect("its output is a pipe");
        BufReader::new(out).read_line(&mut line).expect("its output can be read");
        let Some(url) = line.trim().strip_prefix("ready: ") else {
            let done = child.wait_with_output().expect("it ends");
            return Err(String::from_utf8_lossy(&done.stderr).into_owned());
        };
        let (url, err) = (url.to_owned(), child.stderr.take());
        // Its log is read, so that it never waits for a reader.
        std::thread::spawn(move || err.map(|mut err| std::io::copy(&mut err, &mut std::io::sink())));
        Ok(Self { child, url })
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it with SIGKILL.
    ///
    /// # Panics
    /// If that is not possible.
    pub fn kill(&mut self) {
        self.child.kill().expect("the server can be killed");
        self.child.wait().expect("it ends");
    }

    /// Sends it SIGTERM and waits until it has ended. Returns its exit code.
    ///
    /// # Panics
    /// If it has already ended, or a signal ends it.
    pub fn stop(mut self) -> i32 {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process id");
        kill_process(pid, Signal::TERM).expect("the server runs");
        self.child.wait().expect("it ends").code().expect("no signal ended it")
    }
}

impl Drop for ToolboxServer {
    fn drop(&mut self) {
        // An error means that it has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
