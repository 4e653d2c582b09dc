//! Which files under `output/` a command changed (ART-01): their stamps before and after it.
//!
//! A failure to find out must never fail the command; an event says that files may be missing from the index.

use std::collections::BTreeMap;

use ghost_domain::artifact::{Found, OUTPUT};
use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::schedule::FileStamp;
use ghost_domain::write_acl::WorkspacePath;
use ghost_domain::{Code, Refusal};
use serde_json::json;

use crate::context::CallContext;
use crate::effect::Output;

/// Changed files of one command that are indexed.
const CHANGED_MAX: usize = 500;

/// The files under `output/` that a command may change, as they were before it.
pub(crate) struct Before {
    places: Vec<WorkspacePath>,
    files: Result<BTreeMap<String, FileStamp>, Refusal>,
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

async fn look(call: &CallContext, places: &[WorkspacePath]) -> Result<BTreeMap<String, FileStamp>, Refusal> {
    let limit = call.services.ctx.limits().output_files_max as usize;
    let mut all = BTreeMap::new();
    for place in places {
        if let Some(seen) = call.services.workspace.stamps(place, true, limit).await? {
            all.extend(seen.files);
        }
    }
    Ok(all)
}

async fn changes(call: &CallContext, before: Before) -> Result<Vec<Found>, Refusal> {
    let (old, new) = (before.files?, look(call, &before.places).await?);
    let gone = old.keys().filter(|path| !new.contains_key(*path));
    let changed = new.iter().filter(|(path, stamp)| old.get(*path) != Some(stamp)).map(|(path, _)| path);
    let paths: Vec<&String> = gone.chain(changed).collect();
    if paths.len() > CHANGED_MAX {
        return Err(Refusal::new(
            Code::TooLarge,
            format!("it changed {} files; at most {CHANGED_MAX} are indexed", paths.len()),
        )
        .hint("`ghostctl artifact rebuild` indexes them"));
    }
    let mut found = Vec::with_capacity(paths.len());
    for path in paths {
        let at = WorkspacePath::parse(path, false)?;
        found.push(Found { path: path.clone(), content: call.services.workspace.digest(&at).await? });
    }
    Ok(found)
}
