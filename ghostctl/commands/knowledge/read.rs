//! `ghostctl knowledge read`

use ghost_proto::json;
use ghost_proto::v1::knowledge_client::KnowledgeClient;
use ghost_proto::v1::{KnowledgeEntry, KnowledgeVersion, ReadKnowledgeRequest};

use crate::connection::{Client, required, rpc};
use crate::failure::Failure;
use crate::output::Answer;
use crate::table::{Table, fields};
use crate::text::from_1;

/// Show a knowledge entry
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ghostctl knowledge read style/headlines\n  ghostctl knowledge read style/headlines --version 2\n  ghostctl --json knowledge read style/headlines | jq -r .content"
)]
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
        let request = ReadKnowledgeRequest {
            entry_id: self.entry_id,
            as_agent: self.as_agent,
            versions: self.versions || self.version.is_some(),
        };
        let answer = rpc!(client, KnowledgeClient::read, request).await?;
        let mut entry = required(answer.entry, "entry")?;
        if let Some(wanted) = self.version {
            entry = at_version(entry, &answer.versions, wanted)?;
        }
        let mut json = json::value(&entry);
        if self.versions {
            json["versions"] = json::value(&answer.versions);
        }
        let view = &client.view;
        let mut text = fields(
            view.screen,
            &[
                ("entry_id", entry.entry_id),
                ("title", entry.title),
                ("tags", entry.tags.join(", ")),
                ("version", entry.version.to_string()),
                ("creator", entry.creator),
                ("updated by", entry.updated_by),
                ("updated at", view.when(entry.updated_at_ms)),
                ("readers", entry.readers.join(", ")),
                ("writers", entry.writers.join(", ")),
            ],
        );
        if self.versions {
            let mut table = Table::new(&["VERSION", "AT", "BY", "TITLE"]);
            for version in answer.versions {
                table.row([version.version.to_string(), view.moment(version.at_ms), version.by, version.title]);
            }
            text.push('\n');
            text.push_str(&table.render(view.screen));
        }
        text.push('\n');
        text.push_str(&entry.content);
        Ok(Answer::object(json, text))
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
