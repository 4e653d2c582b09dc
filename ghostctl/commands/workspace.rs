//! `ghostctl artifact` and `ghostctl grant`: the files that agents leave under `output/` and elsewhere in the workspace,
//! and the directories that they may write to for some time.

use std::time::Duration;

use crate::arguments::{millis, parse_duration};
use crate::commands::prelude::*;
use crate::text::plural;

#[derive(Debug, clap::Subcommand)]
pub enum Artifact {
    /// List the artifacts: the files under output/
    ///
    /// Examples:
    ///   ghostctl artifact list
    ///   ghostctl artifact list output/reports/ --agent chora
    #[command(verbatim_doc_comment)]
    List {
        /// Show only files whose path begins with this
        #[arg(value_name = "PATH")]
        path: Option<String>,
        /// Show only files that this agent changed last
        #[arg(long = "agent", id = "agent_id", value_name = "A")]
        agent: Option<String>,
        #[command(flatten)]
        bound: Bound,
    },
    /// Compare the record of artifacts with the files, and write shared/manifests/index.jsonl anew
    ///
    /// Examples:
    ///   ghostctl artifact rebuild
    #[command(verbatim_doc_comment)]
    Rebuild {},
    /// Remove a file or directory of the workspace with all that is in it, however deep
    ///
    /// Examples:
    ///   ghostctl artifact remove output/reports/old.md
    ///   ghostctl artifact remove agents/ada/deep
    #[command(verbatim_doc_comment)]
    Remove {
        /// Path relative to the workspace
        #[arg(value_name = "PATH")]
        path: String,
    },
}

const ARTIFACTS: &[Column<v1::Artifact>] = columns![
    "PATH" path, "TYPE" r#type, "BYTES" bytes, "AGENT" agent_id, "CHANGED" moment updated_at_ms,
    "ARTIFACT" artifact_id,
];

impl Artifact {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        match self {
            Self::List { path: prefix, agent: agent_id, bound } => {
                let request = v1::ListArtifactsRequest { prefix, agent_id, ..<_>::default() };
                list(client, &bound, request, ARTIFACTS).await
            }
            Self::Rebuild {} => {
                let request = v1::RebuildArtifactsRequest { request_id: new_request_id() };
                let done = client.call(request).await?;
                let text = format!("{}, {} corrected", plural(done.artifacts, "artifact"), done.corrected);
                Ok(Answer::new(&done, text))
            }
            Self::Remove { path } => {
                let request = v1::RemoveArtifactRequest { request_id: new_request_id(), path: path.clone() };
                let done = client.call(request).await?;
                let text = if done.removed { format!("removed {path}") } else { format!("nothing is at {path}") };
                Ok(Answer::new(&done, text))
            }
        }
    }
}

#[derive(Debug, clap::Subcommand)]
pub enum Grant {
    /// Let an agent write to a directory of the workspace for some time
    ///
    /// Examples:
    ///   ghostctl grant add chora output/reviews/
    ///   ghostctl grant add mux shared/plans/ --for 30m --reason 'takes over the plan'
    #[command(verbatim_doc_comment)]
    Add {
        /// Agent id
        agent_id: String,
        /// The directory, relative to the workspace, with a / at its end
        directory: String,
        /// How long the grant lasts, at most 366d (default: 4h)
        #[arg(long = "for", id = "lasts_ms", value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true)]
        lasts: Option<Duration>,
        /// Why, for the record
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        /// What the grant is for (default: manual)
        #[arg(long, value_name = "S", value_parser = ["manual", "mission", "session"])]
        source: Option<String>,
    },
    /// List the write grants that hold now
    ///
    /// Examples:
    ///   ghostctl grant list
    ///   ghostctl grant list --agent chora
    #[command(verbatim_doc_comment)]
    List {
        /// Show only grants of this agent
        #[arg(long = "agent", id = "agent_id", value_name = "A")]
        agent: Option<String>,
        #[command(flatten)]
        bound: Bound,
    },
    /// Take a write grant back; the agent's next call is refused
    ///
    /// Examples:
    ///   ID=$(ghostctl --json grant list --agent chora | jq -r '.[0].grant_id')
    ///   ghostctl grant revoke $ID
    #[command(verbatim_doc_comment)]
    Revoke {
        /// Grant id
        grant_id: String,
    },
}

const GRANTS: &[Column<v1::Grant>] = columns![
    "GRANT" grant_id, "AGENT" agent_id, "DIRECTORY" prefix, "UNTIL" moment expires_at_ms, "BY" created_by,
    "SOURCE" source, "REASON" reason,
];

impl Grant {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request_id = new_request_id();
        let told = |grant: v1::Grant, what: &str| {
            let v1::Grant { grant_id, agent_id, prefix, .. } = &grant;
            let until = client.view.moment(grant.expires_at_ms);
            Answer::new(&grant, format!("grant {grant_id} {what}: {agent_id} may write {prefix} until {until}"))
        };
        match self {
            Self::Add { agent_id, directory: prefix, lasts, reason, source } => {
                let lasts_ms = lasts.map(millis);
                let request = v1::AddGrantRequest { request_id, agent_id, prefix, lasts_ms, source, reason };
                Ok(told(client.call(request).await?, "added"))
            }
            Self::List { agent: agent_id, bound } => {
                let request = v1::ListGrantsRequest { agent_id, ..<_>::default() };
                list(client, &bound, request, GRANTS).await
            }
            Self::Revoke { grant_id } => {
                let grant_id = full_id(client, IdKind::GRANT, grant_id).await?;
                let request = v1::RevokeGrantRequest { request_id, grant_id };
                Ok(told(client.call(request).await?, "revoked"))
            }
        }
    }
}
