//! Commands and their results.

use std::sync::Mutex;
use std::time::Duration;

use futures_util::future::join_all;
use ghost_domain::Code;
use ghost_sandbox::{End, Protection};

use crate::place::{Kind, Place, command, sh};

pub fn exit_codes_and_signals(kind: Kind) {
    let Some(place) = Place::new(kind) else { return };
    for code in [0, 1, 42, 255] {
        let done = place.sh("ada", &format!("exit {code}"));
        assert_eq!(done.end, End::Exited(code));
        let always = Protection::ALWAYS.iter().fold(0, |bits, protection| bits | protection.bit());
        assert_eq!(done.in_force & always, always, "{:?}", Protection::names(done.in_force));
    }
    assert_eq!(place.sh("ada", "kill -USR1 $$").end, End::Signal(10));
    let done = place.sh("ada", "echo out; echo err >&2; pwd");
    assert_eq!(done.stdout.text, format!("out\n{}/agents/ada\n", place.inside()));
    assert_eq!(done.stderr.text, "err\n");
    // Pieces of the output come while the command runs.
    let pieces = Mutex::new(String::new());
    let keep = |piece: &[u8]| pieces.lock().unwrap().push_str(std::str::from_utf8(piece).unwrap());
    place.runtime.block_on(place.sandbox.run(sh("ada", "echo one; echo two"), &keep)).unwrap();
    assert_eq!(*pieces.lock().unwrap(), "one\ntwo\n");
}

// covers: SBX-03, TEST-04
pub fn outputs_are_cut_between_characters(kind: Kind) {
    let Some(place) = Place::new(kind) else { return };
    for limit in [1_000, 1_001, 1_002, 1_003] {
        let mut command =
            command("ada", &["python3", "-c", "print('ä€𝄞' * 5000); import sys; print('ö' * 900, file=sys.stderr)"]);
        (command.stdout_limit, command.stderr_limit) = (limit, 100);
        let done = place.run(command).unwrap();
        for output in [&done.stdout, &done.stderr] {
            assert!(output.truncated && !output.text.contains('\u{fffd}'), "{limit}: {}", output.text);
        }
        assert_eq!((done.stdout.bytes, done.stderr.bytes), (45_001, 1_801));
        assert!(done.stdout.text.len() < limit + 100 && done.stdout.text.ends_with("𝄞\n"));
    }
}

pub fn standard_input_arrives(kind: Kind) {
    let Some(place) = Place::new(kind) else { return };
    let mut command = command("ada", &["sha256sum"]);
    command.stdin = vec![b'x'; 3_000_000];
    let done = place.run(command).unwrap();
    let by_shell = place.sh("ada", "head -c 3000000 /dev/zero | tr '\\0' x | sha256sum").stdout.text;
    assert_eq!(done.stdout.text, by_shell);
    assert_eq!(place.sh("ada", "cat; echo end").stdout.text, "end\n", "without input it has ended");
    // A program that does not read its input ends all the same.
    let mut command = sh("ada", "exec <&-; echo done");
    command.stdin = vec![b'x'; 1_000_000];
    assert_eq!(place.run(command).unwrap().stdout.text, "done\n");
}

// covers: SBX-06
pub fn the_environment_is_an_allow_list(kind: Kind) {
    let change = |plan: &mut ghost_config::plan::SandboxPlan| {
        plan.env.insert("MODE".into(), "test".into());
        plan.passthrough_env.push("CARGO_PKG_NAME".into());
    };
    let Some(place) = Place::with(kind, change) else { return };
    assert!(std::env::var("CARGO_MANIFEST_DIR").is_ok(), "the daemon has more variables");
    let mut command = command("ada", &["env"]);
    command.env.push(("CALL".into(), "yes".into()));
    let done = place.run(command).unwrap();
    let names: Vec<&str> = done
        .stdout
        .text
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, _)| name)
        .filter(|name| !name.starts_with("GIT_"))
        .collect();
    let wanted = ["AGENT_WORKSPACE", "CALL", "CARGO_PKG_NAME", "HOME", "LANG", "MODE", "PATH", "TERM", "TMPDIR"];
    assert_eq!(names, wanted);
    assert!(done.stdout.text.contains("CARGO_PKG_NAME=ghost-sandbox\n"));
    assert!(done.stdout.text.contains(&format!("AGENT_WORKSPACE={}\n", place.inside())));
    let user = place.sh("ada", "id -u; umask").stdout.text;
    assert_eq!(user, format!("{}\n0027\n", place.user("ada")));
}

/// Node.js, which many agents and MCP servers need, ends if there is a configuration that it may not read.
pub fn public_settings_of_tls_can_be_read_and_keys_cannot(kind: Kind) {
    let Some(place) = Place::new(kind) else { return };
    let script = "set -e; cd /etc/ssl; [ ! -e openssl.cnf ] || cat openssl.cnf >/dev/null; [ ! -e certs ] || ls certs >/dev/null";
    let done = place.sh("ada", script);
    assert_eq!(done.end, End::Exited(0), "{}", done.stderr.text);
    assert_ne!(place.sh("ada", "ls /etc/ssl/private/").end, End::Exited(0));
}

pub fn programs_and_directories_that_are_not_there(kind: Kind) {
    let Some(place) = Place::new(kind) else { return };
    let refused = place.run(command("ada", &["no-such-program"])).unwrap_err();
    assert_eq!(refused.code, Code::InvalidArguments);
    let mut elsewhere = command("ada", &["true"]);
    elsewhere.dir = "agents/ada/no-such-directory".into();
    let refused = place.run(elsewhere).unwrap_err();
    assert_eq!(refused.code, Code::Unavailable);
    assert!(refused.message.contains("no-such-directory"), "{refused}");
    let refused = place.run(command("ada", &["echo", "a\0b"])).unwrap_err();
    assert_eq!(refused.code, Code::TooLarge);
    assert_eq!(place.sh("ada", "true").end, End::Exited(0));
}

pub fn many_commands_of_one_agent_run_at_once(kind: Kind) {
    let Some(place) = Place::new(kind) else { return };
    // Each waits for all others to begin, so they end only if they run at the same time.
    let script = |number: usize| {
        format!(
            "touch began-{number}; while [ $(ls began-* | wc -l) -lt 12 ]; do sleep 0.05; done; echo {number}; exit {number}"
        )
    };
    let commands = (0..12).map(|number| {
        let mut command = sh("ada", &script(number));
        command.timeout = Duration::from_secs(60);
        place.sandbox.run(command, &|_| {})
    });
    let all = place.runtime.block_on(join_all(commands));
    for (number, done) in all.into_iter().enumerate() {
        let done = done.unwrap();
        assert_eq!((done.end, done.stdout.text), (End::Exited(i32::try_from(number).unwrap()), format!("{number}\n")));
    }
}
