//! The `Budgets` service.

use ghost_domain::text::nearest;
use ghost_domain::{Money, Refusal, RequestKey, Scope};
use ghost_operations::budgets::{self as rules, NewLimits};
use ghost_operations::requests;
use ghost_proto::v1;
use ghost_proto::v1::budgets_server::Budgets;
use ghost_store::tables::UsageFilter;
use tonic::{Request, Response, Status};

use crate::control::Control;
use crate::convert::{self, input};
use crate::refusal::to_status;
use crate::{caller, queries};

/// Largest limit. Sums of larger values would not be exact.
const LIMIT_MAX: u64 = 1_000_000_000_000_000;

/// Implements `ghost.v1.Budgets`.
pub struct BudgetsService(pub Control);

/// One limit of a request: `Some(Some(_))` sets it, `Some(None)` removes it, `None` leaves it.
fn limit(field: &str, value: Option<u64>, clear: bool) -> Result<Option<Option<u64>>, Refusal> {
    match (value, clear) {
        (Some(_), true) => Err(input::bad(field, "is both set and cleared").hint("give one of the two")),
        (Some(value), false) if value > LIMIT_MAX => {
            Err(input::bad(field, format!("is {value}; the maximum is {LIMIT_MAX}"))
                .hint("give a smaller limit, or none"))
        }
        (Some(value), false) => Ok(Some(Some(value))),
        (None, true) => Ok(Some(None)),
        (None, false) => Ok(None),
    }
}

fn limits(request: &v1::SetBudgetRequest) -> Result<NewLimits, Refusal> {
    let money = limit("limit_micros", request.limit_micros, request.clear_micros)?;
    Ok(NewLimits {
        tokens: limit("limit_tokens", request.limit_tokens, request.clear_tokens)?,
        money: money.map(|money| money.map(Money)),
    })
}

impl BudgetsService {
    async fn page(&self, request: v1::ListBudgetsRequest) -> Result<v1::ListBudgetsResponse, Refusal> {
        let sort = input::parsed_if("sort", request.sort.as_deref())?;
        let cursor = input::unseal("budgets", &request.cursor)?;
        let page = queries::budgets(&self.0.world, sort, cursor, input::page(request.limit)).await?;
        let (budgets, next) = page.map(convert::budget);
        Ok(v1::ListBudgetsResponse { budgets, next_cursor: input::seal("budgets", &next) })
    }

    /// Parses a scope. The refusal suggests the nearest existing scope.
    fn scope(&self, text: &str) -> Result<Scope, Refusal> {
        input::parsed("scope", text).map_err(|refusal| match self.near(text) {
            Some(near) => refusal.hint(format!("did you mean `{near}`?")),
            None => refusal,
        })
    }

    fn near(&self, text: &str) -> Option<String> {
        let world = &self.0.world;
        let teams = world.plan();
        let teams = teams.teams.iter().map(|team| Scope::Team(team.name.clone()));
        let agents = world.directory().cards();
        let agents = agents.into_iter().map(|card| Scope::Agent(card.agent_id));
        let scopes = std::iter::once(Scope::World).chain(teams).chain(agents);
        let all: Vec<String> =
            scopes.flat_map(|scope| [scope.daily(), Some(scope)]).flatten().map(|scope| scope.to_string()).collect();
        nearest(text, all.iter().map(String::as_str)).map(str::to_owned)
    }

    /// Refuses an unknown root. The rule that sets limits checks agents and teams itself; looking for a
    /// root reads many rows, so it happens here, before the transaction. A repeated request gets its
    /// stored answer even if the root is gone.
    async fn check_root(&self, key: &RequestKey, scope: &Scope) -> Result<(), Refusal> {
        match scope {
            Scope::Root(root_id) if queries::stored_answer(&self.0.world, key).await?.is_none() => {
                queries::root_named(&self.0.world, *root_id).await
            }
            _ => Ok(()),
        }
    }

    async fn sums(&self, request: v1::UsageRequest) -> Result<v1::UsageResponse, Refusal> {
        let agent_id = queries::agent_in_filter(&self.0.world, "agent_id", request.agent_id.as_deref()).await?;
        let since = input::instant("since_at_ms", request.since_at_ms)?;
        let filter = UsageFilter { agent_id, since, ..UsageFilter::default() };
        let cursor = input::unseal("usage", &request.cursor)?;
        let page = queries::usage_page(&self.0.world, filter, cursor, request.limit).await?;
        let (sums, next) = page.map(convert::usage_sum);
        Ok(v1::UsageResponse { sums, next_cursor: input::seal("usage", &next) })
    }
}

#[tonic::async_trait]
impl Budgets for BudgetsService {
    async fn list(
        &self,
        request: Request<v1::ListBudgetsRequest>,
    ) -> Result<Response<v1::ListBudgetsResponse>, Status> {
        caller::party(&request)?;
        self.page(request.into_inner()).await.map(Response::new).map_err(to_status)
    }

    async fn set(&self, request: Request<v1::SetBudgetRequest>) -> Result<Response<v1::Budget>, Status> {
        let by = caller::party(&request)?;
        let key = caller::key(&request, "budgets.set", &request.get_ref().request_id)?;
        let scope = self.scope(&request.get_ref().scope).map_err(to_status)?;
        let limits = limits(request.get_ref()).map_err(to_status)?;
        self.check_root(&key, &scope).await.map_err(to_status)?;
        let budget =
            requests::once(self.0.world.store(), self.0.world.ctx(), key, move |w| rules::set(w, &by, &scope, limits))
                .await
                .map_err(to_status)?;
        let root_tokens = self.0.world.ctx().limits().root_tokens_max;
        Ok(Response::new(convert::budget(&budget.with_default(root_tokens))))
    }

    async fn usage(&self, request: Request<v1::UsageRequest>) -> Result<Response<v1::UsageResponse>, Status> {
        caller::party(&request)?;
        self.sums(request.into_inner()).await.map(Response::new).map_err(to_status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::TestControl;

    #[tokio::test]
    async fn a_misspelled_scope_gets_the_nearest_one_as_a_hint() {
        let test = TestControl::with("teams: [{ name: desk, agents: [ben] }]\n").await;
        let budgets = BudgetsService(test.control.clone());
        for (typo, near) in [
            ("wrold", "world"),
            ("wrold/day", "world/day"),
            ("world/dya", "world/day"),
            ("agent:adda/dya", "agent:ada/day"),
            ("agnet:ada", "agent:ada"),
            ("taem:desk", "team:desk"),
        ] {
            let refusal = budgets.scope(typo).unwrap_err();
            let wrong = typo.strip_suffix("/day").unwrap_or(typo);
            assert!(refusal.message.starts_with("scope: ") && refusal.message.contains(&format!("`{wrong}`")));
            assert!(refusal.hint.unwrap().contains(&format!("`{near}`")));
        }
        // No scope is near: the hint explains what a scope is.
        let hint = budgets.scope("everything").unwrap_err().hint.unwrap();
        assert!(hint.contains("world, team:<name>"), "{hint}");
    }
}
