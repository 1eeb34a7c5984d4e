//! Chains committed records, a batch at a time, by one relay at a time; and forgets what is over.
//!
//! **The chain has no fork and no gap, whatever crashes.** A batch, its records' place in it and the signed head are written
//! in one transaction, which begins by renewing the lease: of two relays that both believe they have it, one waits for the
//! other's transaction and is then told that its lease is over. A sealer that dies leaves a whole chain and a lease that ends
//! by itself; the next goes on from the head. A head that is not signed by this store's key ends sealing with an error in the
//! log: what was tampered with is not built upon.
//!
//! A record waits for two seconds, so that most that were begun before it are committed; one that comes later is in a later
//! batch. What is removed in those seconds shows nowhere: that is the price of no change waiting for the chain.
//!
//! Each relay keeps the last head that it saw, in memory and in a file beside the database's, and seals nothing behind a head
//! that is older, or another: who puts back an older database with its older head, or cuts the chain off, is found by that, here
//! and by [`verify`](super::verify). A person who knows why it is older removes the file and starts the relay again.

use super::chain::{self, End, Mark};
use crate::{
    access,
    context::Context,
    fault::{Fault, chain as told},
    files,
    seal::{ChainKey, KeyRing},
    store::{
        StoreError, Tx,
        audit::{self, BatchRow, first_at},
        leases::{self, Lease, Taken},
        meta::{self, Name},
    },
};
use shared::{api::audit::AuditRecord, hex, time::Timestamp};
use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

/// The name of the lease.
pub const LEASE: &str = "audit-sealer";
/// How long a lease runs, in seconds: as long as nobody seals after a sealer has died.
pub const LEASE_SECONDS: u32 = 30;
const _: () = assert!(LEASE_SECONDS <= leases::LONGEST_SECONDS);
/// The file with the head, in the data directory.
pub const HEAD_FILE: &str = "audit-head";
/// The longest head, in bytes.
pub const MAX_HEAD_BYTES: u64 = 512;
/// How often it is looked for records.
const LOOK: Duration = Duration::from_secs(2);
/// How old a record is when it is sealed, in seconds.
const REST_SECONDS: i64 = 2;
/// The most batches that one turn forgets.
const MAX_PRUNED: usize = 200;
/// The seconds of a day.
const DAY_SECONDS: i64 = 86_400;

/// Seals what is committed, again and again; never ends. What fails is logged and tried again.
pub async fn keep(relay: &Context, data_dir: &Path) {
    let mut sealer = Sealer::new(relay, Some(data_dir.join(HEAD_FILE)));
    loop {
        tokio::time::sleep(LOOK).await;
        if let Err(fault) = sealer.turn(relay).await {
            tracing::error!(
                error = told(&fault),
                "the audit could not be sealed; it is tried again. `relay audit verify` says whether the chain is whole"
            );
        }
    }
}

/// One that seals, from its start to its end.
pub struct Sealer {
    holder: String,
    lease: Option<Lease>,
    file: Option<PathBuf>,
    /// The last head that was seen.
    noted: Option<Mark>,
}

/// What a transaction came to.
struct Sealed {
    lease: Option<Lease>,
    records: usize,
    head: Option<String>,
}

impl Sealer {
    /// One that holds no lease yet.
    #[must_use]
    pub fn new(relay: &Context, file: Option<PathBuf>) -> Self {
        // Another one for each start: what a former process held is not this one's.
        Self { holder: hex::encode(&relay.random.bytes::<16>()), lease: None, file, noted: None }
    }

    /// Seals all that is old enough, unless another relay does; answers how many records.
    ///
    /// # Errors
    /// The store's; the chain's head is not what this store's key signed, or does not go on from the one that was seen last.
    pub async fn turn(&mut self, relay: &Context) -> Result<usize, Fault> {
        self.compare(relay).await?;
        let cut = first_at(relay.clock.now().plus_seconds(-REST_SECONDS));
        let any: Result<bool, StoreError> =
            relay.store.glance("audit", &cut, |tx, cut| Box::pin(audit::any_open(tx, cut))).await;
        if !any? {
            return Ok(0);
        }
        let mut all = 0;
        loop {
            let work = (relay, &self.holder, &self.lease);
            let sealed = relay.store.transact("audit.seal", work, |tx, (relay, holder, lease)| {
                Box::pin(leased(tx, relay, holder, lease.as_ref()))
            });
            let sealed = sealed.await?;
            self.lease = sealed.lease;
            all += sealed.records;
            if let Some(head) = &sealed.head {
                self.note(relay, head)?;
            }
            if sealed.records < usize::try_from(audit::BATCH_RECORDS).unwrap_or(usize::MAX) {
                return Ok(all);
            }
        }
    }
}

impl Sealer {
    /// That the chain goes on from the head that was seen last; notes the one that there is.
    async fn compare(&mut self, relay: &Context) -> Result<(), Fault> {
        if self.noted.is_none()
            && let Some(file) = &self.file
        {
            self.noted = read_noted(relay, file)?;
        }
        let work = (relay, self.noted);
        let read = relay
            .store
            .read("audit.compare", work, |tx, (relay, noted)| Box::pin(goes_on(tx, &relay.keys, *noted)));
        match read.await? {
            Some((mark, _)) if self.noted == Some(mark) => Ok(()),
            Some((_, text)) => self.note(relay, &text),
            None => Ok(()),
        }
    }

    fn note(&mut self, relay: &Context, head: &str) -> Result<(), Fault> {
        self.noted = Mark::open(head, End::Head, &relay.keys);
        let Some(file) = &self.file else { return Ok(()) };
        files::write(file, format!("{head}\n").as_bytes(), files::SECRET)
            .map_err(Fault::internal("writing the audit's head beside the database"))
    }
}

fn read_noted(relay: &Context, file: &Path) -> Result<Option<Mark>, Fault> {
    let text = match access::read_text(file, MAX_HEAD_BYTES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text.map_err(Fault::internal("reading the audit's head beside the database"))?,
    };
    let mark = Mark::open(&text, End::Head, &relay.keys);
    mark.map(Some)
        .ok_or_else(|| broken("the head that was noted beside the database is not signed by this key"))
}

/// The head, if the chain goes through what was noted.
async fn goes_on(
    tx: &mut Tx<'_>,
    keys: &KeyRing,
    noted: Option<Mark>,
) -> Result<Option<(Mark, String)>, Fault> {
    let another = || {
        broken(
            "it is not the chain whose head was noted beside the database: it was cut off, or an older database was put back",
        )
    };
    let Some(text) = meta::find(tx, Name::AuditHead).await? else {
        return if noted.is_some() { Err(another()) } else { Ok(None) };
    };
    let head =
        Mark::open(&text, End::Head, keys).ok_or_else(|| broken("its head is not signed by this key"))?;
    let Some(noted) = noted.filter(|noted| *noted != head) else { return Ok(Some((head, text))) };
    let base = meta::find(tx, Name::AuditBase).await?.and_then(|text| Mark::open(&text, End::Base, keys));
    let base = base.ok_or_else(|| broken("its base is not signed by this key"))?;
    let goes_through = match noted.batch {
        batch if batch >= head.batch => false,
        // What was pruned since can't be asked any more.
        batch if batch < base.batch => true,
        batch if batch == base.batch => base.link == noted.link,
        batch => {
            let found = audit::find_batch(tx, batch).await?;
            let entries = found.and_then(|batch| chain::read(&batch.entries));
            entries.and_then(|entries| entries.last().map(|last| last.link)) == Some(noted.link)
        }
    };
    if goes_through { Ok(Some((head, text))) } else { Err(another()) }
}

/// Seals one batch, if the lease is or becomes ours.
async fn leased(
    tx: &mut Tx<'_>,
    relay: &Context,
    holder: &str,
    lease: Option<&Lease>,
) -> Result<Sealed, Fault> {
    let ours = match lease {
        Some(lease) => leases::renew(tx, lease, LEASE_SECONDS).await?.then(|| lease.clone()),
        None => None,
    };
    let lease = match ours {
        Some(lease) => lease,
        None => match leases::take(tx, LEASE, holder, LEASE_SECONDS).await? {
            Taken::Ours(lease) => lease,
            Taken::Held(_) => return Ok(Sealed { lease: None, records: 0, head: None }),
        },
    };
    let cut = first_at(relay.clock.now().plus_seconds(-REST_SECONDS));
    let open = audit::open(tx, None, &cut).await?;
    if let Some((record, _)) =
        open.iter().find(|(record, mark)| !chain::is_marked(&relay.keys, record, mark.as_deref()))
    {
        let why =
            format!("the record {}, which waits, is not as a relay wrote it, or none wrote it", record.id);
        return Err(Fault::internal("going on with the audit's chain")(why));
    }
    let records: Vec<AuditRecord> = open.into_iter().map(|(record, _)| record).collect();
    let head = batch(tx, &relay.keys, &records, relay.clock.now()).await?;
    Ok(Sealed { lease: Some(lease), records: records.len(), head })
}

/// Writes a batch behind the head, and the head behind it.
async fn batch(
    tx: &mut Tx<'_>,
    keys: &KeyRing,
    records: &[AuditRecord],
    now: Timestamp,
) -> Result<Option<String>, Fault> {
    let (Some(first), Some(last)) = (records.first(), records.last()) else { return Ok(None) };
    let key = keys.chain_key().ok_or_else(|| broken("its key can't be derived"))?;
    let before = head(tx, keys, &key).await?;
    let (entries, link) = chain::seal(&key, before.link, records);
    let count = i64::try_from(records.len()).unwrap_or(i64::MAX);
    let after = Mark { batch: before.batch + 1, records: before.records + count, link };
    let row = BatchRow { key_id: key.id().to_owned(), entries: chain::write(&entries) };
    audit::add_batch(tx, after.batch, &row, now).await?;
    // One that was committed since, between those that were read, waits for the next try.
    if i64::try_from(audit::seal(tx, after.batch, &first.id, &last.id).await?) != Ok(count) {
        return Err(StoreError::Race.into());
    }
    let head = after.sign(End::Head, &key);
    meta::put(tx, Name::AuditHead, &head).await?;
    Ok(Some(head))
}

/// Where the chain ends; where it begins, if it has not begun.
async fn head(tx: &mut Tx<'_>, keys: &KeyRing, key: &ChainKey) -> Result<Mark, Fault> {
    if let Some(text) = meta::find(tx, Name::AuditHead).await? {
        return Mark::open(&text, End::Head, keys)
            .ok_or_else(|| broken("its head is not signed by this key"));
    }
    if audit::stray_batch(tx, 0, 0).await?.is_some() || meta::find(tx, Name::AuditBase).await?.is_some() {
        return Err(broken("it has no head"));
    }
    meta::put(tx, Name::AuditBase, &Mark::default().sign(End::Base, key)).await?;
    Ok(Mark::default())
}

/// Forgets whole batches whose records are all older than so many days, and signs where the chain begins then. The last
/// batch stays, and so does one that is not as it was sealed: what shows that must not go by itself.
///
/// # Errors
/// The store's; a batch that is old enough is not whole.
pub async fn prune(relay: &Context, days: u32) -> Result<usize, Fault> {
    let before = relay.clock.now().plus_seconds(-DAY_SECONDS * i64::from(days));
    let mut pruned = 0;
    while pruned < MAX_PRUNED {
        let one = relay.store.transact("audit.prune", (&relay.keys, before), |tx, (keys, before)| {
            Box::pin(prune_one(tx, keys, *before))
        });
        if !one.await? {
            break;
        }
        pruned += 1;
    }
    Ok(pruned)
}

async fn prune_one(tx: &mut Tx<'_>, keys: &KeyRing, before: Timestamp) -> Result<bool, Fault> {
    // The lock keeps other relays that prune away.
    let Some(text) = meta::lock(tx, Name::AuditBase).await? else { return Ok(false) };
    let base =
        Mark::open(&text, End::Base, keys).ok_or_else(|| broken("its base is not signed by this key"))?;
    let text = meta::find(tx, Name::AuditHead).await?.ok_or_else(|| broken("it has no head"))?;
    let head =
        Mark::open(&text, End::Head, keys).ok_or_else(|| broken("its head is not signed by this key"))?;
    let number = base.batch + 1;
    if number >= head.batch {
        return Ok(false);
    }
    let records = audit::of_batch(tx, number).await?;
    if records.iter().any(|record| record.occurred_at >= before) {
        return Ok(false);
    }
    let count = i64::try_from(records.len()).unwrap_or(i64::MAX);
    let batch = audit::find_batch(tx, number).await?.ok_or_else(|| broken("a batch is gone"))?;
    let entries = chain::read(&batch.entries).ok_or_else(|| broken("a batch is not of its form"))?;
    let key = keys.chain_key_of(&batch.key_id).ok_or_else(|| broken("a batch has another key"))?;
    let link = chain::check(&key, base.link, &entries, records).map_err(|wrong| broken(wrong.what))?;
    audit::forget(tx, number).await?;
    let key = keys.chain_key().ok_or_else(|| broken("its key can't be derived"))?;
    let base = Mark { batch: number, records: base.records + count, link };
    meta::put(tx, Name::AuditBase, &base.sign(End::Base, &key)).await?;
    Ok(true)
}

fn broken(why: &'static str) -> Fault {
    Fault::internal::<&str>("going on with the audit's chain")(why)
}
