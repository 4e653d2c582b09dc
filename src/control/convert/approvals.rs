//! Approvals on the wire, redacted.

use ghost_domain::approval::SHOWN_MAX;
use ghost_domain::redact::Redactor;
use ghost_domain::text::clip;
use ghost_domain::{Approval, BoundFile};
use ghost_proto::v1;
use serde_json::json;

/// An approval without the details of its plan.
#[must_use]
pub fn approval_row(approval: &Approval, redactor: &Redactor) -> v1::Approval {
    v1::Approval {
        approval_id: approval.approval_id.to_string(),
        agent_id: approval.agent_id.to_string(),
        turn_id: approval.turn_id.to_string(),
        conversation_id: approval.conversation_id.map(|id| id.to_string()),
        tool: approval.plan.tool.clone(),
        summary: clip(&redactor.redact(&approval.plan.summary()), SHOWN_MAX),
        reason: redactor.redact(&approval.reason),
        status: approval.status.as_str().to_owned(),
        always: approval.always,
        decided_by: approval.decided_by.as_ref().map(ToString::to_string),
        note: approval.note.as_deref().map(|note| redactor.redact(note)),
        requested_at_ms: approval.requested_at.0,
        expires_at_ms: approval.expires_at.0,
        closed_at_ms: approval.closed_at.map(|at| at.0),
        digest: approval.digest.clone(),
        ..v1::Approval::default()
    }
}

/// An approval with the details of its plan.
#[must_use]
pub fn approval(approval: &Approval, redactor: &Redactor) -> v1::Approval {
    let plan = &approval.plan;
    let file = |file: &BoundFile| v1::BoundFile { path: file.path.clone(), sha256: file.sha256.clone() };
    v1::Approval {
        arguments_json: redactor.redact_json(&plan.arguments).to_string(),
        argv: plan.argv.iter().map(|word| redactor.redact(word)).collect(),
        dir: plan.dir.clone(),
        env_json: redactor.redact_json(&json!(plan.env)).to_string(),
        sandbox: plan.sandbox.clone(),
        once_only: plan.once_only.clone(),
        form_json: plan.form.as_ref().map(|form| redactor.redact_json(form).to_string()).unwrap_or_default(),
        fields_json: approval
            .fields
            .as_ref()
            .map(|fields| redactor.redact_json(&json!(fields)).to_string())
            .unwrap_or_default(),
        files: plan.files.iter().map(file).collect(),
        ..approval_row(approval, redactor)
    }
}
