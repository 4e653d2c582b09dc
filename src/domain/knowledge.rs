//! Knowledge: entries that agents share. Each entry has its own readers and writers.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::ids::AgentId;
use crate::macros::serde_as_text;
use crate::party::Party;
use crate::refusal::{Code, Refusal, refusal};
use crate::text::{clip, one_line};
use crate::time::Timestamp;

/// The present version of an entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KnowledgeEntry {
    /// Id of the entry: 1 to 128 characters of `a-z`, `0-9`, `.`, `_`, `-`, `/`.
    pub entry_id: String,
    /// Title, one line.
    pub title: String,
    /// Text of the entry.
    pub content: String,
    /// Tags, as keywords for search.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Grantees that may read the entry.
    pub readers: Vec<Grantee>,
    /// Grantees that may read, change and delete the entry.
    pub writers: Vec<Grantee>,
    /// Version. It rises by one with each change and continues after a deletion.
    pub version: i64,
    /// Party that wrote the first version. It may always write the entry.
    pub creator: Party,
    /// Party that wrote this version.
    pub updated_by: Party,
    /// When the first version was written.
    pub created_at: Timestamp,
    /// When this version was written.
    pub updated_at: Timestamp,
    /// Whether the entry was deleted. It is then hidden. A new entry with its id continues with its
    /// version.
    pub deleted: bool,
}

/// An earlier version of an entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KnowledgeVersion {
    /// Id of the entry.
    pub entry_id: String,
    /// Number of the version.
    pub version: i64,
    /// Title, one line.
    pub title: String,
    /// Text of the entry.
    pub content: String,
    /// Party that wrote this version.
    pub by: Party,
    /// When this version was written.
    pub at: Timestamp,
}

/// An entry from the world's files. The daemon is its creator, so only its writers and
/// operators may change it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnowledgeSeed {
    /// Id of the entry.
    pub entry_id: String,
    /// Title, one line.
    pub title: String,
    /// Text of the entry.
    pub content: String,
    /// Tags, as keywords for search.
    pub tags: Vec<String>,
    /// Grantees that may read the entry.
    pub readers: Vec<Grantee>,
    /// Grantees that may read, change and delete the entry.
    pub writers: Vec<Grantee>,
}

impl KnowledgeEntry {
    /// Whether `viewer` may read the entry. Readers and writers may.
    pub fn may_read(&self, viewer: &Viewer) -> bool {
        self.may_write(viewer) || self.readers.iter().any(|grantee| grantee.covers(viewer))
    }

    /// Whether `viewer` may change or delete the entry. Its writers and its creator may.
    pub fn may_write(&self, viewer: &Viewer) -> bool {
        match viewer {
            Viewer::Everything => true,
            Viewer::Agent { agent_id, .. } => {
                self.creator.agent() == Some(agent_id) || self.writers.iter().any(|grantee| grantee.covers(viewer))
            }
        }
    }
}

/// Maximum characters of a title.
pub const TITLE_MAX: usize = 200;
/// Maximum tags of an entry.
pub const TAGS_MAX: usize = 32;
/// Maximum characters of a tag.
const TAG_CHARS: usize = 64;
/// Maximum characters of an entry's id.
const ID_CHARS: usize = 128;

fn wrong(message: String, hint: impl Into<String>) -> Refusal {
    Refusal::new(Code::InvalidArguments, message).hint(hint)
}

/// Checks the id of an entry: 1 to 128 characters of `a-z`, `0-9`, `.`, `_`, `-`, `/`. A part
/// between slashes is not empty, `.` or `..`, so that two ids never look like the same path.
///
/// # Errors
/// `InvalidArguments` if the text is not an id.
pub fn check_entry_id(entry_id: &str) -> Result<(), Refusal> {
    let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-/".contains(&b);
    if (1..=ID_CHARS).contains(&entry_id.len()) && entry_id.bytes().all(fits) {
        if !entry_id.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Ok(());
        }
        return Err(wrong(
            format!("`{entry_id}` is not the id of a knowledge entry: a part between slashes is empty, `.` or `..`"),
            "write it without a slash at either end and with a name between any two, for example style/headlines",
        ));
    }
    Err(wrong(
        format!("`{}` is not the id of a knowledge entry", one_line(&clip(entry_id, 80))),
        format!("use 1 to {ID_CHARS} lower-case letters, digits, '.', '_', '-' and '/', for example style/headlines"),
    ))
}

/// Checks a title: one line of 1 to 200 characters.
///
/// # Errors
/// `TooLarge` for a title that is too long, otherwise `InvalidArguments`.
pub fn check_title(title: &str) -> Result<(), Refusal> {
    let plain = !title.trim().is_empty() && !title.contains(crate::text::is_strange);
    let refusal =
        wrong(format!("title must be one line of 1 to {TITLE_MAX} characters"), "put the rest into the content");
    match plain {
        true if title.chars().count() <= TITLE_MAX => Ok(()),
        true => Err(Refusal { code: Code::TooLarge, ..refusal }),
        false => Err(refusal),
    }
}

/// Checks the text of an entry: not blank, at most `limit` bytes, no control characters except line
/// breaks and tabs.
///
/// # Errors
/// `TooLarge` for a text that is too long, otherwise `InvalidArguments`.
pub fn check_content(content: &str, limit: u32) -> Result<(), Refusal> {
    if content.len() > limit as usize {
        return Err(refusal!(
            TooLarge,
            "content has {} bytes; at most {limit} are taken (limits.knowledge_bytes)",
            content.len()
        )
        .hint("split it into several entries, or write a workspace file and name its path"));
    }
    if content.trim().is_empty() {
        return Err(wrong("content is empty".to_owned(), "write the text of the entry; to remove an entry, delete it"));
    }
    let strange = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
    match content.find(strange) {
        Some(position) => {
            Err(wrong(format!("content contains a control character at byte {position}"), "give plain text"))
        }
        None => Ok(()),
    }
}

/// Checks the tags of an entry: at most 32, each with 1 to 64 characters, without control
/// characters, commas, or white space around it.
///
/// # Errors
/// `TooLarge` for a tag that is too long, otherwise `InvalidArguments`.
pub fn check_tags(tags: &[String]) -> Result<(), Refusal> {
    if tags.len() > TAGS_MAX {
        return Err(wrong(
            format!("{} tags; an entry has at most {TAGS_MAX}", tags.len()),
            "keep the most useful ones",
        ));
    }
    let valid = |tag: &&String| {
        !tag.is_empty()
            && tag.trim() == tag.as_str()
            && tag.chars().count() <= TAG_CHARS
            && !tag.chars().any(|c| crate::text::is_strange(c) || c == ',')
    };
    match tags.iter().find(|tag| !valid(tag)) {
        Some(bad) => {
            let refusal = wrong(
                format!("`{}` is not a tag", one_line(&clip(bad, 80))),
                format!("a tag is 1 to {TAG_CHARS} characters without commas or line breaks"),
            );
            let long = bad.chars().count() > TAG_CHARS;
            Err(if long { Refusal { code: Code::TooLarge, ..refusal } } else { refusal })
        }
        None => Ok(()),
    }
}

/// Longest list of readers, and of writers.
pub const GRANTEES_MAX: usize = 256;

/// The party that reads or writes knowledge. The runtime sets it; it never comes from an argument
/// of a tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Viewer {
    /// An operator or the daemon. It may read and write every entry.
    Everything,
    /// An agent.
    Agent {
        /// Id of the agent.
        agent_id: AgentId,
        /// Archetype of the agent.
        archetype: String,
        /// Privilege groups of the agent.
        groups: BTreeSet<String>,
    },
}

/// Parses a list of grantees. Keeps the order and drops duplicates. `field` names the list in error
/// messages.
///
/// # Errors
/// `InvalidArguments` if the list is too long or contains a text that is not a grantee.
pub fn grantees(field: &str, texts: &[String]) -> Result<Vec<Grantee>, Refusal> {
    if texts.len() > GRANTEES_MAX {
        return Err(refusal!(
            InvalidArguments,
            "{field} has {} entries; at most {GRANTEES_MAX} are taken",
            texts.len()
        )
        .hint("name an archetype or a privilege group instead of its agents"));
    }
    let mut found: Vec<Grantee> = Vec::with_capacity(texts.len());
    for text in texts {
        let grantee: Grantee = text
            .trim()
            .parse()
            .map_err(|refusal: Refusal| Refusal { message: format!("{field}: {}", refusal.message), ..refusal })?;
        if !found.contains(&grantee) {
            found.push(grantee);
        }
    }
    Ok(found)
}

/// An entry of a list of readers or writers: `*`, `archetype:<name>`, `group:<privilege group>`, or
/// an agent's id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Grantee {
    /// Every agent.
    Everyone,
    /// All agents of an archetype.
    Archetype(String),
    /// All agents whose archetype has the privilege group.
    Group(String),
    /// One agent.
    Agent(AgentId),
}

serde_as_text!(Grantee);

impl Grantee {
    /// Whether the grantee includes `viewer`.
    pub fn covers(&self, viewer: &Viewer) -> bool {
        match (self, viewer) {
            (Self::Everyone, _) | (_, Viewer::Everything) => true,
            (Self::Archetype(name), Viewer::Agent { archetype, .. }) => name == archetype,
            (Self::Group(name), Viewer::Agent { groups, .. }) => groups.contains(name),
            (Self::Agent(id), Viewer::Agent { agent_id, .. }) => id == agent_id,
        }
    }
}

impl std::fmt::Display for Grantee {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Everyone => f.write_str("*"),
            Self::Archetype(name) => write!(f, "archetype:{name}"),
            Self::Group(name) => write!(f, "group:{name}"),
            Self::Agent(id) => write!(f, "{id}"),
        }
    }
}

impl std::str::FromStr for Grantee {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let plain = |name: &str| {
            !name.is_empty()
                && name.len() <= 64
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        };
        match text.split_once(':') {
            None if text == "*" => Ok(Self::Everyone),
            None => text.parse().map(Self::Agent),
            Some(("archetype", name)) if plain(name) => Ok(Self::Archetype(name.to_owned())),
            Some(("group", name)) if plain(name) => Ok(Self::Group(name.to_owned())),
            Some(_) => Err(refusal!(InvalidArguments, "`{}` is not a reader or writer", one_line(&clip(text, 80)))
                .hint("use `*`, `archetype:<name>`, `group:<privilege group>` or an agent's id")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::AgentId;
    use crate::knowledge::grantees;
    use proptest::prelude::*;

    fn agent(name: &str) -> AgentId {
        name.parse().unwrap()
    }

    fn grantee() -> impl Strategy<Value = Grantee> {
        prop_oneof![
            Just(Grantee::Everyone),
            "[ab]".prop_map(Grantee::Archetype),
            "[ab]".prop_map(Grantee::Group),
            "[a-c]".prop_map(|name| Grantee::Agent(agent(&name))),
        ]
    }

    fn party() -> impl Strategy<Value = Party> {
        prop_oneof![
            Just(Party::System),
            Just(Party::Operator("o".into())),
            "[a-c]".prop_map(|name| Party::Agent(agent(&name))),
        ]
    }

    fn viewer() -> impl Strategy<Value = Viewer> {
        ("[a-c]", "[ab]", prop::collection::btree_set("[ab]", 0..3))
            .prop_map(|(name, archetype, groups)| Viewer::Agent { agent_id: agent(&name), archetype, groups })
    }

    fn entry(creator: Party, readers: Vec<Grantee>, writers: Vec<Grantee>) -> KnowledgeEntry {
        KnowledgeEntry {
            entry_id: "e".into(),
            title: "t".into(),
            content: "c".into(),
            tags: Vec::new(),
            readers,
            writers,
            version: 1,
            updated_by: creator.clone(),
            creator,
            created_at: Timestamp(0),
            updated_at: Timestamp(0),
            deleted: false,
        }
    }

    proptest! {
        // covers: KNOW-03
        #[test]
        fn only_the_creator_and_the_lists_give_access(
            creator in party(),
            readers in prop::collection::vec(grantee(), 0..4),
            writers in prop::collection::vec(grantee(), 0..4),
            viewer in viewer(),
        ) {
            let entry = entry(creator.clone(), readers.clone(), writers.clone());
            let Viewer::Agent { agent_id, archetype, groups } = &viewer else { unreachable!() };
            let named = |list: &[Grantee]| list.iter().any(|grantee| match grantee {
                Grantee::Everyone => true,
                Grantee::Archetype(name) => name == archetype,
                Grantee::Group(name) => groups.contains(name),
                Grantee::Agent(id) => id == agent_id,
            });
            let is_creator = creator.agent() == Some(agent_id);
            prop_assert_eq!(entry.may_write(&viewer), is_creator || named(&writers));
            prop_assert_eq!(entry.may_read(&viewer), is_creator || named(&writers) || named(&readers));
            prop_assert!(entry.may_read(&Viewer::Everything) && entry.may_write(&Viewer::Everything));
            prop_assert!(!entry.may_write(&viewer) || entry.may_read(&viewer), "a writer reads");
        }

        #[test]
        fn no_text_causes_a_panic(text in ".{0,200}") {
            let one = std::slice::from_ref(&text);
            for refused in [
                check_entry_id(&text),
                check_title(&text),
                check_content(&text, 64),
                check_tags(one),
                grantees("readers", one).map(drop),
            ] {
                if let Err(refusal) = refused {
                    prop_assert!(refusal.hint.is_some(), "{}", refusal);
                    prop_assert!(!refusal.message.contains(char::is_control));
                }
            }
        }
    }

    #[test]
    fn invalid_ids_titles_contents_and_tags_are_refused() {
        for good in ["a", "style/guide.v1", "x_y-z", "0", "a/b/c", ".a/b..", "..."] {
            assert!(check_entry_id(good).is_ok(), "{good}");
        }
        let long = "x".repeat(129);
        for bad in
            ["", "A", "a b", "a\nb", "é", "a:b", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "./a", long.as_str()]
        {
            assert_eq!(check_entry_id(bad).unwrap_err().code, Code::InvalidArguments, "{bad:?}");
        }
        assert!(check_title("A title").is_ok());
        assert!(check_title(" ").is_err() && check_title("a\nb").is_err() && check_title(&"x".repeat(201)).is_err());
        assert!(check_content("a\n\tb\r\n", 6).is_ok());
        assert_eq!(check_content("aaaa", 3).unwrap_err().code, Code::TooLarge);
        assert!(check_content("a\0", 9).is_err() && check_content(" \n", 9).is_err());
        let tags = |list: &[&str]| check_tags(&list.iter().map(|tag| (*tag).to_owned()).collect::<Vec<_>>());
        assert!(tags(&["style", "house rules"]).is_ok());
        assert!(tags(&[""]).is_err() && tags(&["a,b"]).is_err() && tags(&[" a"]).is_err() && tags(&["x"; 33]).is_err());
    }
}

#[cfg(test)]
mod grantee_tests {
    use super::*;
    use proptest::prelude::*;

    fn grantee() -> impl Strategy<Value = Grantee> {
        prop_oneof![
            Just(Grantee::Everyone),
            "[a-z._-]{1,9}".prop_map(Grantee::Archetype),
            "[a-z._-]{1,9}".prop_map(Grantee::Group),
            "[a-z]{1,9}".prop_map(|name| Grantee::Agent(name.parse().unwrap())),
        ]
    }

    proptest! {
        // covers: KNOW-03
        #[test]
        fn a_grantee_parses_from_its_own_text(grantee in grantee()) {
            prop_assert_eq!(grantee.to_string().parse::<Grantee>().unwrap(), grantee);
        }
    }

    #[test]
    fn a_list_drops_duplicates_and_has_a_maximum_length() {
        let texts = ["*", "group:manager", "*"].map(str::to_owned);
        assert_eq!(grantees("readers", &texts).unwrap(), [Grantee::Everyone, Grantee::Group("manager".into())]);
        assert!(grantees("readers", &["role:x".to_owned()]).unwrap_err().message.starts_with("readers: "));
        assert!(grantees("readers", &vec!["*".to_owned(); 257]).is_err());
    }
}
