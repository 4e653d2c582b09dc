//! The connection to a toolbox server, and what the server says, checked and in ghostd's own words. Nothing that it sends is kept
//! without a bound, waited for without a deadline, or shown as it is. The token is never shown.

use std::fs::{File, OpenOptions};
use std::io;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use ghost_config::plan::RemotePlan;
use ghost_domain::text::{clip, shown};
use ghost_domain::{Clock, Code, Refusal};
use reqwest::header::{AUTHORIZATION, CONNECTION, HeaderMap, HeaderValue};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use super::node::random_name;
use super::protocol::{Ended, Health, Lines, VERSION, Versioned, is_world};
use crate::clock::within;
use crate::command::{Command, Finished, Protection, Report, with_causes};
use crate::streams::Captured;

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);
/// How long the server may be silent in an answer that is not a command's. It may have to read a large workspace.
const IDLE: Duration = Duration::from_secs(60);
/// Connections that are idle for longer are closed: the server closes them a little later.
const KEPT: Duration = Duration::from_secs(20);
/// Bytes of an answer that is not a stream.
const ANSWER_MAX: usize = 1 << 20;
/// Bytes of a file with certificates.
const CA_MAX: u64 = 1 << 20;
/// Characters of a server's text that are shown.
const SHOWN: usize = 500;

/// A toolbox server.
pub(crate) struct Server {
    client: reqwest::Client,
    url: String,
    clock: Arc<dyn Clock>,
}

/// The streaming answer of a server.
pub(crate) struct Answer {
    lines: Lines<BoxStream<'static, Result<Bytes, reqwest::Error>>>,
    clock: Arc<dyn Clock>,
}

/// The server does not do what it should.
pub(crate) fn unavailable(why: impl std::fmt::Display) -> Refusal {
    Refusal::new(Code::Unavailable, format!("the toolbox server {why}"))
        .hint("try again later; an operator can check the server")
}

/// The text of an error with its causes, without the address.
fn chain(error: reqwest::Error) -> String {
    shown(&with_causes(&error.without_url()), SHOWN)
}

/// What a server refused, in words that are safe to show.
pub(crate) fn cleaned(refusal: Refusal) -> Refusal {
    let code = match refusal.code {
        code @ (Code::InvalidArguments | Code::NotFound | Code::TooLarge | Code::RateLimited) => code,
        _ => Code::Unavailable,
    };
    let hint = refusal.hint.map(|hint| shown(&hint, SHOWN));
    Refusal { code, message: shown(&refusal.message, SHOWN), hint, details: None }
}

impl Server {
    pub(crate) fn new(plan: &RemotePlan, token: &str, clock: Arc<dyn Clock>) -> Result<Self, String> {
        // `main` installs the process's crypto provider at its start, but tests and other programs may not.
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            drop(rustls::crypto::ring::default_provider().install_default());
        }
        let mut bearer =
            HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| "its token is no token".to_owned())?;
        bearer.set_sensitive(true);
        let mut builder = reqwest::Client::builder()
            .default_headers(HeaderMap::from_iter([(AUTHORIZATION, bearer)]))
            .no_proxy()
            .no_gzip()
            .no_brotli()
            .no_zstd()
            .no_deflate()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT)
            .pool_idle_timeout(KEPT)
            .tcp_nodelay(true);
        if let Some(file) = &plan.ca_file {
            let failed = |error: &dyn std::fmt::Display| format!("`sandbox.ca_file` {}: {error}", file.display());
            let opened = ghost_config::regular(file).map_err(|error| failed(&error))?;
            let mut pem = Vec::new();
            let opened = opened.ok_or_else(|| failed(&"it is not a regular file"))?;
            opened.take(CA_MAX).read_to_end(&mut pem).map_err(|error| failed(&error))?;
            let certificates = reqwest::Certificate::from_pem_bundle(&pem).map_err(|error| failed(&error))?;
            if certificates.is_empty() {
                return Err(failed(&"it has no certificate in PEM form"));
            }
            builder = builder.tls_certs_only(certificates);
        }
        let client = builder.build().map_err(|error| format!("its client cannot be built: {}", chain(error)))?;
        Ok(Self { client, url: plan.url.clone(), clock })
    }

    /// Waits for `work`, at most `most`.
    pub(crate) async fn within<T>(
        clock: &dyn Clock,
        most: Duration,
        work: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        let late = || Err(unavailable(format!("did not answer within {} s", most.as_secs())));
        within(clock, most, work).await.unwrap_or_else(late)
    }

    /// Sends a request. One whose body is no stream only asks, and is sent again if the server closed the connection just
    /// when it was used again. Streams, which run commands and change files, are sent once.
    async fn sent(&self, request: reqwest::RequestBuilder, most: Duration) -> Result<reqwest::Response, Refusal> {
        let again = request.try_clone();
        let send = async {
            let sent = match (request.send().await, again) {
                (Err(error), Some(again)) if !error.is_connect() => again.send().await,
                (sent, _) => sent,
            };
            let response = sent.map_err(|error| unavailable(format!("cannot be reached: {}", chain(error))))?;
            if response.status().is_success() {
                return Ok(response);
            }
            let status = response.status();
            let body = whole(response).await?;
            let refused = match serde_json::from_slice::<Refusal>(&body) {
                _ if status == reqwest::StatusCode::UNAUTHORIZED => {
                    return Err(unavailable("refuses the token")
                        .hint("an operator must check the variable `sandbox.token_env`"));
                }
                Ok(refusal) => cleaned(refusal),
                Err(_) => unavailable(format!("answered with the status {}", status.as_u16())),
            };
            Err(refused)
        };
        Self::within(&*self.clock, most, send).await
    }

    /// Asks for the server's state. `world` is the name that the server knows.
    pub(crate) async fn health(&self, world: &str) -> Result<Health, Refusal> {
        let request = self.client.get(format!("{}/health?world={world}", self.url));
        let response = self.sent(request, IDLE).await?;
        let body = Self::within(&*self.clock, IDLE, whole(response)).await?;
        let wrong = |error: &dyn std::fmt::Display| unavailable(format!("is none of this kind: {error}"));
        let version = serde_json::from_slice::<Versioned>(&body).map_err(|error| wrong(&error))?.version;
        if version != VERSION {
            let why = format!("speaks version {version} of the protocol, and ghostd speaks {VERSION}");
            return Err(unavailable(why).hint("use ghostd and ghost-toolbox of the same release"));
        }
        serde_json::from_slice(&body).map_err(|error| wrong(&error))
    }

    /// Asks for something, which changes nothing there. The answer is a stream.
    pub(crate) async fn ask(&self, path: &str, body: &impl Serialize) -> Result<Answer, Refusal> {
        let response = self.sent(self.client.post(format!("{}{path}", self.url)).json(body), IDLE).await?;
        Ok(self.answer(response))
    }

    fn answer(&self, response: reqwest::Response) -> Answer {
        Answer { lines: Lines::new(response.bytes_stream().boxed()), clock: Arc::clone(&self.clock) }
    }

    fn streaming(&self, path: &str, body: mpsc::Receiver<Bytes>) -> reqwest::RequestBuilder {
        let pieces = futures_util::stream::unfold(body, |mut body| async move {
            body.recv().await.map(|piece| (Ok::<_, std::convert::Infallible>(piece), body))
        });
        self.client.post(format!("{}{path}", self.url)).body(reqwest::Body::wrap_stream(pieces))
    }

    /// Sends a stream. The answer is one object, for which the server may need `most`.
    pub(crate) async fn send<T: DeserializeOwned>(
        &self,
        path: &str,
        body: mpsc::Receiver<Bytes>,
        most: Duration,
    ) -> Result<T, Refusal> {
        let response = self.sent(self.streaming(path, body), most).await?;
        let body = Self::within(&*self.clock, IDLE, whole(response)).await?;
        serde_json::from_slice(&body).map_err(|_| unavailable("gave an answer that cannot be read"))
    }

    /// Sends a stream. The answer is one, too, and begins before the other has ended.
    pub(crate) async fn converse(&self, path: &str, body: mpsc::Receiver<Bytes>) -> Result<Answer, Refusal> {
        let request = self.streaming(path, body);
        // The end of the answer may come before that of the request, so nothing else can follow on this connection.
        Ok(self.answer(self.sent(request.header(CONNECTION, "close"), IDLE).await?))
    }
}

/// A body that is not a stream.
async fn whole(response: reqwest::Response) -> Result<Vec<u8>, Refusal> {
    let (mut body, mut pieces) = (Vec::new(), response.bytes_stream());
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|error| unavailable(format!("broke off: {}", chain(error))))?;
        if body.len() + piece.len() > ANSWER_MAX {
            return Err(unavailable("gave an answer that is too long"));
        }
        body.extend_from_slice(&piece);
    }
    Ok(body)
}

impl Answer {
    /// The next line of at most `max` bytes; `None` at the end. Dropping the future loses nothing.
    pub(crate) async fn next<T: DeserializeOwned>(&mut self, max: usize, idle: Duration) -> Result<Option<T>, Refusal> {
        let silent = || unavailable(format!("was silent for {} s", idle.as_secs()));
        let line = within(&*self.clock, idle, self.lines.next(max)).await.ok_or_else(silent)?;
        let line = line.map_err(|error| unavailable(format!("broke off: {}", shown(&error.to_string(), SHOWN))))?;
        let garbled = |error: serde_json::Error| {
            unavailable(format!("sent something that is not of the protocol: {}", clip(&error.to_string(), 200)))
        };
        line.map(|line| serde_json::from_slice(&line).map_err(garbled)).transpose()
    }

    /// The next line of an answer that is not a command's, and has not ended.
    pub(crate) async fn part<T: DeserializeOwned>(&mut self, max: usize) -> Result<T, Refusal> {
        self.next(max, IDLE).await?.ok_or_else(|| unavailable("broke off"))
    }
}

/// The file of the data directory with the workspace's name on servers.
const NAME_FILE: &str = "remote-workspace";
/// Bytes of that file that are read.
const NAME_MAX: u64 = 256;
/// Reasons for missing protections that are kept, and their characters.
const REASONS: usize = 32;
const REASON: usize = 300;
/// Longest path of a workspace.
const PATH_MAX: usize = 1_024;
/// Bytes of the mark that an output with a missing part has.
const MARK: usize = 64;

/// The name of a workspace on a server: the world's id, and something that only this data directory has, because two
/// worlds with one id may use one server.
///
/// # Errors
/// If it cannot be read or written.
pub(super) fn world_name(world_id: &str, data_dir: &Path) -> io::Result<String> {
    let path = data_dir.join(NAME_FILE);
    let read = |file: File| -> io::Result<String> {
        let mut text = String::new();
        file.take(NAME_MAX).read_to_string(&mut text)?;
        Ok(text.trim().to_owned())
    };
    let own = match ghost_config::regular(&path) {
        Ok(Some(file)) => read(file)?,
        Ok(None) => return Err(io::Error::other(format!("{NAME_FILE} is not a regular file"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let name = random_name()?;
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
            file.write_all(name.as_bytes())?;
            file.sync_all()?;
            name
        }
        Err(error) => return Err(error),
    };
    let id: String =
        world_id.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-')).take(64).collect();
    let name = format!("{id}-{own}").trim_start_matches('-').to_owned();
    if own.len() < 16 || !is_world(&name) {
        return Err(io::Error::other(format!("{NAME_FILE} is damaged; remove it to get a new one")));
    }
    Ok(name)
}

/// What a server enforces.
pub(super) fn report(health: &Health) -> Report {
    let in_force = Protection::bits(health.protections.iter().filter_map(|name| Protection::named(name)));
    let missing = health.missing.iter().take(REASONS).map(|reason| shown(reason, REASON)).collect();
    Report { in_force, missing, ..Report::default() }
}

/// Where commands see the workspace, if the server says something that can be such a place.
pub(super) fn inside(health: &Health) -> Option<String> {
    let path = health.workspace.as_ref()?;
    let is_place = path.starts_with('/')
        && path.len() <= PATH_MAX
        && !path.chars().any(ghost_domain::text::is_strange)
        && !path.split('/').any(|part| part == "..");
    is_place.then(|| path.clone())
}

/// The result of a command, if its outputs are not larger than was asked for.
pub(super) fn finished(ended: Ended, command: &Command) -> Option<Finished> {
    // A byte that is no UTF-8 becomes a character of three.
    let fits = |output: &Captured, limit: usize| output.text.len() <= limit.saturating_mul(3).saturating_add(MARK);
    if !fits(&ended.stdout, command.stdout_limit) || !fits(&ended.stderr, command.stderr_limit) {
        return None;
    }
    Some(Finished {
        end: ended.end,
        duration: Duration::from_millis(ended.duration_ms),
        cpu: Duration::from_millis(ended.cpu_ms),
        stdout: ended.stdout,
        stderr: ended.stderr,
        in_force: Protection::bits(ended.protections.iter().filter_map(|name| Protection::named(name))),
    })
}

/// Adds notes about files to what the agent reads.
pub(super) fn add_notes(stderr: &mut Captured, notes: &[String]) {
    for note in notes {
        if !stderr.text.is_empty() && !stderr.text.ends_with('\n') {
            stderr.text.push('\n');
        }
        stderr.text.push_str(&format!("[ghostd: {}]\n", shown(note, 1_000)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workspace_keeps_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let name = world_name("my world", dir.path()).unwrap();
        assert!(name.starts_with("myworld-") && is_world(&name), "{name}");
        assert_eq!(world_name("my world", dir.path()).unwrap(), name);
        let other = tempfile::tempdir().unwrap();
        assert_ne!(world_name("my world", other.path()).unwrap(), name);
        assert!(is_world(&world_name("ü", other.path()).unwrap()));
        std::fs::write(dir.path().join(NAME_FILE), "../x").unwrap();
        assert!(world_name("w", dir.path()).is_err());
    }

    #[test]
    fn what_a_server_says_is_checked() {
        let health = |workspace: &str, missing: usize| Health {
            version: 1,
            program: String::new(),
            protections: vec!["files".into(), "invented".into()],
            missing: vec!["x".repeat(10_000); missing],
            workspace: Some(workspace.into()),
        };
        let report = report(&health("/w", 1_000));
        assert_eq!((report.in_force, report.missing.len()), (Protection::Files.bit(), REASONS));
        assert!(report.missing[0].chars().count() <= REASON + 1);
        assert_eq!(inside(&health("/w/a", 0)).as_deref(), Some("/w/a"));
        for bad in ["", "w", "/a/../b", "/a\nb", &format!("/{}", "x".repeat(2_000))] {
            assert_eq!(inside(&health(bad, 0)), None, "{bad}");
        }
    }
}
