//! A copy of SQLite's file, beside whoever writes it. Of a server's database its own tools make better ones.

use super::{
    StoreError,
    dialect::{Address, COPY_INTO, Role},
    error::Fault,
};
use sqlx::Connection as _;
use std::path::Path;

/// Writes one committed state of the database at `url` into a file that is empty or not there. The file is not synced.
///
/// # Errors
/// The database can't be read, or the file not written; or it is PostgreSQL.
pub async fn copy(url: &str, file: &Path) -> Result<(), StoreError> {
    let address = Address::parse(url)?;
    let (true, Some(file)) = (address.dialect.has_one_writer(), file.to_str()) else {
        return Err(StoreError::Other(Fault::new("only a file is copied, into one whose path is UTF-8")));
    };
    let classify = |error| address.dialect.classify(error);
    // The writer's settings, because a reader may write nowhere; a connection of its own, because it may take long.
    let mut connection = address.connect(Role::Writer).await?;
    sqlx::query(COPY_INTO).bind(file).execute(&mut connection).await.map_err(classify)?;
    connection.close().await.map_err(classify)
}
