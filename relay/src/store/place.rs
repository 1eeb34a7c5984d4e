//! A pooled connection for one transaction.
//!
//! sqlx rolls back a transaction that is dropped, but not one whose BEGIN is still under way: the server begins it all the
//! same, and the pool would hand out the connection with it. A reader's would let nobody write. So a connection whose BEGIN
//! was not answered is closed, not returned.

use sqlx::{Any, Connection as _, Error, Transaction, pool::PoolConnection};

/// A connection of the pool.
pub(super) struct Place {
    connection: Option<PoolConnection<Any>>,
    /// Whether a BEGIN was answered: what comes of that transaction is sqlx's to see to.
    begun: bool,
}

impl Place {
    /// Takes a connection of the pool.
    pub(super) async fn of(pool: &sqlx::AnyPool) -> Result<Self, Error> {
        Ok(Self { connection: Some(pool.acquire().await?), begun: false })
    }

    /// Begins its one transaction.
    pub(super) async fn begin(&mut self, statement: &'static str) -> Result<Transaction<'_, Any>, Error> {
        let Self { connection, begun } = self;
        let connection = connection.as_mut().ok_or(Error::BeginFailed)?;
        let transaction = connection.begin_with(statement).await?;
        *begun = true;
        Ok(transaction)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take().filter(|_| !self.begun) {
            drop(connection.detach());
        }
    }
}
