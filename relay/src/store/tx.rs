//! One running transaction, as the table families see it.
//!
//! A statement that failed ends the transaction on both databases: PostgreSQL refuses any further one, and here
//! SQLite is held to the same. Whatever the work says after that, nothing of it is committed.

use super::{
    beside::About,
    dialect::Dialect,
    error::{Fault, StoreError},
    value::{Row, Value},
};
use shared::time::Timestamp;
use sqlx::{Any, AnyConnection, AssertSqlSafe, SqlSafeStr, any::AnyArguments, query::Query};

/// A transaction. Made by [`Store::transact`](super::Store::transact) and [`Store::read`](super::Store::read) only, and
/// by [`Store::glance`](super::Store::glance) for a single statement.
pub struct Tx<'c> {
    connection: &'c mut AnyConnection,
    dialect: Dialect,
    failed: Option<StoreError>,
    /// How many more statements may come, where each is a transaction of its own and may only read.
    selects_left: Option<u32>,
    about: Option<About>,
}

impl<'c> Tx<'c> {
    pub(super) fn new(connection: &'c mut AnyConnection, dialect: Dialect) -> Self {
        Self { connection, dialect, failed: None, selects_left: None, about: None }
    }

    /// For one SELECT outside of any transaction.
    pub(super) fn of_one_statement(connection: &'c mut AnyConnection, dialect: Dialect) -> Self {
        Self { selects_left: Some(1), ..Self::new(connection, dialect) }
    }

    /// Runs a statement; says how many rows it changed.
    ///
    /// # Errors
    /// The statement failed (or one before it), and with it the transaction.
    pub async fn execute(&mut self, sql: &'static str, args: &[Value<'_>]) -> Result<u64, StoreError> {
        self.usable()?;
        if self.selects_left.is_some() {
            return Err(outside());
        }
        let result = bind(sql, args).execute(&mut *self.connection).await;
        self.note(result).map(|done| done.rows_affected())
    }

    /// The first row, which must be there. Does not lock.
    ///
    /// # Errors
    /// As [`Tx::execute`]; also no row.
    pub async fn fetch_one(&mut self, sql: &'static str, args: &[Value<'_>]) -> Result<Row, StoreError> {
        let row = self.optional(sql, args).await?;
        row.ok_or_else(|| self.dialect.classify(sqlx::Error::RowNotFound))
    }

    /// The first row, if any. Does not lock.
    ///
    /// # Errors
    /// As [`Tx::execute`].
    pub async fn fetch_optional(
        &mut self,
        sql: &'static str,
        args: &[Value<'_>],
    ) -> Result<Option<Row>, StoreError> {
        self.optional(sql, args).await
    }

    /// All rows, all in memory: the statement must say LIMIT, or read what is small by nature. Does not lock.
    ///
    /// # Errors
    /// As [`Tx::execute`].
    pub async fn fetch_all(&mut self, sql: &'static str, args: &[Value<'_>]) -> Result<Vec<Row>, StoreError> {
        self.all(sql, args).await
    }

    /// As [`Tx::fetch_optional`]; nobody else changes or locks the row before this transaction ends. An absent row
    /// can't be locked: what must be unique is a primary key.
    ///
    /// # Errors
    /// As [`Tx::execute`].
    pub async fn lock_optional(
        &mut self,
        select: &'static str,
        args: &[Value<'_>],
    ) -> Result<Option<Row>, StoreError> {
        self.optional(self.dialect.locking(select), args).await
    }

    /// As [`Tx::fetch_all`], with the locks of [`Tx::lock_optional`]: say ORDER BY, so that all take them in one order.
    ///
    /// # Errors
    /// As [`Tx::execute`].
    pub async fn lock_all(
        &mut self,
        select: &'static str,
        args: &[Value<'_>],
    ) -> Result<Vec<Row>, StoreError> {
        self.all(self.dialect.locking(select), args).await
    }

    /// As [`Tx::lock_all`], without the rows that another transaction has locked: for workers that share a queue, where
    /// what one is about to take is no other's to wait for.
    ///
    /// # Errors
    /// As [`Tx::execute`].
    pub async fn lock_free(
        &mut self,
        select: &'static str,
        args: &[Value<'_>],
    ) -> Result<Vec<Row>, StoreError> {
        self.all(self.dialect.locking_free(select), args).await
    }

    /// The time by the database's clock: for what several relays must agree on.
    ///
    /// # Errors
    /// As [`Tx::execute`].
    pub async fn database_time(&mut self) -> Result<Timestamp, StoreError> {
        self.fetch_one(self.dialect.time(), &[]).await?.time("now")
    }

    /// Notes what the transaction is about, for the record beside it. The first note counts; an event is one.
    pub fn note_about(&mut self, tenant: &str, subject: &str) {
        self.about.get_or_insert_with(|| About { tenant: tenant.to_owned(), subject: subject.to_owned() });
    }

    pub(super) fn about(&self) -> Option<&About> {
        self.about.as_ref()
    }

    /// Runs a statement of a migration, once.
    pub(super) async fn define(&mut self, sql: String) -> Result<(), StoreError> {
        self.usable()?;
        let result = sqlx::query(AssertSqlSafe(sql)).persistent(false).execute(&mut *self.connection).await;
        self.note(result).map(drop)
    }

    pub(super) fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// The work's result, unless it passed over a failed statement.
    pub(super) fn settle<T, E: From<StoreError>>(self, result: Result<T, E>) -> Result<T, E> {
        match (result, self.failed) {
            (Ok(_), Some(error)) => Err(error.into()),
            (result, _) => result,
        }
    }

    async fn optional(
        &mut self,
        sql: impl SqlSafeStr,
        args: &[Value<'_>],
    ) -> Result<Option<Row>, StoreError> {
        self.count_select()?;
        let result = bind(sql, args).fetch_optional(&mut *self.connection).await;
        Ok(self.note(result)?.map(Row::new))
    }

    async fn all(&mut self, sql: impl SqlSafeStr, args: &[Value<'_>]) -> Result<Vec<Row>, StoreError> {
        self.count_select()?;
        let result = bind(sql, args).fetch_all(&mut *self.connection).await;
        Ok(self.note(result)?.into_iter().map(Row::new).collect())
    }

    fn count_select(&mut self) -> Result<(), StoreError> {
        self.usable()?;
        match &mut self.selects_left {
            None => Ok(()),
            Some(0) => Err(outside()),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
        }
    }

    fn usable(&self) -> Result<(), StoreError> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn note<T>(&mut self, result: Result<T, sqlx::Error>) -> Result<T, StoreError> {
        result.map_err(|error| {
            let error = self.dialect.classify(error);
            self.failed = Some(error.clone());
            error
        })
    }
}

fn outside() -> StoreError {
    StoreError::Other(Fault::new("a glance is one SELECT: what needs more is a read or a change"))
}

fn bind<'q>(sql: impl SqlSafeStr, args: &[Value<'_>]) -> Query<'q, Any, AnyArguments> {
    args.iter().fold(sqlx::query(sql), |query, value| match value {
        Value::Text(text) => query.bind(*text),
        Value::Integer(integer) => query.bind(*integer),
    })
}
