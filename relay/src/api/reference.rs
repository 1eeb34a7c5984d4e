//! `relay/api.md`: the reference page, from the method table. Generated, committed, and checked to be fresh.

use super::{
    document::PLAIN,
    schema::{Member, Node, Shape, TypeSchema},
};
use crate::metal::{
    bmc::REASONS,
    causes::CAUSES,
    machine::{Move, TABLE, With, allowed},
};
use serde_json::Value;
use shared::{
    api::{Kind, Method, Status, access::ACTIONS, metal::MetalState, steps::STEP_FAULTS},
    problem::{Code, Reason},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

/// How deep a type is shown.
const MAX_DEPTH: usize = 6;

/// The page of these methods.
#[must_use]
pub fn page<'a>(methods: impl IntoIterator<Item = &'a Method>) -> String {
    let mut page = String::from(HEAD);
    let mut groups: BTreeMap<String, Vec<&Method>> = BTreeMap::new();
    for method in methods {
        let (module, group, _) = method.parts();
        let name = if group.is_empty() { module.to_owned() } else { format!("{module}/{group}") };
        groups.entry(name).or_default().push(method);
    }
    for (name, methods) in &groups {
        group(&mut page, name, methods);
    }
    states(&mut page);
    plain(&mut page);
    roles(&mut page);
    problems(&mut page);
    page
}

const HEAD: &str = "# The API of relay

Generated from the method table by `relay reference --write relay`; a test checks that it is fresh. Don't edit.

Every method is `POST /api/<module>/<group>/<method>` with a JSON object in and a JSON object out. An absent optional
field and `null` mean the same; unknown fields are refused. Times are RFC 3339 in UTC with milliseconds. Errors are
`application/problem+json`; every bad field is named. `relay <group> <method>` calls the same methods from a shell.

";

fn group(page: &mut String, name: &str, methods: &[&Method]) {
    let _ = writeln!(page, "## {name}\n");
    page.push_str("| method | kind | authorization | phase | does |\n|---|---|---|---|---|\n");
    for method in methods {
        let kind = if method.kind == Kind::Read { "read" } else { "mutation" };
        let status = if method.status == Status::Served { "" } else { ", not served yet" };
        let _ = writeln!(
            page,
            "| `{}` | {kind} | {} | {}{status} | {} |",
            method.parts().2,
            method.access.describe(),
            method.phase.as_str(),
            method.summary
        );
    }
    page.push('\n');
    // What a group's methods answer is shown at the first of them.
    let mut shown = BTreeSet::new();
    for method in methods {
        let _ = writeln!(page, "### {}\n\n`POST {}`: {}\n", method.name, method.path(), method.summary);
        fields(page, "Input", TypeSchema::of(method.input).root(), &mut BTreeSet::new());
        fields(page, "Output", TypeSchema::of(method.output).root(), &mut shown);
    }
}

fn fields(page: &mut String, title: &str, root: Node<'_>, shown: &mut BTreeSet<String>) {
    let mut rows = Vec::new();
    collect(root, "", MAX_DEPTH, shown, &mut rows);
    if rows.is_empty() {
        let _ = writeln!(page, "{title}: an empty object.\n");
        return;
    }
    let always = if title == "Input" { "required" } else { "always" };
    let _ = writeln!(page, "| {} | type | {always} | |", title.to_lowercase());
    page.push_str("|---|---|---|---|\n");
    for Row { path, member, note } in rows {
        let required = if member.required { "yes" } else { "" };
        let words = [member.node.description(), rules(member.node), note.to_owned()];
        let words: Vec<String> = words.into_iter().filter(|word| !word.is_empty()).collect();
        let _ = writeln!(page, "| {path} | {} | {required} | {} |", type_name(member.node), words.join(" "));
    }
    page.push('\n');
}

/// A line of a table of fields.
struct Row<'a> {
    path: String,
    member: Member<'a>,
    note: &'static str,
}

/// The members below a node, each with its path; lists as `name[]`, maps as `name.*`. A type in `shown` is not shown
/// again.
fn collect<'a>(
    node: Node<'a>,
    path: &str,
    depth: usize,
    shown: &mut BTreeSet<String>,
    rows: &mut Vec<Row<'a>>,
) {
    if depth == 0 {
        return;
    }
    for alternative in node.alternatives() {
        collect(alternative, path, depth - 1, shown, rows);
    }
    for member in node.members() {
        let here = if path.is_empty() { member.name.to_owned() } else { format!("{path}.{}", member.name) };
        let (inner, below) = match (member.node.shape(), member.node.items()) {
            (Shape::List, Some(items)) => (items, format!("{here}[]")),
            (Shape::Map, Some(items)) => (items, format!("{here}.*")),
            _ => (member.node, here.clone()),
        };
        let is_object = inner.shape() == Shape::Object;
        let again = is_object && inner.type_name().is_some_and(|name| !shown.insert(name.to_owned()));
        rows.push(Row { path: here, member, note: if again { "As above." } else { "" } });
        if !again {
            collect(inner, &below, depth - 1, shown, rows);
        }
    }
}

fn type_name(node: Node<'_>) -> String {
    let items = |node: Node<'_>| node.items().map_or_else(|| "any".to_owned(), type_name);
    match node.shape() {
        Shape::Object => node.type_name().unwrap_or("object").to_owned(),
        Shape::Map => format!("{} by name", items(node)),
        Shape::List => format!("list of {}", items(node)),
        Shape::Secret => "secret string".to_owned(),
        Shape::Time => "time".to_owned(),
        Shape::Text => "string".to_owned(),
        Shape::Integer => "integer".to_owned(),
        Shape::Boolean => "boolean".to_owned(),
        Shape::Other => "any".to_owned(),
    }
}

fn rules(node: Node<'_>) -> String {
    let number = |name: &str| node.keyword(name).and_then(Value::as_i64);
    let mut rules = Vec::new();
    match (number("minimum"), number("maximum")) {
        (Some(least), Some(most)) => rules.push(format!("{least}-{most}")),
        (Some(least), None) => rules.push(format!("≥ {least}")),
        (None, Some(most)) => rules.push(format!("≤ {most}")),
        (None, None) => {}
    }
    if let Some(most) = number("maxLength") {
        rules.push(format!("≤{most}"));
    }
    if let Some(most) = number("maxItems") {
        rules.push(format!("≤{most} items"));
    }
    if number("minProperties") == Some(1) {
        rules.push("at least one member".to_owned());
    }
    if let Some(pattern) = node.keyword("pattern").and_then(Value::as_str) {
        rules.push(format!("`{}`", pattern.replace('|', "\\|")));
    }
    if let Some(word) = node.keyword("const").and_then(Value::as_str) {
        rules.push(format!("`{word}`"));
    }
    let choices = node.choices();
    if !choices.is_empty() {
        let words: Vec<String> = choices.iter().map(|word| format!("`{word}`")).collect();
        rules.push(format!("one of {}", words.join(", ")));
    }
    if rules.is_empty() { String::new() } else { format!("({})", rules.join(", ")) }
}

/// The provision states of metal machines, from their table.
fn states(page: &mut String) {
    page.push_str(
        "## The states of metal machines\n\nEach arrow is a verb: from where it is legal, through the state of its workflow, to \
         where that ends. One that fails ends in the state of its name with `Failed`; `abort` makes it. `setCredentials` and \
         `power` leave the state as it is.\n\n```mermaid\nstateDiagram-v2\n",
    );
    let _ = writeln!(page, "    [*] --> enrolling: enroll");
    for row in TABLE {
        let Move::Workflow(through, ends) = row.then else { continue };
        let with = if row.with == With::Nothing { "" } else { " " };
        let verb = format!("{}{with}{}", row.verb.as_str(), row.with.as_str());
        for from in row.from {
            let _ = writeln!(page, "    {} --> {}: {verb}", from.as_str(), through.as_str());
        }
        let _ = writeln!(page, "    {} --> {}", through.as_str(), ends.as_str());
    }
    for state in MetalState::ALL {
        if let Some(failed) = state.failed() {
            let _ = writeln!(page, "    {} --> {}", state.as_str(), failed.as_str());
        }
    }
    page.push_str("```\n\n| state | verbs |\n|---|---|\n");
    for state in MetalState::ALL {
        let verbs: Vec<String> = allowed(state).iter().map(|verb| format!("`{}`", verb.as_str())).collect();
        let verbs = if verbs.is_empty() { "–".to_owned() } else { verbs.join(", ") };
        let _ = writeln!(page, "| `{}` | {verbs} |", state.as_str());
    }
    page.push('\n');
    failures(page);
}

/// Every word of `lastError.code`, from its three tables.
fn failures(page: &mut String) {
    page.push_str(
        "### Why a step failed\n\nWhat `lastError.code` says. A step at the BMC that may pass is tried again until its deadline, with \
         growing waits; all else ends the workflow at once.\n\n| code | from | may pass | |\n|---|---|---|---|\n",
    );
    let mut row = |code: &str, from: &str, passes: bool, means: &str| {
        let passes = if passes { "yes" } else { "–" };
        let _ = writeln!(page, "| `{code}` | {from} | {passes} | {means} |");
    };
    for (_, code, passes, means) in REASONS {
        row(code, "BMC", *passes, means);
    }
    for (_, code, means) in STEP_FAULTS {
        row(code, "agent", false, means);
    }
    for (_, code, means) in CAUSES {
        row(code, "relay", false, means);
    }
    page.push('\n');
}

fn plain(page: &mut String) {
    page.push_str(
        "## Beside the methods\n\nServed by `GET` to anyone.\n\n| path | answers | |\n|---|---|---|\n",
    );
    for one in PLAIN {
        let _ = writeln!(page, "| `{}` | {} | {} |", one.path, one.media_type, one.summary);
    }
    page.push('\n');
}

fn roles(page: &mut String) {
    page.push_str(
        "## Roles\n\nThe least role that may do an action, in each scope. Roles from the least up: tenant GUEST, VIEWER, \
         EDITOR, OWNER; project VIEWER, EDITOR, OWNER; admin and infra VIEWER, EDITOR. What is own, every user may do to \
         what is theirs; an API token needs the action, or a role that holds it.\n\n| action | tenant | project | admin \
         | infra | own |\n|---|---|---|---|---|---|\n",
    );
    for row in ACTIONS {
        let tenant = row.tenant.map_or_else(|| "–".to_owned(), word);
        let project = row.project.map_or_else(|| "–".to_owned(), word);
        let admin = row.admin.map_or_else(|| "–".to_owned(), word);
        let infra = row.infra.map_or_else(|| "–".to_owned(), word);
        let own = if row.own { "yes" } else { "–" };
        let _ = writeln!(page, "| `{}` | {tenant} | {project} | {admin} | {infra} | {own} |", row.name);
    }
    page.push('\n');
}

/// A role as the wire says it.
fn word(role: impl serde::Serialize) -> String {
    let value = serde_json::to_value(role).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

fn problems(page: &mut String) {
    page.push_str("## Problems\n\n| code | status | title |\n|---|---|---|\n");
    for code in Code::ALL {
        let (status, title) = code.status_and_title();
        let _ = writeln!(page, "| {} | {status} | {title} |", code.as_str());
    }
    page.push_str("\nReasons of refused machines, told only where the secret or the key matched:\n\n");
    page.push_str("| reason | code |\n|---|---|\n");
    for reason in Reason::ALL {
        let _ = writeln!(page, "| {} | {} |", word(reason), reason.code().as_str());
    }
}
