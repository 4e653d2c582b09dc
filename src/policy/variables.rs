//! Which variables a line may set, which of them hold numbers, and which of them arithmetic uses.
//!
//! Bash evaluates the value of a variable in arithmetic as arithmetic again, subscripts with command substitutions
//! included: `x='a[$(rm f)]'; echo $((x))` removes `f`. So no substitution, quote, subscript or positional parameter is
//! accepted there, and the variables must hold numbers.

use std::collections::BTreeMap;

use crate::judgement::Cause;

/// Names that a command may get in its environment.
const ENVIRONMENT: &str = "TZ NO_COLOR CLICOLOR CLICOLOR_FORCE FORCE_COLOR TERM COLUMNS LINES CI DEBUG VERBOSE \
    RUST_BACKTRACE RUST_LOG PYTHONUNBUFFERED PYTHONDONTWRITEBYTECODE NODE_ENV";

/// Values that a locale may have: each reads bytes as bash's own parser does.
const LOCALES: &str = "C C.UTF-8 C.utf8 POSIX en_US.UTF-8 en_US.utf8";

/// Names that mean something, and beginnings (`*`) of families of them.
const RESERVED: &str = "PATH IFS ENV CDPATH HOME SHELL SHELLOPTS USER LOGNAME EUID UID PPID PWD OLDPWD POSIXLY_CORRECT \
    GLOBIGNORE EXECIGNORE FIGNORE FUNCNEST HISTFILE INPUTRC HOSTFILE MAIL MAILPATH TMOUT OPTIND OPTARG OPTERR REPLY \
    RANDOM SECONDS LINENO DIRSTACK GROUPS FUNCNAME MAPFILE COPROC PIPESTATUS EPOCHSECONDS EPOCHREALTIME SRANDOM \
    PROMPT_COMMAND PROMPT_DIRTRIM TIMEFORMAT CHILD_MAX TMPDIR TEMP TMP EDITOR VISUAL PAGER BROWSER FCEDIT SUDO_* \
    PS0 PS1 PS2 PS3 PS4 BASH* LD_* DYLD_* GIT* XDG_* LESS* MAN* RIPGREP_* FD_* FZF_* BAT_* PYTHON* NODE_* NPM_* PERL* \
    RUBY* GEM_* BUNDLE_* JAVA* JDK_* _JAVA* LUA* PHP* CARGO* RUST* GO* CC CXX CPP LD AR AS NM CFLAGS CXXFLAGS CPPFLAGS \
    LDFLAGS MAKE* MFLAGS GREP_* TAR_* GZIP BZIP* XZ_* ZSTD_* ZIP* UNZIP* GCONV_PATH LOCPATH NLSPATH LOCALDOMAIN \
    RES_OPTIONS HOSTALIASES MALLOC_* GLIBC_* TERMINFO* TERMCAP SSH_* RSYNC_* CURL_* WGETRC SYSTEM_WGETRC OPENSSL_* SSL_* \
    DOCKER_* KUBECONFIG GH_* GITHUB_* AWS_* AWKPATH AWKLIBPATH AWKBUFSIZE JQ_* COLUMN_* COMP_* COMPREPLY READLINE_* AUTOENV* \
    LANGUAGE LANG LC_*";

/// The same, of names without a capital letter.
const RESERVED_SMALL: &str = "_ http_proxy https_proxy ftp_proxy all_proxy no_proxy npm_* auto_resume histchars";

/// Variables whose value is not a number though no assignment says so.
const TEXTS: &str =
    "_ PWD OLDPWD REPLY OPTARG MAPFILE DIRSTACK FUNCNAME HOME SHELL PATH IFS USER HOSTNAME GROUPS BASH*";

fn listed(list: &str, name: &str) -> bool {
    list.split_whitespace().any(|entry| match entry.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => entry == name,
    })
}

/// True for a name that bash accepts.
pub(crate) fn is_name(name: &str) -> bool {
    !name.is_empty() && name_len(name) == name.len()
}

/// Checks an assignment. `exported`: a command will see it in its environment.
pub(crate) fn assignable(name: &str, value: Option<&str>, exported: bool) -> Result<(), Cause> {
    if !name.bytes().any(|b| b.is_ascii_uppercase()) {
        return if !is_name(name) || listed(RESERVED_SMALL, name) { Err(Cause::Variable) } else { Ok(()) };
    }
    let locale = name == "LANG" || name == "LANGUAGE" || name.starts_with("LC_");
    let known = locale && value.is_some_and(|value| LOCALES.split(' ').any(|known| known == value));
    let harmless = known || listed(ENVIRONMENT, name) || !(exported || !is_name(name) || listed(RESERVED, name));
    if harmless { Ok(()) } else { Err(Cause::Variable) }
}

/// What a line does to variables, to judge its arithmetic at the end.
#[derive(Debug, Default)]
pub(crate) struct Variables {
    /// Assigned ones: did every assignment give a number?
    numeric: BTreeMap<String, bool>,
    /// Names that arithmetic evaluates, with the expression.
    read: Vec<(String, String)>,
}

impl Variables {
    /// Notes an assignment.
    pub fn assign(&mut self, name: &str, number: bool) {
        *self.numeric.entry(name.to_owned()).or_insert(true) &= number;
    }

    /// Notes an expression.
    pub fn evaluate(&mut self, text: &str) -> Result<(), Cause> {
        let mut bad = Ok(());
        sum_names(text, |name, used| match used {
            Use::Read => self.read.push((name.to_owned(), text.to_owned())),
            Use::Write => {
                bad = bad.and(assignable(name, None, false));
                self.assign(name, true);
            }
        })?;
        bad
    }

    /// The expressions that evaluate a variable which may hold text.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        let text = |name: &str| listed(TEXTS, name) || self.numeric.get(name) == Some(&false);
        self.read.iter().filter(move |(name, _)| text(name)).map(|(_, expression)| &**expression)
    }
}

/// True for text that arithmetic can only read as a number.
pub(crate) fn is_number(source: &str) -> bool {
    let sum = source.strip_prefix("$((").and_then(|rest| rest.strip_suffix("))"));
    let count = source.strip_prefix("${#").and_then(|rest| rest.strip_suffix('}'));
    (!source.is_empty() && source.bytes().all(|b| b.is_ascii_digit()))
        || sum.is_some_and(|sum| sum_extent(&source[3..]) == Some(sum.len()))
        || count.is_some_and(|name| is_name(name.trim_end_matches("[@]")))
        || matches!(source, "$?" | "$#" | "$$" | "$!")
}

/// True for `{1..9}`.
pub(crate) fn is_range(source: &str) -> bool {
    let inner = source.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).and_then(|rest| rest.split_once(".."));
    inner.is_some_and(|(from, to)| [from, to].iter().all(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit())))
}

/// Parentheses inside one another.
const PARENS_MAX: u32 = 8;

/// How a variable is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Its value is evaluated.
    Read,
    /// It gets a number.
    Write,
}

/// The length of the name at the start of the text; 0 if there is none.
pub(crate) fn name_len(text: &str) -> usize {
    let first = text.bytes().next();
    if !first.is_some_and(|b| b.is_ascii_alphabetic() || b == b'_') {
        return 0;
    }
    text.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count()
}

/// Reports every variable of the expression.
pub(crate) fn sum_names(text: &str, mut used: impl FnMut(&str, Use)) -> Result<(), Cause> {
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let skip = match first {
            '0'..='9' => rest.bytes().take_while(|b| b.is_ascii_alphanumeric() || b"_#@".contains(b)).count(),
            '$' => parameter(&rest[1..], &mut used)? + 1,
            _ if name_len(rest) > 0 => {
                let len = name_len(rest);
                let name = &rest[..len];
                used(name, Use::Read);
                if assigns(rest[len..].trim_start()) || text[..text.len() - rest.len()].trim_end().ends_with(['+', '-'])
                {
                    used(name, Use::Write);
                }
                len
            }
            ' ' | '\t' | '\n' | '+' | '-' | '*' | '/' | '%' | '<' | '>' | '=' | '!' | '&' | '|' | '^' | '~' | '?'
            | ':' | ',' | '(' | ')' => 1,
            _ => return Err(Cause::Arithmetic),
        };
        rest = &rest[skip..];
    }
    Ok(())
}

/// `$x`, `${x}`, `${#x}`, `${#x[@]}`, `$#`, `$?`, `$$`, `$!`; what follows the dollar sign.
fn parameter(rest: &str, used: &mut impl FnMut(&str, Use)) -> Result<usize, Cause> {
    let plain = name_len(rest);
    if plain > 0 {
        used(&rest[..plain], Use::Read);
        return Ok(plain);
    }
    if rest.starts_with(['#', '?', '$', '!']) {
        return Ok(1);
    }
    let inner = rest.strip_prefix('{').and_then(|r| r.split_once('}')).ok_or(Cause::Arithmetic)?.0;
    let length = inner.strip_prefix('#');
    let name = length.map_or(inner, |name| name.trim_end_matches("[@]"));
    if name_len(name) != name.len() || name.is_empty() {
        return Err(Cause::Arithmetic);
    }
    if length.is_none() {
        used(name, Use::Read);
    }
    Ok(inner.len() + 2)
}

/// True if an assignment operator comes next.
fn assigns(rest: &str) -> bool {
    let op = rest.trim_start_matches(['*', '/', '%', '+', '-', '<', '>', '&', '^', '|']);
    (op.starts_with('=') && !op.starts_with("==")) || rest.starts_with("++") || rest.starts_with("--")
}

/// The length of the expression before its unnested `))`; `None` if it has none or is no arithmetic.
pub(crate) fn sum_extent(text: &str) -> Option<usize> {
    let mut depth = 0_u32;
    let bytes = text.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'(' if depth < PARENS_MAX => depth += 1,
            b'(' => return None,
            b')' if depth > 0 => depth -= 1,
            b')' => return (bytes.get(at + 1) == Some(&b')')).then_some(at),
            b'\'' | b'"' | b'\\' | b'`' => return None,
            _ => {}
        }
    }
    None
}
