//! File writes. The journal has the file's hash before and after the write. After a crash, the
//! hashes tell whether the write has happened.

use std::sync::Arc;

use ghost_domain::journal::{CallOutcome, FilePlan};
use ghost_domain::write_acl::WorkspacePath;
use ghost_domain::{CallId, Code, Refusal};
use ghost_operations::turns;
use ghost_tools::tool::ErasedFile;

use super::call::{CallResult, Checked};
use super::record::{InTransaction, outcome_unknown, record_end};
use super::runner::Runner;
use crate::transcript::Begun;

impl Runner {
    pub(super) async fn file(&self, checked: &Checked, tool: &Arc<dyn ErasedFile>) -> Result<CallResult, Refusal> {
        let begun = match &checked.call.begun {
            Some(Begun { call_id, file: Some(plan), .. }) => Some((*call_id, plan.clone())),
            Some(_) => return Ok(CallResult::Refused(outcome_unknown(&checked.tool.spec.name))),
            None => None,
        };
        if let Some((call_id, plan)) = begun {
            let path = WorkspacePath::parse(&plan.path, false)?;
            let found = match self.in_time(checked, self.engine.services.workspace.hash(&path)).await {
                Ok(found) => found,
                // If the file cannot be read, it is unknown whether the write has happened.
                Err(_) => return Ok(CallResult::Refused(outcome_unknown(&checked.tool.spec.name))),
            };
            if found.as_deref() == Some(plan.after.as_str()) {
                return self.recorded_file(checked, tool, call_id, plan).await;
            }
            if found != plan.before {
                return Ok(CallResult::Refused(outcome_unknown(&checked.tool.spec.name)));
            }
            return self.write(checked, tool, Some(call_id)).await;
        }
        self.write(checked, tool, None).await
    }

    /// Prepares the write, journals it, carries it out and records its result. With `begun`, the
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
        // A resumed write is journaled again, because the file may have changed since.
        self.record_start(self.call_start(checked, call_id, Some(work.plan.clone()))).await?;
        let written = self.engine.services.workspace.carry_out(&work.plan, &work.bytes);
        if let Err(refusal) = self.in_time(checked, written).await {
            // The disk may still complete a write that has timed out.
            let refusal = match refusal.code {
                Code::Timeout => Refusal::new(Code::OutcomeUnknown, refusal.message)
                    .hint("it may or may not be written yet: read the file before you write it again"),
                _ => refusal,
            };
            return self.refused_after_start(checked, call_id, refusal).await;
        }
        self.recorded_file(checked, tool, call_id, work.plan).await
    }

    async fn recorded_file(
        &self,
        checked: &Checked,
        tool: &Arc<dyn ErasedFile>,
        call_id: CallId,
        plan: FilePlan,
    ) -> Result<CallResult, Refusal> {
        let call_context = self.call_context(call_id, checked);
        let (ctx, recorder, turn_id) = (self.engine.services.ctx.clone(), Arc::clone(tool), self.turn.turn_id);
        let (id, name) = (checked.call.id.clone(), checked.tool.spec.name.clone());
        let (arguments, written_plan) = (checked.call.arguments.clone(), plan.clone());
        let done = self
            .engine
            .services
            .store
            .write(move |w| {
                Box::pin(async move {
                    let turn = turns::working_turn(w, &ctx, turn_id).await.map_err(InTransaction::Turn)?;
                    let output =
                        recorder.record(&call_context, arguments, &plan, w).await.map_err(InTransaction::Tool)?;
                    record_end(w, &ctx, &turn, call_id, &id, &name, output).await.map_err(InTransaction::Turn)
                })
            })
            .await;
        match done {
            Ok(outcome) => Ok(CallResult::Recorded(outcome)),
            Err(InTransaction::Tool(refusal)) => {
                // The tool refused, so the write is reverted: a refused call must have no effect.
                let taken_back = self.in_time(checked, self.engine.services.workspace.take_back(&written_plan)).await;
                let refusal = match taken_back {
                    Ok(true) => refusal,
                    Ok(false) | Err(_) => {
                        let hint = refusal.hint.clone().unwrap_or_else(|| "nothing else was done".into());
                        refusal.hint(format!("{hint}; `{}` was written and is still there", written_plan.path))
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
        let outcome: CallOutcome =
            self.record_result(call_id, &checked.call.id, &checked.tool.spec.name, Err(refusal)).await?;
        Ok(CallResult::Recorded(outcome))
    }
}
