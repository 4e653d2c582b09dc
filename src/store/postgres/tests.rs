//! Tests of the PostgreSQL backend alone, and the contract suite on it.

use super::cluster::Cluster;
use crate::sql::STATEMENTS;

const SCHEMA: &str = include_str!("migrations/0001_base.sql");

#[test]
fn postgresql_prepares_every_statement() {
    let Some(cluster) = Cluster::start_or_skip() else { return };
    cluster.psql(SCHEMA).unwrap();
    let statements = STATEMENTS.iter().enumerate();
    let prepared: String = statements.map(|(n, sql)| format!("PREPARE s{n} AS {};\n", sql.postgres())).collect();
    // A value of another type could not be bound as an integer, a text or bytes.
    let others = "SELECT statement FROM pg_prepared_statements \
                  WHERE NOT parameter_types::text[] <@ '{bigint,text,bytea}'::text[];";
    assert_eq!(cluster.psql(&(prepared + others)).unwrap(), "");
}
