//! Knowledge: entries that agents share, each with its own readers and writers (KNOW-01..06).

use serde::{Deserialize, Serialize};

use crate::grantee::{Grantee, Viewer};
use crate::party::Party;
use crate::refusal::{Code, Refusal};
use crate::text::{clip, one_line};
use crate::time::Timestamp;

/// An entry as it stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KnowledgeEntry {
    /// Its id: 1 to 128 of `a-z`, `0-9`, `.`, `_`, `-`, `/`.
    pub entry_id: String,
    /// One line.
    pub title: String,
    /// The text.
    pub content: String,
    /// Words to find it by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Who may read it; see [`Grantee`].
    pub readers: Vec<Grantee>,
    /// Who may change or delete it, and so read it too.
    pub writers: Vec<Grantee>,
    /// Rises by one with every change, and goes on over a deletion.
    pub version: i64,
    /// Who wrote the first version; may always write (KNOW-03).
    pub creator: Party,
    /// Who wrote this one.
    pub updated_by: Party,
    /// When the first version was written.
    pub created_at: Timestamp,
    /// When this one was.
    pub updated_at: Timestamp,
    /// Whether it was deleted: nobody is shown it, and a new entry of the same id goes on with its version.
    pub deleted: bool,
}

/// An earlier version of an entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KnowledgeVersion {
    /// The entry.
    pub entry_id: String,
    /// Which version.
    pub version: i64,
    /// Its title.
    pub title: String,
    /// Its text.
    pub content: String,
    /// Who wrote it.
    pub by: Party,
    /// When.
    pub at: Timestamp,
}

/// An entry that the world's files bring (KNOW-06). The supervisor is its creator, so that only its writers and operators
/// may change it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnowledgeSeed {
    /// Its id.
    pub entry_id: String,
    /// One line.
    pub title: String,
    /// The text.
    pub content: String,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// Who may read it.
    pub readers: Vec<Grantee>,
    /// Who may change it.
    pub writers: Vec<Grantee>,
}

impl KnowledgeEntry {
    /// Whether `viewer` may read it: its readers may, and whoever may write it.
    #[must_use]
    pub fn may_read(&self, viewer: &Viewer) -> bool {
        self.may_write(viewer) || self.readers.iter().any(|grantee| grantee.covers(viewer))
    }

    /// Whether `viewer` may change or delete it: its writers may, and its creator always (KNOW-03).
    #[must_use]
    pub fn may_write(&self, viewer: &Viewer) -> bool {
        match viewer {
            Viewer::Everything => true,
            Viewer::Agent { agent_id, .. } => {
                self.creator.agent() == Some(agent_id) || self.writers.iter().any(|grantee| grantee.covers(viewer))
            }
        }
    }
}

/// Most characters of a title.
pub const TITLE_MAX: usize = 200;
/// Most tags of an entry.
pub const TAGS_MAX: usize = 32;
/// Characters of a tag.
const TAG_CHARS: usize = 64;
/// Characters of an entry's id.
const ID_CHARS: usize = 128;

fn wrong(message: String, hint: impl Into<String>) -> Refusal {
    Refusal::new(Code::InvalidArguments, message).hint(hint)
}

/// Whether a text is an id of an entry: 1 to 128 of `a-z`, `0-9`, `.`, `_`, `-`, `/`. What stands between slashes is neither
/// empty nor `.` nor `..`, so that two ids never look like one path.
pub fn check_entry_id(entry_id: &str) -> Result<(), Refusal> {
    let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-/".contains(&b);
    if (1..=ID_CHARS).contains(&entry_id.len()) && entry_id.bytes().all(fits) {
        if !entry_id.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Ok(());
        }
        return Err(wrong(
            format!("`{entry_id}` is not the id of a knowledge entry: a part between slashes is empty, `.` or `..`"),
            "write it without a slash at either end and with a name between any two, such as style/headlines",
        ));
    }
    Err(wrong(
        format!("`{}` is not the id of a knowledge entry", one_line(&clip(entry_id, 80))),
        format!("use 1 to {ID_CHARS} lower-case letters, digits, '.', '_', '-' and '/', such as style/headlines"),
    ))
}

/// Whether a text can be a title: one line of 1 to 200 characters.
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

/// Whether a text can be the content of an entry: not blank, no control characters but line breaks and tabs, at most
/// `most` bytes.
pub fn check_content(content: &str, most: u32) -> Result<(), Refusal> {
    if content.len() > most as usize {
        return Err(Refusal::new(
            Code::TooLarge,
            format!("content has {} bytes; at most {most} are taken (limits.knowledge_bytes)", content.len()),
        )
        .hint("split it into several entries, or write a workspace file and name its path"));
    }
    if content.trim().is_empty() {
        return Err(wrong(
            "content is empty".to_owned(),
            "say what there is to know; to take an entry away, delete it",
        ));
    }
    let strange = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
    match content.find(strange) {
        Some(at) => Err(wrong(format!("content holds a control character at byte {at}"), "give plain text")),
        None => Ok(()),
    }
}

/// Whether texts can be the tags of one entry: at most 32, each 1 to 64 characters without control characters, commas or
/// space around them.
pub fn check_tags(tags: &[String]) -> Result<(), Refusal> {
    if tags.len() > TAGS_MAX {
        return Err(wrong(format!("{} tags; an entry has at most {TAGS_MAX}", tags.len()), "keep the telling ones"));
    }
    let fits = |tag: &&String| {
        !tag.is_empty()
            && tag.trim() == tag.as_str()
            && tag.chars().count() <= TAG_CHARS
            && !tag.chars().any(|c| crate::text::is_strange(c) || c == ',')
    };
    match tags.iter().find(|tag| !fits(tag)) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grantee::grantees;
    use crate::ids::AgentId;
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
        fn access_follows_the_lists_and_nothing_else(
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
            let made = creator.agent() == Some(agent_id);
            prop_assert_eq!(entry.may_write(&viewer), made || named(&writers));
            prop_assert_eq!(entry.may_read(&viewer), made || named(&writers) || named(&readers));
            prop_assert!(entry.may_read(&Viewer::Everything) && entry.may_write(&Viewer::Everything));
            prop_assert!(!entry.may_write(&viewer) || entry.may_read(&viewer), "a writer reads");
        }

        #[test]
        fn no_text_makes_a_check_panic(text in ".{0,200}") {
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
    fn ids_titles_contents_and_tags_have_their_bounds() {
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
