//! Answers on standard output: tables for lists, YAML for single things, JSON for programs. Pure: text comes out.

use super::{humane, yaml::to_yaml};
use crate::api::schema::{Node, Shape, TypeSchema};
use serde_json::Value;
use shared::{
    api::Method,
    terminal::{harmless_json, shown},
    time::Timestamp,
};

/// How to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// The columns that matter most.
    Table,
    /// All columns.
    Wide,
    /// As the relay said it.
    Json,
    /// The same for people.
    Yaml,
}

impl std::str::FromStr for Format {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, &'static str> {
        match text {
            "table" => Ok(Self::Table),
            "wide" => Ok(Self::Wide),
            "json" => Ok(Self::Json),
            "yaml" => Ok(Self::Yaml),
            _ => Err("must be table, wide, json or yaml"),
        }
    }
}

/// The columns of a list's table, by the method, else by the name of the list in the answer. `-o wide` shows all there are.
const COLUMNS: &[(&str, &[&str])] = &[
    (
        "compute.endorsementKeys.listUnmatched",
        &["ekSha256", "ekManufacturer", "nodeId", "joinRequestId", "firstSeenAt"],
    ),
    (
        "compute.metal.list",
        &[
            "nodeId",
            "state",
            "step",
            "waitingFor",
            "attempt",
            "updatedAt",
            "powerState",
            "bmc.address",
            "lastError.code",
        ],
    ),
    ("transitions", &["at", "actor", "verb", "from", "to", "reason"]),
    ("endorsementAuthorities", &["id", "addedAt", "addedBy"]),
    ("endorsementKeys", &["ekSha256", "note", "addedAt", "addedBy"]),
    ("entries", &["entryId", "productUuid", "serial", "mac", "gpuUuid", "ekSha256"]),
    (
        "joinRequests",
        &[
            "id",
            "state",
            "reasons",
            "identity.serial",
            "identity.hostname",
            "ekSha256",
            "remoteAddress",
            "createdAt",
        ],
    ),
    ("events", &["time", "type", "subject", "actor"]),
    (
        "components",
        &["type", "identifier", "version", "startedAt", "pingedAt", "subject", "tokenId", "tokenExpiresAt"],
    ),
    ("queues", &["queue", "state", "count", "oldestCreatedAt"]),
    ("tasks", &["id", "queue", "type", "state", "attempts", "createdAt", "dueAt", "lastError"]),
    ("grants", &["siteId", "role", "since", "grantedBy"]),
    ("invites", &["id", "projectId", "role", "expiresAt", "createdBy"]),
    ("members", &["memberId", "role", "since", "addedBy"]),
    ("permissions", &["subject", "actions"]),
    ("tokens", &["id", "type", "subject", "description", "expiresAt", "createdBy"]),
    ("users", &["userId", "displayName", "service", "createdAt"]),
    ("joinTokens", &["id", "maxUses", "uses", "pending", "expiresAt", "revokedAt", "createdBy"]),
    (
        "nodes",
        &[
            "nodeId",
            "state",
            "trust",
            "identity.serial",
            "identity.hostname",
            "certificate.expiresAt",
            "lastHeartbeatAt",
        ],
    ),
    ("pools", &["poolId", "projectId", "siteId", "agent", "createdAt"]),
    ("projects", &["projectId", "displayName", "createdAt"]),
    (
        "records",
        &["occurredAt", "subject", "createdBy", "method", "resource", "decision", "code", "clientAddress"],
    ),
    ("secrets", &["name", "updatedAt", "updatedBy"]),
    ("sites", &["siteId", "ownerTenantId", "custom", "bmcNetworks", "createdAt"]),
    ("tenants", &["tenantId", "displayName", "createdAt"]),
    ("webhooks", &["id", "url", "types", "enabled", "deliveredAt", "failingSince", "lastError"]),
];

/// The type of the audit's records.
const RECORD: &str = "AuditRecord";

/// The list of an answer: its name and what it holds. `None` for single things.
#[must_use]
pub(super) fn list_of(answer: &TypeSchema) -> Option<(String, Node<'_>)> {
    let members = answer.root().members();
    let mut lists = members.iter().filter(|member| member.node.shape() == Shape::List);
    match (lists.next(), lists.next()) {
        (Some(list), None) => Some((list.name.to_owned(), list.node.items()?)),
        _ => None,
    }
}

/// The things of an answer that is a list.
#[must_use]
pub(super) fn list_in<'a>(method: &Method, answer: &'a Value) -> Option<&'a [Value]> {
    let (name, _) = list_of(&TypeSchema::of(method.output))?;
    answer.get(&name).and_then(Value::as_array).map(Vec::as_slice)
}

/// An answer as text. `format` is the caller's wish, if there is one.
#[must_use]
pub(super) fn render(method: &Method, answer: &Value, format: Option<Format>, now: Timestamp) -> String {
    let schema = TypeSchema::of(method.output);
    let list = list_of(&schema);
    let format = format.unwrap_or(if list.is_some() { Format::Table } else { Format::Yaml });
    match (format, &list) {
        (Format::Json, _) => json(answer),
        (Format::Yaml, _) => to_yaml(answer),
        (Format::Table | Format::Wide, Some((name, items))) => {
            let columns = columns(method, name, *items, format == Format::Wide);
            let rows = answer.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            table(&columns, rows, now)
        }
        // A single thing is a table of names and values.
        (Format::Table | Format::Wide, None) => single(&schema, answer, now),
    }
}

/// A list that is no method's answer as text, by columns of which some hold times.
#[must_use]
pub(super) fn render_list(
    name: &str,
    columns: &[(&str, bool)],
    answer: &Value,
    format: Option<Format>,
    now: Timestamp,
) -> String {
    match format.unwrap_or(Format::Table) {
        Format::Json => json(answer),
        Format::Yaml => to_yaml(answer),
        Format::Table | Format::Wide => {
            let columns: Vec<Column> =
                columns.iter().map(|&(path, is_time)| Column { path: path.to_owned(), is_time }).collect();
            let rows = answer.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            table(&columns, rows, now)
        }
    }
}

/// Pretty JSON, harmless to a terminal.
#[must_use]
pub(super) fn json(answer: &Value) -> String {
    harmless_json(&format!("{answer:#}\n"))
}

/// A column: its path, and whether it holds times.
struct Column {
    path: String,
    is_time: bool,
}

fn columns(method: &Method, list: &str, items: Node<'_>, wide: bool) -> Vec<Column> {
    let chosen = columns_of(method, list);
    let paths: Vec<String> = match chosen {
        Some(columns) if !wide => columns.iter().map(|&path| path.to_owned()).collect(),
        _ => scalar_paths(items, ""),
    };
    paths.into_iter().map(|path| column(items, path)).collect()
}

/// The columns that the table has for a method's list.
pub(super) fn columns_of(method: &Method, list: &str) -> Option<&'static [&'static str]> {
    let of = |key: &str| COLUMNS.iter().find(|(name, _)| *name == key).map(|(_, columns)| *columns);
    of(method.name).or_else(|| of(list))
}

fn column(items: Node<'_>, path: String) -> Column {
    // A record is evidence: it says when to the millisecond, not how long ago.
    let is_time =
        items.type_name() != Some(RECORD) && items.at(&path).is_some_and(|node| node.shape() == Shape::Time);
    Column { path, is_time }
}

/// How deep objects inside of objects are shown in columns: as deep as a pool's policy.
const MAX_DEPTH: usize = 2;

/// The paths of all scalars, those of objects inside too.
fn scalar_paths(node: Node<'_>, path: &str) -> Vec<String> {
    node.members()
        .into_iter()
        .flat_map(|member| {
            let here =
                if path.is_empty() { member.name.to_owned() } else { format!("{path}.{}", member.name) };
            match member.node.shape() {
                Shape::Object if path.matches('.').count() < MAX_DEPTH => scalar_paths(member.node, &here),
                Shape::Object | Shape::Map | Shape::Other => Vec::new(),
                _ => vec![here],
            }
        })
        .collect()
}

fn single(schema: &TypeSchema, answer: &Value, now: Timestamp) -> String {
    let mut lines = Vec::new();
    for member in schema.root().members() {
        let inside = scalar_paths(member.node, "");
        let paths = inside.iter().map(|path| format!("{}.{path}", member.name));
        let paths: Vec<String> =
            if inside.is_empty() { vec![member.name.to_owned()] } else { paths.collect() };
        for path in paths {
            let column = column(schema.root(), path);
            let label = label(column.path.split_once('.').map_or(column.path.as_str(), |(_, rest)| rest));
            let value = cell(answer, &column, now);
            if value != ABSENT {
                lines.push(vec![label, value]);
            }
        }
    }
    aligned(&lines)
}

fn table(columns: &[Column], rows: &[Value], now: Timestamp) -> String {
    let mut lines = vec![columns.iter().map(|column| label(&column.path)).collect::<Vec<_>>()];
    lines.extend(rows.iter().map(|row| columns.iter().map(|column| cell(row, column, now)).collect()));
    aligned(&lines)
}

/// What stands for an absent value.
const ABSENT: &str = "-";

fn cell(row: &Value, column: &Column, now: Timestamp) -> String {
    let value = column.path.split('.').try_fold(row, |value, name| value.get(name));
    match value {
        Some(Value::String(text)) if column.is_time => {
            Timestamp::parse(text).map_or_else(|_| shown(text), |at| humane::relative(at, now))
        }
        Some(Value::String(text)) if is_claim(row, column) => format!("{} (unverified)", shown(text)),
        Some(Value::String(text)) => shown(text),
        Some(Value::Bool(yes)) => if *yes { "yes" } else { "no" }.to_owned(),
        Some(Value::Array(items)) if items.is_empty() => ABSENT.to_owned(),
        Some(Value::Array(items)) => {
            let words: Vec<String> = items
                .iter()
                .map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned))
                .collect();
            shown(&words.join(","))
        }
        None | Some(Value::Null) => ABSENT.to_owned(),
        Some(other) => shown(&other.to_string()),
    }
}

/// Whether the value is the name of a TPM's maker that nobody but the machine vouches for: anybody can write a certificate
/// that says it, and a person decides by it.
fn is_claim(row: &Value, column: &Column) -> bool {
    let (parent, name) = column.path.rsplit_once('.').unwrap_or(("", &column.path));
    let holder =
        parent.split('.').filter(|name| !name.is_empty()).try_fold(row, |value, name| value.get(name));
    let vouched = holder.and_then(|holder| holder.get("ekVouched")).and_then(Value::as_bool);
    name == "ekManufacturer" && vouched != Some(true)
}

/// `certificate.expiresAt` as `CERTIFICATE EXPIRES`.
fn label(path: &str) -> String {
    let path = path.strip_suffix("At").filter(|rest| !rest.is_empty()).unwrap_or(path);
    let path = path.strip_prefix("identity.").unwrap_or(path);
    super::verbs::kebab(path).replace(['-', '.'], " ").to_uppercase()
}

fn aligned(lines: &[Vec<String>]) -> String {
    let count = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |at: usize| lines.iter().filter_map(|line| line.get(at)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..count).map(|at| width(at).unwrap_or(0)).collect();
    let mut out = String::new();
    for line in lines {
        let cells: Vec<String> =
            line.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}")).collect();
        out.push_str(cells.join("  ").trim_end());
        out.push('\n');
    }
    out
}
