//! The table `leases`: what only one relay of the store does at a time, and until when.
//!
//! A lease ends by the database's clock, which all relays share; theirs may differ. Its fence grows with each holder, so
//! that one who was late is known: a holder proves itself by [`renew`] in the transaction that keeps what it did. What it
//! does outside of the store it gives up before the lease ends, and whoever comes next looks at what is there before it
//! acts. A lease is never waited for: one who finds it taken is told how long it still runs.
//!
//! No lease runs for longer than [`LONGEST_SECONDS`]. One that says so was written while the database's clock was ahead,
//! and counts as ended: it would be believed for years.

use super::{StoreError, Tx};
use shared::time::Timestamp;
use std::time::Duration;

/// The longest that a lease runs, in seconds (9 hours: a period of 8, and an hour for clocks that are put right). A caller
/// with a longer period raises it.
pub const LONGEST_SECONDS: u32 = 9 * 3600;

const MAKE: &str = "INSERT INTO leases (name, holder, fence, until) VALUES ($1, '', 0, 0) \
    ON CONFLICT (name) DO NOTHING";
const FIND: &str = "SELECT holder, fence, until FROM leases WHERE name = $1";
const TAKE: &str = "UPDATE leases SET holder = $2, fence = $3, until = $4 WHERE name = $1";
const EXTEND: &str = "UPDATE leases SET until = $4 WHERE name = $1 AND holder = $2 AND fence = $3";
const RELEASE: &str =
    "UPDATE leases SET holder = '', until = 0 WHERE name = $1 AND holder = $2 AND fence = $3";
const END: &str = "UPDATE leases SET holder = '', until = 0 WHERE name = $1";

pub(super) const STATEMENTS: &[&str] = &[MAKE, FIND, TAKE, EXTEND, RELEASE, END];

/// A lease that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// What it is for.
    pub name: String,
    /// Who took it: one process, from its start to its end.
    pub holder: String,
    /// Grows with each that took it.
    pub fence: i64,
}

/// What became of the wish for a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is ours.
    Ours(Lease),
    /// It has not ended yet; for so long, unless it is renewed or given up.
    Held(Duration),
}

/// Takes the lease of this name for so many seconds, if it has ended or nobody had it. Also its last holder waits for its
/// end. More seconds than [`LONGEST_SECONDS`] are as many.
///
/// # Errors
/// The store's.
pub async fn take(tx: &mut Tx<'_>, name: &str, holder: &str, seconds: u32) -> Result<Taken, StoreError> {
    // An absent row can't be locked.
    tx.execute(MAKE, &[name.into()]).await?;
    let row = tx.lock_optional(FIND, &[name.into()]).await?.ok_or(StoreError::Race)?;
    // Only now: the lock may have been waited for.
    let (now, until) = (tx.database_time().await?, row.time("until")?);
    if until > end_of(now, LONGEST_SECONDS) {
        tracing::warn!(lease = name, %until, %now, "a lease ends later than any can: the database's clock was ahead when it was taken; it counts as ended");
    } else if until > now {
        return Ok(Taken::Held(until.since(now)));
    }
    let fence = row.integer("fence")?.saturating_add(1);
    let until = end_of(now, seconds);
    tx.execute(TAKE, &[name.into(), holder.into(), fence.into(), until.into()]).await?;
    Ok(Taken::Ours(Lease { name: name.to_owned(), holder: holder.to_owned(), fence }))
}

fn end_of(now: Timestamp, seconds: u32) -> Timestamp {
    now.plus_seconds(seconds.min(LONGEST_SECONDS).into())
}

/// Lets the lease end so many seconds from now, [`LONGEST_SECONDS`] at most. It may have ended meanwhile, as long as nobody took it since; false if
/// somebody did, or it was given up: then the transaction must keep nothing that was done by it.
///
/// # Errors
/// The store's.
pub async fn renew(tx: &mut Tx<'_>, lease: &Lease, seconds: u32) -> Result<bool, StoreError> {
    let until = end_of(tx.database_time().await?, seconds);
    let row = [lease.name.as_str().into(), lease.holder.as_str().into(), lease.fence.into(), until.into()];
    Ok(tx.execute(EXTEND, &row).await? == 1)
}

/// Gives the lease up, if it is still this one.
///
/// # Errors
/// The store's.
pub async fn release(tx: &mut Tx<'_>, lease: &Lease) -> Result<(), StoreError> {
    let row = [lease.name.as_str().into(), lease.holder.as_str().into(), lease.fence.into()];
    tx.execute(RELEASE, &row).await.map(drop)
}

/// Ends the lease of this name, whoever has it: what it stands for has to be done again.
///
/// # Errors
/// The store's.
pub async fn end(tx: &mut Tx<'_>, name: &str) -> Result<(), StoreError> {
    tx.execute(END, &[name.into()]).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Store, testing::on_both_migrated};

    async fn taken(store: &Store, holder: &'static str, seconds: u32) -> Taken {
        let taken: Result<_, StoreError> = store
            .transact("test.take", (holder, seconds), |tx, (holder, seconds)| {
                Box::pin(take(tx, "thing", holder, *seconds))
            })
            .await;
        taken.unwrap()
    }

    async fn renewed(store: &Store, lease: &Lease, seconds: u32) -> bool {
        let renewed: Result<_, StoreError> = store
            .transact("test.renew", (lease, seconds), |tx, (lease, seconds)| {
                Box::pin(renew(tx, lease, *seconds))
            })
            .await;
        renewed.unwrap()
    }

    async fn given_up(store: &Store, lease: &Lease) {
        let done: Result<(), StoreError> =
            store.transact("test.release", lease, |tx, lease| Box::pin(release(tx, lease))).await;
        done.unwrap();
    }

    fn ours(taken: Taken) -> Lease {
        match taken {
            Taken::Ours(lease) => lease,
            Taken::Held(left) => panic!("held for {left:?}"),
        }
    }

    #[tokio::test]
    async fn one_has_it_until_it_ends_or_is_given_up() {
        on_both_migrated(async |store| {
            let first = ours(taken(&store, "one", 60).await);
            assert_eq!(first.fence, 1);
            for holder in ["one", "other"] {
                let Taken::Held(left) = taken(&store, holder, 60).await else {
                    panic!("{holder} has it too")
                };
                assert!(left <= Duration::from_secs(60) && left > Duration::from_secs(30), "{left:?}");
            }
            assert!(renewed(&store, &first, 3600).await);
            let Taken::Held(left) = taken(&store, "other", 60).await else { panic!("it was renewed") };
            assert!(left > Duration::from_secs(3000), "{left:?}");
            given_up(&store, &first).await;
            assert!(!renewed(&store, &first, 60).await, "it is nobody's");
            let second = ours(taken(&store, "other", 60).await);
            assert_eq!((second.fence, second.holder.as_str()), (2, "other"));
        })
        .await;
    }

    #[tokio::test]
    async fn a_holder_that_was_late_is_known() {
        on_both_migrated(async |store| {
            // It ends at once.
            let late = ours(taken(&store, "one", 0).await);
            assert!(renewed(&store, &late, 0).await, "nobody took it since");
            let second = ours(taken(&store, "one", 60).await);
            assert_eq!(second.fence, late.fence + 1);
            assert!(!renewed(&store, &late, 60).await, "the same process, another time");
            given_up(&store, &late).await;
            assert!(renewed(&store, &second, 60).await, "it was not the late one's to give up");
            let ended: Result<(), StoreError> =
                store.transact("test.end", (), |tx, ()| Box::pin(end(tx, "thing"))).await;
            ended.unwrap();
            assert!(!renewed(&store, &second, 60).await);
            assert_eq!(ours(taken(&store, "other", 60).await).fence, 3);
        })
        .await;
    }

    /// What a database leaves behind whose clock was ahead by so many seconds.
    async fn put_ahead(store: &Store, seconds: i64) {
        let done: Result<(), StoreError> = store
            .transact("test.ahead", seconds, |tx, seconds| {
                Box::pin(async move {
                    let until = tx.database_time().await?.plus_seconds(*seconds);
                    let sql = "UPDATE leases SET until = $1 WHERE name = 'thing'";
                    tx.execute(sql, &[until.into()]).await.map(drop)
                })
            })
            .await;
        done.unwrap();
    }

    #[tokio::test]
    async fn one_that_ends_later_than_any_can_has_ended() {
        on_both_migrated(async |store| {
            let first = ours(taken(&store, "one", 60).await);
            let longest = i64::from(LONGEST_SECONDS);
            put_ahead(&store, longest - 60).await;
            assert!(matches!(taken(&store, "other", 60).await, Taken::Held(_)), "as long as any may run");
            for ahead in [longest + 60, 365 * 86_400] {
                put_ahead(&store, ahead).await;
                let next = ours(taken(&store, "other", u32::MAX).await);
                assert!(next.fence > first.fence && !renewed(&store, &first, 60).await, "{ahead}");
                // Nobody makes such a one, whatever he asks for.
                for _ in 0..2 {
                    let Taken::Held(left) = taken(&store, "one", 60).await else { panic!("{ahead}") };
                    assert!(left <= Duration::from_secs(LONGEST_SECONDS.into()), "{left:?}");
                    assert!(renewed(&store, &next, u32::MAX).await);
                }
            }
        })
        .await;
    }

    #[tokio::test]
    async fn of_many_at_once_one_has_it() {
        on_both_migrated(async |store| {
            let wishes = (0..8).map(|_| taken(&store, "one", 60));
            let taken = futures_util::future::join_all(wishes).await;
            assert_eq!(taken.iter().filter(|taken| matches!(taken, Taken::Ours(_))).count(), 1, "{taken:?}");
        })
        .await;
    }

    #[tokio::test]
    async fn the_databases_clock_is_about_ours() {
        on_both_migrated(async |store| {
            let told: Result<_, StoreError> =
                store.transact("test.time", (), |tx, ()| Box::pin(tx.database_time())).await;
            let (told, now) = (told.unwrap(), crate::clock::Clock::system().now());
            let apart = told.since(now).max(now.since(told));
            assert!(apart < Duration::from_secs(60), "{told} is not {now}");
        })
        .await;
    }
}
