//! The store: every row that the relay keeps, in SQLite or PostgreSQL, by SQL that is written once.
//!
//! Whatever was begun here runs to its end: a future that is dropped half-way may leave its connection inside of a
//! transaction. So requests are tasks of their own, and so is whatever feeds a stream.
//!
//! A change is one [`Store::transact`]: lock, judge, change, write the event, all or nothing, tried again where
//! others were in its way. The network is never touched inside, and no other transaction is begun inside: SQLite has
//! one writer (`writer`), which would wait for itself.
//!
//! One file per table family lies beside this one, with functions over [`Tx`] and its list of `STATEMENTS`, which a
//! test prepares on both databases. They know nothing of which database it is; `dialect` alone does.

pub mod audit;
pub mod authorities;
pub mod beside;
pub mod certificates;
pub mod components;
mod copy;
pub mod credentials;
pub mod crls;
pub mod device_logins;
mod dialect;
pub mod endorsement_authorities;
pub mod endorsement_keys;
mod error;
pub mod events;
mod file;
pub mod idempotency;
pub mod identifiers;
pub mod identities;
pub mod inventory;
pub mod invites;
pub mod join_requests;
pub mod join_tokens;
pub mod leases;
pub mod logins;
pub mod memberships;
pub mod meta;
pub mod metal;
pub mod metal_history;
pub mod metal_steps;
mod migrate;
pub mod node_conditions;
pub mod node_views;
pub mod nodes;
mod place;
pub mod pools;
pub mod projects;
pub mod restored;
mod retry;
pub mod secrets;
pub mod signing_keys;
pub mod sites;
mod space;
pub mod tasks;
pub mod tenants;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
pub mod token_views;
mod tx;
pub mod users;
mod value;
pub mod webhooks;
mod writer;

pub use self::{
    copy::copy,
    error::{Fault, RetryReason, StoreError, StoreFault},
    migrate::Applied,
    retry::Retries,
    tx::Tx,
    value::{Row, Value},
};

use self::{
    dialect::{Address, Dialect},
    place::Place,
    retry::{Jitter, Tries},
    writer::Writer,
};
use futures_util::future::BoxFuture;
use sqlx::AnyPool;
use std::sync::{Arc, atomic::AtomicBool};

/// The `STATEMENTS` of every table family.
const FAMILIES: &[&[&str]] = &[
    audit::STATEMENTS,
    authorities::STATEMENTS,
    certificates::STATEMENTS,
    components::STATEMENTS,
    credentials::STATEMENTS,
    crls::STATEMENTS,
    endorsement_authorities::STATEMENTS,
    endorsement_keys::STATEMENTS,
    events::STATEMENTS,
    idempotency::STATEMENTS,
    identifiers::STATEMENTS,
    identities::STATEMENTS,
    inventory::STATEMENTS,
    invites::STATEMENTS,
    join_requests::STATEMENTS,
    join_tokens::STATEMENTS,
    leases::STATEMENTS,
    device_logins::STATEMENTS,
    logins::STATEMENTS,
    memberships::STATEMENTS,
    meta::STATEMENTS,
    metal::STATEMENTS,
    metal_history::STATEMENTS,
    metal_steps::STATEMENTS,
    migrate::STATEMENTS,
    node_conditions::STATEMENTS,
    node_views::STATEMENTS,
    nodes::STATEMENTS,
    pools::STATEMENTS,
    projects::STATEMENTS,
    restored::STATEMENTS,
    secrets::STATEMENTS,
    signing_keys::STATEMENTS,
    sites::STATEMENTS,
    tasks::STATEMENTS,
    tenants::STATEMENTS,
    token_views::STATEMENTS,
    users::STATEMENTS,
    webhooks::STATEMENTS,
];

/// Every statement that the relay runs, but for those that make the schema.
pub fn statements() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().flat_map(|family| family.iter().copied())
}

/// The database. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    dialect: Dialect,
    /// SQLite's readers; all connections to PostgreSQL.
    pool: AnyPool,
    /// SQLite only.
    writer: Option<Writer>,
    retries: Retries,
    jitter: Jitter,
    /// A change found no room, and none has come since (`space`).
    full: AtomicBool,
}

impl Store {
    /// Opens `sqlite://PATH`, making the file (mode 0600) if it is not there, or `postgres://…`.
    ///
    /// # Errors
    /// The URL is no good, or the database can't be reached.
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        let address = Address::parse(url)?;
        let dialect = address.dialect;
        let mut writer = None;
        if dialect.has_one_writer() {
            address.file().map_or(Ok(()), file::prepare)?;
            writer = Some(Writer::open(address.clone()).await?);
        }
        let pool = address.pool().await?;
        let (retries, jitter) = (Retries::default(), Jitter::default());
        let inner = Inner { dialect, pool, writer, retries, jitter, full: AtomicBool::new(false) };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Runs `work` in one transaction and answers when it is on disk. An `Err` rolls back. A store error that
    /// another try may cure is retried up to 10 times, so `work` must have no effect but on the store; `context`
    /// holds what it needs. `name` says which operation it is, in logs.
    ///
    /// ```ignore
    /// store.transact("joinTokens.create", (&token, now), |tx, (token, now)| Box::pin(create(tx, token, *now))).await
    /// ```
    ///
    /// # Errors
    /// Those of `work`, and [`StoreError`] as one of them.
    pub async fn transact<C, T, E, F>(&self, name: &'static str, context: C, work: F) -> Result<T, E>
    where
        C: Send + Sync,
        T: Send,
        E: From<StoreError> + StoreFault + Send,
        F: for<'a> Fn(&'a mut Tx<'_>, &'a C) -> BoxFuture<'a, Result<T, E>> + Send + Sync,
    {
        let mut tries = self.tries(name);
        loop {
            let result = match &self.inner.writer {
                Some(writer) => self.write_in_batch(writer, tries.again(), &context, &work).await,
                None => self.write_in_pool(&context, &work).await,
            };
            let Some(wait) = tries.wait_after(&result) else {
                self.note_space(&result);
                return result;
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// Runs `work` on one committed state of the database, beside writers and other readers. It can't write.
    ///
    /// # Errors
    /// Those of `work`, and [`StoreError`] as one of them.
    pub async fn read<C, T, E, F>(&self, name: &'static str, context: C, work: F) -> Result<T, E>
    where
        C: Send + Sync,
        T: Send,
        E: From<StoreError> + StoreFault + Send,
        F: for<'a> Fn(&'a mut Tx<'_>, &'a C) -> BoxFuture<'a, Result<T, E>> + Send + Sync,
    {
        let mut tries = self.tries(name);
        loop {
            let result = self.read_in_pool(&context, &work).await;
            let Some(wait) = tries.wait_after(&result) else { return result };
            tokio::time::sleep(wait).await;
        }
    }

    /// Runs one statement on the latest committed state of the database: a [`Store::read`] for `work` that needs no
    /// more than that, without the two round trips of a transaction. A second statement is refused.
    ///
    /// # Errors
    /// Those of `work`, and [`StoreError`] as one of them.
    pub async fn glance<C, T, E, F>(&self, name: &'static str, context: C, work: F) -> Result<T, E>
    where
        C: Send + Sync,
        T: Send,
        E: From<StoreError> + StoreFault + Send,
        F: for<'a> Fn(&'a mut Tx<'_>, &'a C) -> BoxFuture<'a, Result<T, E>> + Send + Sync,
    {
        let mut tries = self.tries(name);
        loop {
            let result = self.glance_in_pool(&context, &work).await;
            let Some(wait) = tries.wait_after(&result) else { return result };
            tokio::time::sleep(wait).await;
        }
    }

    /// Brings the schema up to this binary's version. Several relays may do so at once.
    ///
    /// # Errors
    /// The database is newer than this binary, or a statement failed; what was not finished left nothing behind.
    pub async fn migrate(&self) -> Result<Applied, StoreError> {
        migrate::migrate(self, migrate::MIGRATIONS).await
    }

    /// What [`Store::migrate`] would do. Changes nothing.
    ///
    /// # Errors
    /// The database is newer than this binary, or holds no schema yet.
    pub async fn pending(&self) -> Result<Applied, StoreError> {
        migrate::pending(self, migrate::MIGRATIONS).await
    }

    /// Whether the database answers.
    ///
    /// # Errors
    /// It does not.
    pub async fn ping(&self) -> Result<(), StoreError> {
        let answer = sqlx::query("SELECT 1").execute(&self.inner.pool).await;
        answer.map(drop).map_err(|error| self.inner.dialect.classify(error))
    }

    /// Commits what is pending and closes all connections. Later calls fail.
    pub async fn close(&self) {
        self.inner.pool.close().await;
        if let Some(writer) = &self.inner.writer {
            writer.close().await;
        }
    }

    /// How often transactions were tried again.
    #[must_use]
    pub fn retries(&self) -> &Retries {
        &self.inner.retries
    }

    /// Commits of the SQLite writer since it was opened; fewer than changes where they shared. `None` on PostgreSQL.
    #[must_use]
    pub fn shared_commits(&self) -> Option<u64> {
        self.inner.writer.as_ref().map(Writer::commits)
    }

    async fn write_in_batch<C, T, E, F>(
        &self,
        writer: &Writer,
        alone: bool,
        context: &C,
        work: &F,
    ) -> Result<T, E>
    where
        E: From<StoreError>,
        F: for<'a> Fn(&'a mut Tx<'_>, &'a C) -> BoxFuture<'a, Result<T, E>>,
    {
        let mut turn = writer.enter(alone).await?;
        let mut tx = Tx::new(turn.connection()?, self.inner.dialect);
        let result = whole(&mut tx, context, work).await;
        let result = tx.settle(result);
        turn.leave(result.is_ok()).await?.committed().await?;
        result
    }

    async fn write_in_pool<C, T, E, F>(&self, context: &C, work: &F) -> Result<T, E>
    where
        E: From<StoreError>,
        F: for<'a> Fn(&'a mut Tx<'_>, &'a C) -> BoxFuture<'a, Result<T, E>>,
    {
        let dialect = self.inner.dialect;
        let classify = |error| dialect.classify(error);
        let mut place = Place::of(&self.inner.pool).await.map_err(classify)?;
        let mut transaction = place.begin(dialect.begin()).await.map_err(classify)?;
        let mut tx = Tx::new(&mut transaction, dialect);
        let result = whole(&mut tx, context, work).await;
        let result = tx.settle(result);
        if result.is_ok() {
            transaction.commit().await.map_err(|error| classify(error).at_commit())?;
        } else {
            roll_back(transaction, dialect).await;
        }
        result
    }

    async fn read_in_pool<C, T, E, F>(&self, context: &C, work: &F) -> Result<T, E>
    where
        E: From<StoreError>,
        F: for<'a> Fn(&'a mut Tx<'_>, &'a C) -> BoxFuture<'a, Result<T, E>>,
    {
        let dialect = self.inner.dialect;
        let classify = |error| dialect.classify(error);
        let mut place = Place::of(&self.inner.pool).await.map_err(classify)?;
        let mut transaction = place.begin(dialect.begin_read()).await.map_err(classify)?;
        let mut tx = Tx::new(&mut transaction, dialect);
        let result = work(&mut tx, context).await;
        let result = tx.settle(result);
        roll_back(transaction, dialect).await;
        result
    }

    async fn glance_in_pool<C, T, E, F>(&self, context: &C, work: &F) -> Result<T, E>
    where
        E: From<StoreError>,
        F: for<'a> Fn(&'a mut Tx<'_>, &'a C) -> BoxFuture<'a, Result<T, E>>,
    {
        let dialect = self.inner.dialect;
        let mut connection = self.inner.pool.acquire().await.map_err(|error| dialect.classify(error))?;
        let mut tx = Tx::of_one_statement(&mut connection, dialect);
        let result = work(&mut tx, context).await;
        tx.settle(result)
    }

    fn tries(&self, operation: &'static str) -> Tries<'_> {
        Tries::of(operation, &self.inner.retries, &self.inner.jitter)
    }
}

/// A change, and what is written beside it.
async fn whole<C, T, E, F>(tx: &mut Tx<'_>, context: &C, work: &F) -> Result<T, E>
where
    E: From<StoreError>,
    F: for<'a> Fn(&'a mut Tx<'_>, &'a C) -> BoxFuture<'a, Result<T, E>>,
{
    let done = work(tx, context).await?;
    beside::write(tx).await?;
    Ok(done)
}

/// A rollback that fails means a dead connection, which rolls back by itself; the pool finds out at its next use.
async fn roll_back(transaction: sqlx::Transaction<'_, sqlx::Any>, dialect: Dialect) {
    if let Err(error) = transaction.rollback().await {
        tracing::debug!(error = %dialect.classify(error), "rolling back");
    }
}
