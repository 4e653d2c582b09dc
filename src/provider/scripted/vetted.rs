//! Texts of rule files in which an earlier start of this very program found nothing wrong. Such a file is read when its
//! model is first asked: a daemon that comes back after a crash does not check again what has not changed.
//!
//! Must never: vouch for a text that was not read whole, or for what another program has read.

use std::collections::BTreeSet;

use sha2::{Digest as _, Sha256};

/// What a rule file says, as SHA-256 of its text: the same text says the same.
pub type ScriptDigest = [u8; 32];

/// The digest of a rule file's text.
pub(super) fn digest_of(text: &str) -> ScriptDigest {
    Sha256::digest(text.as_bytes()).into()
}

/// Digests of good rule files, and the program that found them to be good.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vetted {
    digests: BTreeSet<ScriptDigest>,
}

impl Vetted {
    /// The files with these digests.
    #[must_use]
    pub fn of(digests: impl IntoIterator<Item = ScriptDigest>) -> Self {
        Self { digests: digests.into_iter().collect() }
    }

    /// Reads what [`text`](Self::text) wrote. Anything else vouches for nothing: what `program` did not write itself, and
    /// what is not whole.
    #[must_use]
    pub fn parse(text: &str, program: &str) -> Self {
        let vouched = || {
            let mut lines = text.strip_suffix("\nend\n")?.lines();
            (lines.next() == Some(program)).then_some(())?;
            lines.map(digest_in).collect::<Option<BTreeSet<ScriptDigest>>>()
        };
        Self { digests: vouched().unwrap_or_default() }
    }

    /// As text: the program, a digest a line, and `end`.
    #[must_use]
    pub fn text(&self, program: &str) -> String {
        let mut text = format!("{program}\n");
        for digest in &self.digests {
            text.extend(digest.iter().map(|byte| format!("{byte:02x}")));
            text.push('\n');
        }
        text.push_str("end\n");
        text
    }

    /// Whether the text with this digest is good.
    pub(super) fn knows(&self, digest: &ScriptDigest) -> bool {
        self.digests.contains(digest)
    }
}

fn digest_in(line: &str) -> Option<ScriptDigest> {
    let mut digest = ScriptDigest::default();
    let whole = line.len() == 2 * digest.len() && line.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !whole {
        return None;
    }
    for (byte, at) in digest.iter_mut().zip((0..line.len()).step_by(2)) {
        *byte = u8::from_str_radix(&line[at..at + 2], 16).ok()?;
    }
    Some(digest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_what_this_program_wrote_whole_is_believed() {
        let vetted = Vetted::of([digest_of("a"), digest_of("b")]);
        let text = vetted.text("ghostd 1");
        assert_eq!(Vetted::parse(&text, "ghostd 1"), vetted);
        assert_eq!(Vetted::parse(&text, "ghostd 2"), Vetted::default());
        assert_eq!(Vetted::parse(&text.replace('a', "g"), "ghostd 1"), Vetted::default());
        for cut in 0..text.len() {
            assert_eq!(Vetted::parse(&text[..cut], "ghostd 1"), Vetted::default(), "cut at {cut}");
        }
        assert_eq!(Vetted::parse(&Vetted::default().text("x"), "x"), Vetted::default());
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "(x\n|[0-9a-fé]{64}\n|end\n|.){0,8}") {
            let vetted = Vetted::parse(&text, "x");
            prop_assert_eq!(&Vetted::parse(&vetted.text("x"), "x"), &vetted);
        }
    }
}
