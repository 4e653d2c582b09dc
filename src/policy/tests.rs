//! Unit tests of single rules. The corpora and the comparison with bash are in `tests/`.

use super::*;
use crate::variables::Use;

fn tier(commands: &[&str], action: Action) -> Tier {
    let commands = commands.iter().map(|&name| name.to_owned()).collect();
    Tier { commands, action, groups: Vec::new(), max_timeout_ms: None, unrestricted: false }
}

fn policy(default: Action, tiers: Vec<(&str, Tier)>) -> Policy {
    let tiers = tiers.into_iter().map(|(name, tier)| (name.to_owned(), tier)).collect();
    Policy::new(Settings { default, tiers, ..shipped() })
}

fn cause(line: &str) -> Option<Cause> {
    match judge(&policy(Action::Allow, vec![]), &[], line).reason {
        Some(Refusal::Unjudged { cause, .. } | Refusal::Unusable { cause }) => Some(cause),
        _ => None,
    }
}

fn names(line: &str) -> Vec<String> {
    let judged = judge(&policy(Action::Allow, vec![]), &[], line);
    assert_eq!(judged.reason, None, "{line:?}");
    judged
        .commands
        .into_iter()
        .map(|command| command.wrappers.join(">") + if command.wrappers.is_empty() { "" } else { ">" } + &command.name)
        .collect()
}

#[test]
fn the_strictest_tier_decides() {
    let tiers = || vec![("a", tier(&["git", "ls"], Action::Allow)), ("b", tier(&["git push", "ls"], Action::Ask))];
    let policy = policy(Action::Deny, tiers());
    for (line, action) in [
        ("git log", Action::Allow),
        ("git push", Action::Ask),
        ("git -C x push -f", Action::Ask),
        ("git --no-pager push", Action::Ask),
        ("ls", Action::Ask),
        ("rg x", Action::Deny),
        ("git log; git push", Action::Ask),
        ("git push | rg x", Action::Deny),
        ("cd x", Action::Allow),
    ] {
        assert_eq!(judge(&policy, &[], line).action, action, "{line}");
    }
}

#[test]
fn a_subcommand_that_is_not_first_is_judged_by_the_worst() {
    let tiers = vec![("a", tier(&["gh"], Action::Allow)), ("b", tier(&["gh pr"], Action::Deny))];
    let policy = policy(Action::Allow, tiers);
    assert_eq!(judge(&policy, &[], "gh issue").action, Action::Allow);
    assert_eq!(judge(&policy, &[], "gh --repo x pr").action, Action::Deny);
    assert_eq!(judge(&policy, &[], "gh $x").action, Action::Deny);
}

#[test]
fn groups_limit_tiers() {
    let mut ops = tier(&["rm"], Action::Allow);
    ops.groups = vec!["ops".to_owned()];
    let policy = policy(Action::Deny, vec![("ops", ops)]);
    assert_eq!(judge(&policy, &["dev", "ops"], "rm x").action, Action::Allow);
    assert_eq!(judge(&policy, &["dev"], "rm x").action, Action::Deny);
}

#[test]
fn the_shortest_timeout_holds() {
    let mut slow = tier(&["make"], Action::Allow);
    slow.max_timeout_ms = Some(60_000);
    let mut fast = tier(&["ls"], Action::Allow);
    fast.max_timeout_ms = Some(1_000);
    let policy = policy(Action::Deny, vec![("slow", slow), ("fast", fast)]);
    assert_eq!(judge(&policy, &[], "make").max_timeout_ms, Some(60_000));
    assert_eq!(judge(&policy, &[], "make && ls").max_timeout_ms, Some(1_000));
    assert_eq!(judge(&policy, &[], "echo").max_timeout_ms, None);
}

#[test]
fn an_unrestricted_tier_lifts_what_cannot_be_judged_and_nothing_else() {
    let mut free = tier(&[], Action::Ask);
    (free.unrestricted, free.groups) = (true, vec!["ops".to_owned()]);
    let policy = policy(Action::Allow, vec![("free", free), ("danger", tier(&["rm"], Action::Deny))]);
    assert_eq!(judge(&policy, &["ops"], "$x").action, Action::Ask);
    assert_eq!(judge(&policy, &["ops"], "select x in a; do ls; done").action, Action::Ask);
    assert_eq!(judge(&policy, &["ops"], "rm $x; $y").action, Action::Deny);
    assert_eq!(judge(&policy, &["ops"], "ls").action, Action::Allow);
    assert_eq!(judge(&policy, &[], "$x").action, Action::Deny);
    assert_eq!(judge(&policy, &["ops"], "ls\0").action, Action::Deny);
}

#[test]
fn a_refusal_names_the_word_the_tier_and_the_alternative() {
    let policy = Policy::new(shipped());
    let text = |line: &str| judge(&policy, &[], line).reason.map(|reason| reason.to_string()).unwrap_or_default();
    assert_eq!(
        text("git push origin"),
        "`git push` needs an operator's approval by the tier `network`; use the github-repo tool"
    );
    assert_eq!(text("ls; rm x"), "`rm` is denied by the tier `danger`; ask an operator to delete files");
    assert_eq!(
        text("rg a --pre x"),
        "`--pre` cannot be judged before it runs: this option runs another program or loads code; the tier `read` is not \
         unrestricted; leave the option out, or run the other program by itself"
    );
    assert!(text("nosuch").contains("`cli_policy.default`"));
    assert!(text(&"x".repeat(LINE_MAX + 1)).contains("64 KiB"));
    assert!(text(&format!("rm '{}'", "y".repeat(500))).len() < 300);
}

// covers: SBX-09
#[test]
fn first_token_mode_looks_no_further() {
    let settings = Settings { mode: Mode::FirstToken, default: Action::Deny, ..shipped() };
    let policy = Policy::new(settings);
    assert_eq!(judge(&policy, &[], "ls; rm x").action, Action::Allow);
    assert_eq!(judge(&policy, &[], "r''m x").action, Action::Deny);
    assert_eq!(judge(&policy, &[], "/bin/rm x").action, Action::Deny);
    assert_eq!(judge(&policy, &[], "$x").action, Action::Deny);
    assert_eq!(judge(&policy, &[], "").action, Action::Deny);
}

#[test]
fn wrappers_are_unwrapped() {
    for (line, expected) in [
        ("env a=1 timeout 5 nice ls", "env>timeout>nice>ls"),
        ("timeout -k 1 5 ls", "timeout>ls"),
        ("nice -n 5 ls", "nice>ls"),
        ("stdbuf -o L ls", "stdbuf>ls"),
        ("xargs -I{} ls {}", "xargs>ls"),
        ("xargs", "xargs>echo"),
        ("find . -exec cat {} +", "find>cat find"),
        ("find . -delete", "find>rm find"),
        ("bash -c 'ls; cat a'", "bash>ls bash>cat"),
        ("eval ls -l", "eval>ls"),
        ("command -v ls", "command"),
        ("command ls", "command>ls"),
        ("exec 3<x", "exec"),
        ("env", "env"),
        ("trap 'ls' EXIT", "trap>ls trap"),
        ("/usr/bin/ls", "ls"),
        ("busybox ls", "busybox>ls"),
    ] {
        assert_eq!(names(line).join(" "), expected, "{line}");
    }
}

#[test]
fn words_that_are_not_known_have_no_value() {
    let judged = judge(&Policy::new(shipped()), &[], "cat a 'b c' \"$x\" *.rs $'\\x41'");
    let argv = &judged.commands[0].argv;
    assert_eq!(argv, &[Some("cat".into()), Some("a".into()), Some("b c".into()), None, None, Some("A".into())]);
}

#[test]
fn scripts_of_the_workspace_ask() {
    let policy = policy(
        Action::Allow,
        vec![("own", tier(&["./ok.sh"], Action::Allow)), ("danger", tier(&["rm"], Action::Deny))],
    );
    assert_eq!(judge(&policy, &[], "./x.sh").action, Action::Ask);
    assert_eq!(judge(&policy, &[], "bash x.sh").action, Action::Ask);
    assert_eq!(judge(&policy, &[], ". x.sh").action, Action::Ask);
    assert_eq!(judge(&policy, &[], "./ok.sh").action, Action::Allow);
    assert_eq!(judge(&policy, &[], "./rm").action, Action::Deny);
}

#[test]
fn inline_code_asks() {
    let policy = policy(Action::Allow, vec![]);
    for line in ["python3 -c 1", "python3.11 -c 1", "node -e 1", "perl -ne 1", "python3", "python3 -", "python3 $x"] {
        assert_eq!(judge(&policy, &[], line).action, Action::Ask, "{line}");
    }
    for line in ["python3 x.py", "python3 -m pytest", "node --version"] {
        assert_eq!(judge(&policy, &[], line).action, Action::Allow, "{line}");
    }
}

#[test]
fn the_workspace_is_a_setting() {
    let policy = Policy::new(Settings { workspace: vec!["/work/space".to_owned()], ..shipped() });
    assert_eq!(judge(&policy, &[], "ls > /work/space/x").action, Action::Allow);
    assert_eq!(judge(&policy, &[], "cd /work/space/a; ls > x").action, Action::Allow);
    assert_eq!(judge(&policy, &[], "ls > /work/spacex").action, Action::Deny);
    assert_eq!(judge(&policy, &[], "ls > /work/space/../x").action, Action::Deny);
}

#[test]
fn functions_are_known_where_they_certainly_exist() {
    let policy = policy(Action::Deny, vec![("read", tier(&["ls"], Action::Allow))]);
    assert_eq!(judge(&policy, &[], "f() { ls; }; f").action, Action::Allow);
    assert_eq!(judge(&policy, &[], "f; f() { ls; }").action, Action::Deny);
    assert_eq!(judge(&policy, &[], "f() { f; }; f").action, Action::Deny);
    assert_eq!(judge(&policy, &[], "true && f() { ls; }; f").action, Action::Deny);
    assert_eq!(judge(&policy, &[], "f() { ls; }; bash -c f").action, Action::Deny);
}

#[test]
fn arithmetic_knows_numbers_from_text() {
    for line in [
        "x=1; echo $((x + 1))",
        "for i in 1 2; do echo $((i*2)); done",
        "((i=0)); ((i++))",
        "x=$((1)); [[ $x -gt 0 ]]",
        "echo $((n))",
    ] {
        assert_eq!(cause(line), None, "{line}");
    }
    for line in [
        "x=$y; echo $((x))",
        "x=1; x=a; echo $((x))",
        "echo $((x)); x=a",
        "echo $((PWD))",
        "read n; [[ n -eq 1 ]]",
        "x=(a); echo $((x))",
    ] {
        assert_eq!(cause(line), Some(Cause::Arithmetic), "{line}");
    }
    let mut seen = Vec::new();
    variables::sum_names("a + $b - 0x1f * (c = 16#ff) + ++d", |name, used| seen.push((name.to_owned(), used))).unwrap();
    let reads: Vec<_> = seen.iter().filter(|(_, used)| *used == Use::Read).map(|(name, _)| &**name).collect();
    let writes: Vec<_> = seen.iter().filter(|(_, used)| *used == Use::Write).map(|(name, _)| &**name).collect();
    assert_eq!((reads, writes), (vec!["a", "b", "c", "d"], vec!["c", "d"]));
}

#[test]
fn the_lexer_splits_as_bash_does() {
    let texts = |line| {
        parse::tokens(line).map(|tokens| tokens.iter().map(|token| token.text).collect::<Vec<_>>()).unwrap_or_default()
    };
    assert_eq!(texts("a>b 2>&1|c&&d;e"), ["a", ">", "b", "2", ">&", "1", "|", "c", "&&", "d", ";", "e"]);
    assert_eq!(texts("cat <<E x\n$a\nE\nb"), ["cat", "<<", "E", "$a\n", "E", "x", "\n", "b"]);
    assert_eq!(texts("a \"$(b \")\" c)\" d"), ["a", "\"$(b \")\" c)\"", "d"]);
    assert_eq!(texts("((a<b)) # c"), ["(", "(", "a", "<", "b", ")", ")"]);
}

#[test]
fn every_cause_can_be_met() {
    for (line, expected) in [
        ("$x", Cause::DynamicName),
        ("sort $x", Cause::DynamicOption),
        ("eval $x", Cause::DynamicCode),
        ("ls > $x", Cause::DynamicTarget),
        ("ls > /x", Cause::Outside),
        ("ls > /dev/tcp/a/1", Cause::Network),
        ("PATH=x", Cause::Variable),
        ("echo ${x:=1}", Cause::Expansion),
        ("sort -o x", Cause::WriteOption),
        ("sort --comp=x", Cause::RunOption),
        ("env --what ls", Cause::UnknownOption),
        ("vim x", Cause::Runner),
        ("alias x=y", Cause::Builtin),
        ("cd() { :; }", Cause::Shadow),
        ("awk 'system(1)'", Cause::Script),
        ("if", Cause::Syntax),
        ("( (ls) )", Cause::Ambiguous),
        ("ls \u{202e}", Cause::Character),
        ("ls \0", Cause::Nul),
    ] {
        assert_eq!(cause(line), Some(expected), "{line}");
        assert!(!expected.instead().is_empty());
    }
    assert_eq!(cause(&"(a;".repeat(20)), Some(Cause::TooDeep));
}

#[test]
fn simple_sed_scripts_pass() {
    for line in [
        "sed -n '1,10p' a",
        "sed 's/a/b/g' a",
        "sed -E 's|a(b)|\\1|; 2d' a",
        "sed '/a/,/b/d' a",
        "sed -i s/a/b/ a",
        "sed -n -e '$p' a",
        "sed '/x/!d' a",
    ] {
        assert_eq!(cause(line), None, "{line}");
    }
    for line in [
        "sed 's/a/b/e' a",
        "sed 'w x' a",
        "sed '1e ls' a",
        "sed \"s/a/$x/\" a",
        "sed -f x a",
        "sed 's/a/b/w x' a",
        "sed 'r x' a",
        "sed '{e ls\n}' a",
    ] {
        assert_eq!(cause(line), Some(Cause::Script), "{line}");
    }
}

#[test]
fn the_files_of_redirections_are_named() {
    let policy = Policy::new(shipped());
    let judged = judge(&policy, &[], "sort < in.txt > out.txt; { cat; } 2>> log/e < b");
    assert_eq!(judged.files, ["in.txt", "out.txt", "log/e", "b"]);
}

// covers: SBX-10
#[test]
fn the_documentation_lists_the_shipped_tiers() {
    let page = include_str!("../../docs/configuration.md");
    for (name, tier) in shipped().tiers {
        let action = match tier.action {
            Action::Allow => "allow",
            Action::Ask => "ask",
            Action::Deny => "deny",
        };
        let start = format!("| `{name}` | `{action}` |");
        // A tier may have several rows.
        let rows = page.lines().filter(|line| line.starts_with(&start));
        let words: Vec<&str> = rows.flat_map(|row| row.split(|c: char| c.is_whitespace() || c == '`')).collect();
        let missing = tier.commands.iter().filter(|entry| !words.contains(&entry.trim_start_matches("git ")));
        assert_eq!(missing.collect::<Vec<_>>(), Vec::<&String>::new(), "{name}");
    }
}

fn unbound(line: &str) -> Option<Unbound> {
    judge(&Policy::new(shipped()), &[], line).unbound
}

// covers: EXEC-10
#[test]
fn only_what_is_known_to_run_nothing_else_is_bound() {
    for line in [
        "mkdir -p out && cp a.txt out/ | tee log",
        "cd a; sort -rn x | uniq -c > y",
        "timeout 5 touch x",
        "f() { mkdir x; }; f",
        "bash -c 'mkdir x; touch y'",
        "./x.sh a b",
        "bash x.sh",
        ". x.sh",
        "sed -i s/a/b/ x",
        "rg -n x .",
        "find . -name x -type f",
        "git -C repo commit -m 'a b'",
        "git add .",
    ] {
        assert_eq!(unbound(line), None, "{line}");
    }
    for line in [
        "python3 -m imp",
        "python3 x.py",
        "python3 -c 'import x'",
        "python3.11 -c 'from . import x'",
        "node x.js",
        "perl x.pl",
        "make",
        "make -C x all",
        "npm run test",
        "npx x",
        "cargo test",
        "pytest",
        "gcc x.c",
        "tar xf x.tar",
        "rsync a b",
        "curl https://x.example",
        "awk '{print $1}' x",
        "patch -p1 -i x",
        "nosuch",
        "git push origin main",
        "git fetch",
        "git submodule update",
        "git st",
        "git config user.name x",
        "mkdir a && make",
        "timeout 5 make",
        "env x=1 python3 x.py",
        "f() { make; }; f",
        "bash -c 'mkdir x; make'",
        "/usr/bin/make",
    ] {
        assert!(matches!(unbound(line), Some(Unbound::Program { .. })), "{line}: {:?}", unbound(line));
    }
    for line in ["touch $x", "touch *.rs", "find . -type f -exec touch {} +", "ls | xargs touch", "./x.sh $1"] {
        assert!(matches!(unbound(line), Some(Unbound::Words { .. })), "{line}: {:?}", unbound(line));
    }
    for line in ["sort --debug x", "rg -z x", "find . -newermt x", "diff -l a b"] {
        assert!(matches!(unbound(line), Some(Unbound::Option { .. })), "{line}: {:?}", unbound(line));
    }
    for line in ["sort --compress-program=x a", "touch x; $y", "vim x", "touch x > $y", "git --git-dir=x add a"] {
        assert!(matches!(unbound(line), Some(Unbound::Unjudged { .. })), "{line}: {:?}", unbound(line));
    }
    let first = Policy::new(Settings { mode: Mode::FirstToken, ..shipped() });
    assert_eq!(judge(&first, &[], "touch x").unbound, Some(Unbound::FirstToken));
}

#[test]
fn scripts_and_repositories_of_a_line_are_named() {
    let judged = judge(&Policy::new(shipped()), &[], "./a.sh x; sh b.sh; . c.sh && bash d/e.sh");
    let scripts: Vec<(&str, &str)> = judged.scripts.iter().map(|script| (&*script.path, script.shell)).collect();
    assert_eq!(scripts, [("./a.sh", ""), ("b.sh", "sh"), ("c.sh", "bash"), ("d/e.sh", "bash")]);
    let judged = judge(&Policy::new(shipped()), &[], "git status; git -C a -C b push; timeout 5 git -C \"$x\" log");
    let uses: Vec<(Option<String>, bool)> =
        judged.git.into_iter().map(|git| (git.dirs.map(|dirs| dirs.join("/")), git.allowed)).collect();
    assert_eq!(uses, [(Some(String::new()), true), (Some("a/b".into()), false), (None, true)]);
}
