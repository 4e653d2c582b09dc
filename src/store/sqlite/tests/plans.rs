//! The plans of queries: which index SQLite reads, and whether it sorts.

use rusqlite::{Connection, params_from_iter};

use crate::row::Args;
use crate::sql::{Dialect, Statement};
use crate::sqlite::schema;

/// The steps of the plan of a query.
pub(crate) async fn plan((sql, args): (impl Into<Statement>, Args)) -> Vec<String> {
    let sql = sql.into().text(Dialect::Sqlite);
    let mut conn = Connection::open_in_memory().unwrap();
    schema::migrate(&mut conn, 0).unwrap();
    let mut explained = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let steps = explained.query_map(params_from_iter(args.values()), |row| row.get("detail")).unwrap();
    steps.collect::<rusqlite::Result<_>>().unwrap()
}

/// Checks that a query reads one index in its order and sorts nothing. Returns the only step of its
/// plan. A query without a condition scans an index, but only as far as its limit.
pub(crate) async fn assert_indexed(query: (Statement, Args)) -> String {
    let sql = query.0.text(Dialect::Sqlite);
    let plan = plan(query).await;
    let [step] = &plan[..] else { panic!("{sql}: {plan:?}") };
    let by_index = step.contains(" USING INDEX ") || step.contains(" USING PRIMARY KEY ");
    assert!(by_index || !sql.contains("WHERE"), "{sql}: {step}");
    step.clone()
}
