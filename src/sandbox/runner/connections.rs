//! Connections: dialled, listened for, accepted.

use std::ffi::c_int;
use std::io;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::os::fd::AsRawFd;

use super::frame::{Refusal, Refused, kind};
use super::kernel::*;
use super::service::Runner;
use super::streams::{Kind, Stream};

impl Runner {
    pub fn new_id(&mut self) -> u32 {
        while self.streams.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1) | 1 << 31;
        }
        let id = self.next;
        self.next = self.next.wrapping_add(1) | 1 << 31;
        id
    }

    pub fn listen(&mut self, id: u32, port: u16) -> Result<Stream, Refusal> {
        let failed = |error: io::Error| Refusal(Refused::Listen, format!("127.0.0.1:{port}: {error}"));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        self.frame(kind::OPENED, id, &[&port.to_le_bytes()]);
        Ok(Stream { kind: Kind::Listener { listener, owner: id, port }, pumps: Vec::new(), sink: None, identity: None })
    }

    pub fn accept(&mut self, id: u32) {
        let Some(Stream { kind: Kind::Listener { listener, owner, port }, .. }) = self.streams.get(&id) else { return };
        let (owner, port) = (*owner, *port);
        let Ok((connection, _)) = listener.accept() else { return };
        let _ = connection.set_nodelay(true);
        if let Ok(stream) = Stream::connection(connection.into(), false) {
            let id = self.new_id();
            self.streams.insert(id, stream);
            self.frame(kind::ACCEPTED, owner, &[&id.to_le_bytes(), &port.to_le_bytes()]);
        }
    }

    pub fn on_connected(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let (Kind::Connection { connecting, .. }, Some(sink)) = (&mut stream.kind, &stream.sink) else { return };
        let (mut error, mut length): (c_int, u32) = (0, 4);
        let _ = libc!(getsockopt(sink.fd.as_raw_fd(), 1, 4, (&raw mut error).cast(), &mut length)); // SO_ERROR
        if error != 0 {
            self.streams.remove(&id);
            let text = io::Error::from_raw_os_error(error).to_string();
            return self.refuse(id, Refusal(Refused::Connect, text));
        }
        *connecting = false;
        self.frame(kind::OPENED, id, &[&0u16.to_le_bytes()]);
        self.feed(id);
    }
}

/// Opens a connection in the runner's own network. Names are not resolved but for `localhost`.
pub fn dial(host: &str, port: u16) -> Result<Stream, Refusal> {
    let failed = |errno| Refusal(Refused::Connect, format!("{host}:{port}: {}", io::Error::from_raw_os_error(errno)));
    let ip = if host == "localhost" { Ok(IpAddr::V4(Ipv4Addr::LOCALHOST)) } else { host.parse() };
    let ip = ip.map_err(|_| Refusal(Refused::Connect, format!("{host}: not an address")))?;
    let mut place = [0u8; 28];
    let (family, length) = match ip {
        IpAddr::V4(ip) => {
            place[4..8].copy_from_slice(&ip.octets());
            (AF_INET, 16)
        }
        IpAddr::V6(ip) => {
            place[8..24].copy_from_slice(&ip.octets());
            (AF_INET6, 28)
        }
    };
    place[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    place[2..4].copy_from_slice(&port.to_be_bytes());
    let kind = SOCK_STREAM as c_int | O_CLOEXEC | O_NONBLOCK;
    let fd = owned(libc!(socket(family as c_int, kind, 0)).map_err(failed)?);
    match libc!(connect(fd.as_raw_fd(), place.as_ptr().cast(), length)) {
        Ok(_) | Err(EINPROGRESS) => Stream::connection(fd, true).map_err(failed),
        Err(errno) => Err(failed(errno)),
    }
}
