//! The operator verbs: one for each method that people and services call, with its flags, from the table alone.

use crate::api::schema::{Member, Node, Shape, TypeSchema};
use serde_json::Value;
use shared::api::Method;

/// A verb: `relay <group> <name>`; a group may be two words, `admin tasks`.
pub(super) struct Verb {
    /// The row.
    pub(super) method: Method,
    /// `join-tokens`.
    pub(super) group: String,
    /// `create`.
    pub(super) name: String,
    /// The input's fields.
    pub(super) fields: Vec<Field>,
    /// The members of the answer that nobody else may see, `token`.
    pub(super) secrets: Vec<String>,
}

/// A field of the input, as a flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    /// Its path in the input, members joined by dots.
    pub(super) path: String,
    /// The flag, without its dashes; the short form where there is one.
    pub(super) flag: String,
    /// The flag in full, where `flag` is short for it.
    pub(super) full_flag: Option<String>,
    /// How its value is written.
    pub(super) form: Form,
    /// Whether the method is refused without it.
    pub(super) required: bool,
    /// Whether it names the very thing that the method is about, so that it may stand without a flag.
    pub(super) own: bool,
    /// The words that it must be one of.
    pub(super) choices: Vec<String>,
    /// The members of an item, of [`Form::Items`].
    pub(super) members: Vec<ItemMember>,
    /// One line for people.
    pub(super) help: String,
}

/// A member of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ItemMember {
    /// Its name in the input.
    pub(super) name: String,
    /// Whether it holds several.
    pub(super) several: bool,
}

/// How a flag's value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// As it is.
    Text,
    /// A number.
    Integer,
    /// `1h`, `30m`, or seconds.
    Seconds,
    /// No value for true; `=false`.
    Boolean,
    /// Several, by commas or repeated.
    List,
    /// Several objects, one each time: `acme/ml=EDITOR`, the members but the last by slashes.
    Items,
    /// Several names with values, one each time: `name=value`.
    Pairs,
    /// The name of a file that holds it, or `-`: secrets, and documents.
    File,
    /// Made up unless given.
    IdempotencyKey,
    /// The caller's tenant unless given.
    Tenant,
    /// The caller's project unless given, if there is one.
    Project,
}

/// Groups of things that are in a project. (Elsewhere a project that is not named means the tenant itself.)
const IN_PROJECTS: &[&str] = &["pools"];

/// Groups of these modules are commands of their own name; others are below a command of the module's.
const BARE_MODULES: &[&str] = &["compute", "iam", "infra"];

impl Verb {
    /// The verb of a row.
    ///
    /// # Errors
    /// A field has a shape that no flag can say: a fault of the table.
    pub(super) fn of(method: &Method) -> Result<Self, String> {
        let (module, group, name) = method.parts();
        // A list is about many things: what names one there is a filter.
        let own = if name.starts_with("list") { Vec::new() } else { own_names(group) };
        let schema = TypeSchema::of(method.input);
        let mut fields = Vec::new();
        add_fields(schema.root(), "", true, &own, &mut fields)
            .map_err(|path| format!("{}: {path} has a shape that no flag can say", method.name))?;
        if IN_PROJECTS.contains(&group) {
            for field in fields.iter_mut().filter(|field| field.path == "projectId") {
                field.form = Form::Project;
                field.help.push_str(" [default: RELAY_PROJECT, else the context's]");
            }
        }
        let answer = TypeSchema::of(method.output);
        let secrets =
            answer.root().members().into_iter().filter(|member| member.node.shape() == Shape::Secret);
        let group =
            if BARE_MODULES.contains(&module) { kebab(group) } else { format!("{module} {}", kebab(group)) };
        let secrets = secrets.map(|member| member.name.to_owned()).collect();
        Ok(Self { method: *method, group, name: kebab(name), fields, secrets })
    }

    /// The flag of a field that the relay calls by its path, or of the one that it is in, for its errors.
    #[must_use]
    pub(super) fn flag_of(&self, path: &str) -> Option<String> {
        let within = |field: &&Field| {
            path.strip_prefix(&field.path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let field = self.fields.iter().filter(within).max_by_key(|field| field.path.len())?;
        Some(format!("--{}", field.flag))
    }
}

/// What each group is about, as the help says it.
const ABOUT: &[(&str, &str)] = &[
    ("admin audit", "The records of all tenants: who did what, and what was refused"),
    ("admin components", "The programs that work for this installation"),
    ("admin grants", "Roles of services on sites"),
    ("admin tasks", "What the relay still has to do, or could not"),
    ("admin tenants", "All tenants, and whom to make their members"),
    ("admin tokens", "The tokens of everybody"),
    ("admin users", "Users, and services, which have no login"),
    ("audit", "A tenant's records: who did what, and what was refused"),
    ("components", "Say that a program lives that works for this installation"),
    ("endorsement-authorities", "The TPM makers' CAs that a pool trusts"),
    ("endorsement-keys", "The TPMs that a pool admits"),
    ("events", "What happened in a tenant"),
    ("inventory", "The machines that a pool expects"),
    ("invites", "Ways into a tenant or project for who has not logged in yet"),
    ("join-requests", "Machines that wait for a person's decision"),
    ("join-tokens", "What machines join a pool with"),
    ("members", "Who has which role in a tenant or project"),
    ("metal", "Machines that are known by their BMC: enroll, deploy, release, retire"),
    ("nodes", "The machines of a pool: show, ban, release"),
    ("pools", "What machines join, and by which policy"),
    ("projects", "Folders of pools within a tenant"),
    ("secrets", "What the machines of a pool are given"),
    ("self", "Who you are to the relay, and what you may do"),
    ("sites", "Places where machines stand, and who decides there"),
    ("tenants", "Users' and organisations' own spaces"),
    ("tokens", "Your tokens: make, narrow, refresh, revoke"),
    ("webhooks", "Where a tenant's events are sent to"),
];

/// What a group is about; of one that the table lacks, its name.
#[must_use]
pub(super) fn about(group: &str) -> String {
    let known = ABOUT.iter().find(|(name, _)| *name == group);
    known.map_or_else(|| format!("Methods of {}", group.replace('-', " ")), |(_, about)| (*about).to_owned())
}

/// Groups whose own things are named by another field than their name tells.
const OWN_NAMES: &[(&str, &str)] = &[
    ("components", "identifier"),
    ("endorsementKeys", "ekSha256"),
    ("grants", "userId"),
    ("inventory", "entryId"),
    ("metal", "nodeId"),
];

/// What the fields that name a group's own things may be called, the most likely first: `joinTokens` are named by
/// `joinTokenId`, `tokenId` or `name`.
fn own_names(group: &str) -> Vec<String> {
    if let Some((_, name)) = OWN_NAMES.iter().find(|(of, _)| *of == group) {
        return vec![(*name).to_owned()];
    }
    let single = group
        .strip_suffix("ies")
        .map_or_else(|| group.strip_suffix('s').unwrap_or(group).to_owned(), |stem| format!("{stem}y"));
    let last_word = single.rfind(|c: char| c.is_ascii_uppercase()).map(|at| {
        let (_, word) = single.split_at(at);
        word.to_ascii_lowercase()
    });
    let mut names = vec![format!("{single}Id")];
    names.extend(last_word.map(|word| format!("{word}Id")));
    names.push("name".to_owned());
    names
}

fn add_fields(
    node: Node<'_>,
    path: &str,
    required: bool,
    own: &[String],
    fields: &mut Vec<Field>,
) -> Result<(), String> {
    let members = node.members();
    let mine = own.iter().find(|name| members.iter().any(|member| member.name == **name));
    for member in &members {
        let here = if path.is_empty() { member.name.to_owned() } else { format!("{path}.{}", member.name) };
        let required = required && member.required;
        let own_field = path.is_empty() && mine.is_some_and(|name| name == member.name);
        if member.node.shape() == Shape::Object {
            add_fields(member.node, &here, required, &[], fields)?;
            continue;
        }
        let form = form_of(&here, member.node, own_field).ok_or_else(|| here.clone())?;
        fields.push(field(&here, member.node, form, required, own_field));
    }
    Ok(())
}

fn form_of(path: &str, node: Node<'_>, own: bool) -> Option<Form> {
    match (path, node.shape()) {
        ("idempotencyKey", Shape::Text) => Some(Form::IdempotencyKey),
        ("tenantId", Shape::Text) if !own => Some(Form::Tenant),
        (_, Shape::Integer) if path.ends_with("Seconds") => Some(Form::Seconds),
        (_, Shape::Integer) => Some(Form::Integer),
        (_, Shape::Boolean) => Some(Form::Boolean),
        (_, Shape::Secret) => Some(Form::File),
        (_, Shape::Text) if node.keyword("contentMediaType").is_some() => Some(Form::File),
        (_, Shape::Text | Shape::Time) => Some(Form::Text),
        (_, Shape::List) => match node.items()?.shape() {
            Shape::Text => Some(Form::List),
            Shape::Object => (item_members(node)?.len() >= 2).then_some(Form::Items),
            _ => None,
        },
        (_, Shape::Map) => (node.items()?.shape() == Shape::Text).then_some(Form::Pairs),
        (_, Shape::Object | Shape::Other) => None,
    }
}

/// The members of a list's items: texts, the last perhaps several.
fn item_members(list: Node<'_>) -> Option<Vec<ItemMember>> {
    let members = list.items()?.members();
    let last = members.len().checked_sub(1)?;
    let member = |(at, member): (usize, &Member<'_>)| {
        let several = match member.node.shape() {
            Shape::Text => false,
            Shape::List if at == last => true,
            _ => return None,
        };
        Some(ItemMember { name: member.name.to_owned(), several })
    };
    members.iter().enumerate().map(member).collect()
}

fn field(path: &str, node: Node<'_>, form: Form, required: bool, own: bool) -> Field {
    let full = if form == Form::File { format!("{}-file", kebab(path)) } else { kebab(path) };
    let short = [("-id", true), ("-seconds", form == Form::Seconds)]
        .into_iter()
        .find_map(|(end, counts)| full.strip_suffix(end).filter(|_| counts).map(str::to_owned));
    let from = if form == Form::List { node.items().unwrap_or(node) } else { node };
    Field {
        path: path.to_owned(),
        full_flag: short.as_ref().map(|_| full.clone()),
        flag: short.unwrap_or(full),
        form,
        required: required && !matches!(form, Form::IdempotencyKey | Form::Tenant),
        own,
        choices: from.choices().into_iter().map(str::to_owned).collect(),
        members: if form == Form::Items { item_members(node).unwrap_or_default() } else { Vec::new() },
        help: help(node, form),
    }
}

fn help(node: Node<'_>, form: Form) -> String {
    let text = node.description();
    let text = text.trim_end_matches('.');
    let bounds =
        (node.keyword("minimum").and_then(Value::as_i64), node.keyword("maximum").and_then(Value::as_i64));
    let more = match (form, bounds) {
        (Form::Seconds, (least, most)) => durations(least.unwrap_or(0), most.unwrap_or(i64::MAX)),
        (Form::Integer, (Some(least), Some(most))) => format!(" ({least} to {most})"),
        (Form::File, _) => ": a file that holds it to the byte, or - for standard input".to_owned(),
        (Form::IdempotencyKey, _) => "; made up unless given".to_owned(),
        (Form::Tenant, _) => " [default: RELAY_TENANT, else the context's, else provider]".to_owned(),
        (Form::List, _) => " (several by commas)".to_owned(),
        (Form::Items, _) => format!(": {}, once for each", item_form(node)),
        (Form::Pairs, _) => ": NAME=VALUE, once for each".to_owned(),
        _ => String::new(),
    };
    format!("{text}{more}")
}

/// How an item is written: `TENANT-ID/PROJECT-ID=ROLE`.
fn item_form(list: Node<'_>) -> String {
    let members = item_members(list).unwrap_or_default();
    let words = members.iter().map(|member| {
        let word = kebab(&member.name).to_uppercase();
        if member.several { format!("{word} (by commas)") } else { word }
    });
    let words: Vec<String> = words.collect();
    match words.split_last() {
        Some((last, first)) => format!("{}={last}", first.join("/")),
        None => String::new(),
    }
}

/// Durations by example, of those that are allowed, and the bounds.
fn durations(least: i64, most: i64) -> String {
    let examples = [("90s", 90), ("30m", 1800), ("1h", 3600), ("24h", 86_400), ("7d", 604_800)];
    let allowed = examples.iter().filter(|(_, seconds)| (least..=most).contains(seconds));
    let words: Vec<&str> = allowed.map(|(word, _)| *word).collect();
    let such_as = if words.is_empty() { String::new() } else { format!(": such as {}", words.join(", ")) };
    let bounds = if most == i64::MAX { String::new() } else { format!(" ({least}s to {most}s)") };
    format!("{such_as}{bounds}")
}

/// `joinTokens` as `join-tokens`; dots stay.
#[must_use]
pub(super) fn kebab(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 4);
    for c in name.chars() {
        if c.is_ascii_uppercase() {
            out.push('-');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}
