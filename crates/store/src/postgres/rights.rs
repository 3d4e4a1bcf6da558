//! What the scheduler's role may do in a database whose tables belong to another one: read and write rows, and nothing else.

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

/// Gives `role` its rights on everything that is there now. Run again after each migration, which may have added a table.
///
/// Of what it had, nothing is taken that we have not given: who owns the schema is this connection's business alone.
pub(super) async fn grant(connection: &mut PgConnection, role: &str) -> Result<(), sqlx::Error> {
    let mut tx = connection.begin().await?;
    // Quoted by the server, for grants take no parameters.
    let (database, schema, role): (String, String, String) = sqlx::query_as(
        "select quote_ident(current_database()), quote_ident(current_schema()), quote_ident($1)",
    )
    .bind(role)
    .fetch_one(&mut *tx)
    .await?;
    let statements = format!(
        "grant connect on database {database} to {role};
        grant usage on schema {schema} to {role};
        grant select, insert, update, delete on all tables in schema {schema} to {role};
        grant usage on all sequences in schema {schema} to {role};
        revoke insert, update, delete on {schema}._sqlx_migrations from {role};"
    );
    sqlx::raw_sql(AssertSqlSafe(statements)).execute(&mut *tx).await?;
    tx.commit().await
}
