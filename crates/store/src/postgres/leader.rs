//! Who leads, where several schedulers run: the one that holds an advisory lock, on a connection of its own. The lock ends
//! with the connection, so a dead leader is followed as soon as the server notices. Of one whose host lost its power, or that is cut off,
//! nobody tells the server: it asks, for else it would wait for two hours.

use super::tx::PgStore;
use crate::StoreError;
use sqlx::{ConnectOptions as _, Connection as _, PgConnection};
use std::time::Duration;

/// The lock's key, the same in every release: "pillion" in ASCII.
const LEADER_KEY: i64 = 0x70_69_6c_6c_69_6f_6e;
/// The server asks a leader that says nothing for five seconds, and lets him go when three questions in a row were not answered: later
/// than he counts himself as deposed. Where it is on the same machine, these do nothing and are not needed.
const ASK_WHETHER_THERE: &str =
    "set tcp_keepalives_idle = 5; set tcp_keepalives_interval = 2; set tcp_keepalives_count = 3";
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
            sqlx::raw_sql(ASK_WHETHER_THERE).execute(&mut connection).await?;
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
    /// Whether the lock is still ours: it is lost with its connection.
    pub async fn is_held(&mut self) -> bool {
        let answer = tokio::time::timeout(ANSWER_DURATION_MAX, self.connection.ping()).await;
        matches!(answer, Ok(Ok(())))
    }
}
