//! The command policy as data: what each tier names and what it decides, and the tiers that a world has unless it writes
//! its own. It answers only for a name that somebody else has found.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::judgement::{Action, TierName};

/// How much of a line is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Every command of the line.
    #[default]
    Segments,
    /// Only the first word of the line. It protects nothing that follows a `;`.
    FirstToken,
}

/// A named set of commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tier {
    /// Program names (`rg`), or a program and its subcommand (`git push`).
    pub commands: Vec<String>,
    /// What happens to them.
    pub action: Action,
    /// The tier holds only for agents with one of these privilege groups. Empty: for all.
    pub groups: Vec<String>,
    /// The longest time limit of a line that uses the tier, in milliseconds.
    pub max_timeout_ms: Option<u64>,
    /// Its agents may also use what cannot be judged before it runs; the tier's action decides.
    pub unrestricted: bool,
}

/// An alternative that a refusal names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hint {
    /// As in [`Tier::commands`].
    pub command: String,
    /// The end of a sentence, for example `use the github-repo tool`.
    pub instead: String,
}

/// The keys of `cli_policy`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// For commands that no tier names.
    pub default: Action,
    /// How much of a line is judged.
    pub mode: Mode,
    /// The tiers by name.
    pub tiers: BTreeMap<String, Tier>,
    /// The alternatives that refusals name.
    pub hints: Vec<Hint>,
    /// Absolute directories that redirections may name beside relative paths. No trailing slash.
    pub workspace: Vec<String>,
}

/// A `cli_policy`, indexed by program so that judging costs no more with many tiers.
#[derive(Debug, Clone)]
pub struct Policy {
    settings: Settings,
    tiers: Vec<(Arc<str>, Tier)>,
    programs: HashMap<String, Program>,
}

/// What the tiers say about one program.
#[derive(Debug, Clone, Default)]
struct Program {
    /// Subcommand, or none for the whole program, and the index of the tier.
    entries: Vec<(Option<String>, usize)>,
    subcommands: bool,
}

impl Policy {
    /// Indexes the settings.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let tiers: Vec<_> = settings.tiers.iter().map(|(name, tier)| (Arc::from(&**name), tier.clone())).collect();
        let mut programs: HashMap<String, Program> = HashMap::new();
        for (index, (_, tier)) in tiers.iter().enumerate() {
            for entry in &tier.commands {
                let (name, sub) = entry.split_once(' ').map_or((&**entry, None), |(name, sub)| (name, Some(sub)));
                let program = programs.entry(name.to_owned()).or_default();
                program.subcommands |= sub.is_some();
                program.entries.push((sub.map(|sub| sub.trim().to_owned()), index));
            }
        }
        Self { settings, tiers, programs }
    }

    /// Whether an agent with these privilege groups may run anything without asking.
    #[must_use]
    pub fn is_unrestricted(&self, groups: &[&str]) -> bool {
        View { policy: self, groups }.unrestricted() == Some(Action::Allow)
    }

    /// The settings it was made of.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
}

/// What the tiers say about one command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decision {
    pub tier: TierName,
    pub action: Action,
    pub max_timeout_ms: Option<u64>,
}

/// A policy and the agent that it is asked for.
#[derive(Clone, Copy)]
pub(crate) struct View<'p> {
    pub policy: &'p Policy,
    pub groups: &'p [&'p str],
}

impl<'p> View<'p> {
    fn holds(self, tier: &Tier) -> bool {
        tier.groups.is_empty() || tier.groups.iter().any(|group| self.groups.contains(&&**group))
    }

    /// The strictest of the tiers that name the program with such a subcommand.
    fn strictest(self, name: &str, wanted: impl Fn(Option<&str>) -> bool) -> Option<Decision> {
        let mut worst: Option<Decision> = None;
        for (sub, index) in &self.policy.programs.get(name)?.entries {
            let Some((tier, found)) = self.policy.tiers.get(*index).filter(|(_, tier)| self.holds(tier)) else {
                continue;
            };
            if !wanted(sub.as_deref()) {
                continue;
            }
            let limit = worst.as_ref().and_then(|w| w.max_timeout_ms).into_iter().chain(found.max_timeout_ms).min();
            worst = Some(match worst {
                Some(worst) if worst.action >= found.action => Decision { max_timeout_ms: limit, ..worst },
                _ => Decision { tier: TierName::Tier(tier.clone()), action: found.action, max_timeout_ms: limit },
            });
        }
        worst
    }

    /// The strictest tier that names the program, or the program and this subcommand.
    pub fn listed(self, name: &str, sub: Option<&str>) -> Option<Decision> {
        self.strictest(name, |listed| listed.is_none() || listed == sub)
    }

    fn default(self) -> Decision {
        Decision { tier: TierName::Default, action: self.policy.settings.default, max_timeout_ms: None }
    }

    /// As [`View::listed`], else the default.
    pub fn decide(self, name: &str, sub: Option<&str>) -> Decision {
        self.listed(name, sub).unwrap_or_else(|| self.default())
    }

    /// The strictest of the default and every entry of the program: for a subcommand that is not known.
    pub fn worst(self, name: &str) -> Decision {
        match self.strictest(name, |_| true) {
            Some(worst) if !self.has_subcommands(name) || worst.action >= self.policy.settings.default => worst,
            _ => self.default(),
        }
    }

    /// True if some tier tells the program's subcommands apart.
    pub fn has_subcommands(self, name: &str) -> bool {
        self.policy.programs.get(name).is_some_and(|program| program.subcommands)
    }

    /// True if any tier at all, also one of other groups, names the program.
    pub fn names(self, name: &str) -> bool {
        self.policy.programs.contains_key(name)
    }

    /// The unrestricted tier of the agent with the mildest action.
    pub fn unrestricted(self) -> Option<Action> {
        let free = self.policy.tiers.iter().filter(|(_, tier)| tier.unrestricted && self.holds(tier));
        free.map(|(_, tier)| tier.action).min()
    }

    /// What to use instead of the command.
    pub fn instead(self, name: &str, sub: Option<&str>, action: Action) -> String {
        let full = sub.map(|sub| format!("{name} {sub}"));
        let hints = &self.policy.settings.hints;
        let by = |key: &str| hints.iter().find(|hint| hint.command == key).map(|hint| hint.instead.clone());
        full.as_deref().and_then(by).or_else(|| by(name)).unwrap_or_else(|| {
            match action {
                Action::Deny => "use a tool of yours, or ask an operator to add the command to `cli_policy.tiers`",
                _ => "use a tool of yours, or wait for the approval",
            }
            .to_owned()
        })
    }
}

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
