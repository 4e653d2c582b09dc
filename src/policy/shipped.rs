//! The tiers and hints that a world has unless it writes its own (SBX-10).
//!
//! It is data alone. A program must never be in `read` if a plain use of it runs other programs, writes files or
//! reaches the network, unless `programs.rs` refuses the options that do.

use std::collections::BTreeMap;

use crate::policy::{Action, Hint, Mode, Settings, Tier};

const READ: &str = "ls cat head tail tac nl wc grep egrep fgrep rg fd fdfind find tree stat file du df cut tr sort \
    uniq comm join paste column fold fmt expand rev diff cmp jq awk gawk mawk od hexdump strings basename dirname \
    realpath readlink date seq sleep which uname whoami id nproc md5sum sha1sum sha256sum sha512sum cksum base64";
const READ_GIT: &str = "log diff status show blame grep ls-files ls-tree rev-parse rev-list describe shortlog cat-file \
    merge-base name-rev count-objects check-ignore diff-tree for-each-ref show-ref whatchanged";
const WRITE: &str =
    "mkdir rmdir cp mv ln touch tee sed truncate install patch split tar gzip gunzip zip unzip xz bzip2 zstd";
const WRITE_GIT: &str = "add commit branch checkout switch restore stash tag merge rebase reset mv rm init apply \
    cherry-pick revert worktree config remote notes clean";
const NETWORK: &str = "curl wget gh rsync scp";
const NETWORK_GIT: &str = "push fetch pull clone ls-remote submodule";
const BUILD: &str = "make cargo rustc npm npx yarn pnpm node deno bun python python3 pip pip3 uv perl ruby php go gcc \
    g++ cc clang cmake ninja pytest tsc";
const DANGER: &str = "rm sudo doas su chmod chown chgrp dd docker podman kill killall pkill mkfs mount umount shred \
    unlink shutdown reboot halt systemctl crontab at nc ncat netcat socat telnet ssh chroot nsenter unshare setcap";

/// The command, and what a refusal of it says.
const HINTS: &[(&str, &str)] = &[
    ("git push", "use the github-repo tool"),
    ("git clone", "use the github-repo tool"),
    ("git fetch", "use the github-repo tool"),
    ("git pull", "use the github-repo tool"),
    ("gh", "use the github-repo tool"),
    ("curl", "use tool.fetch"),
    ("wget", "use tool.fetch"),
    ("rm", "ask an operator to delete files"),
    ("unlink", "ask an operator to delete files"),
    ("shred", "ask an operator to delete files"),
    ("kill", "use tool.process to end a session of your own"),
    ("pkill", "use tool.process to end a session of your own"),
    ("killall", "use tool.process to end a session of your own"),
    ("sudo", "run the command without it; the sandbox has no other users"),
    ("doas", "run the command without it; the sandbox has no other users"),
    ("su", "run the command without it; the sandbox has no other users"),
    ("chmod", "run scripts by their interpreter, or ask an operator"),
    ("ssh", "ask an operator"),
    ("python", "use tool.python"),
    ("python3", "use tool.python"),
    ("tee", "use workspace.write"),
    ("sed", "use workspace.patch to change files, and grep, cut or head to read them"),
    ("patch", "use workspace.patch"),
];

fn tier(action: Action, plain: &str, git: &str) -> Tier {
    let commands = plain.split_whitespace().map(str::to_owned);
    let commands = commands.chain(git.split_whitespace().map(|sub| format!("git {sub}"))).collect();
    Tier { commands, action, groups: Vec::new(), max_timeout_ms: None, unrestricted: false }
}

/// The shipped settings: `read` is allowed, `danger` is denied, the rest and what no tier names asks.
#[must_use]
pub fn shipped() -> Settings {
    let tiers = [
        ("read", tier(Action::Allow, READ, READ_GIT)),
        ("write", tier(Action::Ask, WRITE, WRITE_GIT)),
        ("network", tier(Action::Ask, NETWORK, NETWORK_GIT)),
        ("build", tier(Action::Ask, BUILD, "")),
        ("danger", tier(Action::Deny, DANGER, "")),
    ];
    let hints = HINTS.iter().map(|(command, instead)| Hint { command: (*command).into(), instead: (*instead).into() });
    Settings {
        default: Action::Ask,
        mode: Mode::Segments,
        tiers: tiers.into_iter().map(|(name, tier)| (name.to_owned(), tier)).collect::<BTreeMap<_, _>>(),
        hints: hints.collect(),
        workspace: Vec::new(),
    }
}
