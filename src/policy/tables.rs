//! What is known of programs: which run others, and by which options. It is data and its look-up alone.
//!
//! A gap here is a hole in the policy, so the lists are wide. An option that is missing from a wrapper's list is
//! refused; one that is missing from a program's list is let through.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::judgement::Cause;

/// A program that runs the command in its arguments.
pub(crate) struct Wrapper {
    pub name: &'static str,
    /// Short options without a value.
    pub flags: &'static str,
    /// Short options with a value, attached or in the next word.
    pub values: &'static str,
    /// Short options whose value, if any, is attached.
    pub attached: &'static str,
    /// Long options without a value.
    pub long: &'static str,
    /// Long options with a value.
    pub long_values: &'static str,
    /// Words before the command.
    pub skip: usize,
}

const fn wrapper(name: &'static str, flags: &'static str, values: &'static str, attached: &'static str) -> Wrapper {
    Wrapper { name, flags, values, attached, long: "", long_values: "", skip: 0 }
}

pub(crate) const WRAPPERS: &[Wrapper] = &[
    Wrapper {
        // `-i` and `-C` are not known: they take away what keeps git from running a repository's programs, and hide
        // where it works.
        long: "null debug",
        long_values: "unset split-string",
        ..wrapper("env", "0v", "uS", "")
    },
    Wrapper {
        long: "preserve-status foreground verbose",
        long_values: "kill-after signal",
        skip: 1,
        ..wrapper("timeout", "vfp", "ks", "")
    },
    Wrapper { long_values: "adjustment", ..wrapper("nice", "0123456789", "n", "") },
    wrapper("nohup", "", "", ""),
    Wrapper { long_values: "input output error", ..wrapper("stdbuf", "", "ioe", "") },
    Wrapper { long: "ctty fork wait", ..wrapper("setsid", "cfw", "", "") },
    Wrapper { long: "ignore", long_values: "class classdata", ..wrapper("ionice", "t", "cn", "") },
    Wrapper { long: "batch fifo idle other rr reset-on-fork", skip: 1, ..wrapper("chrt", "bfiorR", "TPD", "") },
    Wrapper { long: "cpu-list", skip: 1, ..wrapper("taskset", "c", "", "") },
    Wrapper { long: "portability verbose quiet", long_values: "format", ..wrapper("time", "pvq", "f", "") },
    wrapper("command", "p", "", ""),
    wrapper("builtin", "", "", ""),
    wrapper("exec", "cl", "a", ""),
    Wrapper {
        long: "null no-run-if-empty verbose exit",
        long_values: "max-args max-procs max-lines max-chars delimiter arg-file replace eof",
        ..wrapper("xargs", "0rtx", "ILnPsdEa", "ile")
    },
    wrapper("busybox", "", "", ""),
    wrapper("toybox", "", "", ""),
];

/// Shells whose `-c` code is read. The others have start files, or a syntax of their own.
pub(crate) const SHELLS: &str = "bash sh dash ash";

/// Programs that run others in ways that no option list can hold, or that have a prompt that can.
pub(crate) const RUNNERS: &str = "parallel zsh ksh ksh93 mksh pdksh yash fish csh tcsh rbash elvish nu xonsh pwsh \
    script scriptreplay expect unbuffer screen tmux dtach abduco watch entr inotifywait flock lockf setlock chpst \
    setuidgid envuidgid envdir softlimit setpriv runuser runcon pkexec run0 sg newgrp unshare nsenter chroot pivot_root \
    systemd-run systemd-nspawn machinectl dbus-run-session dbus-launch xvfb-run startx fakeroot fakechroot proot bwrap \
    firejail strace ltrace gdb lldb valgrind perf bpftrace rr faketime prlimit numactl cgexec choom catchsegv pipexec \
    logsave start-stop-daemon daemonize ssh slogin sftp telnet ftp lftp rlogin rsh at batch crontab run-parts \
    update-alternatives vi vim nvim ex view rview rvim vimdiff gvim emacs emacsclient nano pico ed joe mcedit mc ranger \
    less more most pg man info lynx w3m links elinks mutt mail mailx sendmail gpg gpg2 openssl tclsh wish guile gosu tini \
    dumb-init catatonit s6-setuidgid multitool rlwrap nsjail capsh linux32 linux64 setarch i386 x86_64 uname26 ld.so \
    ldd qemu-x86_64 wine mono java scala groovy erl elixir iex ghci runghc runhaskell ocaml sbcl clisp m4 gnuplot \
    sqlite3 psql mysql redis-cli bc dc units ip tc busctl loginctl zsoelim tex latex pdftex xelatex";

/// Builtins that change how names are found or how the line is read.
pub(crate) const BUILTINS: &str = "alias unalias bind complete compgen compopt enable fc hash history shopt mapfile \
    readarray let suspend logout coproc select disown bg fg caller";

/// Builtins that only change or show the shell's own state: allowed unless a tier names them.
pub(crate) const SHELL: &str = ": true false test [ echo printf pwd cd pushd popd dirs exit return break continue shift \
    set export local declare typeset readonly unset read wait trap getopts umask ulimit times jobs type command builtin \
    exec eval help";

/// Words of the grammar, and names that the shell calls by itself.
const WORDS: &str = "if then elif else fi for while until do done case esac in time function select coproc \
    command_not_found_handle find fd awk sed uniq diff jq source . eval exec trap";

/// Code on the command line, or code from standard input if there is no operand: the family of the program, the
/// letters of options with code, the options of that kind with whole names.
pub(crate) const INTERPRETERS: &[(&str, &str, &str)] = &[
    ("python", "c", "--command"),
    ("pypy", "c", "--command"),
    ("node", "epr", "--eval --print --require --import --loader --experimental-loader --interactive"),
    ("nodejs", "epr", "--eval --print --require --import --loader --experimental-loader --interactive"),
    ("bun", "ep", "--eval --print --preload"),
    ("deno", "", "eval repl --eval"),
    ("perl", "eEMmnpid", ""),
    ("ruby", "erRnpi", "--require"),
    ("php", "rRBEFa", "--run --process-code"),
    ("lua", "eli", ""),
    ("luajit", "eli", ""),
    ("tsx", "ep", "--eval --print"),
    ("R", "e", "--eval"),
    ("Rscript", "e", "--eval"),
];

/// Options of a program that are refused.
pub(crate) struct Options {
    pub program: &'static str,
    /// Letters, anywhere in a cluster.
    pub short: &'static str,
    /// Letters after which a cluster is a value.
    pub values: &'static str,
    /// Whole names, which an abbreviation also hits. `=x` and bare words are beginnings of any argument.
    pub long: &'static str,
    pub cause: Cause,
}

const fn runs(program: &'static str, short: &'static str, values: &'static str, long: &'static str) -> Options {
    Options { program, short, values, long, cause: Cause::RunOption }
}

const fn writes(program: &'static str, short: &'static str, values: &'static str, long: &'static str) -> Options {
    Options { program, short, values, long, cause: Cause::WriteOption }
}

pub(crate) const OPTIONS: &[Options] = &[
    runs("sort", "", "kStTo", "--compress-program"),
    writes("sort", "o", "kStT", "--output"),
    runs("rg", "", "", "--pre --pre-glob --hostname-bin"),
    writes("tree", "oR", "LPIH", "--output"),
    writes("file", "C", "mfFP", "--compile"),
    writes("date", "s", "dfrI", "--set"),
    runs("split", "", "", "--filter"),
    writes("shuf", "o", "", "--output"),
    writes("yq", "i", "", "--inplace"),
    runs(
        "tar",
        "IF",
        "fCTXbgHKLNV",
        "--to-command --checkpoint-action --use-compress-program --info-script \
        --new-volume-script --rsh-command --rmt-command --index-file",
    ),
    runs("zip", "T", "bntx", "--test --unzip-command"),
    runs("rsync", "eM", "fBT", "--rsh --rsync-path --remote-option --daemon --config --password-file"),
    runs("scp", "SoFJ", "cilPX", ""),
    runs(
        "curl",
        "K",
        "",
        "--config --engine --proxy-header file: scp: sftp: smb: ldap: dict: gopher: telnet: tftp: \
        --unix-socket --abstract-unix-socket",
    ),
    writes(
        "curl",
        "oOJcD",
        "AbCdeEFHmPQrtTuUwxXyYz",
        "--output --remote-name --cookie-jar --dump-header --trace --stderr \
        --libcurl --etag-save --hsts --alt-svc",
    ),
    runs("wget", "ei", "OPoUa", "--use-askpass --execute --config --input-file --post-file --body-file --load-cookies"),
    writes(
        "wget",
        "OoaPNrmpcx",
        "Ut",
        "--output --append-output --directory-prefix --save-cookies --warc --recursive --mirror",
    ),
    runs("make", "Ef", "CjIWo", "--eval --file --makefile =SHELL =.SHELLFLAGS =MAKE =GNUMAKEFLAGS"),
    runs("cargo", "Z", "pjF", "--config --manifest-path"),
    runs(
        "npm",
        "",
        "",
        "--script-shell --node-options --globalconfig --userconfig --shell exec x config set init create",
    ),
    runs("npx", "c", "", "--call --script-shell --shell"),
    runs("yarn", "", "", "--script-shell dlx exec config"),
    runs("pnpm", "c", "", "--script-shell --shell-mode dlx exec config"),
    runs("go", "", "", "-exec -toolexec -vettool generate tool"),
    runs("gcc", "B", "", "-wrapper -fplugin -specs --specs"),
    runs("clang", "B", "", "-fplugin -load -Xclang --config"),
    runs("pip", "", "", "--python --config --index-url --extra-index-url"),
    runs("gh", "", "", "alias extension api codespace config"),
    runs(
        "git",
        "",
        "",
        "--ext-diff --textconv --open-files-in-pager --exec --upload-pack --receive-pack ext:: fd:: \
        --template --config --config-env --filters --extcmd --gpg-sign --show-signature --run",
    ),
    writes("git", "", "", "--output --output-directory --index-output"),
    runs("install", "", "", "--strip-program"),
    runs("man", "PH", "", "--pager --html --preprocessor"),
    runs("docker", "", "", "--config"),
    runs("xxd", "r", "", "-revert"),
    runs("patch", "", "", "--get"),
    runs("patch", "ge", "pidDFoBrVYz", "--ed"),
    runs("bat", "", "", "--pager --diff-so-fancy"),
    runs("ag", "", "", "--pager"),
    runs("ack", "", "", "--pager --ackrc"),
];

/// Options of `git` before its subcommand that are harmless: alone, and with a value in the next word.
pub(crate) const GIT_FLAGS: &str = "--no-pager -P --literal-pathspecs --glob-pathspecs --noglob-pathspecs --icase-pathspecs --no-optional-locks \
     --no-replace-objects --version --help -h -v";
pub(crate) const GIT_VALUES: &str = "-C";

/// Keys of `git config` that are not known to run programs. Everything else is refused.
pub(crate) const GIT_KEYS: &str = "user.name user.email init.defaultbranch color.ui pull.rebase core.autocrlf core.filemode \
    core.quotepath push.default advice.detachedhead merge.conflictstyle diff.renames log.date";

/// True if the word is in a list of words.
pub(crate) fn has(list: &str, word: &str) -> bool {
    list.split_ascii_whitespace().any(|known| known == word)
}

/// Other names of programs, and whose rules they follow.
const ALIASES: &[(&str, &str)] = &[
    ("fdfind", "fd"),
    ("gawk", "awk"),
    ("mawk", "awk"),
    ("nawk", "awk"),
    ("original-awk", "awk"),
    ("gsed", "sed"),
    ("gfind", "find"),
    ("gmake", "make"),
    ("bmake", "make"),
    ("gtar", "tar"),
    ("bsdtar", "tar"),
    ("gsort", "sort"),
    ("g++", "gcc"),
    ("cc", "gcc"),
    ("c++", "gcc"),
    ("clang++", "clang"),
    ("genv", "env"),
];

/// The rules of one program, ready to use.
#[derive(Default)]
pub(crate) struct Facts {
    /// The program whose rules these are.
    pub family: &'static str,
    pub runner: bool,
    /// A builtin that is refused.
    pub builtin: bool,
    /// A builtin that only changes the shell's own state.
    pub shell: bool,
    /// A shell whose `-c` code is read.
    pub code: bool,
    pub wrapper: Option<&'static Wrapper>,
    /// Letters and names of options with code.
    pub inline: Option<(&'static str, &'static str)>,
    pub rules: Vec<Rule>,
}

/// Refused options of one kind.
#[derive(Clone)]
pub(crate) struct Rule {
    pub options: &'static Options,
    /// Options with whole names.
    pub dashed: Vec<&'static str>,
    /// Beginnings of any argument.
    pub bare: Vec<&'static str>,
}

static FACTS: LazyLock<HashMap<&'static str, Facts>> = LazyLock::new(|| {
    let mut facts: HashMap<&'static str, Facts> = HashMap::new();
    let mark = |facts: &mut HashMap<&'static str, Facts>, list: &'static str, set: fn(&mut Facts)| {
        for name in list.split_ascii_whitespace() {
            set(facts.entry(name).or_default());
        }
    };
    mark(&mut facts, RUNNERS, |facts| facts.runner = true);
    mark(&mut facts, BUILTINS, |facts| facts.builtin = true);
    mark(&mut facts, SHELL, |facts| facts.shell = true);
    mark(&mut facts, SHELLS, |facts| facts.code = true);
    mark(&mut facts, WORDS, |_| ());
    for wrapper in WRAPPERS {
        facts.entry(wrapper.name).or_default().wrapper = Some(wrapper);
    }
    for (program, letters, long) in INTERPRETERS {
        facts.entry(program).or_default().inline = Some((letters, long));
    }
    for options in OPTIONS {
        let (dashed, bare) = options.long.split_ascii_whitespace().partition(|name| name.starts_with('-'));
        facts.entry(options.program).or_default().rules.push(Rule { options, dashed, bare });
    }
    for (name, fact) in &mut facts {
        fact.family = name;
    }
    for (alias, program) in ALIASES {
        if let Some(Facts { family, wrapper, rules, .. }) = facts.get(program) {
            let copy = Facts { family, wrapper: *wrapper, rules: rules.clone(), ..Facts::default() };
            facts.insert(alias, copy);
        }
    }
    facts
});

/// What is known of the program. A version at the end of its name is ignored: `python3.11` is `python`.
pub(crate) fn facts(name: &str) -> Option<&'static Facts> {
    let unversioned = || {
        let short = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
        (short.len() < name.len()).then(|| FACTS.get(short)).flatten()
    };
    FACTS.get(name).or_else(unversioned)
}
