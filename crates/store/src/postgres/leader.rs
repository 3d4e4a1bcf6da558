//! Who leads, where several schedulers run: the one that holds an advisory lock, on a connection of its own. The lock ends
//! with the connection, so a dead leader is followed as soon as the server notices. Of one whose host lost its power, that is cut off or
//! frozen, nobody tells the server: it ends the connection of one that says nothing, and the leader counts itself as deposed before that.

use super::tx::PgStore;
use crate::StoreError;
use sqlx::{ConnectOptions as _, Connection as _, PgConnection};
use std::time::Duration;

/// The lock's key, the same in every release: "pillion" in ASCII.
const LEADER_KEY: i64 = 0x70_69_6c_6c_69_6f_6e;
/// The server lets go of a leader that has said nothing for ten seconds (from release 14 on; before, of one whose host is not there any
/// more, as on every connection of the pool). Later than [`Leadership::HELD_FOR`].
const LET_GO_OF_THE_SILENT: &str = "
    do $$ begin
        perform set_config('idle_session_timeout', '10s', false);
    exception when undefined_object then null;
    end $$";
/// How long the leader waits for an answer before it counts itself as deposed.
const ANSWER_DURATION_MAX: Duration = Duration::from_secs(3);

/// Held by the leader. Dropping it lets another one lead.
#[derive(Debug)]
pub struct Leadership {
    connection: PgConnection,
}

impl PgStore {
    /// Leads, unless another scheduler does.
    ///
    /// # Errors
    /// [`StoreError::Database`] while the database does not respond.
    pub async fn try_lead(&self) -> Result<Option<Leadership>, StoreError> {
        let attempt = async {
            let mut connection = self.pool.connect_options().connect().await?;
            sqlx::raw_sql(LET_GO_OF_THE_SILENT).execute(&mut connection).await?;
            let is_leader =
                sqlx::query_scalar!(r#"select pg_try_advisory_lock($1) as "is_leader!""#, LEADER_KEY)
                    .fetch_one(&mut connection)
                    .await?;
            Ok(is_leader.then_some(Leadership { connection }))
        };
        let answer = tokio::time::timeout(ANSWER_DURATION_MAX, attempt).await;
        answer
            .unwrap_or(Err(sqlx::Error::PoolTimedOut))
            .map_err(|source| StoreError::Database { action: "asking who leads", source: Box::new(source) })
    }
}

impl Leadership {
    /// How long the lock is ours for certain after it was asked for, or asked about: whoever stood still for longer may have been followed.
    pub const HELD_FOR: Duration = Duration::from_secs(8);

    /// Whether the lock is still ours: it is lost with its connection. To be asked every second or so.
    pub async fn is_held(&mut self) -> bool {
        let answer = tokio::time::timeout(ANSWER_DURATION_MAX, self.connection.ping()).await;
        matches!(answer, Ok(Ok(())))
    }
}
