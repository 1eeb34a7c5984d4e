//! An operator's verb from start to end: find the relay, build the input, call, show the answer or the refusal.

use super::{
    World,
    call::{CallError, Relay},
    exit::Exit,
    input::{self, Input, Surroundings},
    output::{self, Format},
    refresh,
    secret_out::{SecretOut, Wiped},
    target::{Said, Target, TargetError},
    template::{InvalidTemplate, Template, UnknownField},
    terminal,
    tree::ids,
    verbs::{Form, Verb},
    yaml::to_yaml,
};
use crate::{access, api::schema::TypeSchema};
use clap::ArgMatches;
use serde_json::{Map, Value, json};
use shared::{
    hex,
    problem::{Code, Problem},
    secret::Secret,
    terminal::shown,
    token::JoinToken,
};
use std::{
    collections::BTreeSet,
    io::{self, Read as _},
    path::{Path, PathBuf},
};
use zeroize::Zeroizing;

/// The things of a page where all pages are fetched.
const PAGE_SIZE: u64 = 200;
/// As much as is read of a file that a secret replaces, in bytes.
const MAX_BEFORE_BYTES: u64 = 4096;
/// The most pages that are fetched: 100,000 things.
const MAX_PAGES: usize = 500;

/// What helps where the roles of a credential do not hold an action.
const OTHER_CREDENTIAL: &str = "relay self permissions shows what this credential may do; somebody with a higher role there can \
                                give you one (relay members), or show another credential by --context or --token-file";

/// Runs a verb.
pub(super) fn run(verb: &Verb, flags: &ArgMatches, world: &World<'_>) -> Exit {
    match attempt(verb, flags, world) {
        Ok(()) => Exit::Ok,
        Err(failure) => {
            terminal::say(&format_args!("{} {}: {}", verb.group, verb.name, shown(&failure.to_string())));
            for hint in failure.hints() {
                terminal::say(&format_args!("  {}", shown(hint)));
            }
            failure.exit()
        }
    }
}

/// Why a verb failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    File(#[from] input::FileError),
    #[error("read --template: {0}")]
    Template(#[from] InvalidTemplate),
    #[error(transparent)]
    TemplateField(#[from] UnknownField),
    #[error(transparent)]
    SetUp(#[from] CallError),
    /// The call itself, and what helps a person with it.
    #[error("{0}")]
    Call(CallError, Vec<String>),
    #[error("write {0}: {1}")]
    SecretOut(PathBuf, io::Error),
    #[error(
        "no {0} came: an equal request was answered before, and it is shown once; take a fresh --idempotency-key"
    )]
    NoSecret(String),
    #[error("{0}")]
    Output(#[from] io::Error),
}

impl Failure {
    fn exit(&self) -> Exit {
        match self {
            Self::Target(error) => exit_of_target(error),
            Self::File(_) | Self::Template(_) | Self::TemplateField(_) => Exit::Usage,
            Self::Call(CallError::Problem(problem), _) => problem.code.into(),
            Self::Call(CallError::Transport { .. }, _) => Exit::TryAgain,
            Self::SetUp(_) | Self::Call(..) | Self::SecretOut(..) | Self::NoSecret(_) | Self::Output(_) => {
                Exit::Refused
            }
        }
    }

    fn hints(&self) -> &[String] {
        if let Self::Call(_, hints) = self { hints } else { &[] }
    }
}

fn attempt(verb: &Verb, flags: &ArgMatches, world: &World<'_>) -> Result<(), Failure> {
    let said = said(flags, world)?;
    let template = template(flags)?;
    if let Some(template) = &template {
        let schema = TypeSchema::of(verb.method.output);
        template.check(output::list_of(&schema).map_or(schema.root(), |(_, items)| items))?;
    }
    if flags.try_get_one::<bool>(ids::DRY_RUN).ok().flatten() == Some(&true) {
        return dry_run(verb, flags, &said, world);
    }
    let target = Target::find(&said)?;
    let relay = Relay::new(&target)?;
    let input = input::build(verb, flags, &mut surroundings(world, &said, &mut io::stdin().lock()))?;
    let out = secret_out(flags, world)?;
    let called = async {
        let relay = refresh::lazily(relay, &target, world).await;
        fetch(verb, &relay, &input).await
    };
    let answer = tokio_runtime()?.block_on(called).map_err(|mut error| {
        if let CallError::Problem(problem) = &mut error {
            by_flags(verb, problem);
        }
        let hints = hints(verb, &error, &input);
        Failure::Call(error, hints)
    })?;
    let answer = Wiped(keep_secret(verb, answer, out)?);
    let format = flags.get_one::<Format>(ids::OUTPUT).copied();
    if let Some(cursor) = answer.get("cursor").and_then(Value::as_str) {
        terminal::say(&more(cursor));
    }
    let text = Zeroizing::new(match template {
        Some(template) => template.render(output::list_in(&verb.method, &answer), &answer),
        None => output::render(&verb.method, &answer, format, world.clock.now()),
    });
    Ok(terminal::answer(&text)?)
}

/// What it means for a script that it isn't known whom to ask.
pub(super) fn exit_of_target(error: &TargetError) -> Exit {
    match error {
        TargetError::NoToken | TargetError::LoggedOut(_) => Exit::Unauthenticated,
        TargetError::Listen(_) => Exit::TryAgain,
        TargetError::NoRelay
        | TargetError::Url(_)
        | TargetError::Token(_)
        | TargetError::Contexts(_)
        | TargetError::Read { .. } => Exit::Usage,
    }
}

/// That a list goes on. A cursor that a shell would take for something else is not offered for pasting.
fn more(cursor: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_=.:".contains(&b);
    if cursor.bytes().all(plain) {
        format!("there is more; go on with --cursor {cursor}")
    } else {
        "there is more; -o json shows the cursor to go on with".to_owned()
    }
}

/// What flags, environment and context say about the relay.
///
/// # Errors
/// The contexts can't be used.
pub(super) fn said(flags: &ArgMatches, world: &World<'_>) -> Result<Said, TargetError> {
    // Not every command has every one of them.
    let text = |id: &str| flags.try_get_one::<String>(id).ok().flatten().cloned();
    let said = Said {
        relay: text(ids::RELAY),
        token_file: text(ids::TOKEN_FILE).map(PathBuf::from),
        ca_file: text(ids::CA_FILE).map(PathBuf::from),
        data_dir: text(ids::LOCAL).map(PathBuf::from),
        context: text(ids::CONTEXT),
        of: None,
    };
    said.or_env(world.env).or_context(world)
}

/// The text to answer by, if one was given.
///
/// # Errors
/// It is no template.
pub(super) fn template(flags: &ArgMatches) -> Result<Option<Template>, InvalidTemplate> {
    let text = flags.try_get_one::<String>(ids::TEMPLATE).ok().flatten();
    text.map(|text| text.parse()).transpose()
}

/// Prints the request instead of sending it, without what its secrets are.
fn dry_run(verb: &Verb, flags: &ArgMatches, said: &Said, world: &World<'_>) -> Result<(), Failure> {
    let (url, _) = Target::address(said)?;
    let mut input = input::build(verb, flags, &mut surroundings(world, said, &mut io::stdin().lock()))?;
    for field in verb.fields.iter().filter(|field| field.form == Form::File) {
        let place = format!("/{}", field.path.replace('.', "/"));
        if let Some(value) = input.body.pointer_mut(&place) {
            *value = format!("(from --{})", field.flag).into();
        }
    }
    let request =
        json!({"method": "POST", "url": format!("{url}{}", verb.method.path()), "body": input.body});
    let format = flags.get_one::<Format>(ids::OUTPUT).copied().unwrap_or(Format::Yaml);
    terminal::answer(&if format == Format::Json { output::json(&request) } else { to_yaml(&request) })?;
    Ok(())
}

fn surroundings<'a>(world: &'a World<'_>, said: &Said, stdin: &'a mut dyn io::Read) -> Surroundings<'a> {
    Surroundings {
        tenant: said.tenant(world),
        project: said.project(world),
        fresh_key: Box::new(|| format!("cli-{}", hex::encode(&world.random.bytes::<16>()))),
        stdin,
    }
}

fn tokio_runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// One call, or all pages of a list that was not asked for one.
async fn fetch(verb: &Verb, relay: &Relay, input: &Input) -> Result<Value, CallError> {
    let path = verb.method.path();
    let pages =
        |name: &str| verb.fields.iter().any(|field| field.path == name) && input.body.get(name).is_none();
    let schema = TypeSchema::of(verb.method.output);
    match output::list_of(&schema) {
        Some((list, _)) if pages("limit") && pages("cursor") => {
            all_pages(relay, &path, &input.body, &list).await
        }
        _ => relay.call(&path, &input.body).await,
    }
}

async fn all_pages(relay: &Relay, path: &str, input: &Value, list: &str) -> Result<Value, CallError> {
    let mut input = input.as_object().cloned().unwrap_or_default();
    input.insert("limit".to_owned(), PAGE_SIZE.into());
    let mut answer = Map::new();
    let mut all = Vec::new();
    for _ in 0..MAX_PAGES {
        let mut page = relay.call(path, &Value::Object(input.clone())).await?;
        if let Some(Value::Array(items)) = page.get_mut(list) {
            all.append(items);
        }
        answer.remove("cursor");
        let Some(cursor) = page.get("cursor").filter(|cursor| cursor.is_string()) else { break };
        for known in [&mut input, &mut answer] {
            known.insert("cursor".to_owned(), cursor.clone());
        }
    }
    answer.insert(list.to_owned(), Value::Array(all));
    Ok(Value::Object(answer))
}

/// What helps a person with a failed call, beside its detail: each bad field by its flag, the request, how to retry.
fn hints(verb: &Verb, error: &CallError, input: &Input) -> Vec<String> {
    let mut lines = match error {
        CallError::Problem(problem) => refused(verb, problem),
        _ => Vec::new(),
    };
    let key = input.idempotency_key.as_ref().filter(|_| may_have_happened(error));
    lines.extend(key.map(|key| format!("to try again without doing it twice: --idempotency-key {key}")));
    lines
}

/// Whether the call may have been done, or may be done when it is tried again as it is.
fn may_have_happened(error: &CallError) -> bool {
    match error {
        CallError::Problem(problem) => {
            matches!(problem.code, Code::Internal | Code::Unavailable | Code::ResourceExhausted)
        }
        CallError::Transport { .. } | CallError::Answer { .. } => true,
        CallError::Ca | CallError::SetUp(_) | CallError::Untrusted { .. } => false,
    }
}

/// Says of bad fields by which flags they were given.
fn by_flags(verb: &Verb, problem: &mut Problem) {
    let flags: Option<BTreeSet<String>> =
        problem.errors.iter().map(|error| verb.flag_of(&error.field)).collect();
    if let Some(flags) = flags.filter(|flags| problem.code == Code::InvalidInput && !flags.is_empty()) {
        let flags: Vec<String> = flags.into_iter().collect();
        problem.detail = format!("Correct and try again: {}.", flags.join(", "));
    }
}

fn refused(verb: &Verb, problem: &Problem) -> Vec<String> {
    let mut lines: Vec<String> = problem
        .errors
        .iter()
        .map(|error| {
            let flag = verb.flag_of(&error.field).unwrap_or_else(|| error.field.clone());
            format!("{flag}: {}", error.message)
        })
        .collect();
    lines.extend((problem.code == Code::PermissionDenied).then(|| OTHER_CREDENTIAL.to_owned()));
    lines.extend(problem.retry_after_seconds.map(|seconds| format!("try again in {seconds} s")));
    lines.extend(problem.request_id.as_ref().map(|id| format!("request id: {id}")));
    lines
}

fn secret_out(flags: &ArgMatches, world: &World<'_>) -> Result<Option<SecretOut>, Failure> {
    let Some(path) = flags.try_get_one::<String>(ids::SECRET_OUT).ok().flatten() else { return Ok(None) };
    let path = PathBuf::from(path);
    // Made before the call: a secret that is shown once must have a place to go.
    match SecretOut::prepare(&path, world.random) {
        Ok(out) => Ok(Some(out)),
        Err(error) => Err(Failure::SecretOut(path, error)),
    }
}

/// Takes the secret out of the answer into its file, if it has one.
fn keep_secret(verb: &Verb, mut answer: Value, out: Option<SecretOut>) -> Result<Value, Failure> {
    let (Some(out), Some(name)) = (out, verb.secrets.first()) else { return Ok(answer) };
    let secret = answer.as_object_mut().and_then(|members| members.shift_remove(name));
    let Some(Value::String(secret)) = secret else { return Err(Failure::NoSecret(name.clone())) };
    let path = out.path().to_owned();
    let before = replaced(&path);
    let secret = Zeroizing::new(secret);
    out.finish(&secret).map_err(|error| Failure::SecretOut(path.clone(), error))?;
    if let Some(before) = before {
        terminal::say(&format_args!("{} was written over; {before}", path.display()));
    }
    Ok(answer)
}

/// What there is to say of a file that is about to be replaced; `None` if there is none. Its secret is not kept.
fn replaced(path: &Path) -> Option<String> {
    let mut text = String::new();
    access::open(path).ok()?.take(MAX_BEFORE_BYTES).read_to_string(&mut text).ok()?;
    let text = Secret::new(text);
    Some(match JoinToken::parse(text.expose().trim()) {
        Ok(token) => format!(
            "the token that it held still works until it ends or is revoked: relay join-tokens revoke {} --pool POOL",
            token.id
        ),
        Err(_) => "what it held is gone".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::api::join_tokens;

    #[test]
    fn a_refusal_names_flags_request_and_wait() {
        let verb = Verb::of(&join_tokens::CREATE.method).unwrap();
        let mut errors = Problem::invalid_field("ttlSeconds", "must be at least 60").errors;
        errors.extend(Problem::invalid_field("expect.mac", "must match x").errors);
        errors.extend(Problem::invalid_field("colour", "is not a field").errors);
        let problem = Problem { request_id: Some("r-1".into()), ..Problem::new(Code::Unavailable, "x") }
            .with_errors(errors)
            .retry_after(7);
        let lines = [
            "--ttl: must be at least 60",
            "--expect.mac: must match x",
            "colour: is not a field",
            "try again in 7 s",
            "request id: r-1",
        ];
        assert_eq!(refused(&verb, &problem), lines);
    }

    #[test]
    fn a_refusal_of_fields_is_said_by_flags() {
        let verb = Verb::of(&shared::api::tokens::CREATE.method).unwrap();
        let mut problem = Problem::invalid_field("permissions.0.actions.1", "x");
        by_flags(&verb, &mut problem);
        assert_eq!(problem.detail, "Correct and try again: --permissions.");
        let mut odd = Problem::invalid_field("colour", "x");
        by_flags(&verb, &mut odd);
        assert!(odd.detail.contains("colour"));
    }

    #[test]
    fn only_a_plain_cursor_is_offered_for_pasting() {
        assert_eq!(more("jt_01:x-Y="), "there is more; go on with --cursor jt_01:x-Y=");
        for odd in ["$(id)", "a b", "x;y", "\u{202e}", "a'b"] {
            assert!(!more(odd).contains(odd), "{odd}");
        }
    }

    #[test]
    fn only_what_may_have_happened_is_to_be_tried_again_by_its_key() {
        let verb = Verb::of(&join_tokens::CREATE.method).unwrap();
        let input = || Input { body: Value::Null, idempotency_key: Some("k".into()) };
        let says_key = |error: &CallError| {
            hints(&verb, error, &input()).iter().any(|line| line.contains("--idempotency-key"))
        };
        let lost = CallError::Transport { relay: String::new(), why: String::new() };
        assert!(says_key(&lost));
        for code in Code::ALL {
            let again = matches!(code, Code::Internal | Code::Unavailable | Code::ResourceExhausted);
            assert_eq!(says_key(&CallError::Problem(Box::new(Problem::new(code, "x")))), again, "{code:?}");
        }
        assert!(!says_key(&CallError::Untrusted { relay: String::new(), why: String::new() }));
        let denied = CallError::Problem(Box::new(Problem::new(Code::PermissionDenied, "x")));
        assert!(hints(&verb, &denied, &input()).iter().any(|line| line.contains("relay self permissions")));
    }

    #[test]
    fn a_file_that_is_replaced_is_told_of_without_its_secret() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        assert_eq!(replaced(&path), None);
        let id = shared::id::JoinTokenId::derive(&[1; 32]);
        let bearer = JoinToken::mint(id.clone(), &[2; 32]).0.bearer();
        std::fs::write(&path, format!("{}\n", bearer.expose())).unwrap();
        let said = replaced(&path).unwrap();
        let secret = bearer.expose().split_once('.').unwrap().1;
        assert!(said.contains(id.as_str()) && !said.contains(secret), "{said}");
        std::fs::write(&path, "else").unwrap();
        assert!(!replaced(&path).unwrap().contains("else"));
    }

    #[test]
    fn failures_have_the_exits_of_the_contract() {
        let transport = CallError::Transport { relay: String::new(), why: String::new() };
        let untrusted = CallError::Untrusted { relay: String::new(), why: String::new() };
        let problem = |code| CallError::Problem(Box::new(Problem::new(code, "x")));
        for (failure, exit) in [
            (Failure::Target(TargetError::NoToken), 3),
            (Failure::Target(TargetError::LoggedOut("x".into())), 3),
            (Failure::Target(TargetError::NoRelay), 2),
            (Failure::Target(TargetError::Listen("x".into())), 75),
            (Failure::Call(transport, vec![]), 75),
            (Failure::Call(untrusted, vec![]), 1),
            (Failure::Call(problem(Code::NotFound), vec![]), 4),
            (Failure::Call(problem(Code::Unavailable), vec![]), 75),
            (Failure::NoSecret("token".into()), 1),
        ] {
            assert_eq!(failure.exit().number(), exit, "{failure}");
        }
    }

    #[test]
    fn a_secret_goes_into_its_file_and_not_into_the_answer() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let verb = Verb::of(&join_tokens::CREATE.method).unwrap();
        let random = crate::random::Random::seeded(1);
        let answer = serde_json::json!({"joinToken": {"id": "jt_1"}, "token": "bcjt_x"});
        let out = SecretOut::prepare(&path, &random).unwrap();
        let shown = keep_secret(&verb, answer.clone(), Some(out)).unwrap();
        assert_eq!(shown, serde_json::json!({"joinToken": {"id": "jt_1"}}));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "bcjt_x\n");
        let out = SecretOut::prepare(&path, &random).unwrap();
        assert!(matches!(keep_secret(&verb, shown, Some(out)), Err(Failure::NoSecret(_))));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "bcjt_x\n", "the old file stays");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left behind");
    }
}
