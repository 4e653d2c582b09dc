//! `network: proxy`: commands reach the outlet, and nothing else.

use std::time::Duration;

use ghost_config::plan::SandboxNetwork;
use ghost_sandbox::End;

use crate::machine::{gone, mark};
use crate::place::{Kind, Place};

fn place(kind: Kind) -> Option<Place> {
    Place::with(kind, |plan| plan.network = SandboxNetwork::Proxy)
}

fn python(place: &Place, agent: &str, code: &str) -> String {
    let mut command = place.command(agent, &["python3", "-I", "-"]);
    command.stdin = format!("import socket, os, threading\n{code}").into_bytes();
    let done = place.run(command).unwrap();
    assert_eq!(done.end, End::Exited(0), "{} {}", done.stdout.text, done.stderr.text);
    done.stdout.text.trim().to_owned()
}

pub fn the_port_of_the_proxy_leads_to_the_outlet(kind: Kind) {
    let Some(place) = place(kind) else { return };
    // Both ways at once, far more than any window, and half-closed in between.
    let code = r"
address = os.environ['HTTPS_PROXY'].removeprefix('http://').split(':')
s = socket.create_connection((address[0], int(address[1])))
data = os.urandom(3_000_000)
def send():
    s.sendall(data)
    s.shutdown(socket.SHUT_WR)
threading.Thread(target=send).start()
back = b''
while piece := s.recv(65536): back += piece
name, back = back.split(b'\n', 1)
print(name.decode(), back == data)
";
    assert_eq!(python(&place, "ada", code), "ada True");
    assert_eq!(python(&place, "bob", code), "bob True");
    // A hundred connections one after the other, and many at once.
    let many = r"
def one(results):
    s = socket.create_connection(('127.0.0.1', 3128))
    s.sendall(b'x')
    s.shutdown(socket.SHUT_WR)
    text = b''
    while piece := s.recv(100): text += piece
    results.append(text)
results = []
for _ in range(100): one(results)
threads = [threading.Thread(target=one, args=(results,)) for _ in range(30)]
for t in threads: t.start()
for t in threads: t.join()
print(len(results), set(results))
";
    assert_eq!(python(&place, "ada", many), r"130 {b'ada\nx'}");
}

pub fn nothing_else_can_be_reached(kind: Kind) {
    let Some(place) = place(kind) else { return };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let found = place.attempts(
        "ada",
        &format!(
            "t('host', lambda: socket.create_connection(('127.0.0.1', {port}), 2))
t('outside', lambda: socket.create_connection(('1.1.1.1', 3128), 2))
t('metadata', lambda: socket.create_connection(('169.254.169.254', 80), 2))
t('six', lambda: socket.create_connection(('2606:4700::1111', 443), 2))
t('datagram', lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('1.1.1.1', 53)))
t('unix', lambda: socket.socket(socket.AF_UNIX))
t('raw', lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
t('netlink', lambda: socket.socket(16, socket.SOCK_RAW, 0))
t('packet', lambda: socket.socket(17, socket.SOCK_RAW, 3))
"
        ),
    );
    for (name, result) in &found {
        assert_ne!(result, "ok", "{name}");
    }
    assert_eq!(found.len(), 9);
    assert_eq!((found["host"].as_str(), found["outside"].as_str()), ("ECONNREFUSED", "ENETUNREACH"));
}

pub fn connections_end_with_their_command(kind: Kind) {
    let Some(place) = place(kind) else { return };
    let mark = mark();
    // A child that outlives its parent holds a connection, too.
    let code = format!(
        "
s = socket.create_connection(('127.0.0.1', 3128))
os.set_inheritable(s.fileno(), True)
os.spawnvp(os.P_NOWAIT, 'setsid', ['setsid', 'sleep', '{mark}'])
print(s.recv(10).decode())
"
    );
    assert_eq!(python(&place, "ada", &code), "ada");
    gone(&mark);
    // More in all than the runner has streams.
    let held = "
held = [socket.create_connection(('127.0.0.1', 3128)) for _ in range(60)]
print(len([s for s in held if s.recv(10)]))
";
    for _ in 0..5 {
        assert_eq!(python(&place, "ada", held), "60");
    }
}

pub fn a_connection_that_is_not_read_stops_no_other(kind: Kind) {
    let Some(place) = place(kind) else { return };
    // The outlet sends back what it hears. What nobody reads fills every buffer on the way.
    let code = "
import socket
stuck = socket.create_connection(('127.0.0.1', 3128))
stuck.settimeout(1)
total = 0
try:
    for _ in range(100_000): total += stuck.send(b'x' * 4096)
except TimeoutError: pass
s = socket.create_connection(('127.0.0.1', 3128))
print(s.recv(4).decode().strip(), 65536 < total < 100_000_000)
";
    let mut command = place.command("ada", &["python3", "-I", "-"]);
    command.stdin = code.as_bytes().to_vec();
    command.timeout = Duration::from_secs(20);
    let done = place.run(command).unwrap();
    assert_eq!((done.end, done.stdout.text.trim()), (End::Exited(0), "ada True"), "{}", done.stderr.text);
}
