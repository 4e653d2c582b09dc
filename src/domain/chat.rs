//! Chat channels: one log of chat messages for each channel, and a read cursor for each member
//! (CHAT-01..15; `docs/design.md`, "Chat and gating"). Also finds the mentions in a chat message.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, ChannelName, MessageId, RootId};
use crate::macros::text_enum;
use crate::party::Party;
use crate::refusal::{Code, Refusal, refusal};
use crate::time::Timestamp;

text_enum! {
    /// Which members a chat message in an ungated channel wakes. In a channel of two, the
    /// other member is always woken.
    ChatWake, "chat wake rule" {
        /// Every other member.
        All = "all",
        /// The members that the message mentions with `@id`.
        Mentions = "mentions",
        /// No member. The members see the messages in their next turns.
        None = "none",
    }
}

/// The record of a channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChatChannel {
    /// Name of the channel, unique in the world.
    pub channel: ChannelName,
    /// Party that created the channel. Only the creator and operators may invite and remove members.
    pub creator: Party,
    /// Whether chat messages are only stored and streamed, and wake no member.
    pub gated: bool,
    /// Topic of the channel.
    pub topic: Option<String>,
    /// Number of members.
    pub members: u32,
    /// Sequence number of the last chat message; 0 before the first. It never falls, even if
    /// messages are pruned.
    pub last_seq: i64,
    /// When the channel was created.
    pub created_at: Timestamp,
}

/// A chat channel that `world-config.yaml` declares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeclaredChannel {
    /// Name of the channel.
    pub channel: ChannelName,
    /// Members of the channel.
    pub members: BTreeSet<AgentId>,
    /// Whether the channel is gated: a chat message wakes no member.
    pub gated: bool,
    /// Topic of the channel.
    pub topic: Option<String>,
}

/// The membership of one agent in one channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChatMember {
    /// Name of the channel.
    pub channel: ChannelName,
    /// Id of the member.
    pub agent_id: AgentId,
    /// Read cursor: the last chat message that the member was shown, or the last one before it
    /// joined.
    pub read_seq: i64,
    /// The pending mail that wakes the member for this channel; at most one.
    pub wake_id: Option<MessageId>,
    /// When the member joined.
    pub joined_at: Timestamp,
}

/// One chat message in a channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChatPost {
    /// Name of the channel.
    pub channel: ChannelName,
    /// Sequence number in the channel. It rises by one, without gaps.
    pub seq: i64,
    /// Id of the chat message.
    pub message_id: MessageId,
    /// Author of the chat message.
    pub from: Party,
    /// Text of the chat message.
    pub content: String,
    /// Members that the message mentions by id, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mentions: Vec<AgentId>,
    /// Sequence number of the chat message that this one answers.
    pub reply_to: Option<i64>,
    /// Root that the chat message belongs to.
    pub root_id: RootId,
    /// Number of turns between the root and this chat message.
    pub hop: u32,
    /// When the chat message was committed.
    pub ts: Timestamp,
}

impl ChatChannel {
    /// Whether `party` may read the channel and write in it. Members may, operators, and
    /// the creator, who need not be a member.
    pub fn admits(&self, party: &Party, is_member: bool) -> bool {
        is_member || self.is_run_by(party)
    }

    /// Whether `party` may invite and remove members.
    pub fn is_run_by(&self, party: &Party) -> bool {
        *party == self.creator || matches!(party, Party::Operator(_) | Party::System)
    }

    /// Whether the channel has at most two members. Then each chat message is for the other member
    /// and wakes it, with or without a mention.
    pub fn is_between_two(&self) -> bool {
        self.members <= 2
    }
}

impl ChatPost {
    /// The mentions for display: first `all`, if the message mentions everyone, then the members.
    pub fn mentioned(&self) -> impl Iterator<Item = &str> {
        let everyone = mentions(&self.content).all.then_some(EVERYONE);
        everyone.into_iter().chain(self.mentions.iter().map(AgentId::as_str))
    }

    /// Whether the message mentions `agent_id`, by id or with everyone.
    pub fn addresses(&self, agent_id: &AgentId) -> bool {
        self.mentions.binary_search(agent_id).is_ok() || mentions(&self.content).all
    }
}

/// The mentions in a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mentions {
    /// Whether the text contains `@all`.
    pub all: bool,
    /// Names in the form of an agent's id, sorted, without duplicates. The caller checks whether
    /// such agents exist.
    pub names: BTreeSet<AgentId>,
}

/// The name that mentions every member.
pub const EVERYONE: &str = "all";

/// Finds the mentions in a text: `@` and a name. Not inside a word such as an e-mail address, not
/// before `/` as in the name of a package, and not inside Markdown code. Case does not matter. `.`,
/// `-` and `_` at the end of a name do not belong to it.
pub fn mentions(text: &str) -> Mentions {
    let mut found = Mentions::default();
    let mut before = None;
    let mut code = code_spans(text).into_iter().peekable();
    for (at, c) in text.char_indices() {
        while code.next_if(|span| span.end <= at).is_some() {}
        let in_code = code.peek().is_some_and(|span| span.contains(&at));
        let starts = c == '@' && !in_code && !before.is_some_and(in_word);
        before = Some(c);
        if !starts {
            continue;
        }
        let rest = &text[at + 1..];
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let run = &rest[..rest.find(|c| !is_part(c)).unwrap_or(rest.len())];
        // Followed by another letter, `@` or `/`, it is not a mention.
        if rest[run.len()..].chars().next().is_some_and(|c| c.is_alphanumeric() || matches!(c, '@' | '/')) {
            continue;
        }
        let name = run.trim_end_matches(['.', '_', '-']).to_ascii_lowercase();
        if name == EVERYONE {
            found.all = true;
        } else if let Ok(agent_id) = name.parse() {
            found.names.insert(agent_id);
        }
    }
    found
}

/// The ranges of Markdown code in a text, sorted, without overlap. Code is between two equally long
/// runs of backticks in one paragraph. Code is also between two fences: lines that begin with three
/// or more backticks or tildes. The closing fence has the same mark and is not shorter; without
/// one, the code goes to the end.
fn code_spans(text: &str) -> Vec<Range<usize>> {
    let mut spans = Vec::new();
    // Runs of backticks in the present paragraph, outside fences.
    let mut runs: Vec<Range<usize>> = Vec::new();
    let mut fence: Option<(usize, char, usize)> = None;
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let body = line.trim_start_matches(' ');
        let mark = body.chars().next().unwrap_or(' ');
        let length = body.chars().take_while(|c| *c == mark).count();
        let is_fence = matches!(mark, '`' | '~') && length >= 3;
        match fence {
            Some((begun, open, least)) if mark == open && length >= least && body[length..].trim().is_empty() => {
                spans.push(begun..start + line.len());
                fence = None;
            }
            Some(_) => {}
            // A line such as ```this``` is not a fence: an opening fence has no backtick after it.
            None if is_fence && !(mark == '`' && body[length..].contains('`')) => {
                pair_up(&mut runs, &mut spans);
                fence = Some((start, mark, length));
            }
            None if body.trim().is_empty() => pair_up(&mut runs, &mut spans),
            None => runs.extend(backticks(line).map(|run| start + run.start..start + run.end)),
        }
        start += line.len();
    }
    match fence {
        Some((begun, ..)) => spans.push(begun..text.len()),
        None => pair_up(&mut runs, &mut spans),
    }
    spans
}

/// The runs of backticks in a line.
fn backticks(line: &str) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + line[at..].find('`')?;
        let length = line[start..].bytes().take_while(|byte| *byte == b'`').count();
        at = start + length;
        Some(start..at)
    })
}

/// Adds the spans between equally long runs of backticks to `spans`, and clears `runs`. A run
/// without a partner is plain text.
fn pair_up(runs: &mut Vec<Range<usize>>, spans: &mut Vec<Range<usize>>) {
    // The later runs by length, so that many different lengths do not make the search slow.
    let mut by_length: BTreeMap<usize, VecDeque<usize>> = BTreeMap::new();
    for (index, run) in runs.iter().enumerate() {
        by_length.entry(run.len()).or_default().push_back(index);
    }
    let mut index = 0;
    while let Some(run) = runs.get(index) {
        let later = by_length.entry(run.len()).or_default();
        while later.front().is_some_and(|other| *other <= index) {
            later.pop_front();
        }
        index = match later.front() {
            Some(&partner) => {
                spans.push(run.start..runs[partner].end);
                partner + 1
            }
            None => index + 1,
        };
    }
    runs.clear();
}

/// Whether a mention cannot begin directly after this character.
fn in_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '+' | '@' | '/')
}

/// Checks the text of a chat message: not blank, at most `limit` bytes, no control characters
/// except line breaks and tabs.
///
/// # Errors
/// `TooLarge` for a text that is too long, otherwise `InvalidArguments`.
pub fn check_content(content: &str, limit: u32) -> Result<(), Refusal> {
    let field = serde_json::json!({ "field": "content" });
    if content.len() > limit as usize {
        return Err(refusal!(
            TooLarge,
            "the post has {} bytes; at most {limit} are taken (limits.chat_post_bytes)",
            content.len()
        )
        .hint("write the long part to a workspace file and post its path")
        .details(field));
    }
    crate::refusal::not_blank("content", content)?;
    match content.char_indices().find(|(_, c)| c.is_control() && !matches!(c, '\n' | '\t')) {
        Some((at, c)) => {
            Err(refusal!(InvalidArguments, "content has the control character U+{:04X} at byte {at}", u32::from(c))
                .hint("a post may have no control characters except line breaks and tabs")
                .details(field))
        }
        None => Ok(()),
    }
}

/// Maximum characters of a topic.
pub const TOPIC_MAX: usize = 200;

/// Checks a topic: one line of 1 to 200 characters. Returns it without white space around it.
///
/// # Errors
/// `TooLarge` for a topic that is too long, otherwise `InvalidArguments`.
pub fn check_topic(text: &str) -> Result<String, Refusal> {
    let refused = |code, what: String| {
        Err(Refusal::new(code, what)
            .hint("say in one line what the channel is about, or leave topic out")
            .details(serde_json::json!({ "field": "topic" })))
    };
    let topic = text.trim();
    if topic.contains(crate::text::is_strange) {
        return refused(Code::InvalidArguments, "topic has a control character".to_owned());
    }
    if topic.is_empty() || topic.chars().count() > TOPIC_MAX {
        let code = if topic.is_empty() { Code::InvalidArguments } else { Code::TooLarge };
        return refused(code, format!("topic must have 1 to {TOPIC_MAX} characters"));
    }
    Ok(topic.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(text: &str) -> (Vec<String>, bool) {
        let found = mentions(text);
        (found.names.iter().map(ToString::to_string).collect(), found.all)
    }

    // covers: CHAT-11
    #[test]
    fn mentions_are_found_outside_words_and_code() {
        for (text, wanted) in [
            ("@ada, what do you say?", vec!["ada"]),
            ("ask @bob-2 and (@ada).", vec!["ada", "bob-2"]),
            ("@Ada @ADA @ada", vec!["ada"]),
            ("well, @a.b_c-... go on", vec!["a.b_c"]),
            ("mail me: ada@bob.example", vec![]),
            ("a+@bob x.@bob @@bob /@bob", vec![]),
            ("@bobé @bob@example.org", vec![]),
            ("@ada\u{4e2d}", vec![]),
            ("@ - @", vec![]),
            ("\"@ada\"\n@bob", vec!["ada", "bob"]),
            ("npm i @types/node @ada/core, and/@bob", vec![]),
            ("write a@b.c or ada@bob to @ada", vec!["ada"]),
            ("`@bob` and ``x ` @bob`` but ` @ada", vec!["ada"]),
            ("a`@ada`b`@bob", vec!["bob"]),
            ("```\n@bob\n```\n@ada", vec!["ada"]),
            ("  ~~~~ js\n@bob\n~~~\n@bob\n~~~~~\n@ada", vec!["ada"]),
            ("``` @x ``` @ada", vec!["ada"]),
            ("```\n@bob `` @bob", vec![]),
            ("` a\n```\n@bob `\n```\n@ada `", vec!["ada"]),
            ("a ` b\n\n@ada c `", vec!["ada"]),
            ("a ` b\n \t\n@ada c ` d\n@bob `", vec!["ada"]),
            ("a ` b\n@ada c `", vec![]),
        ] {
            assert_eq!(names(text), (wanted.iter().map(ToString::to_string).collect(), false), "{text}");
        }
        assert_eq!(names("@all: @ada first"), (vec!["ada".to_owned()], true));
        assert_eq!(names("@allan or @all-in"), (vec!["all-in".to_owned(), "allan".to_owned()], false));
        assert_eq!(names(&format!("@{}", "x".repeat(65))), (vec![], false));
    }

    #[test]
    fn blank_long_and_unprintable_posts_are_refused() {
        assert!(check_content("a\tb\nc é", 100).is_ok());
        for (text, most, code) in [
            ("", 9, Code::InvalidArguments),
            (" \n\t", 9, Code::InvalidArguments),
            ("a\u{7}", 9, Code::InvalidArguments),
            ("a\r\nb", 9, Code::InvalidArguments),
            ("a\u{9b}b", 9, Code::InvalidArguments),
            ("ééé", 5, Code::TooLarge),
        ] {
            let refusal = check_content(text, most).unwrap_err();
            assert_eq!(refusal.code, code, "{text:?}");
            assert!(refusal.hint.is_some() && refusal.details.is_some());
        }
    }

    // covers: CHAT-02, CHAT-07, CHAT-15
    #[test]
    fn members_the_creator_and_operators_have_access() {
        let ada = Party::Agent("ada".parse().unwrap());
        let bob = Party::Agent("bob".parse().unwrap());
        let operator = Party::Operator("o".into());
        let channel = ChatChannel {
            channel: "room".parse().unwrap(),
            creator: ada.clone(),
            gated: true,
            topic: None,
            members: 3,
            last_seq: 0,
            created_at: Timestamp(0),
        };
        assert!(channel.admits(&ada, false) && channel.admits(&bob, true) && channel.admits(&operator, false));
        assert!(!channel.admits(&bob, false) && !channel.admits(&Party::Outside("ada".into()), false));
        assert!(channel.is_run_by(&ada) && channel.is_run_by(&operator) && !channel.is_run_by(&bob));
    }

    proptest! {
        #[test]
        fn every_mentioned_name_is_in_the_text(text in ".{0,80}") {
            let lower = text.to_ascii_lowercase();
            for name in mentions(&text).names {
                let written = format!("@{}", name);
                prop_assert!(lower.contains(&written));
            }
        }

        #[test]
        fn a_name_in_brackets_is_always_found(name in "[a-z0-9]([a-z0-9._-]{0,20}[a-z0-9])?", text in "[ a-z,!?]{0,20}") {
            prop_assume!(name != EVERYONE);
            let found = mentions(&format!("{text} (@{name}) {text}"));
            prop_assert_eq!(found.names.iter().map(AgentId::as_str).collect::<Vec<_>>(), [name.as_str()]);
        }

        #[test]
        fn packages_addresses_and_code_are_not_mentions(
            name in "[a-z0-9]([a-z0-9._-]{0,10}[a-z0-9])?", word in "[a-z0-9]{1,8}", text in "[ a-z,!?\n]{0,20}",
        ) {
            for inside in [
                format!("@{name}/{word}"),
                format!("{word}@{name}"),
                format!("`@{name}`"),
                format!("``{word} ` @{name} ``"),
                format!("\n```{word}\n@{name}\n```\n"),
                format!("https://{word}.example/@{name}"),
            ] {
                let found = mentions(&format!("{text} {inside} {text}"));
                prop_assert_eq!(&found, &Mentions::default(), "{}", inside);
                // A later mention is still found.
                let more = mentions(&format!("{text} {inside} @{name}x"));
                prop_assert_eq!(more.names.len(), 1, "{}", inside);
            }
        }

        #[test]
        fn code_spans_are_within_the_text_and_sorted(text in "[`~@a \n]{0,60}") {
            let spans = code_spans(&text);
            prop_assert!(spans.iter().all(|span| span.start < span.end && span.end <= text.len()));
            prop_assert!(spans.windows(2).all(|pair| pair[0].end <= pair[1].start));
        }

        // covers: CHAT-12
        #[test]
        fn an_accepted_post_is_within_its_limits(text in "\\PC{0,40}|[\\x00-\\x20]{0,10}", limit in 1u32..50) {
        if check_content(&text, limit).is_ok() {
        prop_assert!(text.len() <= limit as usize && !text.trim().is_empty());
                prop_assert!(text.chars().all(|c| !c.is_control() || c == '\n' || c == '\t'));
            }
        }
    }
}
