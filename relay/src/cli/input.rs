//! From parsed flags to a method's input. What a value must be the relay judges; here it is only put in its place.

use super::verbs::{Field, Form, ItemMember, Verb};
use clap::ArgMatches;
use serde_json::{Map, Value};
use shared::secret::Secret;
use std::{
    fs::File,
    io::{self, Read},
};

/// The longest value that is read from a file, in bytes: more than any method takes, so that the relay judges it.
const MAX_FILE_BYTES: u64 = 128 * 1024;

/// What an input takes beside its flags.
pub(super) struct Surroundings<'a> {
    /// The tenant unless one is given.
    pub(super) tenant: String,
    /// The project unless one is given, of what is in one.
    pub(super) project: Option<String>,
    /// Makes up an idempotency key.
    pub(super) fresh_key: Box<dyn Fn() -> String + 'a>,
    /// Standard input.
    pub(super) stdin: &'a mut dyn Read,
}

/// The file of a value can't be used.
#[derive(Debug, thiserror::Error)]
#[error("read --{flag} {file}: {source}")]
pub(super) struct FileError {
    flag: String,
    file: String,
    source: io::Error,
}

/// A method's input, and the idempotency key in it.
pub(super) struct Input {
    /// The JSON object to send. It may hold secrets: never log it.
    pub(super) body: Value,
    /// The key, if the method takes one.
    pub(super) idempotency_key: Option<String>,
}

/// The id of the argument that stands without a flag.
pub(super) const OWN: &str = "own thing";

/// Builds a verb's input.
///
/// # Errors
/// The file of a value can't be read, is too long, or is no UTF-8.
pub(super) fn build(
    verb: &Verb,
    flags: &ArgMatches,
    around: &mut Surroundings<'_>,
) -> Result<Input, FileError> {
    let mut body = Map::new();
    let mut idempotency_key = None;
    for field in &verb.fields {
        let value = value_of(field, flags, around)?;
        if let (Form::IdempotencyKey, Some(Value::String(key))) = (field.form, &value) {
            idempotency_key = Some(key.clone());
        }
        put(&mut body, field, value);
    }
    Ok(Input { body: Value::Object(body), idempotency_key })
}

/// Puts a value at its path.
fn put(body: &mut Map<String, Value>, field: &Field, value: Option<Value>) {
    let Some(value) = value else { return };
    let mut at = body;
    let mut names = field.path.split('.').peekable();
    while let Some(name) = names.next() {
        if names.peek().is_none() {
            at.insert(name.to_owned(), value);
            return;
        }
        let inner = at.entry(name).or_insert_with(|| Value::Object(Map::new()));
        let Value::Object(inner) = inner else { return };
        at = inner;
    }
}

fn value_of(
    field: &Field,
    flags: &ArgMatches,
    around: &mut Surroundings<'_>,
) -> Result<Option<Value>, FileError> {
    let id = field.path.as_str();
    let text = || {
        let own = || flags.try_get_one::<String>(OWN).ok().flatten().filter(|_| field.own);
        flags.get_one::<String>(id).or_else(own).cloned()
    };
    Ok(match field.form {
        Form::Text => text().map(Value::String),
        Form::Tenant => Some(Value::String(text().unwrap_or_else(|| around.tenant.clone()))),
        Form::Project => {
            let other = flags.try_get_one::<String>("tenantId").ok().flatten();
            // A project is one of its tenant.
            let same = other.is_none_or(|tenant| *tenant == around.tenant);
            text().or_else(|| around.project.clone().filter(|_| same)).map(Value::String)
        }
        Form::IdempotencyKey => Some(Value::String(text().unwrap_or_else(|| (around.fresh_key)()))),
        Form::Integer | Form::Seconds => flags.get_one::<i64>(id).map(|number| Value::from(*number)),
        Form::Boolean => flags.get_one::<bool>(id).map(|yes| Value::from(*yes)),
        Form::List => flags.get_many::<String>(id).map(|items| {
            // `--flag ''` is the empty list.
            Value::from_iter(items.filter(|item| !item.is_empty()).cloned())
        }),
        Form::Items => flags.get_many::<String>(id).map(|items| {
            let items = items.filter(|text| !text.is_empty());
            Value::from_iter(items.map(|text| item(&field.members, text)))
        }),
        Form::Pairs => flags.get_many::<String>(id).map(|pairs| {
            let pair = |text: &String| {
                let (name, value) = text.split_once('=').unwrap_or((text, ""));
                (name.to_owned(), Value::from(value))
            };
            Value::Object(pairs.filter(|text| !text.is_empty()).map(pair).collect())
        }),
        Form::File => match text() {
            Some(file) => Some(read_file(&field.flag, file, around.stdin)?),
            None => None,
        },
    })
}

/// An object as it is written, `acme/ml=EDITOR`. What is left out the relay asks for.
fn item(members: &[ItemMember], text: &str) -> Value {
    let Some((last, first)) = members.split_last() else { return Value::Null };
    let (mut before, after) = text.split_once('=').unwrap_or((text, ""));
    let mut object = Map::new();
    for (at, member) in first.iter().enumerate() {
        let only = at + 1 == first.len();
        let (part, rest) = if only { (before, "") } else { before.split_once('/').unwrap_or((before, "")) };
        object.insert(member.name.clone(), Value::from(part));
        before = rest;
    }
    let value = if last.several { after.split(',').collect::<Value>() } else { Value::from(after) };
    object.insert(last.name.clone(), value);
    Value::Object(object)
}

fn read_file(flag: &str, file: String, stdin: &mut dyn Read) -> Result<Value, FileError> {
    let read = || -> io::Result<Secret> {
        let mut text = String::new();
        let mut source: Box<dyn Read + '_> =
            if file == "-" { Box::new(stdin) } else { Box::new(File::open(&file)?) };
        source.as_mut().take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
        let secret = Secret::new(text);
        if secret.expose().len() as u64 > MAX_FILE_BYTES {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is over 128 KiB"));
        }
        Ok(secret)
    };
    match read() {
        Ok(secret) => Ok(Value::from(secret.expose())),
        Err(source) => Err(FileError { flag: flag.to_owned(), file, source }),
    }
}
