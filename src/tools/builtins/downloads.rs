//! What a tool brought from outside and saves as a file of the workspace. It must never write where the agent may not.

use ghost_domain::Refusal;
use ghost_domain::artifact::{Found, OUTPUT};
use ghost_domain::ids::GrantId;
use ghost_domain::journal::FilePlan;
use ghost_domain::write_acl::WorkspacePath;
use ghost_operations::grants;

use super::workspace::{Scope, resolve, with_scope_hint};
use crate::context::CallContext;
use crate::effect::Output;
use crate::workspace::FileWrite;

/// Where something is saved.
pub(super) struct Target {
    pub(super) path: WorkspacePath,
    grant_id: Option<GrantId>,
}

/// The path of a file that the caller may write, and the grant without which it could not.
pub(super) async fn target(call: &CallContext, path: &str, scope: Scope) -> Result<Target, Refusal> {
    let hint = |refusal| with_scope_hint(refusal, path, scope);
    let path = resolve(call, path, scope, false)?;
    let grant_id = call.may_write(&path).await.map_err(hint)?;
    Ok(Target { path, grant_id })
}

/// Writes the file, and adds to `output` what is to be recorded of it.
pub(super) async fn put(
    call: &CallContext,
    Target { path, grant_id }: Target,
    sha256: String,
    bytes: &[u8],
    mut output: Output,
) -> Result<Output, Refusal> {
    let workspace = &call.services.workspace;
    let (before, after) = (workspace.hash(&path).await?, Some(sha256.clone()));
    let plan = FilePlan { path: path.as_str().to_owned(), before, after, grant_id };
    workspace.carry_out(vec![FileWrite { plan, bytes: Some(bytes.to_vec()) }]).await?;
    if path.as_str().starts_with(OUTPUT) {
        let content = Some((sha256, bytes.len() as u64));
        output.artifacts.push(Found { path: path.as_str().to_owned(), content });
    }
    if let Some(grant_id) = grant_id {
        let (agent_id, path) = (&call.caller.agent_id, Some(path.as_str()));
        output.events.push(grants::used(agent_id, call.turn_id, call.call_id, grant_id, path));
    }
    Ok(output)
}
