//! Verifies the whole chain, from what was pruned last to the signed head, and names the first place that is not as it was
//! sealed. It only reads, on one committed state of the database, beside relays that serve.

use super::chain::{self, End, Link, Mark};
use crate::{
    fault::Fault,
    seal::KeyRing,
    store::{
        Store, Tx, audit,
        meta::{self, Name},
    },
};
use shared::{id::AuditId, time::Timestamp};
use std::fmt;

/// What there is, where nothing is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whole {
    /// Records that are sealed and there.
    pub sealed: i64,
    /// Records that were sealed and pruned.
    pub pruned: i64,
    /// Records that wait to be sealed: nothing is said about them.
    pub open: i64,
    /// The number of the last batch; 0 if nothing was sealed yet.
    pub batches: i64,
}

/// The first place that is not as it was sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Break {
    /// The record, and when it was written: the one that is wrong, else the last that is right. `None` if the chain is wrong
    /// from its beginning.
    pub place: Option<(AuditId, Option<Timestamp>)>,
    /// What is wrong there.
    pub what: String,
}

impl fmt::Display for Break {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some((id, Some(at))) => write!(out, "at record {id} of {at}: {}", self.what),
            Some((id, None)) => write!(out, "at record {id}: {}", self.what),
            None => write!(out, "at its beginning: {}", self.what),
        }
    }
}

/// Verifies the chain. `noted` is a head that was written down elsewhere: the chain must still hold it.
///
/// # Errors
/// The store's. A chain that is not whole is no error of this function: it is its answer.
pub async fn verify(
    store: &Store,
    keys: &KeyRing,
    noted: Option<&str>,
) -> Result<Result<Whole, Break>, Fault> {
    store.read("audit.verify", (keys, noted), |tx, (keys, noted)| Box::pin(walk(tx, keys, *noted))).await
}

/// Where the walk is.
struct Walk<'a> {
    keys: &'a KeyRing,
    noted: Option<Mark>,
    at: Mark,
    last: Option<AuditId>,
}

impl Walk<'_> {
    fn broken(&self, what: impl Into<String>) -> Break {
        let place = self.last.as_ref().map(|id| (id.clone(), id.drawn_at()));
        Break { place, what: what.into() }
    }

    /// That the chain goes through what was written down elsewhere.
    fn compare(&self) -> Result<(), Break> {
        match self.noted {
            Some(noted) if noted.batch == self.at.batch && noted != self.at => {
                Err(self.broken("it is another chain than the one whose head was noted beside the database"))
            }
            _ => Ok(()),
        }
    }
}

pub(super) async fn walk(
    tx: &mut Tx<'_>,
    keys: &KeyRing,
    noted: Option<&str>,
) -> Result<Result<Whole, Break>, Fault> {
    let (base, head) = match ends(tx, keys).await? {
        Ok(ends) => ends,
        Err(broken) => return Ok(Err(broken)),
    };
    let noted = match noted.map(|text| Mark::open(text, End::Head, keys)) {
        Some(None) => {
            let what =
                "the head that was noted beside the database is not signed by this master key".to_owned();
            return Ok(Err(Break { place: None, what }));
        }
        Some(noted) => noted,
        None => None,
    };
    let mut walk = Walk { keys, noted, at: base, last: None };
    if let Err(broken) = walk.compare() {
        return Ok(Err(broken));
    }
    while walk.at.batch < head.batch {
        if let Err(broken) = step(tx, &mut walk).await? {
            return Ok(Err(broken));
        }
    }
    finish(tx, &walk, base, head).await
}

/// Where the chain begins and ends.
async fn ends(tx: &mut Tx<'_>, keys: &KeyRing) -> Result<Result<(Mark, Mark), Break>, Fault> {
    let (base, head) = (meta::find(tx, Name::AuditBase).await?, meta::find(tx, Name::AuditHead).await?);
    let at_the_beginning = |what: &str| Err(Break { place: None, what: what.to_owned() });
    Ok(match (base, head) {
        // Nothing was sealed yet; what is there all the same is found as stray.
        (None, None) => Ok((Mark::default(), Mark::default())),
        (Some(base), Some(head)) => {
            match (Mark::open(&base, End::Base, keys), Mark::open(&head, End::Head, keys)) {
                (Some(base), Some(head)) => Ok((base, head)),
                (None, _) => at_the_beginning("its base is not signed by this master key: it was changed"),
                (_, None) => at_the_beginning("its head is not signed by this master key: it was changed"),
            }
        }
        (None, _) => at_the_beginning("its signed base is gone"),
        (_, None) => at_the_beginning("its signed head is gone"),
    })
}

/// Verifies the next batch.
async fn step(tx: &mut Tx<'_>, walk: &mut Walk<'_>) -> Result<Result<(), Break>, Fault> {
    let number = walk.at.batch + 1;
    let Some(batch) = audit::find_batch(tx, number).await? else {
        return Ok(Err(walk.broken(format!("batch {number}, which follows it, is gone"))));
    };
    let Some(key) = walk.keys.chain_key_of(&batch.key_id) else {
        return Ok(Err(walk.broken(format!("batch {number}, which follows it, is of another master key"))));
    };
    let Some(entries) = chain::read(&batch.entries) else {
        return Ok(Err(walk.broken(format!("batch {number}, which follows it, is not of its form"))));
    };
    let records = audit::of_batch(tx, number).await?;
    let link: Link = match chain::check(&key, walk.at.link, &entries, records) {
        Ok(link) => link,
        Err(wrong) => {
            let what = format!("{} (batch {number})", wrong.what);
            return Ok(Err(Break { place: Some((wrong.id, wrong.at)), what }));
        }
    };
    let count = i64::try_from(entries.len()).unwrap_or(i64::MAX);
    walk.at = Mark { batch: number, records: walk.at.records.saturating_add(count), link };
    walk.last = entries.last().map(|entry| entry.id.clone());
    Ok(walk.compare())
}

/// That the chain ends where its head says, and that nothing is outside of it.
async fn finish(
    tx: &mut Tx<'_>,
    walk: &Walk<'_>,
    base: Mark,
    head: Mark,
) -> Result<Result<Whole, Break>, Fault> {
    if walk.at != head {
        return Ok(Err(walk.broken("the chain ends here, and its signed head says otherwise")));
    }
    if let Some(id) = audit::stray(tx, base.batch, head.batch).await? {
        let what = "it says that it was sealed, in a batch that there is not".to_owned();
        return Ok(Err(Break { place: Some((id.clone(), id.drawn_at())), what }));
    }
    if let Some(number) = audit::stray_batch(tx, base.batch, head.batch).await? {
        return Ok(Err(walk.broken(format!("batch {number} is outside of the chain"))));
    }
    if let Some(noted) = walk.noted.filter(|noted| noted.batch > head.batch) {
        let (here, there) = (head.records, noted.records);
        let what = format!(
            "the chain was cut off here, after {here} records: {there} were sealed, as the head says that was noted beside \
             the database"
        );
        return Ok(Err(walk.broken(what)));
    }
    if let Some(id) = unmarked(tx, walk.keys).await? {
        let what = "it waits to be sealed, and is not as a relay wrote it, or none wrote it".to_owned();
        return Ok(Err(Break { place: Some((id.clone(), id.drawn_at())), what }));
    }
    Ok(Ok(Whole {
        sealed: head.records - base.records,
        pruned: base.records,
        open: audit::count_open(tx).await?,
        batches: head.batch,
    }))
}

/// A record that waits, and that no relay wrote as it is.
async fn unmarked(tx: &mut Tx<'_>, keys: &KeyRing) -> Result<Option<AuditId>, Fault> {
    let (mut after, end) = (None, audit::first_at(Timestamp::MAX));
    loop {
        let open = audit::open(tx, after.as_ref(), &end).await?;
        let odd = open.iter().find(|(record, mark)| !chain::is_marked(keys, record, mark.as_deref()));
        if let Some((record, _)) = odd {
            return Ok(Some(record.id.clone()));
        }
        match open.last() {
            Some((record, _)) => after = Some(record.id.clone()),
            None => return Ok(None),
        }
    }
}
