//! The command policy as data: what each tier names and what it decides (SBX-10).
//!
//! It must never look at a command line; it answers only for a name that somebody else has found.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::refusal::TierName;

/// What happens to a command. A later one is stricter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// It runs.
    Allow,
    /// It runs after an operator's approval.
    Ask,
    /// It does not run.
    Deny,
}

/// How much of a line is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Every command of the line (SBX-11).
    #[default]
    Segments,
    /// Only the first word of the line (SBX-09). It protects nothing that follows a `;`.
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
