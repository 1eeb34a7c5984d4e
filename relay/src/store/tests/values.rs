//! What comes back from the databases, and what an error says of it.

use super::*;
use serde::Deserialize;
use shared::time::Timestamp;

#[derive(Debug, PartialEq, Deserialize)]
struct Document {
    a: Vec<u8>,
}

const MIXED: &str = "SELECT CAST($1 AS TEXT) AS t, CAST($2 AS BIGINT) AS n, CAST($3 AS TEXT) AS no_text, \
     CAST($4 AS BIGINT) AS no_number, CAST($5 AS BIGINT) AS flag, CAST($6 AS BIGINT) AS at, CAST($7 AS TEXT) AS doc, \
     CASE WHEN 1 = 1 THEN 1 ELSE 0 END AS small";

#[tokio::test]
async fn values_come_back_as_they_went_in() {
    on_both(async |store| {
        let at = Timestamp::from_millis(1_767_323_045_678);
        let text = String::from("Grüße, 'quoted' $1 ;");
        let read: Result<(), StoreError> = store
            .read("test.values", (&text, at), |tx, (text, at)| {
                Box::pin(async move {
                    let args = [
                        (*text).into(),
                        i64::MIN.into(),
                        None::<&str>.into(),
                        None::<i64>.into(),
                        true.into(),
                        (*at).into(),
                        r#"{"a":[1,2]}"#.into(),
                    ];
                    let row = tx.fetch_one(MIXED, &args).await?;
                    assert_eq!(row.text("t")?, **text);
                    assert_eq!(row.maybe_text("t")?.as_ref(), Some(*text));
                    assert_eq!(row.integer("n")?, i64::MIN);
                    assert_eq!(row.maybe_text("no_text")?, None);
                    assert_eq!(row.maybe_integer("no_number")?, None);
                    assert_eq!(row.maybe_time("no_number")?, None);
                    assert_eq!(row.maybe_json::<Document>("no_text")?, None);
                    assert!(row.flag("flag")?);
                    assert!(row.flag("small")?);
                    assert_eq!(row.time("at")?, *at);
                    assert_eq!(row.json::<Document>("doc")?, Document { a: vec![1, 2] });
                    Ok(())
                })
            })
            .await;
        read.expect("all is readable");
    })
    .await;
}

#[tokio::test]
async fn a_bad_row_names_the_column_and_not_the_value() {
    on_both(async |store| {
        let read: Result<(), StoreError> = store
            .read("test.bad", (), |tx, ()| {
                Box::pin(async move {
                    let secret = "\"hunter2\"";
                    let args = [
                        secret.into(),
                        4711.into(),
                        None::<&str>.into(),
                        None::<i64>.into(),
                        2.into(),
                        0.into(),
                        secret.into(),
                    ];
                    let row = tx.fetch_one(MIXED, &args).await?;
                    let errors = [
                        ("t", row.integer("t").err()),
                        ("n", row.text("n").err()),
                        ("no_text", row.text("no_text").err()),
                        ("no_number", row.integer("no_number").err()),
                        ("flag", row.flag("flag").err()),
                        ("doc", row.json::<Document>("doc").err()),
                        ("doc", row.json::<u64>("doc").err()),
                        ("absent", row.maybe_text("absent").err()),
                    ];
                    for (column, error) in errors {
                        let error = error.expect(column);
                        let text = format!("{error} {error:?}");
                        assert!(error.to_string().contains(&format!("`{column}`")), "{text}");
                        assert!(!text.contains("hunter2") && !text.contains("4711"), "{text}");
                        assert!(error.retry_reason().is_none());
                    }
                    Ok(())
                })
            })
            .await;
        read.expect("the statement itself is good");
    })
    .await;
}

#[tokio::test]
async fn errors_hold_no_values() {
    on_both(async |store| {
        one_counter(&store).await;
        for sql in [
            "INSERT INTO counters (id, uses, note) VALUES ('t1', $1, $2)",
            "INSERT INTO counters (id, uses, note) VALUES ('t2', $1 - 4711 + CAST(NULL AS BIGINT), $2)",
            "INSERT INTO counters (id, uses, note) VALUES ('t2', CAST($2 AS BIGINT) + $1, NULL) RETURNING nothing",
            "INSERT INTO counters (id, uses, note) VALUES ('t2', $1 + CAST($2 AS BIGINT), substr($2, 1, -1))",
        ] {
            let result: Result<u64, StoreError> = store
                .transact("test.fail", sql, |tx, sql| {
                    Box::pin(async move { tx.execute(sql, &[4711.into(), "hunter2".into()]).await })
                })
                .await;
            // SQLite casts what is no number to 0.
            let Err(error) = result else { continue };
            let text = chain(&error);
            assert!(!text.contains("hunter2"), "{sql}: {text}");
            assert!(text.contains("SQLite ") || text.contains("PostgreSQL "), "the source is chained: {text}");
        }
    })
    .await;
}
