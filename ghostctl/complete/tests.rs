//! Tests of the completions from the command-line definition and from a fake daemon.

use std::process::Command;

use super::Candidate;
use crate::discovery::Environment;
use crate::testing::fake::{End, Fake};
use crate::testing::ran::ghostctl;

/// The candidates for the words, without their descriptions.
async fn offered(endpoint: &str, words: &[&str]) -> Vec<String> {
    let ran = ghostctl(endpoint, &[&["__complete"], words].concat()).await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{words:?}");
    ran.out.lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn commands_options_and_their_values_need_no_daemon() {
    for (words, wanted) in [
        (&["st"][..], &["status", "state"][..]),
        (&["--json", "knowledge", ""], &["list", "read", "write", "delete"]),
        (&["ledger", "--status", ""], &["started", "ok", "failed", "unknown"]),
        (&["ledger", "--status=o"], &["--status=ok"]),
        (&["ledger", "--status", "=", "f"], &["--status=failed"]),
        (&["turn", "show", "--fu"], &["--full"]),
        (&["status", "--endp"], &["--endpoint"]),
        (&["completions", "z"], &["zsh"]),
        (&["send", "chora", ""], &[]),
        (&["send", "--", "--h"], &[]),
        (&["no", "such", "thing"], &[]),
        (&["agent", "nonsense", ""], &[]),
        (&[], &["status"]),
    ] {
        let found = offered("unix:/nowhere/at/all", words).await;
        match wanted {
            ["status"] => assert!(found.len() > 20 && found.contains(&"status".to_owned()), "{found:?}"),
            _ => {
                let mut found = found.iter().map(String::as_str).collect::<Vec<_>>();
                let mut wanted = wanted.to_vec();
                found.sort_unstable();
                wanted.sort_unstable();
                assert_eq!(found, wanted, "{words:?}");
            }
        }
    }
}

#[tokio::test]
async fn names_from_the_daemon_are_offered_where_they_are_expected() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = Fake::default().rows(12).serve(&dir.path().join("g.sock"));
    let some = |first: &str| vec![first.to_owned(), format!("{first}0"), format!("{first}1")];
    for words in [
        &["agent", "get", "1"][..],
        &["turn", "list", "--agent", "1"],
        &["turn", "show", "1"],
        &["task", "get", "1"],
        &["task", "create", "x", "--depends-on", "1"],
        &["dead", "retry", "1"],
        &["chat", "history", "1"],
        &["knowledge", "read", "1"],
        &["tool", "list", "1"],
        &["ask", "1"],
    ] {
        assert_eq!(offered(&daemon.endpoint, words).await, some("1"), "{words:?}");
    }
    for (words, wanted) in [
        (&["state", "get", "k1"][..], &["k1", "k10", "k11"][..]),
        (&["tool", "call", "ada", "work"], &["workspace.read"]),
        // Each item of a list is completed separately.
        (&["chat", "create", "room", "--members", "3,1"], &["3,1", "3,10", "3,11"]),
        (&["chat", "create", "room", "--members=3,9"], &["--members=3,9"]),
        (&["chat", "create", "1"], &[]),
        (&["agent", "create", "x", "--id", "1"], &[]),
    ] {
        assert_eq!(offered(&daemon.endpoint, words).await, wanted, "{words:?}");
    }
    let printed = ghostctl(&daemon.endpoint, &["__complete", "agent", "get", "0"]).await.out;
    assert_eq!(printed, "0\teditor running\n");
}

#[tokio::test]
async fn an_unreachable_daemon_neither_blocks_the_shell_nor_prints_errors() {
    let dir = tempfile::tempdir().unwrap();
    for endpoint in ["unix:/nowhere/at/all", "127.0.0.1:1", "no endpoint://"] {
        let begun = crate::wait::Deadline::after(std::time::Duration::from_secs(10));
        assert_eq!(offered(endpoint, &["agent", "get", ""]).await, Vec::<String>::new(), "{endpoint}");
        assert!(!begun.remaining().is_zero(), "{endpoint}");
    }
    let daemon = Fake::default().first([End::Hold]).serve(&dir.path().join("g.sock"));
    assert_eq!(offered(&daemon.endpoint, &["agent", "get", ""]).await, Vec::<String>::new());
    // No state directory is known.
    assert_eq!(super::super::discovery::known_worlds(&Environment::default()), Vec::<String>::new());
}

#[test]
fn every_shell_has_a_script_that_calls_this_program() {
    for shell in ["bash", "zsh", "fish"] {
        let script = super::script(shell).unwrap();
        assert!(script.contains("__complete") && script.contains("2>/dev/null"), "{shell}");
    }
    assert_eq!(super::script("tcsh"), None);
}

#[test]
fn a_word_with_special_characters_is_not_harmless() {
    for word in ["", "ada/daily", "a_b.c:d@e", "--status=ok", "ops/3,10", "1+1", "grün", "日報", "ежедневно"]
    {
        assert!(Candidate::new(word, "").is_harmless(), "{word}");
    }
    for c in " \t\n\r!\"#$%&'()*;<>?[\\]^`{|}~\u{1b}\u{a0}\u{ad}\u{200b}\u{202e}\u{2028}".chars() {
        for word in [format!("{c}ada"), format!("ada/{c}"), format!("ada{c}x")] {
            assert!(!Candidate::new(&word, "").is_harmless(), "{word:?}");
        }
    }
    assert!(!Candidate::new("=ls", "").is_harmless());
}

#[tokio::test]
async fn a_name_that_could_run_a_command_is_not_offered() {
    let dir = tempfile::tempdir().unwrap();
    let names = ["x$(touch PWNED)", "daily", "`touch PWNED`", "a;touch PWNED", "x\ty", "two words", "*", "täglich"];
    let daemon = Fake::default().schedules(&names).serve(&dir.path().join("g.sock"));
    for kind in ["timer", "cron", "watch"] {
        assert_eq!(offered(&daemon.endpoint, &[kind, "cancel", ""]).await, ["ada/daily", "ada/täglich"], "{kind}");
    }
}

#[test]
fn bash_does_not_execute_an_offered_word() {
    let dir = tempfile::tempdir().unwrap();
    // A function in place of ghostctl: it always offers $WORD, and otherwise prints its arguments.
    let program = r#"ghostctl() {
        if [[ $1 == __complete ]]; then printf '%s\tabout\n' "$WORD"; else printf '%s|' "$@"; fi
    }"#;
    let accept = r#"COMP_WORDS=(ghostctl timer cancel ""); COMP_CWORD=3; _ghostctl
        eval "ghostctl timer cancel ${COMPREPLY[0]}""#;
    let script = [super::script("bash").unwrap(), program, accept].join("\n");
    for word in [
        "ada/x$(touch PWNED)",
        "ada/`touch PWNED`",
        "ada/x; touch PWNED",
        "ada/x & touch PWNED #",
        "ada/> PWNED",
        "ada/two 'words' \"of\" \\ {a,b} * ~ !",
        "ada/daily,weekly",
    ] {
        // Only bash itself can show what it does with the script.
        #[allow(clippy::disallowed_methods)]
        let mut bash = Command::new("bash");
        let ran = bash.args(["--norc", "-c", &script]).env("WORD", word).current_dir(dir.path()).output();
        let ran = match ran {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
            ran => ran.unwrap(),
        };
        assert_eq!(String::from_utf8_lossy(&ran.stdout), format!("timer|cancel|{word}|"), "{word}");
        assert_eq!(String::from_utf8_lossy(&ran.stderr), "", "{word}");
        assert!(!dir.path().join("PWNED").exists(), "{word}");
    }
}
