//! The `Ledger` service: the record of tool calls.

use ghost_domain::{CallTotals, Refusal};
use ghost_proto::v1;
use ghost_proto::v1::ledger_server::Ledger;
use ghost_store::tables::LedgerFilter;
use tonic::{Request, Response, Status};

use crate::control::Control;
use crate::convert::{self, input};
use crate::refusal::to_status;
use crate::{caller, queries};

/// Largest length of a tool's name, in characters.
const NAME_MAX: usize = 128;

/// Implements `ghost.v1.Ledger`.
pub struct LedgerService(pub Control);

impl LedgerService {
    async fn filter(&self, request: &v1::LedgerTotalsRequest) -> Result<LedgerFilter, Refusal> {
        let tool = match input::line_if("tool", request.tool.as_deref(), NAME_MAX)? {
            Some(name) => Some(queries::tool_in_filter(&self.0.world, &name).await?),
            None => None,
        };
        Ok(LedgerFilter {
            agent_id: queries::agent_in_filter(&self.0.world, "agent_id", request.agent_id.as_deref()).await?,
            turn_id: input::parsed_if("turn_id", request.turn_id.as_deref())?,
            tool,
            status: input::parsed_if("status", request.status.as_deref())?,
            since: input::instant("since_at_ms", request.since_at_ms)?,
            ..LedgerFilter::default()
        })
    }

    pub(crate) async fn sums(&self, request: v1::LedgerTotalsRequest) -> Result<v1::LedgerTotalsResponse, Refusal> {
        let filter = self.filter(&request).await?;
        let read = self.0.world.store().read(move |r| r.call_totals(&filter));
        let totals: Vec<CallTotals> = read.await.map_err(Refusal::from)?;
        Ok(v1::LedgerTotalsResponse { totals: totals.iter().map(convert::call_totals).collect() })
    }

    pub(crate) async fn page(&self, request: v1::ListLedgerRequest) -> Result<v1::ListLedgerResponse, Refusal> {
        let filter = self
            .filter(&v1::LedgerTotalsRequest {
                agent_id: request.agent_id,
                tool: request.tool,
                status: request.status,
                turn_id: request.turn_id,
                since_at_ms: request.since_at_ms,
            })
            .await?;
        let after = input::position(input::unseal("ledger", &request.cursor)?)?;
        let turn_id = filter.turn_id;
        let page = queries::ledger(&self.0.world, filter, after, input::page(request.limit)).await?;
        if let (Some(turn_id), true) = (turn_id, after.is_none() && page.rows.is_empty()) {
            queries::turn_in_filter(&self.0.world, turn_id).await?;
        }
        let (rows, next) = page.map(convert::ledger_row);
        Ok(v1::ListLedgerResponse { rows, next_cursor: input::seal("ledger", &next) })
    }
}

#[tonic::async_trait]
impl Ledger for LedgerService {
    async fn list(&self, request: Request<v1::ListLedgerRequest>) -> Result<Response<v1::ListLedgerResponse>, Status> {
        caller::party(&request)?;
        self.page(request.into_inner()).await.map(Response::new).map_err(to_status)
    }

    async fn totals(
        &self,
        request: Request<v1::LedgerTotalsRequest>,
    ) -> Result<Response<v1::LedgerTotalsResponse>, Status> {
        caller::party(&request)?;
        self.sums(request.into_inner()).await.map(Response::new).map_err(to_status)
    }
}
