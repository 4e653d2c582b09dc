//! The files of a running daemon's database are cut, overwritten, removed and replaced at random instants, while
//! messages are sent. No send that begins after the damage is acknowledged, and the daemon ends with the cause.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ghost_proto::v1::SendRequest;
use ghost_proto::v1::messages_client::MessagesClient;
use ghost_testkit::blackbox::{Daemon, Database, Deadline, TestEnvironment};
use tonic::transport::Endpoint;

/// Number of instants, each with a daemon of its own.
const INSTANTS: usize = 100;
/// Daemons that run at the same time.
const TOGETHER: usize = 4;
/// The greatest number of acknowledged messages before the damage.
const BEFORE: u64 = 60;

type Damage = fn(&Path);

fn cut(file: &Path, size: u64) {
    OpenOptions::new().write(true).open(file).unwrap().set_len(size).unwrap();
}

fn overwrite(file: &Path, at: u64, count: usize) {
    let noise: Vec<u8> = (0..count).map(|byte| u8::try_from(byte * 31 % 251).unwrap() | 1).collect();
    OpenOptions::new().write(true).open(file).unwrap().write_all_at(&noise, at).unwrap();
}

fn size(file: &Path) -> u64 {
    fs::metadata(file).unwrap().len()
}

/// Puts another file into the place of this one.
fn replace(file: &Path) {
    let other = file.with_extension("other");
    fs::copy(file, &other).unwrap();
    fs::rename(other, file).unwrap();
}

/// Each kind of damage. Not among them, because nothing can notice it cheaply: an overwritten page of the database
/// that is written in the same tick of the file system's clock as a checkpoint, if no query reads it (`ghostd check
/// --data` finds it).
const KINDS: [(&str, &str, Damage); 16] = [
    ("database emptied", "ghost.db", |file| cut(file, 0)),
    ("database cut", "ghost.db", |file| cut(file, size(file) / 2)),
    ("database's header overwritten", "ghost.db", |file| overwrite(file, 0, 512)),
    ("database's middle overwritten", "ghost.db", |file| overwrite(file, size(file) / 2, 4_096)),
    ("database removed", "ghost.db", |file| fs::remove_file(file).unwrap()),
    ("database replaced", "ghost.db", replace),
    ("log emptied", "ghost.db-wal", |file| cut(file, 0)),
    ("log cut", "ghost.db-wal", |file| cut(file, size(file) / 2)),
    ("log's header overwritten", "ghost.db-wal", |file| overwrite(file, 0, 32)),
    ("log's second half overwritten", "ghost.db-wal", |file| {
        overwrite(file, size(file) / 2, usize::try_from(size(file) / 2).unwrap());
    }),
    ("log removed", "ghost.db-wal", |file| fs::remove_file(file).unwrap()),
    ("log replaced", "ghost.db-wal", replace),
    // SQLite has the index in its memory: the system ends a process that reads behind the end.
    ("index emptied", "ghost.db-shm", |file| cut(file, 0)),
    ("index overwritten", "ghost.db-shm", |file| overwrite(file, 0, 4_096)),
    ("index removed", "ghost.db-shm", |file| fs::remove_file(file).unwrap()),
    ("index replaced", "ghost.db-shm", replace),
];

/// A small random number generator. The instants must depend only on the seed.
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn world(test_env: &TestEnvironment) -> PathBuf {
    let world = test_env.world("home");
    world
        .config(
            "agents: [{ id: ada, archetype: clerk, autostart: false }]\n\
             llm: { default_provider: scripted, default_model: clerk }\n",
        )
        .archetype("clerk", "")
        .write("scripts/clerk.yaml", "otherwise: [{ say: Here. }]\n");
    world.path().to_owned()
}

/// Sends messages, and damages a file once `after` of them are acknowledged. Returns how many were acknowledged, and
/// how many of those were sent after the damage.
fn damaged(data: &Path, file: &Path, damage: Damage, after: u64) -> (usize, usize) {
    let (acknowledged, late) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (claimed, is_damaged) = (AtomicBool::new(false), AtomicBool::new(false));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let socket = format!("unix:{}", data.join("ghostd.sock").display());
    runtime.block_on(async {
        let sender = async |number: usize| {
            let endpoint = Endpoint::from_shared(socket.clone()).unwrap().timeout(Duration::from_secs(5));
            let mut client = MessagesClient::new(endpoint.connect_lazy());
            for n in 0..10_000 {
                let (request_id, body) = (format!("r-{number}-{n}"), format!("keep {number} {n}"));
                let request = SendRequest { request_id, agent_id: "ada".into(), body, ..SendRequest::default() };
                let begun_late = is_damaged.load(Ordering::SeqCst);
                match client.send(request).await {
                    Ok(_) => {
                        acknowledged.fetch_add(1, Ordering::SeqCst);
                        late.fetch_add(usize::from(begun_late), Ordering::SeqCst);
                    }
                    Err(_) if begun_late => return,
                    Err(_) => assert!(is_damaged.load(Ordering::SeqCst), "a send failed before the damage"),
                }
                if acknowledged.load(Ordering::SeqCst) as u64 >= after && !claimed.swap(true, Ordering::SeqCst) {
                    // Other sends are under way in the daemon meanwhile.
                    damage(file);
                    is_damaged.store(true, Ordering::SeqCst);
                }
                // A daemon that goes on, because SQLite repaired the index, has been asked often enough.
                if late.load(Ordering::SeqCst) > 30 {
                    return;
                }
            }
        };
        tokio::join!(sender(0), sender(1), sender(2));
    });
    (acknowledged.into_inner(), late.into_inner())
}

#[test]
fn a_damaged_database_acknowledges_nothing_and_ends_the_daemon() {
    let test_env = TestEnvironment::new(env!("CARGO_BIN_EXE_ghostd"));
    let world = world(&test_env);
    test_env.up(&world, &["--data", test_env.join("first").to_str().unwrap()]).stop();
    let next = Mutex::new((0, Seeded(33)));
    std::thread::scope(|scope| {
        for _ in 0..TOGETHER {
            scope.spawn(|| {
                loop {
                    let (instant, after) = {
                        let mut next = next.lock().unwrap();
                        next.0 += 1;
                        (next.0 - 1, 1 + next.1.below(BEFORE))
                    };
                    if instant >= INSTANTS {
                        return;
                    }
                    one(&test_env, &world, instant, after);
                }
            });
        }
    });
}

/// One instant: a daemon on a copy of the data, and one kind of damage.
fn one(test_env: &TestEnvironment, world: &Path, instant: usize, after: u64) {
    let (what, name, damage) = KINDS[instant % KINDS.len()];
    let data = test_env.copy_of(&test_env.join("first"), format!("data-{instant}"));
    let mut daemon: Daemon = test_env.up(world, &["--data", data.to_str().unwrap()]);
    let file = data.join(name);
    let (acknowledged, late) = damaged(&data, &file, damage, after);
    if name == "ghost.db-shm" {
        // The index holds nothing of its own. Whether the daemon ends or SQLite makes the index anew: nothing that
        // was acknowledged is lost.
        daemon.kill();
        let kept = Database::open(&data).number("SELECT count(*) FROM messages WHERE body LIKE 'keep %'");
        assert!(usize::try_from(kept).unwrap() >= acknowledged, "{what}: {kept} of {acknowledged} are kept");
    } else {
        assert_eq!(late, 0, "{what}, after {after}: acknowledged after the damage");
        assert_eq!(daemon.wait(), 1, "{what}");
        let reported = daemon.err.text();
        // A query that finds the damage first knows the database alone.
        assert!(reported.contains("ghost.db") && reported.contains("hint: "), "{what}: {reported}");
    }
    fs::remove_dir_all(&data).unwrap();
}

#[test]
fn a_daemon_that_writes_nothing_ends_within_seconds() {
    let test_env = TestEnvironment::new(env!("CARGO_BIN_EXE_ghostd"));
    let world = world(&test_env);
    let mut daemon = test_env.up(&world, &[]);
    test_env.ctl(&["send", "ada", "keep me"]).ok();
    cut(&test_env.data("home").join("ghost.db-wal"), 0);
    let deadline = Deadline::seconds(10);
    assert_eq!(daemon.wait(), 1);
    assert!(!deadline.passed());
    assert!(daemon.err.text().contains("ghost.db-wal"), "{}", daemon.err.text());
}

#[test]
fn a_database_at_rest_is_checked() {
    let test_env = TestEnvironment::new(env!("CARGO_BIN_EXE_ghostd"));
    let world = world(&test_env);
    let data = test_env.data("home");
    let check = || test_env.ghostd(&["check", "--data", data.to_str().unwrap()]);
    check().exits(3).says(&["hint: "]);
    assert!(!data.exists());
    let daemon = test_env.up(&world, &[]);
    check().exits(7).says(&["hint: "]);
    test_env.ctl(&["send", "ada", "keep me"]).ok();
    daemon.kill();
    let files = || ["ghost.db", "ghost.db-wal"].map(|name| fs::read(data.join(name)).unwrap());
    let before = files();
    let sound = check();
    assert!(sound.ok().out.contains("ghost.db"), "{}", sound.out);
    assert_eq!(files(), before, "it changes nothing");
    test_env.up(&world, &[]).stop();
    check().ok();
    let file = data.join("ghost.db");
    overwrite(&file, size(&file) / 2, 8_192);
    check().exits(1).says(&[file.to_str().unwrap()]);
    fs::remove_file(&file).unwrap();
    check().exits(1).says(&[file.to_str().unwrap()]);
}
