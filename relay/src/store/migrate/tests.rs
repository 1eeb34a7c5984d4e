//! Migrations on both databases.

use super::*;
use crate::store::testing::*;

const FIRST: &str = "-- Things; of all kinds\nCREATE TABLE things (\n    id ID PRIMARY KEY,\n    n BIGINT NOT NULL\n);\n\
     CREATE INDEX things_by_n ON things (n);\n";
const SECOND: &str = "ALTER TABLE things ADD COLUMN parent ID;\n";
const BROKEN: &str = "CREATE TABLE halves (id ID PRIMARY KEY);\nCREATE TABEL other (id ID);\n";

fn versions(sql: &[&'static str]) -> Vec<Migration> {
    sql.iter().zip(1..).map(|(sql, version)| Migration { version, name: "test", sql }).collect()
}

#[tokio::test]
async fn versions_run_once_and_in_order() {
    on_both(async |store| {
        let applied = |from, to| Applied { from, to };
        assert_eq!(migrate(&store, &versions(&[FIRST])).await.unwrap(), applied(0, 1));
        assert_eq!(migrate(&store, &versions(&[FIRST])).await.unwrap(), applied(1, 1));
        assert_eq!(migrate(&store, &versions(&[FIRST, SECOND])).await.unwrap(), applied(1, 2));
        let order: Result<Vec<String>, StoreError> = store
            .transact("test.order", (), |tx, ()| {
                Box::pin(async move {
                    for id in ["b", "B", "a_", "aB"] {
                        tx.execute("INSERT INTO things (id, n, parent) VALUES ($1, 1, NULL)", &[id.into()])
                            .await?;
                    }
                    let rows = tx.fetch_all("SELECT id FROM things ORDER BY id", &[]).await?;
                    rows.iter().map(|row| row.text("id")).collect()
                })
            })
            .await;
        assert_eq!(order.unwrap(), ["B", "aB", "a_", "b"], "ordered by bytes");
    })
    .await;
}

#[tokio::test]
async fn a_database_from_the_future_is_refused_and_untouched() {
    on_both(async |store| {
        migrate(&store, &versions(&[FIRST, SECOND])).await.unwrap();
        let error = migrate(&store, &versions(&[FIRST])).await.unwrap_err();
        assert!(matches!(error, StoreError::NewerSchema { found: 2, known: 1 }), "{error:?}");
        assert!(error.to_string().contains("run a relay at least as new"));
        assert_eq!(migrate(&store, &versions(&[FIRST, SECOND])).await.unwrap(), Applied { from: 2, to: 2 });
    })
    .await;
}

#[tokio::test]
async fn what_is_pending_is_told_without_doing_it() {
    on_both(async |store| {
        let (one, two) = (versions(&[FIRST]), versions(&[FIRST, SECOND]));
        pending(&store, &one).await.unwrap_err();
        migrate(&store, &one).await.unwrap();
        for _ in 0..2 {
            assert_eq!(pending(&store, &two).await.unwrap(), Applied { from: 1, to: 2 });
        }
        migrate(&store, &two).await.unwrap();
        assert_eq!(pending(&store, &two).await.unwrap(), Applied { from: 2, to: 2 });
        let error = pending(&store, &one).await.unwrap_err();
        assert!(matches!(error, StoreError::NewerSchema { found: 2, known: 1 }), "{error:?}");
    })
    .await;
}

#[tokio::test]
async fn a_version_that_fails_leaves_nothing() {
    on_both(async |store| {
        migrate(&store, &versions(&[FIRST, BROKEN])).await.unwrap_err();
        let halves: Result<u64, StoreError> = store
            .transact("test.halves", (), |tx, ()| {
                Box::pin(async move { tx.execute("SELECT id FROM halves", &[]).await })
            })
            .await;
        assert!(halves.is_err(), "half of a version was kept");
        assert_eq!(migrate(&store, &versions(&[FIRST, SECOND])).await.unwrap(), Applied { from: 1, to: 2 });
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_relays_migrate_one_postgresql_at_once() {
    on_postgres_url(async |url| {
        let (one, two) = (Store::open(&url).await.unwrap(), Store::open(&url).await.unwrap());
        let (first, second) = tokio::join!(one.migrate(), two.migrate());
        let last = MIGRATIONS.last().unwrap().version;
        assert_eq!((first.unwrap().to, second.unwrap().to), (last, last));
        one.close().await;
        two.close().await;
    })
    .await;
}

#[tokio::test]
async fn the_schema_of_this_binary_is_made() {
    on_both_migrated(async |store| {
        let last = MIGRATIONS.last().unwrap().version;
        assert_eq!(store.migrate().await.unwrap(), Applied { from: last, to: last });
    })
    .await;
}

#[test]
fn the_table_has_no_gaps_and_the_files_keep_to_the_common_sql() {
    for (migration, version) in MIGRATIONS.iter().zip(1..) {
        assert_eq!(migration.version, version);
        assert!(migration.name.starts_with(&format!("{version:04}_")), "{}", migration.name);
        for statement in statements(migration.sql, "TEXT") {
            let mut words = statement.split(|letter: char| !letter.is_ascii_alphanumeric());
            // A deferred constraint fails at the commit, which others share on SQLite.
            let strange = ["DEFERRABLE", "DEFERRED", "PRAGMA", "BOOLEAN", "SERIAL", "BEGIN", "COMMIT"];
            assert_eq!(words.find(|word| strange.contains(word)), None, "{}: {statement}", migration.name);
            assert!(!statement.contains("; "), "{}: two statements on one line: {statement}", migration.name);
        }
    }
}

#[test]
fn statements_end_at_the_end_of_a_line() {
    let found = statements(
        "-- a; b;\nCREATE TABLE a (\n  id ID, note TEXT DEFAULT ';'\n);\n\nDROP TABLE b;\n-- end\n",
        "X",
    );
    assert_eq!(found, ["CREATE TABLE a (\n  id X, note TEXT DEFAULT ';'\n)\n", "\nDROP TABLE b\n"]);
}

#[test]
fn only_the_whole_word_is_a_type() {
    for (line, made) in [
        ("id ID PRIMARY KEY,", "id X PRIMARY KEY,"),
        ("ID", "X"),
        ("a ID,b ID", "a X,b X"),
        ("IDENT, GRID, ID_, X_ID, id, IDX", "IDENT, GRID, ID_, X_ID, id, IDX"),
        ("(ID)", "(X)"),
    ] {
        assert_eq!(with_id_type(line, "X"), made);
    }
}
