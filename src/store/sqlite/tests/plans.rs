//! The plans of queries: which index SQLite reads, and whether it sorts.

use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Connection as _, Row as _};

use crate::sqlite::row::Args;
use crate::sqlite::schema;

/// The steps of the plan of a query.
pub(in crate::sqlite) async fn plan((sql, args): (String, Args)) -> Vec<String> {
    let mut conn = SqliteConnection::connect("sqlite::memory:").await.unwrap();
    schema::migrate(&mut conn, 0).await.unwrap();
    let explained = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"));
    let rows = sqlx::query_with(explained, args.finish().unwrap()).fetch_all(&mut conn).await.unwrap();
    rows.iter().map(|row| row.get("detail")).collect()
}

/// Checks that a query reads one index in its order and sorts nothing. Returns the only step of its
/// plan. A query without a condition scans an index, but only as far as its limit.
pub(in crate::sqlite) async fn assert_indexed(query: (String, Args)) -> String {
    let sql = query.0.clone();
    let plan = plan(query).await;
    let [step] = &plan[..] else { panic!("{sql}: {plan:?}") };
    let by_index = step.contains(" USING INDEX ") || step.contains(" USING PRIMARY KEY ");
    assert!(by_index || !sql.contains("WHERE"), "{sql}: {step}");
    step.clone()
}
