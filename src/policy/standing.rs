//! Whether the words of a line are all that decides what it runs: the condition for an approval that also holds for
//! later calls.
//!
//! It lists what is known to run nothing else. What is missing here can be approved once only, so a gap costs a
//! question, never a program that nobody has seen. It is no list of what is dangerous.

use crate::judgement::{Action, GitUse, Script, TierName, Unbound, clip};
use crate::policy::Mode;
use crate::programs::git_start;
use crate::tables::{self, has};
use crate::walk::{Found, Walk};
use crate::word::Word;

/// Programs that run nothing and load no code, whatever their arguments are.
const PLAIN: &str = "ls cat head tail tac nl wc cut tr uniq comm join paste column fold fmt expand unexpand rev cmp od \
    hexdump basename dirname realpath readlink date seq sleep which uname whoami id nproc md5sum sha1sum sha224sum \
    sha256sum sha384sum sha512sum b2sum cksum base64 base32 stat du df tree mkdir rmdir cp mv ln touch tee truncate rm \
    unlink chmod chown chgrp mktemp sync grep egrep fgrep gzip gunzip xz unxz bzip2 bunzip2 zstd";

/// Programs that run nothing else with these options: single letters without a value, and whole words.
const SHAPED: &[(&str, &str, &str)] = &[
    ("sort", "bdfghiMnRrsuVz", ""),
    ("rg", "nicvlwoHhFSNU", "--files --hidden --count --json"),
    (
        "find",
        "",
        "-name -iname -path -ipath -type -maxdepth -mindepth -size -mtime -mmin -newer -not -o -a -and -or -print \
        -print0 -empty -prune -quit",
    ),
    ("diff", "uraqNbBwiy", "--brief --recursive"),
];

/// Subcommands of git that stay inside one repository. With the settings of the sandbox, and a repository whose own
/// configuration names no program, they run git alone. Those that speak with another repository may run its hooks.
const GIT: &str = "log diff status show blame grep ls-files ls-tree rev-parse rev-list describe shortlog cat-file \
    merge-base name-rev count-objects check-ignore diff-tree for-each-ref show-ref whatchanged add commit branch \
    checkout switch restore stash tag reset mv rm merge revert cherry-pick";

impl Walk<'_> {
    /// Why the line can be approved once only; `None` if its words, its scripts and its repositories are all that matters.
    pub fn unbound(&self) -> Option<Unbound> {
        if self.view.policy.settings().mode == Mode::FirstToken {
            return Some(Unbound::FirstToken);
        }
        let unjudged = self.unjudged().map(|word| Unbound::Unjudged { word: word.to_owned() });
        unjudged.or_else(|| self.commands.iter().find_map(of_command))
    }

    /// The commands of git.
    pub fn git_uses(&self) -> Vec<GitUse> {
        let used = self.commands.iter().filter(|found| found.name == "git");
        let git_use =
            |found: &Found| GitUse { dirs: git_dirs(&found.words), allowed: found.decision.action == Action::Allow };
        used.map(git_use).collect()
    }

    /// The files of commands.
    pub fn script_uses(&self) -> Vec<Script> {
        let used = self.commands.iter().filter_map(|found| {
            let path = found.name.clone();
            found.script.map(|shell| Script { path, shell })
        });
        used.collect()
    }
}

fn of_command(found: &Found) -> Option<Unbound> {
    let name = clip(&found.name);
    if found.words.iter().any(|word| word.value().is_none()) {
        return Some(Unbound::Words { program: name });
    }
    // What a function holds was judged where it is defined. The content of a script is the caller's to judge.
    if found.script.is_some() || found.decision.tier == TierName::Function {
        return None;
    }
    let facts = tables::facts(&found.name);
    // What wrappers and shells run is judged as commands of their own.
    if facts.is_some_and(|facts| !facts.builtin && (facts.shell || facts.code || facts.wrapper.is_some())) {
        return None;
    }
    // The scripts of sed that pass the policy are of a small subset, which runs nothing.
    if has(PLAIN, &found.name) || found.name == "sed" {
        return None;
    }
    if found.name == "git" {
        let sub = found.words.get(git_start(&found.words).0).and_then(Word::value).unwrap_or_default();
        return (!has(GIT, sub)).then(|| Unbound::Program { program: clip(&format!("git {sub}")) });
    }
    let Some((_, letters, long)) = SHAPED.iter().find(|(known, ..)| *known == found.name) else {
        return Some(Unbound::Program { program: name });
    };
    let strange = |text: &&str| {
        let cluster = text.strip_prefix('-').filter(|rest| !rest.is_empty());
        cluster.is_some_and(|rest| !has(long, text) && !rest.chars().all(|c| letters.contains(c)))
    };
    let option = found.words.iter().skip(1).filter_map(Word::value).find(strange)?;
    Some(Unbound::Option { program: name, option: clip(option) })
}

/// The directories in which a command of git works; `None` if they are known only when it runs.
fn git_dirs(words: &[Word]) -> Option<Vec<String>> {
    let (start, dirs) = git_start(words);
    // An option may name another repository, or settings from elsewhere.
    let is_known = words.get(start).is_none_or(|word| word.value().is_some_and(|text| !text.starts_with('-')));
    dirs.filter(|_| is_known).map(|dirs| dirs.into_iter().map(str::to_owned).collect())
}
