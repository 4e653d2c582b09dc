//! The tool that moves the work of a droid to its place (BI-88, ART-05): only its parent may, and only to where the parent
//! may write.

use ghost_domain::droid_id::DROIDS;
use ghost_domain::journal::FilePlan;
use ghost_domain::write_acl::WorkspacePath;
use ghost_domain::{AgentId, Code, DroidMode, Party, Refusal};
use ghost_operations::Tx;
use ghost_operations::droids;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::common::without_nulls;
use super::workspace::{Scope, resolve};
use super::written::{only, written_by};
use crate::context::CallContext;
use crate::effect::{FileWork, Output};
use crate::workspace::sha256_hex;

/// The largest file that is promoted, in bytes.
const FILE_MAX: u64 = 16 * 1_024 * 1_024;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PromoteParams {
    /// The droid's file, as its check shows it: `droids/droid-…/…`.
    from: String,
    /// Where it goes, relative to the shared root, such as `output/reports/water.md`.
    to: String,
}

/// The droid whose directory has the file.
fn droid_of(path: &WorkspacePath) -> Result<AgentId, Refusal> {
    let mut parts = path.as_str().split('/');
    let (first, id) = (parts.next(), parts.next().and_then(|id| id.parse::<AgentId>().ok()));
    match id.filter(|id| id.is_droid() && first == Some(DROIDS)) {
        Some(id) if parts.next().is_some() => Ok(id),
        _ => Err(Refusal::new(Code::InvalidArguments, format!("`{}` is not a file of a droid", path.as_str()))
            .hint("`from` is a path such as droids/droid-1a2b3c4d/output.md; write your own files with workspace.write")
            .details(json!({ "field": "from" }))),
    }
}

pub(super) async fn prepare_promotion(call: &CallContext, params: &PromoteParams) -> Result<FileWork, Refusal> {
    let from = resolve(call, &params.from, Scope::World, false)?;
    let to = resolve(call, &params.to, Scope::World, false)?;
    let (droid_id, by) = (droid_of(&from)?.to_string(), Party::Agent(call.caller.agent_id.clone()));
    let droid = call.services.store.read(move |r| droids::own(r, &by, &droid_id)).await?;
    if droid.mode == DroidMode::Run && !droid.state.is_over() {
        return Err(Refusal::new(Code::Conflict, format!("{} is still at work on it", droid.droid_id))
            .hint("wait for the message about its end, then promote"));
    }
    let grant_id = call.may_write(&to).await?;
    let workspace = &call.services.workspace;
    // Refuses links, which could lead elsewhere by the time of the read.
    let Some(hash) = workspace.hash(&from).await? else {
        return Err(Refusal::new(Code::NotFound, format!("there is no `{}`", from.as_str()))
            .hint("check on the droid: it lists its files"));
    };
    let bytes = workspace.read(&from, FILE_MAX).await?;
    if sha256_hex(&bytes) != hash {
        return Err(Refusal::new(Code::Conflict, format!("`{}` changed while it was read", from.as_str()))
            .hint("nothing was written; try again"));
    }
    let before = workspace.hash(&to).await?;
    let plan = FilePlan { path: to.as_str().to_owned(), before, after: Some(hash), grant_id };
    Ok(FileWork::one(plan, bytes))
}

pub(super) fn record_promotion(
    call: &CallContext,
    params: PromoteParams,
    plans: &[FilePlan],
    w: &mut Tx,
) -> Result<Output, Refusal> {
    let from = resolve(call, &params.from, Scope::World, false)?;
    let (droid_id, plan) = (droid_of(&from)?, only(plans)?);
    let artifact_id = written_by(call, plan, Some(droid_id.clone()), w)?;
    let content = json!({
        "path": plan.path, "from": from.as_str(), "droid_id": droid_id, "artifact_id": artifact_id,
    });
    Ok(without_nulls(content).into())
}
