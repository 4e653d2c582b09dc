//! `ghostctl knowledge write`

use std::path::PathBuf;

use ghost_proto::v1::WriteKnowledgeRequest;
use ghost_proto::v1::knowledge_client::KnowledgeClient;

use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::output::Answer;
use crate::record::knowledge as record;
use crate::source::{document, words_if};
use crate::text::from_0;

/// Write a knowledge entry, or replace one
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A list that is not given stays as it is, '' makes it empty. Readers and writers are agents' ids,\narchetype:NAME, group:NAME or *.\n\nExamples:\n  ghostctl knowledge write style/headlines --title Headlines 'Short. No puns.' --readers '*'\n  ghostctl knowledge write style/headlines --file notes/headlines.md --expect 3"
)]
#[command(override_usage = "ghostctl knowledge write [OPTIONS] <ENTRY_ID> <TEXT|--file <F>>")]
#[command(group = clap::ArgGroup::new("text").required(true))]
pub struct Write {
    /// The entry
    entry_id: String,
    /// The text; - reads it from standard input, and one that begins with - comes after --
    #[arg(value_name = "TEXT", group = "text")]
    content: Option<String>,
    /// The file that holds the text; - is standard input
    #[arg(long, value_name = "F", group = "text")]
    file: Option<PathBuf>,
    /// What it is, on one line; stays as it is if not given
    #[arg(long, value_name = "T")]
    title: Option<String>,
    /// Who may read it
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    readers: Option<Vec<String>>,
    /// Who may change it
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    writers: Option<Vec<String>>,
    /// Words to find it by
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    tags: Option<Vec<String>>,
    /// Only if the entry is at this version; 0 only if there is none
    #[arg(long, value_name = "N", value_parser = from_0::<i64>)]
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
            // A comma at the end is nobody's mistake; two in a row may be a word that got lost.
            if words.iter().any(String::is_empty) {
                return Err(Failure::new(
                    "invalid_arguments",
                    format!("--{name} has an empty word between its commas"),
                )
                .hint(format!("write it like --{name} a,b; '' alone makes it empty")));
            }
            Ok(words)
        };
        let (tags, readers, writers) =
            (list("tags", self.tags)?, list("readers", self.readers)?, list("writers", self.writers)?);
        let request = WriteKnowledgeRequest {
            request_id: new_request_id(),
            entry_id: self.entry_id,
            title: words_if(self.title)?.unwrap_or_default(),
            content,
            tags,
            readers,
            writers,
            expected_version: self.expect,
            as_agent: self.as_agent,
            clear,
        };
        let entry = rpc!(client, KnowledgeClient::write, request).await?;
        let told = format!("{} is at version {}", entry.entry_id, entry.version);
        Ok(Answer::object(record::entry(&entry, true), told))
    }
}
