//! File writes: journaled with the hashes before and after, so that a crash in one can be told from a write that
//! happened (promise 2; DESIGN.md section 2, "Journal").

use std::sync::Arc;

use ghost_domain::journal::{CallOutcome, FilePlan};
use ghost_domain::write_acl::WorkspacePath;
use ghost_domain::{CallId, Code, Refusal};
use ghost_rules::turns;
use ghost_tools::tool::ErasedFile;

use super::call::{Checked, Done};
use super::record::{InTransaction, outcome_unknown, record_end};
use super::runner::Runner;
use crate::transcript::Begun;

impl Runner {
    pub(super) async fn file(&self, checked: &Checked, tool: &Arc<dyn ErasedFile>) -> Result<Done, Refusal> {
        let begun = match &checked.call.begun {
            Some(Begun { call_id, file: Some(plan), .. }) => Some((*call_id, plan.clone())),
            Some(_) => return Ok(Done::Refused(outcome_unknown(&checked.tool.spec.name))),
            None => None,
        };
        if let Some((call_id, plan)) = begun {
            let path = WorkspacePath::parse(&plan.path, false)?;
            let found = match self.in_time(checked, self.engine.services.workspace.hash(&path)).await {
                Ok(found) => found,
                // What cannot be looked at cannot be told from a write that happened.
                Err(_) => return Ok(Done::Refused(outcome_unknown(&checked.tool.spec.name))),
            };
            if found.as_deref() == Some(plan.after.as_str()) {
                return self.recorded_file(checked, tool, call_id, plan).await;
            }
            if found != plan.before {
                return Ok(Done::Refused(outcome_unknown(&checked.tool.spec.name)));
            }
            return self.write(checked, tool, Some(call_id)).await;
        }
        self.write(checked, tool, None).await
    }

    /// Prepares, journals, writes, records. With `begun` the call is in the journal already, and nothing was written.
    async fn write(
        &self,
        checked: &Checked,
        tool: &Arc<dyn ErasedFile>,
        begun: Option<CallId>,
    ) -> Result<Done, Refusal> {
        let call_id = begun.unwrap_or_else(|| CallId(self.engine.services.ctx.id()));
        let call_cx = self.call_cx(call_id, &checked.call.id);
        let work = match self.in_time(checked, tool.prepare(&call_cx, &checked.call.arguments)).await {
            Ok(work) => work,
            Err(refusal) => return Ok(Done::Refused(refusal)),
        };
        // Journaled anew when it goes on: what is there now may not be what was there then.
        self.record_start(self.call_start(checked, call_id, Some(work.plan.clone()))).await?;
        let carried = self.engine.services.workspace.carry_out(&work.plan, &work.bytes);
        if let Err(refusal) = self.in_time(checked, carried).await {
            // What the disk was told to do it may still do.
            let refusal = match refusal.code {
                Code::Timeout => Refusal::new(Code::OutcomeUnknown, refusal.message)
                    .hint("it may or may not be written yet: look at the file before you do it again"),
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
    ) -> Result<Done, Refusal> {
        let call_cx = self.call_cx(call_id, &checked.call.id);
        let (ctx, recorder, turn_id) = (self.engine.services.ctx.clone(), Arc::clone(tool), self.turn.turn_id);
        let (id, name) = (checked.call.id.clone(), checked.tool.spec.name.clone());
        let (arguments, written) = (checked.call.arguments.clone(), plan.clone());
        let done = self
            .engine
            .services
            .store
            .write(move |w| {
                Box::pin(async move {
                    let turn = turns::working_turn(w, &ctx, turn_id).await.map_err(InTransaction::Turn)?;
                    let output = recorder.record(&call_cx, arguments, &plan, w).await.map_err(InTransaction::Tool)?;
                    record_end(w, &ctx, &turn, call_id, &id, &name, output).await.map_err(InTransaction::Turn)
                })
            })
            .await;
        match done {
            Ok(outcome) => Ok(Done::Recorded(outcome)),
            Err(InTransaction::Tool(refusal)) => {
                // A refusal leaves nothing behind: what was to go with the file has not happened.
                let gone = self.in_time(checked, self.engine.services.workspace.take_back(&written)).await;
                let refusal = match gone {
                    Ok(true) => refusal,
                    Ok(false) | Err(_) => {
                        let hint = refusal.hint.clone().unwrap_or_else(|| "nothing else was done".into());
                        refusal.hint(format!("{hint}; `{}` was written and is still there", written.path))
                    }
                };
                self.refused_after_start(checked, call_id, refusal).await
            }
            Err(InTransaction::Turn(refusal)) => Err(refusal),
        }
    }

    async fn refused_after_start(&self, checked: &Checked, call_id: CallId, refusal: Refusal) -> Result<Done, Refusal> {
        let outcome: CallOutcome =
            self.record_result(call_id, &checked.call.id, &checked.tool.spec.name, Err(refusal)).await?;
        Ok(Done::Recorded(outcome))
    }
}
