//! Chat channels: one log per channel, read by cursor (CHAT-01..15, DESIGN.md section 2 "Chat").

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::envelope::text_enum;
use crate::ids::{AgentId, ChannelName, MessageId, RootId};
use crate::party::Party;
use crate::refusal::{Code, Refusal};
use crate::time::Timestamp;

text_enum! {
    /// Whom a post in an ungated channel wakes (CHAT-11). Members of a channel of two are always woken.
    ChatWake, "chat wake rule" {
        /// Every other member.
        All = "all",
        /// Those whom the post names with `@id`.
        Mentions = "mentions",
        /// Nobody: posts wait for the next turn.
        None = "none",
    }
}

/// A channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChatChannel {
    /// Its name, unique in the world.
    pub channel: ChannelName,
    /// Who created it, and alone may invite and remove (CHAT-07).
    pub creator: Party,
    /// Whether posts are stored and streamed only, and wake nobody (CHAT-04).
    pub gated: bool,
    /// What it is about.
    pub topic: Option<String>,
    /// How many members it has.
    pub members: u32,
    /// The sequence of its last post; 0 before the first. Never falls, whatever is pruned.
    pub last_seq: i64,
    /// When it was created.
    pub created_at: Timestamp,
}

/// One agent in one channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChatMember {
    /// The channel.
    pub channel: ChannelName,
    /// The member.
    pub agent_id: AgentId,
    /// The last post that the member was shown, or that was there when it joined.
    pub read_seq: i64,
    /// The mail that is to wake the member for this channel and that no turn has taken yet: one at most (CHAT-03).
    pub wake_id: Option<MessageId>,
    /// When it joined.
    pub joined_at: Timestamp,
}

/// One post.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChatPost {
    /// The channel.
    pub channel: ChannelName,
    /// Its place there: rises by one from post to post, without a gap (CHAT-12).
    pub seq: i64,
    /// Its id.
    pub message_id: MessageId,
    /// Who wrote it.
    pub from: Party,
    /// The text, as written.
    pub content: String,
    /// Members whom it names, in order of id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mentions: Vec<AgentId>,
    /// The post that it answers.
    pub reply_to: Option<i64>,
    /// What it is charged to.
    pub root_id: RootId,
    /// How many turns lie between the root and it.
    pub hop: u32,
    /// When it was committed.
    pub ts: Timestamp,
}

impl ChatChannel {
    /// Whether `party` may post in it and read it, given whether it is a member. Operators always may (CHAT-15), and the
    /// creator, who need not be a member (CHAT-02).
    #[must_use]
    pub fn admits(&self, party: &Party, is_member: bool) -> bool {
        is_member || self.is_run_by(party)
    }

    /// Whether `party` may invite and remove (CHAT-07).
    #[must_use]
    pub fn is_run_by(&self, party: &Party) -> bool {
        *party == self.creator || matches!(party, Party::Operator(_) | Party::System)
    }

    /// Whether its posts reach a member's next turn and wake each of its members whatever they say: two who talk, with
    /// or without someone outside who posts, have nobody else to mean.
    #[must_use]
    pub fn is_between_two(&self) -> bool {
        self.members <= 2
    }
}

impl ChatPost {
    /// Whom it mentions, for people to see: everyone first, if it names everyone.
    pub fn mentioned(&self) -> impl Iterator<Item = &str> {
        let everyone = mentions(&self.content).all.then_some(EVERYONE);
        everyone.into_iter().chain(self.mentions.iter().map(AgentId::as_str))
    }

    /// Whether it names `agent_id`, alone or with everyone.
    #[must_use]
    pub fn addresses(&self, agent_id: &AgentId) -> bool {
        self.mentions.binary_search(agent_id).is_ok() || mentions(&self.content).all
    }
}

/// Whom a text names with `@`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mentions {
    /// Whether it names everyone (`@all`).
    pub all: bool,
    /// What has the form of an agent's id, each once, in order; whether there are such agents is for the caller to see.
    pub names: BTreeSet<AgentId>,
}

/// The name that stands for every member.
pub const EVERYONE: &str = "all";

/// Finds the mentions of a text: `@` and a name, not inside a word such as an e-mail address, not followed by `/` as in the
/// name of a package, and not inside code (between backticks, as Markdown has it). Capitals count as small letters. Marks
/// that may end a sentence (`.`, `-`, `_`) belong to a name only where it goes on after them.
#[must_use]
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
        // A name that runs on into something that no name has is part of something else.
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

/// Where a text has code: between two runs of equally many backticks in one paragraph, and from a fence (three or more backticks or tildes
/// at the beginning of a line) to the line with one of the same mark that is no shorter, or to the end. In order, without
/// overlap.
fn code_spans(text: &str) -> Vec<Range<usize>> {
    let mut spans = Vec::new();
    // Runs of backticks outside fences; each stretch between fences and blank lines is looked through by itself.
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
            // A line such as ```this``` is no fence: what opens one has no backtick after it.
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

/// The runs of backticks of a line.
fn backticks(line: &str) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + line[at..].find('`')?;
        let length = line[start..].bytes().take_while(|byte| *byte == b'`').count();
        at = start + length;
        Some(start..at)
    })
}

/// Turns runs of backticks into the spans that they enclose. One without a partner is a backtick and nothing more.
fn pair_up(runs: &mut Vec<Range<usize>>, spans: &mut Vec<Range<usize>>) {
    // The later runs of a length: so that many of different lengths cost no more than few.
    let mut by_length: BTreeMap<usize, VecDeque<usize>> = BTreeMap::new();
    for (at, run) in runs.iter().enumerate() {
        by_length.entry(run.len()).or_default().push_back(at);
    }
    let mut at = 0;
    while let Some(run) = runs.get(at) {
        let later = by_length.entry(run.len()).or_default();
        while later.front().is_some_and(|other| *other <= at) {
            later.pop_front();
        }
        at = match later.front() {
            Some(&partner) => {
                spans.push(run.start..runs[partner].end);
                partner + 1
            }
            None => at + 1,
        };
    }
    runs.clear();
}

/// Whether a mention cannot begin right after this character.
fn in_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '+' | '@' | '/')
}

/// Checks a post's text: not blank, no control characters but line breaks and tabs, `most` bytes at most (CHAT-12).
///
/// # Errors
/// With the field and what to do; `too_large` over the bound, `invalid_arguments` otherwise.
pub fn check_content(content: &str, most: u32) -> Result<(), Refusal> {
    let field = serde_json::json!({ "field": "content" });
    if content.len() > most as usize {
        return Err(Refusal::new(
            Code::TooLarge,
            format!("the post has {} bytes; at most {most} are taken (limits.chat_post_bytes)", content.len()),
        )
        .hint("write the long part to a workspace file and post its path")
        .details(field));
    }
    crate::refusal::not_blank("content", content)?;
    match content.char_indices().find(|(_, c)| c.is_control() && !matches!(c, '\n' | '\t')) {
        Some((at, c)) => Err(Refusal::new(
            Code::InvalidArguments,
            format!("content has the control character U+{:04X} at byte {at}", u32::from(c)),
        )
        .hint("of control characters, a post may have line breaks and tabs only")
        .details(field)),
        None => Ok(()),
    }
}

/// Characters of a topic.
pub const TOPIC_MAX: usize = 200;

/// A topic without blanks around it: one line that says something.
///
/// # Errors
/// `InvalidArguments`, or `TooLarge`, with the field and what to do.
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
    fn mentions_are_names_and_no_parts_of_words() {
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
    fn a_post_says_something_that_can_be_shown() {
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
    fn who_may_what() {
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
        fn no_text_makes_it_panic_and_every_name_was_written(text in ".{0,80}") {
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
        fn packages_addresses_and_code_mention_nobody(
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
                // What comes after is a mention again.
                let more = mentions(&format!("{text} {inside} @{name}x"));
                prop_assert_eq!(more.names.len(), 1, "{}", inside);
            }
        }

        #[test]
        fn code_lies_within_the_text_and_in_order(text in "[`~@a \n]{0,60}") {
            let spans = code_spans(&text);
            prop_assert!(spans.iter().all(|span| span.start < span.end && span.end <= text.len()));
            prop_assert!(spans.windows(2).all(|pair| pair[0].end <= pair[1].start));
        }

        // covers: CHAT-12
        #[test]
        fn what_is_checked_is_within_its_bounds(text in "\\PC{0,40}|[\\x00-\\x20]{0,10}", most in 1u32..50) {
            if check_content(&text, most).is_ok() {
                prop_assert!(text.len() <= most as usize && !text.trim().is_empty());
                prop_assert!(text.chars().all(|c| !c.is_control() || c == '\n' || c == '\t'));
            }
        }
    }
}
