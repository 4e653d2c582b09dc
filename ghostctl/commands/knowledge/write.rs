//! `ghostctl knowledge write`

use std::path::PathBuf;

use ghost_proto::json;
use ghost_proto::v1::WriteKnowledgeRequest;
use ghost_proto::v1::knowledge_client::KnowledgeClient;

use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::output::Answer;
use crate::source::{document, optional_text};
use crate::text::from_0;

/// Create or replace a knowledge entry
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A list that is not given stays unchanged; '' empties it. Readers and writers are agent ids, archetype:NAME,\ngroup:NAME or *.\n\nExamples:\n  ghostctl knowledge write style/headlines --title Headlines 'Short. No puns.' --readers '*'\n  ghostctl knowledge write style/headlines --file notes/headlines.md --expect 3"
)]
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
            let Some(words) = words else { return Ok(Vec::new()) };
            let mut words: Vec<String> = words.iter().map(|word| word.trim().to_owned()).collect();
            let last_is_empty = words.last().is_some_and(String::is_empty);
            if last_is_empty {
                words.pop();
                if words.is_empty() {
                    clear.push(name.to_owned());
                }
            }
            // A trailing comma is accepted. Two commas in a row may hide a lost word.
            if words.iter().any(String::is_empty) {
                return Err(Failure::new(
                    "invalid_arguments",
                    format!("--{name} has an empty item between two commas"),
                )
                .hint(format!("write it as --{name} a,b; '' alone empties the list")));
            }
            Ok(words)
        };
        let (tags, readers, writers) =
            (list("tags", self.tags)?, list("readers", self.readers)?, list("writers", self.writers)?);
        let request = WriteKnowledgeRequest {
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
        let entry = rpc!(client, KnowledgeClient::write, request).await?;
        let text = format!("{} is now version {}", entry.entry_id, entry.version);
        Ok(Answer::object(json::value(&entry), text))
    }
}
