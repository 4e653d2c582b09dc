//! The `Turns` service: turns and their journals.

use ghost_domain::text::clip;
use ghost_domain::{CallId, Code, Refusal, TurnId, TurnStatus};
use ghost_operations::turns::Settled;
use ghost_operations::{requests, turns};
use ghost_proto::v1;
use ghost_proto::v1::turns_server::Turns;
use ghost_store::tables::TurnFilter;
use tonic::{Request, Response, Status};

use crate::control::Control;
use crate::convert::{self, input};
use crate::refusal::to_status;
use crate::{caller, queries};

/// Number of journal steps in one response: default and maximum.
const STEPS: usize = 200;
const STEPS_MAX: usize = 1_000;

/// Implements `ghost.v1.Turns`.
pub struct TurnsService(pub Control);

impl TurnsService {
    async fn page(&self, request: v1::ListTurnsRequest) -> Result<v1::ListTurnsResponse, Refusal> {
        // A parked turn is stored as open, but is listed as parked.
        let (status, parked) = match request.status.as_deref() {
            Some(convert::PARKED) => (Some(TurnStatus::Open), Some(true)),
            wanted => {
                let status = input::parsed_if("status", wanted).map_err(|refusal| {
                    let all: Vec<&str> = TurnStatus::ALL.iter().map(|status| status.as_str()).collect();
                    refusal.hint(format!("one of: {}, {}", convert::PARKED, all.join(", ")))
                })?;
                (status, (status == Some(TurnStatus::Open)).then_some(false))
            }
        };
        let filter = TurnFilter {
            agent_id: queries::agent_in_filter(&self.0.world, "agent_id", request.agent_id.as_deref()).await?,
            status,
            parked,
            root_id: input::parsed_if("root_id", request.root_id.as_deref())?,
            ..TurnFilter::default()
        };
        let after = input::position(input::unseal("turns", &request.cursor)?)?;
        let (world, limit) = (&self.0.world, input::page(request.limit));
        let page = queries::turns(world, filter, after, limit).await?;
        let (turns, next) = page.map(|turn| convert::turn(turn, &self.0.world.ctx().redactor));
        Ok(v1::ListTurnsResponse { turns, next_cursor: input::seal("turns", &next) })
    }

    async fn journal(&self, request: v1::GetTurnRequest) -> Result<v1::GetTurnResponse, Refusal> {
        let limit = match usize::try_from(request.limit).unwrap_or(STEPS_MAX) {
            0 => STEPS,
            limit => limit.min(STEPS_MAX),
        };
        let (turn, rows) = queries::turn(&self.0.world, input::parsed("turn_id", &request.turn_id)?).await?;
        let redactor = &self.0.world.ctx().redactor;
        let mut steps = Vec::new();
        let (mut bytes, mut more) = (0, false);
        for row in rows.iter().filter(|row| row.seq > request.after_seq) {
            let step = serde_json::to_value(&row.step)
                .map_err(|error| Refusal::new(Code::Internal, format!("a step cannot be written: {error}")))?;
            let step = convert::journal_row(row, &redactor.redact_json(&step));
            bytes += step.step_json.len();
            if steps.len() == limit || (bytes > queries::PAGE_BYTES && !steps.is_empty()) {
                more = true;
                break;
            }
            steps.push(step);
        }
        Ok(v1::GetTurnResponse { turn: Some(convert::turn(&turn, redactor)), steps, more })
    }
}

#[tonic::async_trait]
impl Turns for TurnsService {
    async fn list(&self, request: Request<v1::ListTurnsRequest>) -> Result<Response<v1::ListTurnsResponse>, Status> {
        caller::party(&request)?;
        self.page(request.into_inner()).await.map(Response::new).map_err(to_status)
    }

    async fn get(&self, request: Request<v1::GetTurnRequest>) -> Result<Response<v1::GetTurnResponse>, Status> {
        caller::party(&request)?;
        self.journal(request.into_inner()).await.map(Response::new).map_err(to_status)
    }

    async fn retry(&self, request: Request<v1::RetryTurnRequest>) -> Result<Response<v1::RetryTurnResponse>, Status> {
        let by = caller::party(&request)?;
        let key = caller::key(&request, "turns.retry", &request.get_ref().request_id)?;
        let request = request.into_inner();
        let turn_id: TurnId = input::parsed("turn_id", &request.turn_id).map_err(to_status)?;
        let result =
            requests::once(self.0.world.store(), self.0.world.ctx(), key, move |w| turns::retry(w, &by, turn_id)).await;
        let turn = result.map_err(to_status)?;
        let turn = Some(convert::turn(&turn, &self.0.world.ctx().redactor));
        Ok(Response::new(v1::RetryTurnResponse { turn }))
    }

    async fn settle(
        &self,
        request: Request<v1::SettleCallRequest>,
    ) -> Result<Response<v1::SettleCallResponse>, Status> {
        let by = caller::party(&request)?;
        let key = caller::key(&request, "turns.settle", &request.get_ref().request_id)?;
        let request = request.into_inner();
        let call_id: CallId = input::parsed("call_id", &request.call_id).map_err(to_status)?;
        let settled = match request.outcome.as_str() {
            "happened" => Settled::Happened,
            "did-not" => Settled::DidNot,
            other => {
                let refusal =
                    Refusal::new(Code::InvalidArguments, format!("outcome: `{}` is no outcome", clip(other, 40)));
                return Err(to_status(refusal.hint("write `happened` or `did-not`")));
            }
        };
        let note = input::line_if("note", request.note.as_deref(), 300).map_err(to_status)?;
        let result = requests::once(self.0.world.store(), self.0.world.ctx(), key, move |w| {
            turns::settle(w, &by, call_id, (settled, note.as_deref()))
        })
        .await;
        let row = result.map_err(to_status)?;
        Ok(Response::new(v1::SettleCallResponse { call: Some(convert::ledger_row(&row)) }))
    }

    async fn cancel(
        &self,
        request: Request<v1::CancelTurnRequest>,
    ) -> Result<Response<v1::CancelTurnResponse>, Status> {
        let by = caller::party(&request)?;
        let key = caller::key(&request, "turns.cancel", &request.get_ref().request_id)?;
        let request = request.into_inner();
        let reason = input::line_if("reason", request.reason.as_deref(), 300).map_err(to_status)?;
        let turn_id: TurnId = input::parsed("turn_id", &request.turn_id).map_err(to_status)?;
        let result = requests::once(self.0.world.store(), self.0.world.ctx(), key, move |w| {
            queries::cancel_turn(w, &by, turn_id, reason.as_deref())
        })
        .await;
        let (turn, changed) = result.map_err(to_status)?;
        Ok(Response::new(v1::CancelTurnResponse {
            turn: Some(convert::turn(&turn, &self.0.world.ctx().redactor)),
            changed,
        }))
    }
}
