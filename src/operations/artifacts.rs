//! Artifacts: the record of the files under `output/`.
//!
//! A file keeps its artifact id until it is removed. The record follows the files: it must never be used to
//! decide whether a file exists.

use ghost_domain::artifact::{Found, OUTPUT};

use crate::prelude::*;

/// Who changed a file, if that is known.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The agent.
    pub agent_id: AgentId,
    /// Its turn.
    pub turn_id: TurnId,
    /// The root of the turn.
    pub root_id: RootId,
    /// The droid whose work it was, if the agent promoted it.
    pub droid_id: Option<AgentId>,
}

impl Origin {
    /// The origin of what a turn changes.
    #[must_use]
    pub fn of(turn: &Turn) -> Self {
        Self { agent_id: turn.agent_id.clone(), turn_id: turn.turn_id, root_id: turn.root_id, droid_id: None }
    }
}

/// Records what was found at a path. Returns the artifact, unless the path is not under `output/` or the file is
/// gone. A file whose content is the recorded one is no change, but with `always` it is an event too: somebody
/// wrote it.
pub fn index(w: &mut Tx, origin: Option<&Origin>, found: Found, always: bool) -> Result<Option<Artifact>> {
    let Some(kind) = ArtifactType::of(&found.path) else { return Ok(None) };
    let (before, now) = (w.artifact_get(&found.path)?, w.ctx.now());
    let Some((sha256, bytes)) = found.content else {
        if let Some(gone) = before {
            w.artifact_remove(&gone.path)?;
            let turn_id = origin.map(|origin| origin.turn_id);
            let payload = json!({ "artifact_id": gone.artifact_id, "path": gone.path, "turn_id": turn_id });
            w.emit(event(EventKind::ArtifactRemoved, payload, origin))?;
        }
        return Ok(None);
    };
    if let Some(same) = before.as_ref().filter(|before| !always && before.sha256 == sha256) {
        return Ok(Some(same.clone()));
    }
    let artifact = Artifact {
        artifact_id: before.as_ref().map_or_else(|| ArtifactId(w.ctx.id()), |before| before.artifact_id),
        path: found.path,
        kind,
        agent_id: origin.map(|origin| origin.agent_id.clone()),
        turn_id: origin.map(|origin| origin.turn_id),
        droid_id: origin.and_then(|origin| origin.droid_id.clone()),
        bytes,
        sha256,
        created_at: before.as_ref().map_or(now, |before| before.created_at),
        updated_at: now,
    };
    w.artifact_put(&artifact)?;
    let payload = json!({
        "artifact_id": artifact.artifact_id, "path": artifact.path, "type": artifact.kind,
        "sha256": artifact.sha256, "replaced": before.is_some(), "bytes": artifact.bytes,
        "turn_id": artifact.turn_id, "droid_id": artifact.droid_id, "created_at": artifact.created_at,
    });
    w.emit(event(EventKind::ArtifactCreated, payload, origin))?;
    Ok(Some(artifact))
}

fn event(kind: EventKind, payload: serde_json::Value, origin: Option<&Origin>) -> NewEvent {
    let event = NewEvent::new(kind, payload);
    match origin {
        Some(origin) => event.agent(&origin.agent_id).correlation(origin.root_id),
        None => event,
    }
}

/// All artifacts, by path.
pub fn all(r: &mut StoreTx) -> Result<BTreeMap<String, Artifact>> {
    let all = read_all(|last: Option<&Artifact>| {
        let after = last.map(|last| last.path.clone()).unwrap_or_default();
        let filter = ArtifactFilter { prefix: OUTPUT.to_owned(), limit: PAGE_MAX, after, ..ArtifactFilter::default() };
        r.artifact_list(&filter)
    })?;
    Ok(all.into_iter().map(|artifact| (artifact.path.clone(), artifact)).collect())
}
