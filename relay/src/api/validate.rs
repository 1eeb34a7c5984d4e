//! The input of a method, judged by its schema: every bad field named, none of their values repeated.
//!
//! The schema finds all that is wrong with shapes and bounds; what it can't tell (60.0 is an integer to JSON
//! Schema) the typed reading that follows refuses.

use super::json::parse;
use crate::nearest::nearest;
use jsonschema::{PatternOptions, ValidationError, Validator, error::ValidationErrorKind};
use schemars::{SchemaGenerator, generate::SchemaSettings};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, error::Category, json};
use shared::{
    api::{Method, SchemaOf},
    problem::{FieldError, Problem},
};

/// The most bad fields that an answer names: more come from a program that sends anything at all.
const MAX_ERRORS: usize = 200;

/// The most choices that an answer lists, all of them.
const MAX_CHOICES: usize = 20;

/// A method's input, ready to judge.
pub struct InputSchema(Validator);

/// The schemas of a document, and the generator behind it.
pub struct Schemas(SchemaGenerator);

impl Schemas {
    /// An empty set whose references point at `definitions_path`.
    #[must_use]
    pub fn new(definitions_path: &str) -> Self {
        let mut settings = SchemaSettings::draft2020_12();
        settings.definitions_path = definitions_path.to_owned().into();
        Self(settings.into_generator())
    }

    /// The schema of one type, as a reference into the set.
    pub fn add(&mut self, schema: SchemaOf) -> Value {
        simplified(schema(&mut self.0).to_value())
    }

    /// All that was added, by name.
    #[must_use]
    pub fn definitions(mut self) -> Map<String, Value> {
        let definitions = self.0.take_definitions(true);
        definitions.into_iter().map(|(name, schema)| (name, simplified(schema))).collect()
    }
}

impl InputSchema {
    /// Compiles a method's input schema.
    ///
    /// # Errors
    /// The schema is not one; a fault of the table, found when the registry is built.
    pub fn compile(method: &Method) -> Result<Self, String> {
        let mut schemas = Schemas::new("/$defs");
        let mut root = schemas.add(method.input);
        if let Some(members) = root.as_object_mut() {
            members.insert("$defs".to_owned(), Value::Object(schemas.definitions()));
        }
        let options = jsonschema::options().with_pattern_options(PatternOptions::regex());
        options.build(&root).map(Self).map_err(|error| format!("{}: {error}", method.name))
    }

    /// Reads a body into a method's input. Members that are `null` count as absent.
    ///
    /// # Errors
    /// INVALID_INPUT with every bad field.
    pub fn read<I: DeserializeOwned>(&self, body: &[u8]) -> Result<I, Problem> {
        let mut value = parse(body).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            let rule = match error.classify() {
                Category::Data => rule_of(&error),
                _ => format!("must be one JSON object: line {line}, column {column}"),
            };
            Problem::invalid_field("", rule)
        })?;
        if !value.is_object() {
            return Err(Problem::invalid_field("", "must be one JSON object"));
        }
        drop_nulls(&mut value);
        let mut errors: Vec<FieldError> =
            self.0.iter_errors(&value).flat_map(|error| field_errors(&error)).take(MAX_ERRORS + 1).collect();
        if errors.len() > MAX_ERRORS {
            errors.truncate(MAX_ERRORS);
            let message = format!("has more bad fields than these {MAX_ERRORS}");
            errors.push(FieldError { field: String::new(), message });
        }
        if !errors.is_empty() {
            return Err(Problem::invalid(errors));
        }
        serde_path_to_error::deserialize(value)
            .map_err(|error| Problem::invalid_field(error.path().to_string(), rule_of(error.inner())))
    }
}

/// What the typed reading refuses is said by its rule; a value in quotes would be the caller's own.
fn rule_of(error: &serde_json::Error) -> String {
    let text = error.to_string();
    if text.starts_with("invalid type") || text.starts_with("invalid value") {
        text.rsplit_once("expected ")
            .map_or_else(|| "is not valid".to_owned(), |(_, wanted)| format!("must be {}", in_words(wanted)))
    } else {
        text
    }
}

/// What the typed reading wants, without the names of its types.
fn in_words(wanted: &str) -> &str {
    match wanted {
        "i64" | "u64" | "i32" | "u32" => "a whole number, written without a fraction",
        other => other,
    }
}

/// Absent and `null` mean the same.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

const UNKNOWN: &str = "is not a field of this method; correct or remove it";

fn field_errors(error: &ValidationError<'_>) -> Vec<FieldError> {
    let at = error.instance_path().as_str().trim_start_matches('/').replace('/', ".");
    let below = |name: &str| if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") };
    let one = |field: String, message: String| vec![FieldError { field, message }];
    match error.kind() {
        ValidationErrorKind::AdditionalProperties { unexpected } => {
            unexpected.iter().flat_map(|name| one(below(&cut(name)), UNKNOWN.to_owned())).collect()
        }
        ValidationErrorKind::Required { property } => {
            one(below(property.as_str().unwrap_or_default()), "is required".to_owned())
        }
        // Where a method takes no field at all, the validator names none.
        ValidationErrorKind::FalseSchema => {
            let names = error.instance().as_object().into_iter().flat_map(Map::keys);
            names.flat_map(|name| one(below(&cut(name)), UNKNOWN.to_owned())).collect()
        }
        ValidationErrorKind::Enum { options } => one(at, choice(options, error.instance())),
        kind => one(at, message(kind)),
    }
}

/// An unknown field's name, short enough to show.
fn cut(name: &str) -> String {
    name.chars().take(64).collect()
}

/// Of many, the nearest are named.
fn choice(options: &Value, said: &Value) -> String {
    let words: Vec<&str> = options.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if words.len() <= MAX_CHOICES {
        return format!("must be one of {options}");
    }
    let of = format!("must be one of the {} that api.md lists", words.len());
    match nearest(said.as_str().unwrap_or_default(), words).as_slice() {
        [] => of,
        near => format!("{of}; near it: {}", near.join(", ")),
    }
}

fn message(kind: &ValidationErrorKind) -> String {
    use ValidationErrorKind as K;
    match kind {
        K::MaxLength { limit } => format!("must be at most {limit} characters"),
        K::MinLength { limit } => format!("must be at least {limit} characters"),
        K::Pattern { pattern } => shared::bounded::words_for(pattern),
        K::Minimum { limit } => format!("must be at least {limit}"),
        K::Maximum { limit } => format!("must be at most {limit}"),
        K::MinProperties { limit: 1 } => "must have at least one member".to_owned(),
        K::MaxProperties { limit } => format!("must have at most {limit} members"),
        K::MinItems { limit } => format!("must have at least {limit} items"),
        K::MaxItems { limit } => format!("must have at most {limit} items"),
        K::Constant { expected_value } => format!("must be {expected_value}"),
        K::Type { kind: jsonschema::error::TypeKind::Single(wanted) } => format!("must be of type {wanted}"),
        other => format!("is not valid ({})", other.keyword()),
    }
}

/// The schema without what only repeats "may be absent" (`null` is dropped before validation), and with lists of
/// constants as plain enums, so that an error names the member and the choice.
fn simplified(mut schema: Value) -> Value {
    if let Value::Object(members) = &mut schema {
        members.retain(|name, _| !matches!(name.as_str(), "$schema" | "default"));
        drop_null_type(members);
        for choice in ["anyOf", "oneOf"] {
            flatten_choice(members, choice);
        }
    }
    match schema {
        Value::Object(members) => {
            Value::Object(members.into_iter().map(|(name, member)| (name, simplified(member))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(simplified).collect()),
        other => other,
    }
}

fn drop_null_type(members: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = members.get_mut("type") {
        types.retain(|kind| kind != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            members.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(values)) = members.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
}

fn flatten_choice(members: &mut Map<String, Value>, choice: &str) {
    let Some(Value::Array(mut branches)) = members.remove(choice) else { return };
    branches.retain(|branch| branch["type"] != "null");
    let constants: Option<Vec<Value>> = branches.iter().map(|branch| branch.get("const").cloned()).collect();
    match (constants, branches.as_slice()) {
        (Some(constants), _) => {
            members.insert("type".to_owned(), json!("string"));
            members.insert("enum".to_owned(), Value::Array(constants));
        }
        (None, [Value::Object(only)]) => {
            for (name, member) in only {
                members.entry(name.clone()).or_insert_with(|| member.clone());
            }
        }
        (None, _) => {
            members.insert(choice.to_owned(), Value::Array(branches));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::api::join_tokens::{self, CreateJoinToken};

    fn read(body: &str) -> Result<CreateJoinToken, Problem> {
        InputSchema::compile(&join_tokens::CREATE.method).unwrap().read(body.as_bytes())
    }

    fn bad_fields(body: &str) -> Vec<String> {
        read(body).map(|_| ()).unwrap_err().errors.into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn every_bad_field_is_named_at_once() {
        let body = r#"{"tenantId":"a b","ttlSeconds":59,"maxUses":"3","hosted":"cloud","expct":1,
            "expect":{"mac":"00:00","serial":"ok","colour":"red"},"allowReclaim":1}"#;
        let fields = [
            "allowReclaim",
            "expct",
            "expect.colour",
            "expect.mac",
            "hosted",
            "idempotencyKey",
            "maxUses",
            "poolId",
            "tenantId",
            "ttlSeconds",
        ];
        assert_eq!(bad_fields(body), fields);
    }

    #[test]
    fn patterns_are_said_in_words() {
        let body =
            r#"{"tenantId":"t","poolId":"p","ttlSeconds":60,"idempotencyKey":"k","expect":{"mac":"00:00"}}"#;
        let problem = read(body).map(|_| ()).unwrap_err();
        let message = &problem.errors[0].message;
        assert!(message.contains("00:1a:2b:3c:4d:5e") && !message.contains('^'), "{message}");
    }

    #[test]
    fn null_is_absent_and_required_fields_are_not_null() {
        let good = r#"{"tenantId":"t","poolId":"p","ttlSeconds":60,"idempotencyKey":"k","expect":null,"hosted":null}"#;
        assert!(read(good).is_ok_and(|input| input.expect.is_none()));
        assert_eq!(bad_fields(&good.replace("60", "null")), ["ttlSeconds"]);
        assert_eq!(bad_fields(&good.replace(r#""expect":null"#, r#""expect":{"serial":null}"#)), ["expect"]);
    }

    #[test]
    fn what_the_schema_cannot_tell_the_types_refuse() {
        let good = r#"{"tenantId":"t","poolId":"p","ttlSeconds":60.0,"idempotencyKey":"k"}"#;
        assert_eq!(bad_fields(good), ["ttlSeconds"]);
        for body in ["", "[]", "1", "{", "{\"a\":1}x", "\u{feff}{}"] {
            assert_eq!(bad_fields(body), [""], "{body:?}");
        }
    }

    #[test]
    fn values_are_never_repeated() {
        let body = r#"{"tenantId":"hunter2 hunter2","poolId":["hunter2"],"ttlSeconds":"hunter2","idempotencyKey":{"hunter2":1}}"#;
        let problem = read(body).map(|_| ()).unwrap_err();
        assert!(!serde_json::to_string(&problem).unwrap().contains("hunter2"), "{problem:?}");
    }
}
