//! File writes. The journal has the files' hashes before and after the writes. After a crash, the
//! hashes tell which of the writes have happened.

use std::sync::Arc;

use ghost_domain::journal::{CallOutcome, FilePlan};
use ghost_domain::write_acl::WorkspacePath;
use ghost_domain::{CallId, Code, Refusal};
use ghost_operations::{grants, turns};
use ghost_tools::FileWork;
use ghost_tools::tool::ErasedFile;
use ghost_tools::workspace::is_out_of_room;

use super::call::{CallResult, Checked};
use super::record::{InTransaction, outcome_unknown, record_end};
use super::runner::Runner;
use crate::transcript::Begun;

/// What the files of a plan are after a crash.
enum Left {
    /// All are as planned.
    Written,
    /// None is: nothing has happened.
    Unwritten,
    /// The plans of those that are as they were before; the others are as planned.
    Part(Vec<FilePlan>),
    /// Something else has happened to one.
    Unknown,
}

impl Runner {
    pub(super) async fn file(&self, checked: &Checked, tool: &Arc<dyn ErasedFile>) -> Result<CallResult, Refusal> {
        let (call_id, plans) = match &checked.call.begun {
            Some(Begun { call_id, files, .. }) if !files.is_empty() => (*call_id, files.clone()),
            Some(_) => return Ok(CallResult::Refused(outcome_unknown(&checked.tool.spec.name))),
            None => return self.write(checked, tool, None).await,
        };
        // If a file cannot be read, it is unknown whether the write has happened.
        match self.in_time(checked, self.left(&plans)).await.unwrap_or(Left::Unknown) {
            Left::Written => self.recorded_file(checked, tool, call_id, plans).await,
            Left::Unwritten => self.write(checked, tool, Some(call_id)).await,
            Left::Part(rest) => self.write_rest(checked, tool, call_id, plans, &rest).await,
            Left::Unknown => Ok(CallResult::Refused(outcome_unknown(&checked.tool.spec.name))),
        }
    }

    /// Compares the files with their plans.
    async fn left(&self, plans: &[FilePlan]) -> Result<Left, Refusal> {
        let (mut rest, mut written) = (Vec::new(), 0_usize);
        for plan in plans {
            let path = WorkspacePath::parse(&plan.path, false)?;
            let found = self.engine.services.workspace.hash(&path).await?;
            if found == plan.after {
                written += 1;
            } else if found == plan.before {
                rest.push(plan.clone());
            } else {
                return Ok(Left::Unknown);
            }
        }
        Ok(match (written, rest.is_empty()) {
            (_, true) => Left::Written,
            (0, false) => Left::Unwritten,
            (_, false) => Left::Part(rest),
        })
    }

    /// Prepares the writes, journals them, carries them out and records their result. With `begun`, the
    /// call's start is in the journal already and nothing was written.
    async fn write(
        &self,
        checked: &Checked,
        tool: &Arc<dyn ErasedFile>,
        begun: Option<CallId>,
    ) -> Result<CallResult, Refusal> {
        let call_id = begun.unwrap_or_else(|| CallId(self.engine.services.ctx.id()));
        let call_context = self.call_context(call_id, checked);
        let work = match self.in_time(checked, tool.prepare(&call_context, &checked.call.arguments)).await {
            Ok(work) => work,
            Err(refusal) => return Ok(CallResult::Refused(refusal)),
        };
        let plans = work.plans();
        // A resumed write is journaled again, because the files may have changed since.
        self.record_start(self.call_start(checked, call_id, plans.clone())).await?;
        self.carry_out(checked, tool, call_id, work, plans).await
    }

    /// Completes a call of which a crash left a part. What it may not do any more stays undone, and the model gets to
    /// know which files were changed.
    async fn write_rest(
        &self,
        checked: &Checked,
        tool: &Arc<dyn ErasedFile>,
        call_id: CallId,
        plans: Vec<FilePlan>,
        rest: &[FilePlan],
    ) -> Result<CallResult, Refusal> {
        let call_context = self.call_context(call_id, checked);
        let prepared = tool.prepare_rest(&call_context, &checked.call.arguments, rest);
        let why = match self.in_time(checked, prepared).await {
            Ok(work) if is_same(&work.plans(), rest) => {
                return self.carry_out(checked, tool, call_id, work, plans).await;
            }
            Ok(_) => "the rest would not be what was planned".to_owned(),
            Err(refusal) => refusal.message,
        };
        let named = |done: bool| -> Vec<&str> {
            let is_done = |plan: &&FilePlan| rest.iter().any(|left| left.path == plan.path) != done;
            plans.iter().filter(is_done).map(|plan| plan.path.as_str()).collect()
        };
        let (changed, unchanged) = (named(true), named(false));
        let refusal = Refusal::new(
            Code::OutcomeUnknown,
            format!(
                "the daemon stopped in the middle of {}, and it cannot be completed: {why}",
                checked.tool.spec.name
            ),
        )
        .hint(format!("changed: {}; unchanged: {}", changed.join(", "), unchanged.join(", ")))
        .details(serde_json::json!({ "changed": changed, "unchanged": unchanged }));
        Ok(CallResult::Refused(refusal))
    }

    /// Makes the writes and records the result. `plans` are those of the whole call.
    async fn carry_out(
        &self,
        checked: &Checked,
        tool: &Arc<dyn ErasedFile>,
        call_id: CallId,
        work: FileWork,
        plans: Vec<FilePlan>,
    ) -> Result<CallResult, Refusal> {
        let written = self.engine.services.workspace.carry_out(work.writes);
        if let Err(refusal) = self.in_time(checked, written).await {
            // Not the model's affair: the turn goes on here, from its journal, when there is room again.
            if self.reports_activity && is_out_of_room(&refusal) {
                return Err(refusal);
            }
            // The disk may still complete a write that has timed out.
            let refusal = match refusal.code {
                Code::Timeout => Refusal::new(Code::OutcomeUnknown, refusal.message)
                    .hint("it may or may not be written yet: read the file before you write it again"),
                _ => refusal,
            };
            return self.refused_after_start(checked, call_id, refusal).await;
        }
        self.recorded_file(checked, tool, call_id, plans).await
    }

    async fn recorded_file(
        &self,
        checked: &Checked,
        tool: &Arc<dyn ErasedFile>,
        call_id: CallId,
        plans: Vec<FilePlan>,
    ) -> Result<CallResult, Refusal> {
        let call_context = self.call_context(call_id, checked);
        let (ctx, recorder, turn_id) = (self.engine.services.ctx.clone(), Arc::clone(tool), self.turn.turn_id);
        let ended = self.ended(checked, call_id);
        let (arguments, written_plans) = (checked.call.arguments.clone(), plans.clone());
        let done = self
            .engine
            .services
            .store
            .write(move |w| {
                let turn = turns::working_turn(w, &ctx, turn_id).map_err(InTransaction::Turn)?;
                let mut output = recorder.record(&call_context, arguments, &plans, w).map_err(InTransaction::Tool)?;
                for plan in &plans {
                    let Some(grant_id) = plan.grant_id else { continue };
                    output.events.push(grants::used(&turn.agent_id, turn_id, call_id, grant_id, Some(&plan.path)));
                }
                record_end(w, &ctx, &turn, &ended, output).map_err(InTransaction::Turn)
            })
            .await;
        match done {
            Ok(outcome) => Ok(CallResult::Recorded(outcome)),
            Err(InTransaction::Tool(refusal)) => {
                // The tool refused, so the write is reverted: a refused call must have no effect.
                let taken_back = self.in_time(checked, self.engine.services.workspace.take_back(&written_plans)).await;
                let refusal = match taken_back {
                    Ok(true) => refusal,
                    Ok(false) | Err(_) => {
                        let hint = refusal.hint.clone().unwrap_or_else(|| "nothing else was done".into());
                        let paths: Vec<String> = written_plans.iter().map(|plan| format!("`{}`", plan.path)).collect();
                        refusal.hint(format!("{hint}; {} was written and is still there", paths.join(", ")))
                    }
                };
                self.refused_after_start(checked, call_id, refusal).await
            }
            Err(InTransaction::Turn(refusal)) => Err(refusal),
        }
    }

    async fn refused_after_start(
        &self,
        checked: &Checked,
        call_id: CallId,
        refusal: Refusal,
    ) -> Result<CallResult, Refusal> {
        let outcome: CallOutcome = self.record_result(self.ended(checked, call_id), Err(refusal)).await?;
        Ok(CallResult::Recorded(outcome))
    }
}

/// Whether two lists plan the same writes, in any order and whatever grants allow them.
fn is_same(some: &[FilePlan], others: &[FilePlan]) -> bool {
    let same = |one: &FilePlan, other: &FilePlan| {
        (&one.path, &one.before, &one.after) == (&other.path, &other.before, &other.after)
    };
    some.len() == others.len() && some.iter().all(|one| others.iter().any(|other| same(one, other)))
}
