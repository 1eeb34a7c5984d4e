//! The file of `relay metal enroll --file`: CSV (RFC 4180) with a line of heads. Pure: text in, machines out, or all that is wrong
//! with it, each by its line. A rule never repeats a value: there are passwords in the file.

use crate::cli::inventory::file::Lines;
use csv::{ReaderBuilder, StringRecord, Trim};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use shared::hex;
use std::collections::BTreeMap;

/// The longest file, in bytes.
pub(super) const MAX_BYTES: u64 = 16 << 20;
/// The most machines of a file.
const MAX_MACHINES: usize = 10_000;
/// The most bad lines that are shown.
pub(super) const MAX_SHOWN: usize = 50;

/// The heads that there may be: the fields of the method's `bmc`, and `expectSerial`.
pub(super) const HEADS: [&str; 9] = [
    "address",
    "protocol",
    "username",
    "password",
    "tlsPinSha256",
    "tlsTrustFirstUse",
    "tlsInsecure",
    "ipmiCipherSuite",
    "expectSerial",
];

/// A machine of the file, ready to be sent.
pub(super) struct Machine {
    /// Its line.
    pub(super) line: u64,
    /// Its BMC's address.
    pub(super) address: String,
    /// The method's input.
    pub(super) body: Value,
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bad {
    pub(super) line: u64,
    pub(super) rule: String,
}

/// The pool that the machines are for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub(super) tenant: &'a str,
    pub(super) pool: &'a str,
}

/// Reads the whole file. An empty cell is no value.
///
/// # Errors
/// Every bad line; the heads alone if they are bad.
pub(super) fn read(text: &[u8], place: Place<'_>) -> Result<Vec<Machine>, Vec<Bad>> {
    // Spreadsheets put a byte order mark in front of UTF-8.
    let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
    let mut reader = ReaderBuilder::new().trim(Trim::All).from_reader(text);
    let unreadable = |line| Bad { line, rule: "is no CSV: as many cells as heads, in UTF-8".to_owned() };
    let heads = reader.headers().map_err(|_| vec![unreadable(1)])?.clone();
    if let Some(rule) = wrong_heads(&heads) {
        return Err(vec![Bad { line: 1, rule }]);
    }
    let mut lines = Lines::in_text(text);
    let (mut machines, mut bad, mut seen) = (Vec::new(), Vec::new(), BTreeMap::new());
    for record in reader.records() {
        let read = match record {
            Ok(record) => {
                let line = lines.of(record.position());
                machine(&heads, &record, line, place)
            }
            Err(error) => Err(unreadable(lines.of(error.position()))),
        };
        if machines.len() + bad.len() == MAX_MACHINES {
            let rule = format!("a file may have {MAX_MACHINES} machines; split it");
            bad.push(Bad { line: 0, rule });
            break;
        }
        match read {
            Ok(machine) => match seen.insert(machine.address.clone(), machine.line) {
                None => machines.push(machine),
                Some(earlier) => {
                    let rule = format!("address: is that of line {earlier} too");
                    bad.push(Bad { line: machine.line, rule });
                }
            },
            Err(one) => bad.push(one),
        }
    }
    if machines.is_empty() && bad.is_empty() {
        bad.push(Bad { line: 1, rule: "no machine follows the heads".to_owned() });
    }
    if bad.is_empty() { Ok(machines) } else { Err(bad) }
}

fn wrong_heads(heads: &StringRecord) -> Option<String> {
    let known = HEADS.join(", ");
    for (at, head) in heads.iter().enumerate() {
        if !HEADS.contains(&head) {
            return Some(format!("the heads must be of {known}; column {} has another", at + 1));
        }
        if heads.iter().take(at).any(|earlier| earlier == head) {
            return Some(format!("the head {head} is there twice"));
        }
    }
    let lacks = !heads.iter().any(|head| head == "address");
    lacks.then(|| format!("the first line must hold the heads, of {known}, and address is required"))
}

fn machine(heads: &StringRecord, record: &StringRecord, line: u64, place: Place<'_>) -> Result<Machine, Bad> {
    let mut bmc = Map::new();
    let mut body = json!({"tenantId": place.tenant, "poolId": place.pool});
    for (head, cell) in heads.iter().zip(record).filter(|(_, cell)| !cell.is_empty()) {
        let value = match head {
            "tlsTrustFirstUse" | "tlsInsecure" => cell.parse::<bool>().ok().map(Value::from),
            "ipmiCipherSuite" => cell.parse::<i64>().ok().map(Value::from),
            _ => Some(cell.into()),
        };
        let Some(value) = value else {
            let rule = if head == "ipmiCipherSuite" { "a number" } else { "true or false" };
            return Err(Bad { line, rule: format!("{head}: must be {rule}") });
        };
        if head == "expectSerial" {
            put(&mut body, head, value);
        } else {
            bmc.insert(head.to_owned(), value);
        }
    }
    let Some(address) = bmc.get("address").and_then(Value::as_str).map(str::to_owned) else {
        return Err(Bad { line, rule: "address: is required".to_owned() });
    };
    put(&mut body, "bmc", bmc.into());
    // The same machine in the same pool is the same request, however often the file is sent.
    let key = [place.tenant, place.pool, &address].map(|part| format!("{}:{part}", part.len())).concat();
    put(&mut body, "idempotencyKey", format!("file-{}", hex::encode(&Sha256::digest(key))).into());
    Ok(Machine { line, address, body })
}

fn put(body: &mut Value, name: &str, value: Value) {
    if let Some(members) = body.as_object_mut() {
        members.insert(name.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place<'_> = Place { tenant: "acme", pool: "gpu-a" };

    #[test]
    fn a_line_is_a_request() {
        let text = "\u{feff}address,username,password,tlsInsecure,expectSerial\r\n192.0.2.7, root ,p;w,true,\n192.0.2.8,root,x,,S1\n";
        let machines = read(text.as_bytes(), PLACE).ok().unwrap();
        let first = &machines[0].body;
        assert_eq!((machines[0].line, machines[0].address.as_str(), machines.len()), (2, "192.0.2.7", 2));
        assert_eq!(
            first["bmc"],
            json!({"address": "192.0.2.7", "username": "root", "password": "p;w", "tlsInsecure": true})
        );
        assert_eq!((first.get("expectSerial"), &machines[1].body["expectSerial"]), (None, &json!("S1")));
        let again = read(text.as_bytes(), PLACE).ok().unwrap();
        assert_eq!(again[0].body, *first);
        assert_ne!(first["idempotencyKey"], machines[1].body["idempotencyKey"]);
    }

    #[test]
    fn every_bad_line_is_named_and_no_value_is() {
        let bad = |text: &str| read(text.as_bytes(), PLACE).err().unwrap();
        let rules = |text: &str| bad(text).into_iter().map(|bad| bad.line).collect::<Vec<_>>();
        assert_eq!(rules("address,username\n,hunter2\na,b,hunter2\nc,d\nc,e\n"), [2, 3, 5]);
        assert_eq!(rules("address\n"), [1]);
        assert_eq!(rules("username\nx\n"), [1]);
        assert_eq!(rules("address,surprise\na,b\n"), [1]);
        assert_eq!(rules("address,address\na,b\n"), [1]);
        for one in
            bad("address,password,tlsInsecure,ipmiCipherSuite\na,hunter2,hunter2,\nb,hunter2,,hunter2\n")
        {
            assert!(!one.rule.contains("hunter2"), "{}", one.rule);
        }
    }
}
