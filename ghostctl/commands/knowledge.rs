//! `ghostctl knowledge` and `ghostctl state`: what the agents of a world share.

use std::path::PathBuf;

use ghost_proto::json;
use ghost_proto::v1::{KnowledgeEntry, KnowledgeVersion, StateEntry};
use serde_json::Value;

use crate::arguments::{document, from_0, from_1, optional_text, text_or_stdin};
use crate::commands::prelude::*;

#[derive(Debug, clap::Subcommand)]
pub enum Knowledge {
    /// List knowledge entries
    ///
    /// Examples:
    ///   ghostctl knowledge list --tag style
    ///   ghostctl knowledge list --as chora
    #[command(verbatim_doc_comment)]
    List {
        /// Show only entries with this tag
        #[arg(long, value_name = "T")]
        tag: Option<String>,
        /// Show only entries with these words in the id, title, tags or text
        #[arg(long, value_name = "TEXT")]
        query: Option<String>,
        /// Act as this agent: show only entries that it may read
        #[arg(long = "as", value_name = "AGENT")]
        as_agent: Option<String>,
        #[command(flatten)]
        bound: Bound,
    },
    Read(Read),
    Write(Write),
    /// Delete a knowledge entry and its earlier versions
    ///
    /// Examples:
    ///   ghostctl knowledge delete style/headlines --expect 4
    #[command(verbatim_doc_comment)]
    Delete {
        /// Entry id
        entry_id: String,
        /// Fail unless the entry has this version
        #[arg(long = "expect", id = "expected_version", value_name = "N", value_parser = from_1::<i64>)]
        expect: Option<i64>,
        /// Act as this agent
        #[arg(long = "as", value_name = "AGENT")]
        as_agent: Option<String>,
    },
}

const ENTRIES: &[Column<KnowledgeEntry>] = columns![
    "ENTRY" entry_id, "VERSION" version, "UPDATED" moment updated_at_ms, "AGE" age updated_at_ms, "BY" updated_by,
    "TAGS" tags, "TITLE" title,
];

const VERSIONS: &[Column<KnowledgeVersion>] = columns![
    "VERSION" version, "AT" moment at_ms, "BY" by, "TITLE" title,
];

impl Knowledge {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        match self {
            Self::List { tag, query, as_agent, bound } => {
                let request = v1::ListKnowledgeRequest { tag, as_agent, query, ..<_>::default() };
                let entries = pages(client, &bound, request).await?;
                let json: Vec<Value> = entries.rows.iter().map(without_text).collect();
                let text = table(&entries.rows, &client.view, ENTRIES);
                Ok(Answer { note: entries.note, ..Answer::new(&json, text) })
            }
            Self::Read(verb) => verb.run(client).await,
            Self::Write(verb) => verb.run(client).await,
            Self::Delete { entry_id, expect: expected_version, as_agent } => {
                let request_id = new_request_id();
                let request = v1::DeleteKnowledgeRequest { request_id, entry_id, expected_version, as_agent };
                let entry = client.call(request).await?;
                Ok(Answer::new(&without_text(&entry), format!("{} deleted", entry.entry_id)))
            }
        }
    }
}

/// An entry as JSON, without its text.
fn without_text(entry: &KnowledgeEntry) -> Value {
    let mut json = json::value(entry);
    if let Value::Object(object) = &mut json {
        object.shift_remove("content");
    }
    json
}

/// Show a knowledge entry
///
/// Examples:
///   ghostctl knowledge read style/headlines
///   ghostctl knowledge read style/headlines --version 2
///   ghostctl --json knowledge read style/headlines | jq -r .content
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Read {
    /// Entry id
    entry_id: String,
    /// List the stored earlier versions, too
    #[arg(long)]
    versions: bool,
    /// Show this stored version; readers, writers and tags are the current ones
    #[arg(long, value_name = "N", conflicts_with = "versions", value_parser = from_1::<i64>)]
    version: Option<i64>,
    /// Act as this agent
    #[arg(long = "as", value_name = "AGENT")]
    as_agent: Option<String>,
}

impl Read {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = v1::ReadKnowledgeRequest {
            entry_id: self.entry_id,
            as_agent: self.as_agent,
            versions: self.versions || self.version.is_some(),
        };
        let answer = client.call(request).await?;
        let mut entry = required(answer.entry, "entry")?;
        if let Some(wanted) = self.version {
            entry = at_version(entry, &answer.versions, wanted)?;
        }
        let mut json = json::value(&entry);
        let view = &client.view;
        let shown = [
            ("entry_id", entry.entry_id),
            ("title", entry.title),
            ("tags", entry.tags.join(", ")),
            ("version", entry.version.to_string()),
            ("creator", entry.creator),
            ("updated by", entry.updated_by),
            ("updated at", view.when(entry.updated_at_ms)),
            ("readers", entry.readers.join(", ")),
            ("writers", entry.writers.join(", ")),
        ];
        let mut text = fields(view.screen, &shown);
        if self.versions {
            json["versions"] = json::value(&answer.versions);
            text.push_str(&format!("\n{}", table(&answer.versions, view, VERSIONS)));
        }
        Ok(Answer::new(&json, format!("{text}\n{}", entry.content)))
    }
}

/// The entry at version `wanted`: the current one, or one of the stored versions.
fn at_version(entry: KnowledgeEntry, kept: &[KnowledgeVersion], wanted: i64) -> Result<KnowledgeEntry, Failure> {
    if entry.version == wanted {
        return Ok(entry);
    }
    let Some(old) = kept.iter().find(|old| old.version == wanted) else {
        let numbers: Vec<String> =
            std::iter::once(entry.version).chain(kept.iter().map(|old| old.version)).map(|n| n.to_string()).collect();
        let what = format!("the knowledge entry `{}` has no version {wanted}", entry.entry_id);
        return Err(Failure::new("not_found", what).hint(format!("stored versions: {}", numbers.join(", "))));
    };
    Ok(KnowledgeEntry {
        version: old.version,
        title: old.title.clone(),
        content: old.content.clone(),
        updated_by: old.by.clone(),
        updated_at_ms: old.at_ms,
        ..entry
    })
}

/// Create or replace a knowledge entry
///
/// A list that is not given stays unchanged; '' empties it. Readers and writers are agent ids, archetype:NAME,
/// group:NAME or *.
///
/// Examples:
///   ghostctl knowledge write style/headlines --title Headlines 'Short. No puns.' --readers '*'
///   ghostctl knowledge write style/headlines --file notes/headlines.md --expect 3
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
#[command(override_usage = "ghostctl knowledge write [OPTIONS] <ENTRY_ID> <TEXT|--file <F>>")]
#[command(group = clap::ArgGroup::new("text").required(true))]
pub struct Write {
    /// Entry id
    entry_id: String,
    /// Text of the entry; - reads standard input; put -- before a text that begins with -
    #[arg(value_name = "TEXT", group = "text")]
    content: Option<String>,
    /// Read the text from this file; - reads standard input
    #[arg(long, value_name = "F", group = "text")]
    file: Option<PathBuf>,
    /// Set the title, one line (default: unchanged)
    #[arg(long, value_name = "T")]
    title: Option<String>,
    /// Set who may read the entry
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    readers: Option<Vec<String>>,
    /// Set who may change the entry
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    writers: Option<Vec<String>>,
    /// Set the tags
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    tags: Option<Vec<String>>,
    /// Fail unless the entry has this version; 0 means that it does not exist
    #[arg(long = "expect", id = "expected_version", value_name = "N", value_parser = from_0::<i64>)]
    expect: Option<i64>,
    /// Act as this agent
    #[arg(long = "as", value_name = "AGENT")]
    as_agent: Option<String>,
}

impl Write {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let content = document(self.content, self.file.as_deref())?;
        let mut clear = Vec::new();
        let mut list = |name: &str, words: Option<Vec<String>>| {
            let mut words: Vec<String> = words.into_iter().flatten().map(|word| word.trim().to_owned()).collect();
            if words.pop_if(|last| last.is_empty()).is_some() && words.is_empty() {
                clear.push(name.to_owned());
            }
            // A trailing comma is accepted. Two commas in a row may hide a lost word.
            if words.iter().any(String::is_empty) {
                let what = format!("--{name} has an empty item between two commas");
                return Err(Failure::new("invalid_arguments", what)
                    .hint(format!("write it as --{name} a,b; '' alone empties the list")));
            }
            Ok(words)
        };
        let (tags, readers, writers) =
            (list("tags", self.tags)?, list("readers", self.readers)?, list("writers", self.writers)?);
        let request = v1::WriteKnowledgeRequest {
            request_id: new_request_id(),
            entry_id: self.entry_id,
            title: optional_text(self.title)?.unwrap_or_default(),
            content,
            tags,
            readers,
            writers,
            expected_version: self.expect,
            as_agent: self.as_agent,
            clear,
        };
        let entry = client.call(request).await?;
        Ok(Answer::new(&entry, format!("{} is now version {}", entry.entry_id, entry.version)))
    }
}

#[derive(Debug, clap::Subcommand)]
pub enum State {
    /// Show a value of the shared state
    ///
    /// Examples:
    ///   ghostctl state get plan.step
    ///   ghostctl --json state get plan.step | jq .version
    #[command(verbatim_doc_comment)]
    Get {
        /// Key
        key: String,
    },
    /// Set a value of the shared state
    ///
    /// Examples:
    ///   ghostctl state set plan.step '{"n": 2}' --expect 1
    ///   ghostctl state set mood '"calm"'
    ///   ghostctl state set mood null  # deletes it
    #[command(verbatim_doc_comment)]
    Set {
        /// Key
        key: String,
        /// The value as JSON; null deletes the key; - reads standard input
        #[arg(value_name = "JSON", allow_negative_numbers = true)]
        value_json: String,
        /// Fail unless the key has this version; 0 means that it does not exist
        #[arg(long = "expect", id = "expected_version", value_name = "N", value_parser = from_0::<i64>)]
        expect: Option<i64>,
        /// Act as this agent
        #[arg(long = "as", value_name = "AGENT")]
        as_agent: Option<String>,
    },
    /// List the values of the shared state
    ///
    /// Examples:
    ///   ghostctl state list plan.
    #[command(verbatim_doc_comment)]
    List {
        /// Show only keys that begin with this prefix
        #[arg(default_value = "", hide_default_value = true)]
        prefix: String,
        #[command(flatten)]
        bound: Bound,
    },
}

const VALUES: &[Column<StateEntry>] = columns![
    "KEY" key, "VERSION" version, "UPDATED" moment updated_at_ms, "BY" writer, "VALUE" value_json,
];

impl State {
    /// The JSON is written from the records, so that the numbers of values keep all their digits.
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        match self {
            Self::Get { key } => {
                let entry = client.call(v1::GetStateRequest { key }).await?;
                Ok(Answer::written(json::text(&entry), entry.value_json))
            }
            Self::Set { key, value_json, expect: expected_version, as_agent } => {
                let (request_id, value_json) = (new_request_id(), text_or_stdin(value_json)?);
                let request = v1::SetStateRequest { request_id, key, value_json, expected_version, as_agent };
                let entry = client.call(request).await?;
                let text = match entry.value_json.as_str() {
                    "null" => format!("{} deleted", entry.key),
                    _ => format!("{} is now version {}", entry.key, entry.version),
                };
                Ok(Answer::written(json::text(&entry), text))
            }
            Self::List { prefix, bound } => {
                let request = v1::ListStateRequest { prefix, ..<_>::default() };
                let entries = pages(client, &bound, request).await?;
                let text = table(&entries.rows, &client.view, VALUES);
                Ok(Answer { note: entries.note, ..Answer::written(json::text(&entries.rows), text) })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_the_current_one_or_a_stored_one() {
        let entry = KnowledgeEntry { entry_id: "e".into(), version: 3, content: "now".into(), ..Default::default() };
        let kept = [KnowledgeVersion { version: 2, content: "before".into(), by: "ada".into(), ..Default::default() }];
        let read = |wanted| at_version(entry.clone(), &kept, wanted);
        assert_eq!(read(3).unwrap().content, "now");
        let old = read(2).unwrap();
        assert_eq!((old.version, old.content.as_str(), old.updated_by.as_str()), (2, "before", "ada"));
        let gone = read(1).unwrap_err();
        assert!(gone.exit_code() == 3 && gone.hint.unwrap().contains("3, 2"));
    }
}
