//! The files under `output/`: which of them a command changed, and their index as a file, `shared/manifests/index.jsonl`, one
//! JSON object a line. The last line of a path holds. The table of artifacts is the record; the file follows it and can be
//! made anew from it.
//!
//! A failure of either must never fail a command or a write, and nothing may read the index back: agents can write to it.

use std::collections::BTreeMap;

use ghost_domain::artifact::{Found, OUTPUT};
use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::schedule::FileStamp;
use ghost_domain::{Artifact, Event, WorkspacePath, refusal};
use ghost_operations::{Result, artifacts};
use serde_json::{Value, json};

use crate::context::{CallContext, WorldServices};
use crate::effect::Output;

/// The path of the file, relative to the workspace.
pub const INDEX: &str = "shared/manifests/index.jsonl";

fn index() -> Result<WorkspacePath> {
    WorkspacePath::parse(INDEX, false)
}

fn line(artifact: &Artifact) -> Value {
    json!({
        "artifact_id": artifact.artifact_id, "path": artifact.path, "agent_id": artifact.agent_id,
        "type": artifact.kind, "created_at": artifact.created_at, "updated_at": artifact.updated_at,
        "bytes": artifact.bytes, "sha256": artifact.sha256,
    })
}

/// The line for an event of the family `artifact`; `None` for any other event.
pub fn line_of(event: &Event) -> Option<String> {
    let facts = &event.payload;
    let line = match event.kind {
        EventKind::ArtifactCreated => json!({
            "artifact_id": facts["artifact_id"], "path": facts["path"], "agent_id": event.agent_id,
            "type": facts["type"], "created_at": facts["created_at"], "updated_at": event.ts,
            "bytes": facts["bytes"], "sha256": facts["sha256"],
        }),
        EventKind::ArtifactRemoved => json!({
            "artifact_id": facts["artifact_id"], "path": facts["path"], "agent_id": event.agent_id,
            "removed_at": event.ts,
        }),
        _ => return None,
    };
    Some(format!("{line}\n"))
}

/// Adds lines to the file.
///
/// # Errors
/// Those of [`Workspace::append`](crate::workspace::Workspace::append).
pub async fn append(services: &WorldServices, lines: String) -> Result<()> {
    services.workspace.append(&index()?, lines.into_bytes()).await
}

/// Makes the file anew from the table: one line for each artifact, by path. Without artifacts and without a file it
/// does nothing. Returns the number of artifacts.
///
/// # Errors
/// Those of [`Workspace::write_atomic`](crate::workspace::Workspace::write_atomic); `Unavailable` if the store cannot
/// be read.
pub async fn rewrite(services: &WorldServices) -> Result<usize> {
    let all = services.store.read(artifacts::all).await?;
    let path = index()?;
    if all.is_empty() && services.workspace.size_now(&path).is_err() {
        return Ok(0);
    }
    let mut text = String::new();
    for artifact in all.values() {
        text.push_str(&line(artifact).to_string());
        text.push('\n');
    }
    services.workspace.write_atomic(&path, text.as_bytes()).await?;
    Ok(all.len())
}

/// What is under `output/` and is not in the table as it is: new and changed files, and those that are gone.
///
/// # Errors
/// `TooLarge` above `limits.output_files_max` files; the errors of reading files.
pub async fn differences(services: &WorldServices) -> Result<Vec<Found>> {
    let limit = services.ctx.limits().output_files_max as usize;
    let output = WorkspacePath::parse(OUTPUT, false)?;
    let there = services.workspace.stamps(&output, true, limit).await?.unwrap_or_default();
    let known: BTreeMap<String, Artifact> = services.store.read(artifacts::all).await?;
    let mut found: Vec<Found> = known
        .keys()
        .filter(|path| !there.files.contains_key(*path))
        .map(|path| Found { path: path.clone(), content: None })
        .collect();
    for path in there.files.into_keys() {
        let content = services.workspace.digest(&WorkspacePath::parse(&path, false)?).await?;
        let same = |artifact: &Artifact| content.as_ref().is_some_and(|(sha256, _)| *sha256 == artifact.sha256);
        if !known.get(&path).is_some_and(same) {
            found.push(Found { path, content });
        }
    }
    Ok(found)
}

/// Changed files of one command that are indexed.
const CHANGED_MAX: usize = 500;

/// The files under `output/` that a command may change, as they were before it.
pub(crate) struct Before {
    places: Vec<WorkspacePath>,
    files: Result<BTreeMap<String, FileStamp>>,
}

impl Before {
    /// Looks at what is under those of `prefixes` that are in `output/`. Without any, it does nothing.
    pub(crate) async fn look(call: &CallContext, prefixes: &[String]) -> Self {
        let limit = call.services.ctx.limits().output_files_max;
        let places: Vec<WorkspacePath> = prefixes
            .iter()
            .filter(|prefix| limit > 0 && prefix.starts_with(OUTPUT))
            .filter_map(|prefix| WorkspacePath::parse(prefix, false).ok())
            .collect();
        let files = look(call, &places).await;
        Self { places, files }
    }

    /// Finds out what has changed since, and adds it to the output of the command.
    pub(crate) async fn into_output(self, call: &CallContext, output: &mut Output) {
        if self.places.is_empty() {
            return;
        }
        match changes(call, self).await {
            Ok(found) => output.artifacts.extend(found),
            Err(refusal) => {
                let text = format!("what a command changed under {OUTPUT} is not indexed: {}", refusal.message);
                let payload = json!({ "warning": text, "call_id": call.call_id, "turn_id": call.turn_id });
                output.events.push(NewEvent::new(EventKind::WorldWarning, payload).agent(&call.caller.agent_id));
            }
        }
    }
}

async fn look(call: &CallContext, places: &[WorkspacePath]) -> Result<BTreeMap<String, FileStamp>> {
    let limit = call.services.ctx.limits().output_files_max as usize;
    let mut all = BTreeMap::new();
    for place in places {
        if let Some(seen) = call.services.workspace.stamps(place, true, limit).await? {
            all.extend(seen.files);
        }
    }
    Ok(all)
}

async fn changes(call: &CallContext, before: Before) -> Result<Vec<Found>> {
    let (old, new) = (before.files?, look(call, &before.places).await?);
    let gone = old.keys().filter(|path| !new.contains_key(*path));
    let changed = new.iter().filter(|(path, stamp)| old.get(*path) != Some(stamp)).map(|(path, _)| path);
    let paths: Vec<&String> = gone.chain(changed).collect();
    if paths.len() > CHANGED_MAX {
        return Err(refusal!(TooLarge, "it changed {} files; at most {CHANGED_MAX} are indexed", paths.len())
            .hint("`ghostctl artifact rebuild` indexes them"));
    }
    let mut found = Vec::with_capacity(paths.len());
    for path in paths {
        let at = WorkspacePath::parse(path, false)?;
        found.push(Found { path: path.clone(), content: call.services.workspace.digest(&at).await? });
    }
    Ok(found)
}
