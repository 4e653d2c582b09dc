//! What the tools that write files record of a write (ART-01, ART-02).

use ghost_domain::artifact::{Found, OUTPUT};
use ghost_domain::ids::ArtifactId;
use ghost_domain::journal::FilePlan;
use ghost_domain::write_acl::WorkspacePath;
use ghost_domain::{AgentId, Code, Refusal};
use ghost_operations::Tx;
use ghost_operations::artifacts::{self, Origin};

use crate::context::CallContext;

/// The plan of a call that writes one file.
pub(super) fn only(plans: &[FilePlan]) -> Result<&FilePlan, Refusal> {
    match plans {
        [plan] => Ok(plan),
        plans => Err(Refusal::new(Code::Internal, format!("{} files were planned, not one", plans.len()))),
    }
}

/// Indexes a written file. Returns the id of its artifact, if it is one. A file whose size cannot be read any more is
/// not indexed: that must not fail the write.
pub(super) fn written(call: &CallContext, plan: &FilePlan, w: &mut Tx) -> Result<Option<ArtifactId>, Refusal> {
    written_by(call, plan, None, w)
}

/// Like [`written`], for the work of a droid.
pub(super) fn written_by(
    call: &CallContext,
    plan: &FilePlan,
    droid_id: Option<AgentId>,
    w: &mut Tx,
) -> Result<Option<ArtifactId>, Refusal> {
    if !plan.path.starts_with(OUTPUT) {
        return Ok(None);
    }
    let content = match &plan.after {
        None => None,
        Some(after) => match call.services.workspace.size_now(&WorkspacePath::parse(&plan.path, false)?) {
            Ok(bytes) => Some((after.clone(), bytes)),
            Err(refusal) => {
                tracing::warn!(path = %plan.path, %refusal, "a written file is not indexed");
                return Ok(None);
            }
        },
    };
    let (agent_id, turn_id, root_id) = (call.caller.agent_id.clone(), call.turn_id, call.root_id);
    let origin = Origin { agent_id, turn_id, root_id, droid_id };
    let found = Found { path: plan.path.clone(), content };
    let indexed = artifacts::index(w, Some(&origin), found, true)?;
    Ok(indexed.map(|artifact| artifact.artifact_id))
}
