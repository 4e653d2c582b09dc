//! The judgement against real bash: whatever makes bash run the canary must not be allowed.
//!
//! Lines come from a grammar and from mutations of the two corpora. They run in an empty directory with a cleared
//! environment and a PATH of stubs and a few harmless programs. `GHOST_POLICY_CASES` sets how many; the default is
//! small, for the usual test run.

#![allow(clippy::disallowed_methods, reason = "the test runs real bash")]
#![allow(clippy::unwrap_used, reason = "a test stops where its yard cannot be built")]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use ghost_policy::{Action, Policy, Settings, Tier, judge, shipped};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// Everything is allowed but the canary, and builtins that could hurt the test itself.
fn policy() -> Policy {
    let commands = ["canary", "kill", "suspend", "ulimit"].map(str::to_owned).to_vec();
    let tier = Tier { commands, action: Action::Deny, groups: vec![], max_timeout_ms: None, unrestricted: false };
    let tiers = BTreeMap::from([("canary".to_owned(), tier)]);
    Policy::new(Settings { default: Action::Allow, tiers, ..shipped() })
}

struct Yard {
    folder: tempfile::TempDir,
}

impl Yard {
    fn new() -> Self {
        let yard = Self { folder: tempfile::tempdir().unwrap() };
        let bin = yard.folder.path().join("bin");
        fs::create_dir(&bin).unwrap();
        let log = yard.folder.path().join("sang");
        for name in ["canary", "stub", "rm"] {
            let sings = if name == "canary" { format!(": > {}\n", log.display()) } else { String::new() };
            fs::write(bin.join(name), format!("#!/bin/sh\n{sings}exit 0\n")).unwrap();
            fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        let real = [
            "env", "timeout", "nice", "nohup", "stdbuf", "xargs", "find", "cat", "sort", "head", "bash", "sh", "awk",
            "sed",
        ];
        for name in real.iter().chain(&["ls", "wc", "grep", "setsid", "cut", "uniq"]) {
            if let Some(path) =
                ["/usr/bin", "/bin"].iter().map(|dir| Path::new(dir).join(name)).find(|path| path.exists())
            {
                symlink(path, bin.join(name)).unwrap();
            }
        }
        yard
    }

    /// True if the canary ran, also in a yard without leftovers of earlier lines.
    fn surely_sings(&self, line: &str) -> bool {
        self.sings(line) && Self::new().sings(line)
    }

    /// True if the canary ran. One that an earlier line left in the background may be heard instead.
    fn sings(&self, line: &str) -> bool {
        let (root, work) = (self.folder.path(), self.folder.path().join("work"));
        let (log, bin) = (root.join("sang"), root.join("bin"));
        let _ = (fs::remove_file(&log), fs::remove_dir_all(&work));
        fs::create_dir(&work).unwrap();
        let mut bash = Command::new("/usr/bin/timeout");
        bash.args(["-s", "KILL", "2", "/bin/bash", "--norc", "--noprofile", "-c", line]);
        bash.env_clear().env("PATH", bin).env("LC_ALL", "C.UTF-8").env("HOME", &work).current_dir(&work);
        let _ = bash.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        log.exists()
    }
}

fn cases(default: u32) -> u32 {
    std::env::var("GHOST_POLICY_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

/// Lines that often run the canary, in many ways.
fn grammar() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "canary",
        "canary x",
        "'canary'",
        "can''ary",
        "c\\anary",
        "$'canary'",
        "\"canary\"",
        "echo canary",
        "stub canary",
        "echo a",
        "true",
        "false",
        "stub $x",
        "x=canary",
        "$x",
        "echo '$(canary)'",
        "echo \"$(canary)\"",
        "echo \\$(canary)",
        "stub # canary",
        "bin/canary",
        "cat <<< canary",
        "echo ca{n,r}ary",
        "x=1 canary",
        "canary > out",
        "> out canary",
        "stub 2>&1",
        "echo $((1+2))",
        "echo ${x:-canary}",
        "(canary)",
        "stub \\\n canary",
        "env",
        "timeout 1",
        "read x",
    ])
    .prop_map(str::to_owned);
    leaf.prop_recursive(4, 24, 3, |inner| {
        let shapes = prop::sample::select(common::lines(include_str!("shapes.txt")));
        (shapes, prop::collection::vec(inner, 3)).prop_map(|(shape, parts)| {
            let mut parts = parts.into_iter();
            shape.split('@').enumerate().fold(String::new(), |line, (index, piece)| match index {
                0 => piece.to_owned(),
                _ => line + &parts.next().unwrap_or_else(|| "true".to_owned()) + piece,
            })
        })
    })
}

/// Lines of the corpora with the canary in them, with characters put in, taken out and swapped.
fn mutated() -> impl Strategy<Value = String> {
    let corpus =
        common::lines(include_str!("bypasses.txt")).into_iter().chain(common::lines(include_str!("ordinary.txt")));
    let seeds: Vec<String> = corpus
        .filter_map(|line| {
            let line = line.rsplit_once(" ## ").map_or(line.as_str(), |(line, _)| line).trim_start_matches("~ ");
            // Only what cannot reach outside the yard.
            let harmless =
                !line.contains("/etc") && !line.contains("/proc") && !line.contains("..") && !line.contains("sda");
            let spelled = line.replace("rm", "canary").replace("ls", "stub").replace("rg", "canary");
            (harmless && spelled.contains("canary")).then_some(spelled)
        })
        .collect();
    let pieces = prop::sample::select(vec![
        "(",
        ")",
        "((",
        "))",
        "{",
        "}",
        "$(",
        "${",
        "`",
        "'",
        "\"",
        "\\",
        "\n",
        "\\\n",
        ";",
        "&",
        "|",
        "<",
        ">",
        "<<E\n",
        "\nE\n",
        "#",
        " ",
        "\t",
        "=",
        "!",
        "[[",
        "]]",
        "[",
        "]",
        "case a in a)",
        ";;",
        "esac",
        "$",
        "$((",
        "for i in a; do ",
        "; done",
        "if ",
        "; then ",
        "; fi",
        "canary",
        "canary ",
        " canary",
        ";canary;",
        "$(canary)",
        "f()",
        "function f ",
        "coproc ",
        "time ",
        "-c ",
        "$'",
        "{a,",
        "}",
        "&>",
        ">&",
        "2>&1",
        "<(",
        "<<<",
        "~",
        "*",
        "@",
        "%",
        "+",
        ":",
        "x=",
        "a[",
        "1",
        "in",
        "do",
        "eval ",
        "-- ",
        "é",
        "select ",
    ]);
    let edit = (any::<prop::sample::Index>(), 0..4_u8, pieces, any::<prop::sample::Index>());
    (prop::sample::select(seeds), prop::collection::vec(edit, 1..5)).prop_map(|(line, edits)| {
        let mut chars: Vec<char> = line.chars().collect();
        for (place, kind, piece, other) in edits {
            let at = place.index(chars.len() + 1);
            match kind {
                0 if at < chars.len() => drop(chars.remove(at)),
                1 if at < chars.len() => {
                    let to = other.index(chars.len());
                    chars.swap(at, to);
                }
                _ => drop(chars.splice(at..at, piece.chars())),
            }
        }
        chars.into_iter().collect()
    })
}

fn compare(cases: u32, lines: impl Strategy<Value = String>) -> (u32, u32) {
    let (yard, policy) = (Yard::new(), policy());
    let counts = std::cell::Cell::new((0, 0));
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let result = runner.run(&lines, |line| {
        let judged = judge(&policy, &[], &line);
        let (allowed, denied) = counts.get();
        if judged.action == Action::Allow {
            counts.set((allowed + 1, denied));
            let dangerous = line.contains("..") || line.contains('\0');
            prop_assert!(
                dangerous || !yard.surely_sings(&line),
                "the canary ran, and the judgement lists {:?}",
                judged.commands
            );
        } else {
            counts.set((allowed, denied + 1));
        }
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
    counts.get()
}

#[test]
fn the_yard_hears_the_canary() {
    let yard = Yard::new();
    assert!(yard.sings("echo $(canary)"));
    assert!(yard.sings("env timeout 1 bash -c 'x=1 canary'"));
    assert!(yard.sings("x='a[$(canary)]'; echo $((x))"));
    assert!(!yard.sings("echo canary"));
}

#[test]
fn lines_of_the_grammar() {
    let (allowed, denied) = compare(cases(400), grammar());
    assert!(allowed > 20 && denied > 20, "{allowed} allowed, {denied} denied");
}

#[test]
fn mutated_lines() {
    let (allowed, denied) = compare(cases(1500), mutated());
    assert!(allowed > 5 && denied > 20, "{allowed} allowed, {denied} denied");
}

/// What bash runs is also what the judgement lists: the canary by name, unless something else was refused first.
#[test]
fn the_canary_is_listed() {
    let (yard, policy) = (Yard::new(), policy());
    let mut runner = TestRunner::new(Config { cases: cases(200), failure_persistence: None, ..Config::default() });
    let listed = std::cell::Cell::new(0);
    let result = runner.run(&grammar(), |line| {
        let judged = judge(&policy, &[], &line);
        let found = judged.commands.iter().any(|command| command.name == "canary");
        let unjudged = matches!(judged.reason, Some(ghost_policy::Refusal::Unjudged { .. }));
        if yard.sings(&line) {
            prop_assert!(found || unjudged || !yard.surely_sings(&line), "{:?}", judged);
            listed.set(listed.get() + u32::from(found));
        }
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
    assert!(listed.get() > 20, "only {} lines listed it", listed.get());
}
