//! `ghostctl knowledge write`

use std::io::Read as _;
use std::path::PathBuf;

use ghost_proto::v1::WriteKnowledgeRequest;
use ghost_proto::v1::knowledge_client::KnowledgeClient;

use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::output::Answer;
use crate::record::knowledge as record;

/// Bytes that are read of a file or of standard input: more than any world takes.
const TEXT_MAX: u64 = 2 * 1024 * 1024;

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
    /// The file that holds the text
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
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(0..))]
    expect: Option<i64>,
    /// Act as this agent
    #[arg(long = "as", value_name = "AGENT")]
    as_agent: Option<String>,
}

impl Write {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let content = text(self.content, self.file)?;
        let mut clear = Vec::new();
        let mut list = |name: &str, words: Option<Vec<String>>| {
            let given = words.is_some();
            let words: Vec<String> = words.unwrap_or_default().into_iter().map(|word| word.trim().to_owned()).collect();
            let words: Vec<String> = words.into_iter().filter(|word| !word.is_empty()).collect();
            if given && words.is_empty() {
                clear.push(name.to_owned());
            }
            words
        };
        let (tags, readers, writers) =
            (list("tags", self.tags), list("readers", self.readers), list("writers", self.writers));
        let request = WriteKnowledgeRequest {
            request_id: new_request_id(),
            entry_id: self.entry_id,
            title: self.title.unwrap_or_default(),
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

/// The text itself, or what a file or standard input holds.
fn text(content: Option<String>, file: Option<PathBuf>) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let (read, from) = match (content, file) {
        (Some(content), _) if content != "-" => return Ok(content),
        (_, Some(path)) => {
            let shown = path.display().to_string();
            (std::fs::File::open(path).and_then(|file| file.take(TEXT_MAX + 1).read_to_end(&mut bytes)), shown)
        }
        (_, None) => (std::io::stdin().take(TEXT_MAX + 1).read_to_end(&mut bytes), "standard input".to_owned()),
    };
    read.map_err(|error| Failure::new("invalid_arguments", format!("cannot read {from}: {error}")))?;
    if bytes.len() as u64 > TEXT_MAX {
        return Err(Failure::new("too_large", format!("{from} holds more than {TEXT_MAX} bytes"))
            .hint("split the text over several entries"));
    }
    String::from_utf8(bytes).map_err(|_| {
        Failure::new("invalid_arguments", format!("{from} is not UTF-8")).hint("an entry is text; save it as UTF-8")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_within_its_bound_and_only_if_it_is_text() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            Some(path)
        };
        assert_eq!(text(Some("as it is".into()), None).unwrap(), "as it is");
        assert_eq!(text(None, path("a", "äöü\n".as_bytes())).unwrap(), "äöü\n");
        let large = vec![b'x'; usize::try_from(TEXT_MAX).unwrap() + 1];
        assert_eq!(text(None, path("b", &large)).unwrap_err().code, "too_large");
        assert_eq!(text(None, path("c", b"\xff")).unwrap_err().code, "invalid_arguments");
        assert!(text(None, Some(dir.path().join("none"))).unwrap_err().message.contains("none"));
    }
}
