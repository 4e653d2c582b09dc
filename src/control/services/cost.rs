//! The services `Budgets` and `Ledger`: what may be spent and what was, and the record of tool calls.

use ghost_domain::text::nearest;
use ghost_domain::usage::UsageSum;
use ghost_domain::{Budget, CallId, LedgerRow, Money, Scope};
use ghost_operations::budgets::{self as rules, NewLimits};
use ghost_proto::v1;
use ghost_store::Tx;
use ghost_store::tables::{BudgetFilter, LedgerFilter, UsageFilter};

use crate::control::Control;
use crate::convert;
use crate::convert::input::{self, Position};
use crate::dispatch::{Mutation, Query, Result};
use crate::queries::{self, Page};

/// Largest limit. Sums of larger values would not be exact.
const LIMIT_MAX: u64 = 1_000_000_000_000_000;

/// Between agent and model in a cursor. It sorts before every character of both, so the text has the order of the list.
const SEPARATOR: char = '\u{1}';

/// One limit of a request: `Some(Some(_))` sets it, `Some(None)` removes it, `None` leaves it.
fn limit(field: &str, value: Option<u64>, clear: bool) -> Result<Option<Option<u64>>> {
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

fn limits(request: &v1::SetBudgetRequest) -> Result<NewLimits> {
    let money = limit("limit_micros", request.limit_micros, request.clear_micros)?;
    Ok(NewLimits {
        tokens: limit("limit_tokens", request.limit_tokens, request.clear_tokens)?,
        money: money.map(|money| money.map(Money)),
    })
}

pub(crate) async fn list_budgets(cx: Query, request: v1::ListBudgetsRequest) -> Result<v1::ListBudgetsResponse> {
    let sort = input::parsed_if("sort", request.sort.as_deref())?;
    let after: Option<Scope> = input::after("budgets", &request.cursor)?;
    // Roots are listed only if they are asked for.
    let filter = BudgetFilter { sort, no_roots: sort.is_none(), after, ..BudgetFilter::default() };
    let read = move |r: &mut Tx, most| r.budget_list(&BudgetFilter { limit: most, ..filter });
    let page = queries::page(&cx.world, request.limit, read, |budget: &Budget| budget.scope.to_string()).await?;
    let (now, root_tokens) = (cx.world.ctx().now(), cx.world.ctx().limits().root_tokens_max);
    let (budgets, next_cursor) =
        page.sealed("budgets", |budget| convert::budget(&budget.clone().at(now).with_default(root_tokens)));
    Ok(v1::ListBudgetsResponse { budgets, next_cursor })
}

/// Parses a scope. The refusal suggests the nearest existing scope.
fn scope(cx: &Control, text: &str) -> Result<Scope> {
    input::parsed("scope", text).map_err(|refusal| match near(cx, text) {
        Some(near) => refusal.hint(format!("did you mean `{near}`?")),
        None => refusal,
    })
}

fn near(cx: &Control, text: &str) -> Option<String> {
    let world = &cx.world;
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
async fn check_root(cx: &Mutation, scope: &Scope) -> Result<()> {
    match scope {
        Scope::Root(root_id) if !cx.is_answered().await? => queries::root_named(&cx.world, *root_id).await,
        _ => Ok(()),
    }
}

/// Usage sums of ended model calls, ordered by agent and model.
pub(super) async fn usage_sums(cx: &Control, filter: UsageFilter) -> Result<Vec<UsageSum>> {
    cx.world.store().read(move |r| rules::usage(r, &filter)).await
}

pub(crate) async fn usage(cx: Query, request: v1::UsageRequest) -> Result<v1::UsageResponse> {
    let agent_id = queries::agent_in_filter(&cx.world, "agent_id", request.agent_id.as_deref()).await?;
    let since = input::instant("since_at_ms", request.since_at_ms)?;
    let filter = UsageFilter { agent_id, since, ..UsageFilter::default() };
    let cursor = input::unseal("usage", &request.cursor)?;
    let from = cursor.split_once(SEPARATOR).and_then(|(agent_id, _)| agent_id.parse().ok());
    let limit = request.limit;
    // Each agent of the page has a sum, but that of the cursor may be on the page before, and one shows that more follow.
    let filter = UsageFilter { from, agents_max: if limit == 0 { 0 } else { limit.saturating_add(2) }, ..filter };
    let limit = if limit == 0 { usize::MAX } else { limit as usize };
    let position = |sum: &UsageSum| format!("{}{SEPARATOR}{}", sum.agent_id, sum.model);
    let page = Page::after(usage_sums(&cx, filter).await?, cursor, limit, position);
    let (sums, next_cursor) = page.sealed("usage", convert::usage_sum);
    Ok(v1::UsageResponse { sums, next_cursor })
}

pub(crate) async fn set_budget(cx: Mutation, request: v1::SetBudgetRequest) -> Result<v1::Budget> {
    let scope = scope(&cx, &request.scope)?;
    let limits = limits(&request)?;
    check_root(&cx, &scope).await?;
    let budget = cx.once(move |w, by| rules::set(w, by, &scope, limits)).await?;
    let root_tokens = cx.world.ctx().limits().root_tokens_max;
    Ok(convert::budget(&budget.with_default(root_tokens)))
}

/// Largest length of a tool's name, in characters.
const NAME_MAX: usize = 128;

async fn call_filter(cx: &Control, request: &v1::LedgerTotalsRequest) -> Result<LedgerFilter> {
    let tool = match input::line_if("tool", request.tool.as_deref(), NAME_MAX)? {
        Some(name) => Some(queries::tool_in_filter(&cx.world, &name).await?),
        None => None,
    };
    Ok(LedgerFilter {
        agent_id: queries::agent_in_filter(&cx.world, "agent_id", request.agent_id.as_deref()).await?,
        turn_id: input::parsed_if("turn_id", request.turn_id.as_deref())?,
        tool,
        status: input::parsed_if("status", request.status.as_deref())?,
        since: input::instant("since_at_ms", request.since_at_ms)?,
        ..LedgerFilter::default()
    })
}

pub(crate) async fn totals(cx: Query, request: v1::LedgerTotalsRequest) -> Result<v1::LedgerTotalsResponse> {
    let filter = call_filter(&cx, &request).await?;
    let totals = cx.world.store().read(move |r| r.call_totals(&filter)).await?;
    Ok(v1::LedgerTotalsResponse { totals: totals.iter().map(convert::call_totals).collect() })
}

pub(crate) async fn list_calls(cx: Query, request: v1::ListLedgerRequest) -> Result<v1::ListLedgerResponse> {
    let filter = call_filter(
        &cx,
        &v1::LedgerTotalsRequest {
            agent_id: request.agent_id,
            tool: request.tool,
            status: request.status,
            turn_id: request.turn_id,
            since_at_ms: request.since_at_ms,
        },
    )
    .await?;
    let after = input::position_of("ledger", &request.cursor)?.map(|after| (after.at, CallId(after.id)));
    let turn_id = filter.turn_id;
    let read = move |r: &mut Tx, most| r.call_list(&LedgerFilter { after, limit: most, ..filter });
    let position = |row: &LedgerRow| Position { at: row.started_at, id: row.call_id.0 }.cursor();
    let page = queries::page(&cx.world, request.limit, read, position).await?;
    if let (Some(turn_id), true) = (turn_id, after.is_none() && page.rows.is_empty()) {
        queries::turn_in_filter(&cx.world, turn_id).await?;
    }
    let (rows, next_cursor) = page.sealed("ledger", convert::ledger_row);
    Ok(v1::ListLedgerResponse { rows, next_cursor })
}

#[cfg(test)]
mod budget_tests {
    use super::*;
    use crate::testing::TestControl;

    #[tokio::test]
    async fn a_misspelled_scope_gets_the_nearest_one_as_a_hint() {
        let test = TestControl::with("teams: [{ name: desk, agents: [ben] }]\n").await;
        for (typo, near) in [
            ("wrold", "world"),
            ("wrold/day", "world/day"),
            ("world/dya", "world/day"),
            ("agent:adda/dya", "agent:ada/day"),
            ("agnet:ada", "agent:ada"),
            ("taem:desk", "team:desk"),
        ] {
            let refusal = scope(&test.control, typo).unwrap_err();
            let wrong = typo.strip_suffix("/day").unwrap_or(typo);
            assert!(refusal.message.starts_with("scope: ") && refusal.message.contains(&format!("`{wrong}`")));
            assert!(refusal.hint.unwrap().contains(&format!("`{near}`")));
        }
        // No scope is near: the hint explains what a scope is.
        let hint = scope(&test.control, "everything").unwrap_err().hint.unwrap();
        assert!(hint.contains("world, team:<name>"), "{hint}");
    }
}

#[cfg(test)]
mod ledger_tests {
    use ghost_domain::{CallStatus, Timestamp, TurnId};
    use uuid::Uuid;

    use super::*;
    use crate::testing::TestControl;

    #[tokio::test]
    async fn calls_of_a_deleted_turn_are_listed() {
        let test = TestControl::new().await;
        let gone = TurnId(Uuid::from_u128(7));
        let call_id = CallId(Uuid::from_u128(8));
        let started = LedgerRow::new(call_id, "ada".parse().unwrap(), gone, "workspace.read", Timestamp(1));
        let call = LedgerRow { status: CallStatus::Ok, ..started };
        let write = test.world.store().write(move |w| w.call_put(&call));
        write.await.unwrap();
        let list = async |turn_id: TurnId, status: Option<&str>| {
            let request = v1::ListLedgerRequest {
                turn_id: Some(turn_id.to_string()),
                status: status.map(str::to_owned),
                ..v1::ListLedgerRequest::default()
            };
            super::list_calls(test.query(), request).await.map(|page| page.rows.len())
        };
        assert_eq!(list(gone, None).await, Ok(1));
        // The turn is accepted even if none of its calls match.
        assert_eq!(list(gone, Some("failed")).await, Ok(0));
        let never = list(TurnId(Uuid::from_u128(9)), Some("failed")).await.unwrap_err();
        assert_eq!(never.code, ghost_domain::Code::NotFound);
    }
}
