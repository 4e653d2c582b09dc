//! The daemon's side of the runner's protocol. `runner/PROTOCOL.md` describes the frames. Reading one allocates no more than its
//! stated bound, whatever it says: a runner shares its container with commands.

#[allow(dead_code, reason = "this file is the runner's; each side needs a part of it")]
#[path = "runner/frame.rs"]
mod wire;

use std::time::Duration;

use ghost_config::plan::SandboxPlan;
use tokio::io::{AsyncRead, AsyncReadExt as _};

use self::wire::{Fields, MAX_FRAME, Malformed, kind, put_text};
pub(crate) use self::wire::{VERSION, access as right, flag};
use crate::command::End;
use crate::own_dirs::User;

/// Credit that lets a command write without being read: its output is only counted.
pub(crate) const DISCARD: u32 = u32::MAX;
/// The output streams of a command, as channels of its frames.
pub(crate) const STDOUT: u8 = 1;
pub(crate) const STDERR: u8 = 2;

/// A frame from the daemon.
#[derive(Debug)]
pub(crate) enum Order<'o> {
    Hello,
    Exec(&'o Exec),
    Data(&'o [u8]),
    Eof,
    Credit(u8, u32),
    Kill,
    /// Listens at a port of the runner's own network, or at any if it is 0.
    Listen(u16),
    /// Ends a connection.
    Close,
    /// The longest silence of the daemon, in seconds, while a command runs.
    Watch(u16),
}

/// The request to run a command.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exec {
    pub(crate) flags: u32,
    pub(crate) required: u32,
    pub(crate) deadline: Duration,
    pub(crate) memory: u64,
    pub(crate) processes: u32,
    pub(crate) disk: u64,
    pub(crate) credit: (u32, u32),
    pub(crate) cwd: String,
    pub(crate) argv: Vec<String>,
    pub(crate) env: Vec<String>,
    pub(crate) paths: Vec<(u8, String)>,
    pub(crate) network: Network,
    /// The user that the command runs as; without one the runner chooses.
    pub(crate) user: Option<User>,
}

/// What a command reaches over the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Network {
    /// Nothing.
    #[default]
    None,
    /// A network of its own, in which the runner listens at this port.
    Tunnel(u16),
    /// TCP and UDP to wherever the runner's own network leads.
    Open,
}

impl Network {
    /// The mode, and the list of tunnels. The runner's mode 1 is not used: it would allow the port of any host.
    fn encoded(self) -> (u8, Option<u16>) {
        match self {
            Self::None => (0, None),
            Self::Tunnel(port) => (2, Some(port)),
            Self::Open => (3, None),
        }
    }
}

/// Largest size of one file that a command writes is its disk limit; the number of open files is this.
const OPEN_FILES: u64 = 1_024;
/// Size of each private file system in memory.
pub(crate) const TMP_BYTES: u64 = 256 << 20;
/// The runner chooses the user.
const OWN_ID: u32 = u32::MAX;
/// What commands make is closed to other users of the machine.
const UMASK: u32 = 0o027;

impl Order<'_> {
    /// The frame for stream `id`.
    pub(crate) fn encode(&self, id: u32) -> Vec<u8> {
        let (kind, mut body) = match self {
            Self::Hello => (kind::HELLO, VERSION.to_le_bytes().to_vec()),
            Self::Exec(exec) => (kind::EXEC, exec.encode()),
            Self::Data(bytes) => (kind::DATA, [&[0], *bytes].concat()),
            Self::Eof => (kind::EOF, vec![0]),
            Self::Credit(channel, bytes) => (kind::CREDIT, [&[*channel][..], &bytes.to_le_bytes()].concat()),
            Self::Kill => (kind::KILL, Vec::new()),
            Self::Listen(port) => (kind::LISTEN, port.to_le_bytes().to_vec()),
            Self::Close => (kind::CLOSE, Vec::new()),
            Self::Watch(seconds) => (kind::WATCH, seconds.to_le_bytes().to_vec()),
        };
        let mut frame = Vec::with_capacity(body.len() + 9);
        // A request is checked for its size before it is sent, so this does not cut.
        frame.extend(u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes());
        frame.push(kind);
        frame.extend(id.to_le_bytes());
        frame.append(&mut body);
        frame
    }
}

fn put_numbers<const N: usize>(into: &mut Vec<u8>, numbers: impl IntoIterator<Item = [u8; N]>) {
    into.extend(numbers.into_iter().flatten());
}

fn put_list<T>(into: &mut Vec<u8>, items: &[T], put: impl Fn(&mut Vec<u8>, &T)) {
    into.extend(u32::try_from(items.len()).unwrap_or(u32::MAX).to_le_bytes());
    items.iter().for_each(|item| put(into, item));
}

impl Exec {
    /// A request with the bounds of a plan.
    pub(crate) fn bounded(plan: &SandboxPlan, argv: Vec<String>, deadline: Duration) -> Self {
        let (memory, processes, disk) = (plan.memory_bytes, plan.processes, plan.disk_bytes);
        Self { flags: flag::STDIN, deadline, memory, processes, disk, argv, ..Self::default() }
    }

    /// Whether the request fits into one frame, and no text has a zero byte.
    pub(crate) fn is_sendable(&self) -> bool {
        let texts = || self.argv.iter().chain(&self.env).chain(std::iter::once(&self.cwd));
        let size: usize = texts().map(|text| text.len() + 4).sum();
        let paths: usize = self.paths.iter().map(|(_, path)| path.len() + 5).sum();
        size + paths + 256 <= MAX_FRAME && !texts().any(|text| text.contains('\0'))
    }

    fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let (mode, tunnel) = self.network.encoded();
        let (uid, gid) = self.user.map_or((OWN_ID, OWN_ID), |user| (user.uid, user.gid));
        let deadline = u32::try_from(self.deadline.as_millis()).unwrap_or(u32::MAX);
        put_numbers(&mut body, [self.flags, self.required].map(u32::to_le_bytes));
        body.push(mode);
        put_numbers(&mut body, [uid, gid, UMASK, deadline].map(u32::to_le_bytes));
        body.extend(self.memory.to_le_bytes());
        body.extend(self.processes.to_le_bytes());
        put_numbers(&mut body, [self.disk, TMP_BYTES, OPEN_FILES, self.disk, 0, 0, 0, 0].map(u64::to_le_bytes));
        put_numbers(&mut body, [self.credit.0, self.credit.1].map(u32::to_le_bytes));
        put_text(&mut body, &self.cwd);
        put_list(&mut body, &self.argv, |body, word| put_text(body, word));
        put_list(&mut body, &self.env, |body, pair| put_text(body, pair));
        put_list(&mut body, &self.paths, |body, (rights, path)| {
            body.push(*rights);
            put_text(body, path);
        });
        // No ports to connect to and to bind.
        body.extend([0; 8]);
        put_list(&mut body, tunnel.as_slice(), |body, port| body.extend(port.to_le_bytes()));
        body
    }
}

/// What a runner says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) version: u16,
    pub(crate) available: u32,
    /// Bytes of input that a new stream may be sent.
    pub(crate) window: u32,
    pub(crate) missing: Vec<String>,
}

/// A frame from the runner.
#[derive(Debug, PartialEq)]
pub(crate) enum Report {
    Hello(Hello),
    Started {
        in_force: u32,
    },
    Data {
        channel: u8,
        bytes: Vec<u8>,
    },
    Eof,
    Credit(u32),
    Exit(Exit),
    Refused {
        code: u16,
        reason: String,
    },
    Fatal(String),
    /// The runner listens at this port.
    Opened(u16),
    /// A connection came, and is this stream.
    Accepted(u32),
    /// The last frame of a connection.
    Closed,
    /// A frame of a kind that this daemon asks nothing of.
    Other,
}

/// The last frame of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exit {
    pub(crate) end: End,
    pub(crate) duration: Duration,
    pub(crate) cpu: Duration,
    pub(crate) stdout: u64,
    pub(crate) stderr: u64,
    /// A directory that the command left and that no program should walk, as the command sees it.
    pub(crate) found: Option<String>,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn hello(fields: &mut Fields<'_>) -> Result<Hello, Malformed> {
    let version = fields.u16()?;
    let (_landlock, available) = (fields.u32()?, fields.u32()?);
    let (_uid, _gid, _pid, window) = (fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?);
    fields.take(3)?;
    let (_kernel, _machine, _cgroups) = (fields.bytes()?, fields.bytes()?, fields.bytes()?);
    let missing = text(fields.bytes()?).lines().map(str::to_owned).collect();
    Ok(Hello { version, available, window, missing })
}

fn exit(fields: &mut Fields<'_>) -> Result<Exit, Malformed> {
    let (why, code, signal) = (fields.u8()?, fields.u32()?.cast_signed(), fields.u8()?);
    let (duration, _rss, cpu) = (fields.u64()?, fields.u64()?, fields.u64()?);
    let (stdout, stderr) = (fields.u64()?, fields.u64()?);
    let end = match why {
        0 => End::Exited(code),
        1 => End::Signal(signal),
        2 => End::Deadline,
        3 => End::Memory,
        4 => End::Processes,
        5 => End::Disk,
        6 => End::Killed,
        7 => End::Lost,
        _ => return Err(Malformed("no such end".into())),
    };
    let (duration, cpu) = (Duration::from_micros(duration), Duration::from_micros(cpu));
    let found = Some(text(fields.rest())).filter(|found| !found.is_empty());
    Ok(Exit { end, duration, cpu, stdout, stderr, found })
}

fn decoded(kind: u8, body: &[u8]) -> Result<Report, Malformed> {
    const HELLO: u8 = kind::HELLO | kind::FROM_RUNNER;
    const DATA: u8 = kind::DATA | kind::FROM_RUNNER;
    const EOF: u8 = kind::EOF | kind::FROM_RUNNER;
    const CREDIT: u8 = kind::CREDIT | kind::FROM_RUNNER;
    let mut fields = Fields(body);
    Ok(match kind {
        HELLO => Report::Hello(hello(&mut fields)?),
        kind::STARTED => Report::Started { in_force: fields.u32()? },
        DATA => Report::Data { channel: fields.u8()?, bytes: fields.rest().to_vec() },
        EOF => Report::Eof,
        CREDIT => {
            fields.u8()?;
            Report::Credit(fields.u32()?)
        }
        kind::EXIT => Report::Exit(exit(&mut fields)?),
        kind::REFUSED => Report::Refused { code: fields.u16()?, reason: text(fields.rest()) },
        kind::OPENED => Report::Opened(fields.u16()?),
        kind::ACCEPTED => Report::Accepted(fields.u32()?),
        kind::CLOSED => Report::Closed,
        kind::FATAL => Report::Fatal(text(fields.rest())),
        _ => Report::Other,
    })
}

/// Reads the next frame; `None` at the end of the stream.
///
/// # Errors
/// If the stream fails, or a frame is too long or malformed.
pub(crate) async fn read(from: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Option<(u32, Report)>> {
    let mut head = [0; 9];
    match from.read_exact(&mut head).await {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let wrong = |what: &str| std::io::Error::other(format!("the runner sent {what}"));
    let [a, b, c, d, kind, e, f, g, h] = head;
    let length = usize::try_from(u32::from_le_bytes([a, b, c, d])).unwrap_or(usize::MAX);
    if length > MAX_FRAME {
        return Err(wrong("a frame that is too long"));
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body).await?;
    let report = decoded(kind, &body).map_err(|_| wrong("a malformed frame"))?;
    Ok(Some((u32::from_le_bytes([e, f, g, h]), report)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn frames_are_read_and_bad_ones_are_errors() {
        let frame = |kind: u8, body: &[u8]| {
            let mut frame = u32::try_from(body.len()).unwrap().to_le_bytes().to_vec();
            frame.push(kind);
            frame.extend(7_u32.to_le_bytes());
            frame.extend(body);
            frame
        };
        let read = async |bytes: Vec<u8>| super::read(&mut bytes.as_slice()).await;
        assert_eq!(read(vec![]).await.unwrap(), None);
        let data = Report::Data { channel: 1, bytes: b"ab".to_vec() };
        assert_eq!(read(frame(0x83, b"\x01ab")).await.unwrap(), Some((7, data)));
        let refused = Report::Refused { code: 5, reason: "no".into() };
        assert_eq!(read(frame(0x87, b"\x05\x00no")).await.unwrap(), Some((7, refused)));
        assert_eq!(read(frame(0x99, b"")).await.unwrap(), Some((7, Report::Other)));
        for bad in [frame(0x82, b"\x01"), frame(0x86, &[9; 50]), frame(0x85, b""), vec![255; 9]] {
            assert!(read(bad).await.is_err());
        }
        // A frame that breaks off is an error, too.
        assert!(read(frame(0x83, b"\x01abc")[..11].to_vec()).await.is_err());
    }

    #[test]
    fn a_request_that_cannot_be_sent_is_noticed() {
        let exec = |text: &str| Exec { argv: vec![text.to_owned()], ..Exec::default() };
        assert!(exec("true").is_sendable());
        assert!(!exec("a\0b").is_sendable() && !exec(&"x".repeat(MAX_FRAME)).is_sendable());
    }
}
