//! Ends: deadlines, signals, the end of the stream, deaths.

use std::fs;
use std::time::{Duration, Instant};

use super::client::*;

#[test]
fn deadline_kills_the_whole_tree() {
    each(|client| {
        let mut spec = client.spec(&["sh", "-c", &format!("{ESCAPEE} echo ready; sleep 999")]);
        spec.deadline_ms = 300;
        let outcome = client.run(&spec);
        assert_eq!((outcome.why, outcome.stdout().as_str()), (2, "ready\n"), "{outcome:?}");
        assert!((300_000..900_000).contains(&outcome.duration_us), "{outcome:?}");
        assert_eq!(processes_but_runner(client), Vec::<String>::new());
    });
}

#[test]
fn the_end_of_the_main_process_ends_the_rest_unless_background() {
    each(|client| {
        let outcome = client.sh(&format!("{ESCAPEE} exit 7"));
        assert_eq!((outcome.why, outcome.code), (0, 7), "{outcome:?}");
        assert!(outcome.duration_us < 1_000_000, "{outcome:?}");
        assert_eq!(processes_but_runner(client), Vec::<String>::new());
        let mut spec = client.spec(&["sh", "-c", "(sleep 0.4; echo late) & echo early; exit 3"]);
        spec.flags |= 2;
        let outcome = client.run(&spec);
        assert_eq!((outcome.code, outcome.stdout().as_str()), (3, "early\nlate\n"), "{outcome:?}");
        let mut spec = client.spec(&["sh", "-c", &format!("{ESCAPEE} echo early")]);
        spec.flags |= 2;
        let id = client.start(&spec);
        std::thread::sleep(Duration::from_millis(200));
        client.send(7, id, &[]);
        let outcome = client.finish(id);
        assert_eq!((outcome.why, outcome.code, outcome.stdout().as_str()), (6, 0, "early\n"), "{outcome:?}");
        assert_eq!(processes_but_runner(client), Vec::<String>::new());
    });
}

#[test]
fn a_command_is_killed_and_later_frames_for_it_are_ignored() {
    each(|client| {
        let spec = client.spec(&["sleep", "999"]);
        let id = client.start(&spec);
        client.send(7, id, &[]);
        let outcome = client.finish(id);
        assert_eq!((outcome.why, outcome.signal), (6, 9), "{outcome:?}");
        // Frames for a stream that has ended are ignored.
        client.send(7, id, &[]);
        client.data(id, b"late");
        assert_eq!(client.sh("true").code, 0);
    });
}

#[test]
fn the_end_of_the_stream_kills_everything() {
    each(|client| {
        let spec = client.spec(&["sh", "-c", &format!("{ESCAPEE} echo ready; sleep 999")]);
        for _ in 0..3 {
            let id = client.start(&spec);
            while client.next_of(id).kind != DATA {}
        }
        client.to = None;
        let begun = Instant::now();
        assert!(client.child.wait().unwrap().success());
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
        assert_eq!(processes_of(client.uid), Vec::<String>::new());
    });
}

#[test]
fn a_silence_kills_everything_while_a_command_runs() {
    each(|client| {
        client.send(0x0B, 0, &1u16.to_le_bytes());
        // Nothing runs, so silence is no end; and every frame breaks it.
        std::thread::sleep(Duration::from_millis(1_300));
        let id = client.start(&client.spec(&["sh", "-c", &format!("{ESCAPEE} echo ready; sleep 999")]));
        while client.next_of(id).kind != DATA {}
        for _ in 0..4 {
            std::thread::sleep(Duration::from_millis(400));
            client.send(0x0B, 0, &1u16.to_le_bytes());
        }
        assert!(client.child.try_wait().unwrap().is_none());
        let begun = Instant::now();
        assert!(client.child.wait().unwrap().success());
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
        assert_eq!(processes_of(client.uid), Vec::<String>::new());
    });
}

#[test]
fn the_death_of_the_runner_kills_everything() {
    each(|client| {
        let spec = client.spec(&["sh", "-c", &format!("{ESCAPEE} echo ready; sleep 999")]);
        for _ in 0..3 {
            let id = client.start(&spec);
            while client.next_of(id).kind != DATA {}
        }
        unsafe { kill(client.pid(), 9) };
        client.child.wait().unwrap();
        assert_eq!(processes_of(client.uid), Vec::<String>::new());
    });
}

#[test]
fn the_death_of_a_supervisor_is_a_lost_command() {
    each(|client| {
        let spec = client.spec(&["sh", "-c", &format!("{ESCAPEE} echo ready; sleep 999")]);
        let (other, id) =
            (client.start(&client.spec(&["sh", "-c", "echo up; sleep 1; echo fine"])), client.start(&spec));
        while client.next_of(id).kind != DATA {}
        let tasks = fs::read_to_string(format!("/proc/{0}/task/{0}/children", client.pid())).unwrap();
        let supervisor: i32 = tasks.split_whitespace().next_back().unwrap().parse().unwrap();
        unsafe { kill(supervisor, 9) };
        let outcome = client.finish(id);
        assert_eq!(outcome.why, 7, "{outcome:?}");
        assert_eq!(client.finish(other).stdout(), "up\nfine\n");
        assert_eq!(processes_but_runner(client), Vec::<String>::new());
    });
}

#[test]
fn malformed_frames_end_the_runner_with_a_reason() {
    let exec = |client: &Client| client.spec(&["sleep", "999"]).encode();
    type Case = (&'static str, fn(&mut Client));
    let cases: [Case; 8] = [
        ("at most", |client| client.raw(&[0xFF; 9])),
        ("unknown frame", |client| client.send(0x55, 1, &[])),
        ("unknown frame", |client| client.send(1, 0, &[4, 0])),
        ("too short", |client| client.send(2, 90, &[1, 2, 3])),
        ("longer than", |client| {
            let mut body = client.spec(&["true"]).encode();
            let at = body.len() - 4;
            body[at..].copy_from_slice(&u32::MAX.to_le_bytes());
            client.send(2, 90, &body);
        }),
        ("too long", |client| {
            let mut body = client.spec(&["true"]).encode();
            body.push(0);
            client.send(2, 90, &body);
        }),
        ("in use", |client| {
            let body = client.spec(&["true"]).encode();
            client.send(2, 1, &body);
        }),
        ("granted", |client| {
            let mut spec = client.spec(&["sleep", "999"]);
            spec.flags |= 1;
            client.send(2, 77, &spec.encode());
            // The window and the program's pipe hold three of them. The runner ends at the fourth, and may be gone
            // before the fifth is written.
            for _ in 0..5 {
                client.raw(&frame(3, 77, &[0; 65537]));
            }
        }),
    ];
    if !ready() {
        return;
    }
    for mode in MODES {
        for (expected, case) in cases {
            let mut client = Client::new(mode);
            let body = exec(&client);
            client.send(2, 1, &body);
            assert_eq!(client.next_of(1).kind, STARTED);
            case(&mut client);
            loop {
                let frame = client.next();
                if frame.kind == FATAL {
                    let text = String::from_utf8_lossy(&frame.body);
                    assert!(text.contains(expected), "{expected}: {text}");
                    break;
                }
            }
            assert_eq!(client.child.wait().unwrap().code(), Some(2));
            assert_eq!(processes_of(client.uid), Vec::<String>::new());
        }
    }
    // Random bytes: every prefix ends it or is waited for, and nothing hangs or runs.
    let mut seed = 12345u64;
    for _ in 0..40 {
        let mut client = Client::new(MODES[3]);
        let bytes: Vec<u8> = (0..400)
            .map(|_| {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (seed >> 40) as u8 & if seed >> 63 == 0 { 0x07 } else { 0xFF }
            })
            .collect();
        client.raw(&bytes);
    }
}
