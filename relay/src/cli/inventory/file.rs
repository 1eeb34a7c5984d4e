//! The file of `relay inventory import`: CSV (RFC 4180) with a line of heads that are the names of the method's fields.
//! Pure: text in, entries out, or all that is wrong with it, each by its line. What a value must be is not said here:
//! the method's own schema and type judge it.

use crate::api::validate::InputSchema;
use csv::{ReaderBuilder, StringRecord, Trim};
use serde_json::{Map, Value};
use shared::{api::inventory::PutInventoryEntry, problem::FieldError};
use std::collections::BTreeMap;

/// The longest file, in bytes.
pub(super) const MAX_BYTES: u64 = 16 << 20;
/// The most entries of a file.
pub(super) const MAX_ENTRIES: usize = 50_000;

/// The heads that there may be, as the method spells its fields.
pub(super) const HEADS: [&str; 6] = ["entryId", "productUuid", "serial", "mac", "gpuUuid", "ekSha256"];

/// An entry of the file, ready to be sent.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// The line that it begins at.
    pub(super) line: u64,
    /// Its name.
    pub(super) id: String,
    /// The method's input.
    pub(super) body: Value,
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bad {
    pub(super) line: u64,
    pub(super) rule: String,
}

/// The pool that the entries are for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub(super) tenant: &'a str,
    pub(super) pool: &'a str,
}

/// Reads the whole file. An empty cell is no value; blank lines are none.
///
/// # Errors
/// Every bad line; the heads alone if they are bad.
pub(super) fn read(text: &[u8], place: Place<'_>, schema: &InputSchema) -> Result<Vec<Entry>, Vec<Bad>> {
    // Spreadsheets put a byte order mark in front of UTF-8.
    let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
    let mut reader = ReaderBuilder::new().trim(Trim::All).from_reader(text);
    let mut lines = Lines::in_text(text);
    let heads = reader.headers().map_err(|error| vec![of_csv(&error, &mut lines)])?.clone();
    check_heads(&heads).map_err(|rule| vec![Bad { line: 1, rule }])?;
    let (mut entries, mut bad, mut seen) = (Vec::new(), Vec::new(), BTreeMap::new());
    for record in reader.records() {
        let read = record.map_err(|error| of_csv(&error, &mut lines)).and_then(|record| {
            let line = lines.of(record.position());
            entry(&heads, &record, line, place, schema)
        });
        if entries.len() + bad.len() == MAX_ENTRIES {
            let rule = format!("is one too many: a file may have {MAX_ENTRIES} entries; split it");
            bad.push(Bad { line: lines.line, rule });
            break;
        }
        match read {
            Ok(entry) => match seen.insert(entry.id.clone(), entry.line) {
                None => entries.push(entry),
                Some(earlier) => {
                    let rule = format!("entryId: is that of line {earlier} too");
                    bad.push(Bad { line: entry.line, rule });
                }
            },
            Err(one) => bad.push(one),
        }
    }
    if entries.is_empty() && bad.is_empty() {
        bad.push(Bad { line: 1, rule: "no entry follows the heads".to_owned() });
    }
    if bad.is_empty() { Ok(entries) } else { Err(bad) }
}

/// Counts lines up to where a record begins. The reader's own count stops before the end of the line before it, and
/// before blank lines.
pub(in crate::cli) struct Lines<'a> {
    text: &'a [u8],
    at: usize,
    line: u64,
}

impl<'a> Lines<'a> {
    /// At the beginning of a text.
    pub(in crate::cli) const fn in_text(text: &'a [u8]) -> Self {
        Self { text, at: 0, line: 1 }
    }

    /// The line of the record that the reader began at this position; positions only grow.
    pub(in crate::cli) fn of(&mut self, position: Option<&csv::Position>) -> u64 {
        let from = position.and_then(|position| usize::try_from(position.byte()).ok()).unwrap_or(self.at);
        let rest = self.text.get(from..).unwrap_or_default();
        let to = from + rest.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        let passed = self.text.get(self.at..to).unwrap_or_default();
        self.line += passed.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.at = self.at.max(to);
        self.line
    }
}

fn check_heads(heads: &StringRecord) -> Result<(), String> {
    let known = HEADS.join(", ");
    for (at, head) in heads.iter().enumerate() {
        if !HEADS.contains(&head) {
            return Err(format!("the heads must be of {known}; column {} has another", at + 1));
        }
        if heads.iter().take(at).any(|earlier| earlier == head) {
            return Err(format!("the head {head} is there twice"));
        }
    }
    if heads.iter().any(|head| head == "entryId") {
        return Ok(());
    }
    Err(format!("the first line must hold the heads, of {known}, and entryId is required"))
}

fn entry(
    heads: &StringRecord,
    record: &StringRecord,
    line: u64,
    place: Place<'_>,
    schema: &InputSchema,
) -> Result<Entry, Bad> {
    let cells = heads.iter().zip(record).filter(|(_, cell)| !cell.is_empty());
    let mut body: Map<String, Value> =
        cells.map(|(head, cell)| (head.to_owned(), Value::from(cell))).collect();
    body.insert("tenantId".to_owned(), place.tenant.into());
    body.insert("poolId".to_owned(), place.pool.into());
    let body = Value::Object(body);
    let read = schema.read::<PutInventoryEntry>(body.to_string().as_bytes());
    let input = read.map_err(|problem| Bad { line, rule: rule_of(&problem.errors) })?;
    input.identifiers().map_err(|errors| Bad { line, rule: rule_of(&errors) })?;
    Ok(Entry { line, id: input.entry_id.as_str().to_owned(), body })
}

/// All that is wrong with a line, in one.
fn rule_of(errors: &[FieldError]) -> String {
    let of = |error: &FieldError| match error.field.as_str() {
        "" => error.message.clone(),
        field => format!("{field}: {}", error.message),
    };
    errors.iter().map(of).collect::<Vec<_>>().join("; ")
}

/// The reader's own words quote nothing of the file but how many cells there are.
fn of_csv(error: &csv::Error, lines: &mut Lines<'_>) -> Bad {
    let line = lines.of(error.position());
    let rule = match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("has {len} cells, and the heads are {expected_len}")
        }
        csv::ErrorKind::Utf8 { .. } => "is not UTF-8".to_owned(),
        _ => "can't be read as CSV".to_owned(),
    };
    Bad { line, rule }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::api::inventory::PUT;

    fn read(text: &str) -> Result<Vec<Entry>, Vec<(u64, String)>> {
        let schema = InputSchema::compile(&PUT.method).unwrap();
        super::read(text.as_bytes(), Place { tenant: "acme", pool: "gpu-a" }, &schema)
            .map_err(|bad| bad.into_iter().map(|one| (one.line, one.rule)).collect())
    }

    #[test]
    fn cells_become_the_fields_that_their_heads_name() {
        let text = "\u{feff}entryId, serial,mac,productUuid\r\nrack-1,\"SN-1\",,\r\n\r\n\
                    rack-2,, 00:1A:2b:3c:4d:5e ,4C4C4544004330108052B4C04F4E3132\r\n";
        let entries = read(text).unwrap();
        let place = serde_json::json!({"tenantId": "acme", "poolId": "gpu-a"});
        let mut first = place.clone();
        first["entryId"] = "rack-1".into();
        first["serial"] = "SN-1".into();
        let mut second = place;
        second["entryId"] = "rack-2".into();
        second["mac"] = "00:1A:2b:3c:4d:5e".into();
        second["productUuid"] = "4C4C4544004330108052B4C04F4E3132".into();
        let seen: Vec<(u64, &str, &Value)> =
            entries.iter().map(|entry| (entry.line, entry.id.as_str(), &entry.body)).collect();
        assert_eq!(seen, [(2, "rack-1", &first), (4, "rack-2", &second)]);
        // Quotes as RFC 4180 has them: a comma or a quote inside is a value's own, and judged as such.
        assert_eq!(read("entryId,serial\n\"rack-1\",\"a,b\"\n").unwrap_err()[0].0, 2);
        // A line break inside of quotes is a line like any other.
        assert_eq!(read("entryId,serial\n\"a\",\"b\n\"\n\nc,SN-3\n-d,e\n").unwrap_err()[0].0, 6);
    }

    #[test]
    fn every_bad_line_is_named_by_its_number() {
        let text = "entryId,serial,mac\na,SN-1,\n-b,SN-2,\nc,Default-string,00:00:00:00:00:00\nd,,\na,SN-5,\ne,SN-6\nf,SN-7,,\n";
        let bad = read(text).unwrap_err();
        let lines: Vec<u64> = bad.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [3, 4, 5, 6, 7, 8]);
        for ((_, rule), beginning) in bad.iter().zip([
            "entryId: must be 1 to 128 letters",
            "serial: is a vendor's default",
            "must have at least one of",
            "entryId: is that of line 2 too",
            "has 2 cells, and the heads are 3",
            "has 4 cells, and the heads are 3",
        ]) {
            assert!(rule.starts_with(beginning), "{rule}");
        }
        assert!(bad[1].1.contains("; mac: is no machine's own"), "all of a line at once: {}", bad[1].1);
    }

    #[test]
    fn heads_are_those_of_the_method_and_entry_id_is_one_of_them() {
        for (text, rule) in [
            ("", "entryId is required"),
            ("serial\nSN-1\n", "entryId is required"),
            ("entryId,Serial\na,SN-1\n", "column 2 has another"),
            ("entryId,mac,mac\na,b,c\n", "mac is there twice"),
            ("entryId;serial\na;SN-1\n", "column 1 has another"),
            ("entryId,serial\n", "no entry follows"),
        ] {
            let bad = read(text).unwrap_err();
            assert_eq!((bad.len(), bad[0].0), (1, 1), "{text:?}");
            assert!(bad[0].1.contains(rule), "{text:?}: {}", bad[0].1);
        }
        let fields = crate::api::schema::TypeSchema::of(PUT.method.input);
        let names: Vec<&str> = fields.root().members().iter().map(|member| member.name).collect();
        assert_eq!(names, [&["tenantId", "poolId"], HEADS.as_slice()].concat());
    }

    #[test]
    fn a_file_is_bounded_and_utf_8() {
        let rows: String = (0..=MAX_ENTRIES).map(|at| format!("e{at},SN-{at}\n")).collect();
        let bad = read(&format!("entryId,serial\n{rows}")).unwrap_err();
        assert_eq!((bad.len(), bad[0].0), (1, MAX_ENTRIES as u64 + 2));
        let schema = InputSchema::compile(&PUT.method).unwrap();
        let text = b"entryId,serial\na,SN-1\nb,\xff\n";
        let bad = super::read(text, Place { tenant: "t", pool: "p" }, &schema).unwrap_err();
        assert_eq!(bad, [Bad { line: 3, rule: "is not UTF-8".to_owned() }]);
    }
}
