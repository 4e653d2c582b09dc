//! Tokens in a turn's last text that control its delivery: silent replies, the heartbeat's "nothing
//! to report", and reply tags. Pure functions of the text.
//!
//! A word in the middle of a text for readers must never be treated as a token. Reply tags are the
//! exception: they are recognised anywhere.

/// The answer of a heartbeat that has nothing to report.
pub const HEARTBEAT_OK: &str = "HEARTBEAT_OK";

/// If the whole text is one of these, nothing is delivered.
pub const SILENT: [&str; 2] = ["%%NO_REPLY%%", "NO_REPLY"];

/// If the whole text is this, a cron job's run is not announced.
pub const ANNOUNCE_SKIP: &str = "ANNOUNCE_SKIP";

/// If the whole text is this, an exchange of replies ends.
pub const REPLY_SKIP: &str = "REPLY_SKIP";

/// Maximum bytes of the message id in `[[reply_to:<id>]]`.
const TAG_ID_MAX: usize = 128;

/// The message that a reply answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplyTo {
    /// The message that opened the turn: `[[reply_to_current]]`.
    Current,
    /// The message with this id: `[[reply_to:<id>]]`. The id is as the model wrote it; it is not
    /// checked here.
    Message(String),
}

/// A turn's last text, parsed for delivery to the outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Nothing is delivered: the text is a silent token or is empty without its tokens.
    Silent,
    /// The text is delivered.
    Message {
        /// The text without tags, and without [`HEARTBEAT_OK`] at its start or end. Never empty.
        text: String,
        /// The message that the reply answers, if it has a reply tag. Of several tags, the first is
        /// used.
        reply_to: Option<ReplyTo>,
    },
}

/// The last text of a heartbeat's turn, parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeartbeatReply {
    /// Nothing to report.
    Quiet,
    /// The text to report. It is never empty and never starts or ends with the token.
    Alert(String),
}

/// Whether the whole text, without white space around it, is a silent token.
pub fn is_silent(text: &str) -> bool {
    SILENT.contains(&text.trim())
}

/// Parses a reply that goes to the outside.
///
/// ```
/// # use ghost_domain::reply_tokens::{read_reply, Reply, ReplyTo};
/// let reply = Reply::Message { text: "Yes.".to_owned(), reply_to: Some(ReplyTo::Current) };
/// assert_eq!(read_reply("[[reply_to_current]] Yes."), reply);
/// assert_eq!(read_reply("NO_REPLY"), Reply::Silent);
/// ```
pub fn read_reply(text: &str) -> Reply {
    let (text, reply_to) = take_tags(text);
    let text = strip_heartbeat_ok(&text).0;
    if text.is_empty() || is_silent(text) || ends_exchange(text) {
        Reply::Silent
    } else {
        Reply::Message { text: text.to_owned(), reply_to }
    }
}

/// Whether the whole text, without white space around it, is [`REPLY_SKIP`].
pub fn ends_exchange(text: &str) -> bool {
    text.trim() == REPLY_SKIP
}

/// Parses the last text of a cron job's run for its announcement. `None` for a silent token and
/// [`ANNOUNCE_SKIP`].
pub fn read_announcement(text: &str) -> Option<String> {
    match read_reply(text) {
        Reply::Message { text, .. } if text != ANNOUNCE_SKIP => Some(text),
        Reply::Message { .. } | Reply::Silent => None,
    }
}

/// Parses the last text of a heartbeat's turn. If the token is at its start or end, up to
/// `ack_chars` further characters are dropped with it. A token in the middle is plain text.
pub fn read_heartbeat(text: &str, ack_chars: usize) -> HeartbeatReply {
    let (text, _) = take_tags(text);
    let (rest, acknowledged) = strip_heartbeat_ok(&text);
    if rest.is_empty() || is_silent(rest) || (acknowledged && rest.chars().count() <= ack_chars) {
        HeartbeatReply::Quiet
    } else {
        HeartbeatReply::Alert(rest.to_owned())
    }
}

/// The text without [`HEARTBEAT_OK`] as its first or last word, trimmed, and whether the token was
/// there.
fn strip_heartbeat_ok(text: &str) -> (&str, bool) {
    let mut rest = text.trim();
    let mut found = false;
    loop {
        let before = rest;
        if let Some(tail) = rest.strip_prefix(HEARTBEAT_OK)
            && !tail.starts_with(in_word)
        {
            rest = tail.trim();
        }
        if let Some(head) = rest.strip_suffix(HEARTBEAT_OK)
            && !head.ends_with(in_word)
        {
            rest = head.trim();
        }
        if rest.len() == before.len() {
            return (rest, found);
        }
        found = true;
    }
}

/// Whether a character next to the token makes it a part of another word.
fn in_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The text without reply tags, and the first tag.
fn take_tags(text: &str) -> (String, Option<ReplyTo>) {
    let mut out = String::with_capacity(text.len());
    let mut first = None;
    let mut after_tag = false;
    for c in text.chars() {
        // The space after a tag is removed together with it.
        if after_tag && c == ' ' && out.chars().next_back().is_none_or(char::is_whitespace) {
            continue;
        }
        after_tag = false;
        out.push(c);
        // The search in `out` also finds a tag that only appears after another was removed from its
        // middle.
        if c == ']'
            && let Some((start, tag)) = tag_at_end(&out)
        {
            out.truncate(start);
            first.get_or_insert(tag);
            after_tag = true;
        }
    }
    (out.trim().to_owned(), first)
}

/// The tag at the end of the text, and its start.
fn tag_at_end(text: &str) -> Option<(usize, ReplyTo)> {
    let open = text.strip_suffix("]]")?;
    let bytes = open.as_bytes();
    // The search is bounded, so a text of many brackets takes linear time.
    let from = bytes.len().saturating_sub(TAG_ID_MAX + 32);
    let start = (from..bytes.len()).rev().find(|at| bytes[*at] == b'[' && *at > 0 && bytes[*at - 1] == b'[')? - 1;
    let inner = open[start + 2..].trim();
    if inner == "reply_to_current" {
        return Some((start, ReplyTo::Current));
    }
    let id = inner.strip_prefix("reply_to:")?.trim();
    let whole =
        !id.is_empty() && id.len() <= TAG_ID_MAX && !id.contains(|c: char| c.is_whitespace() || "[]".contains(c));
    whole.then(|| (start, ReplyTo::Message(id.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reply(text: &str, reply_to: Option<ReplyTo>) -> Reply {
        Reply::Message { text: text.to_owned(), reply_to }
    }

    // covers: CONF-11, HB-05
    #[test]
    fn a_silent_token_must_be_the_whole_text() {
        for silent in ["NO_REPLY", " %%NO_REPLY%%\n", "", "  \n", "HEARTBEAT_OK", "[[reply_to_current]] NO_REPLY"] {
            assert_eq!(read_reply(silent), Reply::Silent, "{silent:?}");
        }
        for text in ["`NO_REPLY`", "Done. NO_REPLY", "NO_REPLY.", "no_reply", "NO_REPLY NO_REPLY"] {
            assert_eq!(read_reply(text), reply(text, None), "{text:?}");
        }
    }

    // covers: HB-07
    #[test]
    fn announcements_and_exchanges_have_their_own_tokens() {
        for silent in ["ANNOUNCE_SKIP", " ANNOUNCE_SKIP\n", "NO_REPLY", "REPLY_SKIP", "HEARTBEAT_OK", ""] {
            assert_eq!(read_announcement(silent), None, "{silent:?}");
        }
        assert_eq!(read_announcement("Done. ANNOUNCE_SKIP").as_deref(), Some("Done. ANNOUNCE_SKIP"));
        assert_eq!(read_reply("REPLY_SKIP"), Reply::Silent);
        assert_eq!(read_reply("ANNOUNCE_SKIP"), reply("ANNOUNCE_SKIP", None));
        assert!(ends_exchange("REPLY_SKIP ") && !ends_exchange("`REPLY_SKIP`"));
    }

    // covers: MSG-13
    #[test]
    fn the_first_tag_counts_and_all_tags_are_removed() {
        let other = Some(ReplyTo::Message("m-17".to_owned()));
        assert_eq!(read_reply("[[reply_to_current]] Yes."), reply("Yes.", Some(ReplyTo::Current)));
        assert_eq!(read_reply("Yes. [[ reply_to: m-17 ]]"), reply("Yes.", other.clone()));
        assert_eq!(read_reply("[[reply_to:m-17]]A [[reply_to_current]] b"), reply("A b", other));
        assert_eq!(read_reply("[[reply_to_[[reply_to_current]]current]]x"), reply("x", Some(ReplyTo::Current)));
        for text in ["[[reply_to:]]", "[[reply_to: a b]]", "[reply_to_current]", "[[reply_to_me]]", "a[[b]]"] {
            assert_eq!(read_reply(text), reply(text, None), "{text:?}");
        }
    }

    // covers: HB-02, HB-03, HB-06
    #[test]
    fn a_heartbeat_is_quiet_only_with_the_token_at_an_end() {
        let long = "x".repeat(301);
        for quiet in ["HEARTBEAT_OK", "HEARTBEAT_OK All is well.", "All is well.\nHEARTBEAT_OK", "", "NO_REPLY"] {
            assert_eq!(read_heartbeat(quiet, 300), HeartbeatReply::Quiet, "{quiet:?}");
        }
        assert_eq!(read_heartbeat(&format!("HEARTBEAT_OK {long}"), 300), HeartbeatReply::Alert(long));
        for alert in ["It says HEARTBEAT_OK here", "HEARTBEAT_OKAY", "MY_HEARTBEAT_OK", "The mail is late."] {
            assert_eq!(read_heartbeat(alert, 300), HeartbeatReply::Alert(alert.to_owned()), "{alert:?}");
        }
    }

    /// Random texts with many tokens.
    fn text() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            Just(HEARTBEAT_OK.to_owned()),
            Just("%%NO_REPLY%%".to_owned()),
            Just("NO_REPLY".to_owned()),
            Just("[[reply_to_current]]".to_owned()),
            Just("[[reply_to:".to_owned()),
            "[\\[\\] a-z\u{e9}_\n]{0,6}",
            "[\\PC]{0,200}",
        ];
        prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn delivered_text_has_no_tag_and_parses_to_itself(text in text()) {
            if let Reply::Message { text: kept, reply_to } = read_reply(&text) {
                prop_assert!(!kept.is_empty() && kept.trim() == kept);
                prop_assert!(!kept.contains("[[reply_to_current]]"));
                prop_assert!(!is_silent(&kept) && !ends_exchange(&kept));
                prop_assert!(kept.len() <= text.len());
                prop_assert!(reply_to.is_none() || text.contains("[["));
                prop_assert_eq!(read_reply(&kept), Reply::Message { text: kept, reply_to: None });
            }
        }

        #[test]
        fn a_text_without_brackets_and_tokens_is_unchanged(text in "[a-z .,\n]{1,400}") {
            let kept = text.trim();
            let expected = if kept.is_empty() { Reply::Silent } else { reply(kept, None) };
            prop_assert_eq!(read_reply(&text), expected);
            let alert = if kept.is_empty() { HeartbeatReply::Quiet } else { HeartbeatReply::Alert(kept.to_owned()) };
            prop_assert_eq!(read_heartbeat(&text, 300), alert);
        }

        // covers: HB-03, LIM-36
        #[test]
        fn an_alert_parses_to_itself(text in text(), ack in 0usize..50) {
            if let HeartbeatReply::Alert(alert) = read_heartbeat(&text, ack) {
                prop_assert!(!alert.is_empty() && !alert.starts_with("HEARTBEAT_OK "));
                prop_assert_eq!(read_heartbeat(&alert, ack), HeartbeatReply::Alert(alert));
            }
        }
    }
}
