//! The chain: each record's link is a code over the link before it and the record, with a key that the database does not
//! have. Pure.
//!
//! A batch names its records, in order, each with its link, so that the first one that is not as it was can be named. Where
//! the chain begins and ends is marked and signed: the head says how far it goes, the base what was pruned.

use crate::seal::{ChainKey, KeyRing, LINK_BYTES};
use shared::{api::audit::AuditRecord, hex, id::AuditId, time::Timestamp};
use std::collections::BTreeMap;

/// A link.
pub type Link = [u8; LINK_BYTES];

/// A record's place in the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The record.
    pub id: AuditId,
    /// Its link.
    pub link: Link,
}

/// What is wrong at a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The record.
    pub id: AuditId,
    /// When it was written.
    pub at: Option<Timestamp>,
    /// What.
    pub what: &'static str,
}

const GONE: &str = "it was sealed, and is gone";
const CHANGED: &str =
    "it is not what was sealed here: it was changed, or moved, or what was before it is gone";
const FOREIGN: &str = "it was put into a batch that was sealed without it";

/// Links records in this order to what is before them; answers the last link too.
#[must_use]
pub fn seal(key: &ChainKey, before: Link, records: &[AuditRecord]) -> (Vec<Entry>, Link) {
    let mut last = before;
    let entries = records.iter().map(|record| {
        last = code(key, "record", &last, record);
        Entry { id: record.id.clone(), link: last }
    });
    (entries.collect(), last)
}

/// Whether the records of a batch are what was sealed; answers the last link.
///
/// # Errors
/// The first record that is not.
pub fn check(
    key: &ChainKey,
    before: Link,
    entries: &[Entry],
    records: Vec<AuditRecord>,
) -> Result<Link, Wrong> {
    let mut found: BTreeMap<AuditId, AuditRecord> =
        records.into_iter().map(|record| (record.id.clone(), record)).collect();
    let mut last = before;
    for entry in entries {
        let wrong = |what| Wrong { id: entry.id.clone(), at: entry.id.drawn_at(), what };
        let record = found.remove(&entry.id).ok_or_else(|| wrong(GONE))?;
        last = code(key, "record", &last, &record);
        if last != entry.link {
            return Err(wrong(CHANGED));
        }
    }
    match found.pop_first() {
        None => Ok(last),
        Some((id, _)) => Err(Wrong { at: id.drawn_at(), id, what: FOREIGN }),
    }
}

/// The mark that a record has from the beginning, before it is chained: that a relay wrote it. `<key id>.<code>`.
#[must_use]
pub fn mark(key: &ChainKey, record: &AuditRecord) -> String {
    format!("{}.{}", key.id(), hex::encode(&code(key, "mark", &Link::default(), record)))
}

/// Whether a relay of this store wrote the record, as it is.
#[must_use]
pub fn is_marked(keys: &KeyRing, record: &AuditRecord, mark: Option<&str>) -> bool {
    let written = |text: &str| {
        let (id, shown) = text.split_once('.')?;
        Some(
            hex::decode::<LINK_BYTES>(shown)?
                == code(&keys.chain_key_of(id)?, "mark", &Link::default(), record),
        )
    };
    mark.and_then(written) == Some(true)
}

fn code(key: &ChainKey, purpose: &str, before: &Link, record: &AuditRecord) -> Link {
    let AuditRecord {
        id,
        occurred_at,
        subject,
        token_id,
        created_by,
        tenant_id,
        action,
        method,
        resource,
        decision,
        code,
        client_address,
        request_id,
        left_out,
    } = record;
    let at = occurred_at.millis().to_be_bytes();
    let left_out = left_out.to_be_bytes();
    let token = token_id.as_ref().map(String::as_bytes);
    let maker = created_by.as_ref().map(String::as_bytes);
    let is = |there: bool| if there { b"1".as_slice() } else { b"0" };
    key.code(
        purpose,
        &[
            before,
            id.as_str().as_bytes(),
            &at,
            subject.as_bytes(),
            is(token.is_some()),
            token.unwrap_or_default(),
            is(maker.is_some()),
            maker.unwrap_or_default(),
            tenant_id.as_bytes(),
            action.as_bytes(),
            method.as_bytes(),
            resource.as_bytes(),
            decision.as_str().as_bytes(),
            code.as_bytes(),
            client_address.as_bytes(),
            request_id.as_bytes(),
            &left_out,
        ],
    )
}

/// Entries as a batch keeps them: a line each, id and link.
#[must_use]
pub fn write(entries: &[Entry]) -> String {
    entries.iter().map(|entry| format!("{} {}\n", entry.id, hex::encode(&entry.link))).collect()
}

/// Entries as [`write`] wrote them.
#[must_use]
pub fn read(text: &str) -> Option<Vec<Entry>> {
    let entry = |line: &str| {
        let (id, link) = line.split_once(' ')?;
        Some(Entry { id: id.parse().ok()?, link: hex::decode(link)? })
    };
    text.lines().map(entry).collect()
}

/// An end of the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// What was pruned: up to there.
    Base,
    /// What was sealed: up to there.
    Head,
}

/// A place between two batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// The batch before it; 0 at the chain's very beginning.
    pub batch: i64,
    /// How many records are before it, pruned ones too.
    pub records: i64,
    /// The last link before it.
    pub link: Link,
}

impl Mark {
    /// The mark with its signature: `v1.<key id>.<batch>.<records>.<link>.<code>`.
    #[must_use]
    pub fn sign(&self, end: End, key: &ChainKey) -> String {
        let body = format!("v1.{}.{}.{}.{}", key.id(), self.batch, self.records, hex::encode(&self.link));
        let code = key.code(end.purpose(), &[body.as_bytes()]);
        format!("{body}.{}", hex::encode(&code))
    }

    /// A mark that one of the ring's keys signed for this end.
    #[must_use]
    pub fn open(text: &str, end: End, keys: &KeyRing) -> Option<Self> {
        let (body, code) = text.trim_end().rsplit_once('.')?;
        let mut parts = body.split('.');
        let key = (parts.next()? == "v1").then(|| parts.next()).flatten()?;
        let signed = keys.chain_key_of(key)?.code(end.purpose(), &[body.as_bytes()]);
        if hex::decode::<LINK_BYTES>(code)? != signed {
            return None;
        }
        Some(Self {
            batch: parts.next()?.parse().ok()?,
            records: parts.next()?.parse().ok()?,
            link: hex::decode(parts.next()?)?,
        })
    }
}

impl End {
    const fn purpose(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::Head => "head",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seal::MasterKey;

    fn ring(byte: u8) -> KeyRing {
        KeyRing::new(MasterKey::from_bytes([byte; 32].into()), Vec::new())
    }

    #[test]
    fn a_mark_holds_for_its_end_and_key_only() {
        let key = ring(1).chain_key().unwrap();
        let mark = Mark { batch: 7, records: 3000, link: [9; LINK_BYTES] };
        let text = mark.sign(End::Head, &key);
        assert_eq!(Mark::open(&text, End::Head, &ring(1)), Some(mark));
        assert_eq!(Mark::open(&format!("{text}\n"), End::Head, &ring(1)), Some(mark), "as a file has it");
        assert_eq!(Mark::open(&text, End::Base, &ring(1)), None);
        assert_eq!(Mark::open(&text, End::Head, &ring(2)), None);
        for (from, to) in [(".7.", ".6."), (".3000.", ".2999."), ("0909", "0908"), ("v1", "v2")] {
            assert_eq!(Mark::open(&text.replacen(from, to, 1), End::Head, &ring(1)), None, "{from}");
        }
        assert_eq!(Mark::open("", End::Head, &ring(1)), None);
    }

    #[test]
    fn entries_are_read_as_they_were_written() {
        let id = AuditId::draw(Timestamp::from_seconds(1), [1; 10]);
        let entries = vec![Entry { id: id.clone(), link: [1; 32] }, Entry { id, link: [2; 32] }];
        assert_eq!(read(&write(&entries)), Some(entries));
        assert_eq!(read(""), Some(Vec::new()));
        for bad in ["x", "au_1 00", "\n"] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }
}
