//! Reads the configuration of a git repository far enough to know that it names no program.
//!
//! It knows the keys that run nothing, not those that do: each version of git has new ones of the second kind. It must
//! never read less than git does: what git might read differently is an error, which the caller takes for a program.

use crate::judgement::clip;
use crate::tables::has;

/// Sections without a name of their own, and their keys.
const PLAIN: &[(&str, &str)] = &[
    (
        "core",
        "repositoryformatversion filemode bare logallrefupdates ignorecase precomposeunicode symlinks sharedrepository \
        autocrlf eol safecrlf quotepath abbrev compression whitespace untrackedcache worktree longpaths sparsecheckout \
        sparsecheckoutcone",
    ),
    ("extensions", "objectformat refstorage worktreeconfig"),
    ("user", "name email"),
    ("author", "name email"),
    ("committer", "name email"),
    ("init", "defaultbranch"),
    ("color", "ui diff status branch"),
    ("pull", "rebase ff"),
    ("push", "default autosetupremote followtags"),
    ("fetch", "prune prunetags"),
    ("merge", "conflictstyle ff"),
    ("diff", "renames algorithm mnemonicprefix noprefix context colormoved"),
    ("log", "date decorate abbrevcommit follow"),
    ("status", "short branch showuntrackedfiles"),
    ("branch", "autosetupmerge autosetuprebase sort"),
    ("advice", "detachedhead statushints"),
    ("receive", "denynonfastforwards denydeletes denycurrentbranch"),
    ("gc", "auto"),
    ("rerere", "enabled"),
    ("commit", "verbose status"),
    ("submodule", "active"),
];

/// Sections with a name of their own, and their keys.
const NAMED: &[(&str, &str)] = &[
    ("remote", "url pushurl fetch push tagopt prune prunetags mirror gh-resolved skipdefaultupdate"),
    ("branch", "remote merge rebase pushremote description gh-merge-base vscode-merge-base"),
    ("submodule", "path url active branch shallow fetchrecursesubmodules"),
];

/// A setting that is not known to be harmless.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Setting {
    /// A key, for example `diff.external`.
    Key(String),
    /// The line, counted from 1, that is not read as git may read it.
    Unreadable(usize),
}

/// The first setting of a configuration file of git that may run a program or lead elsewhere.
#[must_use]
pub fn foreign_setting(text: &str) -> Option<Setting> {
    let mut reader = Reader { rest: text.strip_prefix('\u{feff}').unwrap_or(text), line: 1 };
    let mut section: Option<Section> = None;
    loop {
        let line = reader.line;
        let read = match reader.peek() {
            None => return None,
            Some(c) if c.is_ascii_whitespace() => {
                reader.next();
                continue;
            }
            Some('#' | ';') => {
                reader.comment();
                continue;
            }
            Some('[') => reader.section().map(|read| {
                section = Some(read);
                None
            }),
            Some(c) if c.is_ascii_alphabetic() => reader.key().map(Some),
            Some(_) => None,
        };
        match (read, &section) {
            (Some(None), _) => {}
            (Some(Some(key)), Some(section)) if section.knows(&key) => {}
            (Some(Some(key)), Some(section)) => return Some(Setting::Key(section.full(&key))),
            _ => return Some(Setting::Unreadable(line)),
        }
    }
}

struct Section {
    name: String,
    /// The name between quotes, or behind the first dot.
    own: Option<String>,
}

impl Section {
    fn knows(&self, key: &str) -> bool {
        let list = if self.own.is_some() { NAMED } else { PLAIN };
        list.iter().any(|(name, keys)| *name == self.name && has(keys, key))
    }

    fn full(&self, key: &str) -> String {
        let own = self.own.as_ref().map(|own| format!("{own}.")).unwrap_or_default();
        clip(&format!("{}.{own}{key}", self.name))
    }
}

struct Reader<'t> {
    rest: &'t str,
    line: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.rest = &self.rest[c.len_utf8()..];
        self.line += usize::from(c == '\n');
        Some(c)
    }

    fn comment(&mut self) {
        while self.next().is_some_and(|c| c != '\n') {}
    }

    fn spaces(&mut self) {
        while matches!(self.peek(), Some(' ' | '\t')) {
            self.next();
        }
    }

    fn word(&mut self, more: &str) -> String {
        let mut word = String::new();
        while let Some(c) = self.peek().filter(|c| c.is_ascii_alphanumeric() || *c == '-' || more.contains(*c)) {
            word.push(c.to_ascii_lowercase());
            self.next();
        }
        word
    }

    /// `[name]`, `[name.own]` or `[name "own"]`.
    fn section(&mut self) -> Option<Section> {
        self.next();
        let name = self.word(".");
        if name.is_empty() {
            return None;
        }
        if self.peek() == Some(']') {
            self.next();
            let (name, own) = name.split_once('.').map_or((&*name, None), |(name, own)| (name, Some(own.to_owned())));
            return Some(Section { name: name.to_owned(), own });
        }
        self.spaces();
        let mut own = String::new();
        if self.next() != Some('"') || name.contains('.') {
            return None;
        }
        loop {
            match self.next()? {
                '"' => break,
                '\n' | '\0' => return None,
                '\\' => own.push(self.next().filter(|c| *c != '\n')?),
                c => own.push(c),
            }
        }
        (self.next() == Some(']')).then_some(Section { name, own: Some(own) })
    }

    /// A key, with its value read over. A value that goes on in the next line is not read.
    fn key(&mut self) -> Option<String> {
        let key = self.word("");
        self.spaces();
        match self.peek() {
            None | Some('\n') => return Some(key),
            Some('\r') if self.rest.starts_with("\r\n") => return Some(key),
            Some('=') => self.next(),
            Some(_) => return None,
        };
        let mut quoted = false;
        loop {
            match self.next() {
                None | Some('\n') => return (!quoted).then_some(key),
                Some('#' | ';') if !quoted => {
                    self.comment();
                    return Some(key);
                }
                Some('\0') => return None,
                Some('"') => quoted = !quoted,
                Some('\\') => {
                    self.next().filter(|c| matches!(c, '"' | '\\' | 'n' | 't' | 'b'))?;
                }
                Some(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    fn key(name: &str) -> Option<Setting> {
        Some(Setting::Key(name.to_owned()))
    }

    #[test]
    fn what_git_itself_writes_is_known() {
        let text = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n\
            [remote \"origin\"]\n\turl = https://x.example/a b # c\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n\
            [branch \"main\"] remote = origin\r\n\tmerge = \"refs/heads/\\\"main\"\n[user]\n\tname=Ada; x\n[pull] rebase\n";
        assert_eq!(foreign_setting(text), None);
        assert_eq!(foreign_setting(""), None);
        assert_eq!(foreign_setting("\u{feff}# [diff]\n; external = x\n"), None);
    }

    // covers: SBX-11
    #[test]
    fn what_may_run_a_program_or_lead_elsewhere_is_named() {
        for (text, name) in [
            ("[diff]\nexternal = ./x", "diff.external"),
            ("[DIFF] External=x", "diff.external"),
            ("[diff \"word\"]\n textconv = x", "diff.word.textconv"),
            ("[diff.word]\n command = x", "diff.word.command"),
            ("[filter \"x\"] clean = x", "filter.x.clean"),
            ("[filter \"a.b\"] process = x", "filter.a.b.process"),
            ("[core]\n fsmonitor = x", "core.fsmonitor"),
            ("[core]\n hooksPath = x", "core.hookspath"),
            ("[core]\n pager", "core.pager"),
            ("[core] sshCommand = x", "core.sshcommand"),
            ("[core] askPass = x", "core.askpass"),
            ("[core] filemode = true\n attributesFile = x", "core.attributesfile"),
            ("[core][alias] log = !x", "alias.log"),
            ("[gpg] program = x", "gpg.program"),
            ("[gpg \"ssh\"] defaultKeyCommand = x", "gpg.ssh.defaultkeycommand"),
            ("[log] showSignature = true", "log.showsignature"),
            ("[credential] helper = x", "credential.helper"),
            ("[credential \"https://x\"] helper = x", "credential.https://x.helper"),
            ("[include] path = x", "include.path"),
            ("[includeIf \"gitdir:/\"] path = x", "includeif.gitdir:/.path"),
            ("[submodule \"x\"] update = !x", "submodule.x.update"),
            ("[submodule \"x\"] ignore = none", "submodule.x.ignore"),
            ("[remote \"o\"] uploadpack = x", "remote.o.uploadpack"),
            ("[remote \"o\"] promisor = true", "remote.o.promisor"),
            ("[extensions] partialClone = o", "extensions.partialclone"),
            ("[protocol \"ext\"] allow = always", "protocol.ext.allow"),
            ("[url \"ext::x\"] insteadOf = y", "url.ext::x.insteadof"),
            ("[merge \"x\"] driver = x", "merge.x.driver"),
            ("[pager] log = x", "pager.log"),
            ("[user] name = \"a\" b\n[safe] directory = x", "safe.directory"),
        ] {
            assert_eq!(foreign_setting(text), key(name), "{text}");
        }
    }

    #[test]
    fn what_git_may_read_differently_is_not_read() {
        for (text, line) in [
            ("name = x", 1),
            ("[user]\nname = a\\\n[include]\npath = x", 2),
            ("[user\n]", 1),
            ("[user \"a\nb\"]", 1),
            ("[user]\nname = \"a\n", 2),
            ("[user]\nname x", 2),
            ("[user]\n= x", 2),
            ("[]\n", 1),
            ("[user.x \"y\"]", 1),
            ("[user]\nname = a\0", 2),
            ("[user]\nname = \\q", 2),
            ("[user]\n\u{e9} = x", 2),
        ] {
            assert_eq!(foreign_setting(text), Some(Setting::Unreadable(line)), "{text:?}");
        }
    }

    fn known(full: &str) -> bool {
        let Some((section, rest)) = full.split_once('.') else { return false };
        let (own, key) = rest.rsplit_once('.').map_or((None, rest), |(own, key)| (Some(own.to_owned()), key));
        Section { name: section.to_owned(), own }.knows(key)
    }

    /// The keys that git finds in a file; none without git, and in a file that git refuses.
    #[allow(clippy::disallowed_methods, reason = "git is what this is compared with")]
    fn listed(text: &str) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config");
        std::fs::write(&file, text).unwrap();
        let mut git = Command::new("git");
        git.args(["config", "--no-includes", "--name-only", "-z", "--list", "--file"]).arg(&file);
        let keys = git.output().map(|done| String::from_utf8_lossy(&done.stdout).into_owned()).unwrap_or_default();
        keys.split('\0').filter(|key| !key.is_empty()).map(str::to_owned).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

        // Whatever git finds in a file that passes is a key that is known.
        #[test]
        fn git_finds_no_other_key_in_what_passes(parts in prop::collection::vec(prop::sample::select(vec![
            "[core]", "[user]", "[diff]", "[include]", "[remote \"o\"]", "[branch \"a\\\"b\"]", "[user.x]", "filemode", "name",
            "external", "path", "url", "=", " ", "\t", "\n", "\n", "\r\n", "\\", "\\\n", "\"", "#", ";", "x", "true", "[", "]",
            "\u{b}", "\u{c}", "\u{feff}",
        ]), 0..24)) {
            let text = parts.concat();
            if foreign_setting(&text).is_none() {
                for key in listed(&text) {
                    prop_assert!(known(&key), "{:?} has {}", text, key);
                }
            }
        }

        #[test]
        fn no_text_panics(text in "(?s).{0,200}") {
            let _ = foreign_setting(&text);
        }
    }
}
