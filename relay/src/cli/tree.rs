//! The command line as clap knows it: the fixed commands, and a command for each group of the method table.

use super::{
    audit, context, humane,
    input::OWN,
    inventory, login, metal,
    output::Format,
    refresh, restore,
    verbs::{self, Field, Form, Verb},
    watch,
};
use crate::config::KEYS;
use clap::{
    Arg, ArgAction, Command, ValueHint,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser as _},
    value_parser,
};
use shared::api::Kind;
use std::collections::BTreeMap;

/// The ids of the arguments that say where the relay is and how to answer.
pub(super) mod ids {
    /// Where settings are.
    pub(crate) const CONFIG: &str = "config file";
    /// The relay's address.
    pub(crate) const RELAY: &str = "relay address";
    /// The file of the credential.
    pub(crate) const TOKEN_FILE: &str = "token file";
    /// The file of the CA.
    pub(crate) const CA_FILE: &str = "ca file";
    /// The folder of a relay on this machine.
    pub(crate) const LOCAL: &str = "local relay";
    /// The context.
    pub(crate) const CONTEXT: &str = "context name";
    /// Whether only to show what would be sent.
    pub(crate) const DRY_RUN: &str = "dry run";
    /// How to write an answer.
    pub(crate) const TEMPLATE: &str = "template text";
    /// How to answer.
    pub(crate) const OUTPUT: &str = "output format";
    /// Where a secret of the answer goes.
    pub(crate) const SECRET_OUT: &str = "secret out";
}

/// Commands that are no groups of the table.
#[cfg(test)]
pub(super) const FIXED: &[&str] = &[
    "serve",
    "migrate",
    "backup",
    "restore",
    "doctor",
    "ca",
    "login",
    "logout",
    "context",
    "token",
    "completion",
    "man",
    "reference",
    "help",
];

/// The whole command line.
#[must_use]
pub(super) fn command(verbs: &[Verb]) -> Command {
    let mut groups: BTreeMap<&str, Vec<&Verb>> = BTreeMap::new();
    for verb in verbs {
        groups.entry(&verb.group).or_default().push(verb);
    }
    Command::new("relay")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Admits machines to pools and names them by certificates")
        .long_about(
            "Admits machines to pools and names them by certificates.\n\n`relay serve` is the server; `relay <group> \
             <method>` asks a running one.",
        )
        .after_help(
            "Exit codes: 0 ok, 1 refused, 2 usage, 3 unauthenticated, 4 not found, 75 try again.\n\nA running relay \
             is found by --relay, --token-file and --ca-file, or by RELAY_RELAY, RELAY_TOKEN_FILE and RELAY_CA_FILE; one \
             on this machine by --data-dir or RELAY_DATA_DIR alone. RELAY_URL, which a relay itself is told, is asked \
             where none of these says which relay. Last comes a context, the one of --context NAME or the active one: `relay login` \
             makes one, `relay context` shows them.",
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(fixed())
        .subcommands(of_groups(&groups))
}

/// A command for each group, and one for each module whose groups are below it.
fn of_groups(groups: &BTreeMap<&str, Vec<&Verb>>) -> Vec<Command> {
    let mut commands: BTreeMap<&str, Command> = BTreeMap::new();
    for (path, verbs) in groups {
        match path.split_once(' ') {
            None => {
                commands.insert(path, group(path, path, verbs));
            }
            Some((module, name)) => {
                let above = commands.remove(module).unwrap_or_else(|| below(module));
                commands.insert(module, above.subcommand(group(path, name, verbs)));
            }
        }
    }
    commands.into_values().collect()
}

fn below(module: &str) -> Command {
    Command::new(module.to_owned())
        .about("For admins: over all tenants")
        .subcommand_required(true)
        .arg_required_else_help(true)
}

fn fixed() -> Vec<Command> {
    let shells = PossibleValuesParser::new(["bash", "zsh", "fish"]);
    vec![
        with_settings(Command::new("serve").about("Run the relay").after_help(
            "Exit codes: 0 it drained after SIGTERM or SIGINT; 1 no other start mends it (the master key, the trust \
             domain, a store of a newer relay, a file that it may not use); 2 wrong settings; 75 it may pass (the \
             database can't be reached, the address is taken, another relay runs on the data directory). The log says \
             what to do.",
        )),
        with_settings(Command::new("migrate").about("Bring the store's schema up to this version and end")),
        with_settings(
            Command::new("backup")
                .about("Copy the store into a file, while the relay runs")
                .after_help(
                    "The file is one consistent state, mode 0600, and there whole or not at all; one that is there is not \
                     overwritten. The master key is not in it, and without that it is worthless. A database server has its \
                     own tools, such as pg_dump.",
                )
                .arg(
                    Arg::new("out")
                        .long("out")
                        .value_name("FILE")
                        .value_hint(ValueHint::FilePath)
                        .required(true)
                        .help("The file, made new"),
                ),
        ),
        with_settings(restore::command()),
        with_settings(
            Command::new("doctor")
                .about("Check settings, files, store, keys, CA and clock, and say what to do"),
        ),
        ca(),
        login::command(),
        login::logout_command(),
        context::command(),
        refresh::command(),
        Command::new("completion")
            .about("Print the completion script of a shell")
            .arg(Arg::new("shell").required(true).value_parser(shells).help("The shell")),
        Command::new("man")
            .about("Write the man pages into a folder")
            .arg(folder("The folder, made if absent")),
        Command::new("reference")
            .hide(true)
            .about("Write api.md and openapi.json")
            .arg(folder("The folder").long("write").required(true)),
    ]
}

fn ca() -> Command {
    let which = PossibleValuesParser::new(super::ca::ROTATABLE);
    let pin =
        Command::new("pin").about("Print the pin of the platform's root: what bcd is given as --ca-pin");
    let rotate = Command::new("rotate")
        .about("Rotate what is due, or one CA at once")
        .after_help(
            "Exits with 1 if what is due, or named, can't be rotated here because its root's key is kept offline: then \
             `relay ca requests`, the root's signature and `relay ca install` do it.",
        )
        .arg(
        Arg::new("which").value_name("CA").value_parser(which).help(
            "An issuing CA to replace now, or the root to announce a successor of [default: what is due]",
        ),
    );
    Command::new("ca")
        .about("Show and rotate the certificate authority")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(with_settings(pin))
        .subcommand(with_settings(Command::new("show").about("Show all CAs")).arg(output()))
        .subcommand(with_settings(rotate).arg(output()))
        .subcommands(own_roots().map(with_settings))
}

/// The commands for roots of your own, each dedicated to this relay.
fn own_roots() -> [Command; 3] {
    let pem = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name("FILE").value_hint(ValueHint::FilePath).required(true).help(help)
    };
    let init = Command::new("init")
        .about("Make the installation of an empty store, with roots of your own and their keys")
        .arg(pem("platform-root", "The platform's root certificate, PEM"))
        .arg(pem("platform-root-key", "Its key, PEM, not encrypted"))
        .arg(pem("tenant-root", "The tenants' root certificate, PEM"))
        .arg(pem("tenant-root-key", "Its key, PEM, not encrypted"));
    let requests = Command::new("requests")
        .about("Draw keys for all issuing CAs and write the requests that your offline roots are to sign")
        .arg(folder("Where the requests go, one file each").long("out"));
    let install = Command::new("install")
        .about("Install the issuing CAs that your offline roots signed; makes the installation of an empty store")
        .arg(pem("platform-root", "The platform's root certificate, PEM"))
        .arg(pem("tenant-root", "The tenants' root certificate, PEM"))
        .arg(pem("signed", "The signed certificates, PEM, in any order"));
    [init, requests, install]
}

/// A command that works on a relay's own folder and store.
pub(super) fn with_settings(command: Command) -> Command {
    let config = Arg::new(ids::CONFIG)
        .long("config")
        .value_name("FILE")
        .value_hint(ValueHint::FilePath)
        .help("The settings [default: /etc/relay/relay.toml if there is one]");
    let flags = KEYS.iter().map(|key| {
        let hint = match key.value {
            "DIR" => ValueHint::DirPath,
            "FILE" => ValueHint::FilePath,
            _ => ValueHint::Other,
        };
        Arg::new(key.name).long(key.flag()).value_name(key.value).value_hint(hint).help(format!(
            "{} ({})",
            key.help,
            key.env()
        ))
    });
    command.arg(config).args(flags)
}

fn folder(help: &'static str) -> Arg {
    Arg::new("folder").value_name("DIR").value_hint(ValueHint::DirPath).required(true).help(help)
}

/// How to answer, as an argument.
pub(super) fn output() -> Arg {
    Arg::new(ids::OUTPUT)
        .short('o')
        .long("output")
        .value_name("FORMAT")
        .value_parser(
            PossibleValuesParser::new(["table", "wide", "json", "yaml"])
                .try_map(|text| text.parse::<Format>()),
        )
        .help("How to answer [default: lists as a table, single things as YAML]")
}

fn group(path: &str, name: &str, verbs: &[&Verb]) -> Command {
    Command::new(name.to_owned())
        .about(verbs::about(path))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(verbs.iter().map(|verb| method(verb)))
        .subcommands((path == inventory::NAME.0).then(inventory::command))
        .subcommands((path == audit::NAME.0).then(audit::command))
        .subcommands((path == watch::NAME.0).then(watch::command))
        .subcommands((path == metal::NAME.0).then(metal::command))
}

fn method(verb: &Verb) -> Command {
    let mut args: Vec<Arg> = verb.fields.iter().map(flag).collect();
    args.extend(verb.fields.iter().filter(|field| field.own).map(own));
    args.extend(secret_out(verb));
    args.extend(((verb.group.as_str(), verb.name.as_str()) == metal::ENROLL_NAME).then(metal::argument));
    args.extend((verb.method.kind == Kind::Mutation).then(dry_run));
    Command::new(verb.name.clone())
        .about(verb.method.summary)
        .after_help(format!("Calls {}: {}", verb.method.name, verb.method.access.describe()))
        .args(args)
        .args(connection())
}

fn flag(field: &Field) -> Arg {
    let arg = Arg::new(field.path.clone()).long(field.flag.clone()).help(field.help.clone());
    let arg = match &field.full_flag {
        Some(full) => arg.visible_alias(full.clone()),
        None => arg,
    };
    let value_name = field.flag.rsplit(['.', '-']).next().unwrap_or_default().to_uppercase();
    let arg = match field.form {
        Form::Boolean => arg
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .value_name("true|false")
            .value_parser(value_parser!(bool)),
        Form::Integer => arg.value_name("N").value_parser(value_parser!(i64)),
        Form::Seconds => arg.value_name("DURATION").value_parser(humane::parse_seconds),
        Form::List => arg.value_name(value_name).action(ArgAction::Append).value_delimiter(','),
        Form::Items | Form::Pairs => arg.value_name(value_name).action(ArgAction::Append),
        Form::File => arg.value_name("FILE").value_hint(ValueHint::FilePath),
        Form::Text | Form::Tenant | Form::Project | Form::IdempotencyKey => arg.value_name(value_name),
    };
    let arg = match choices(field) {
        words if words.is_empty() => arg,
        words => arg.value_parser(PossibleValuesParser::new(words)),
    };
    // The thing itself may stand without a flag.
    arg.required(field.required && !field.own)
}

/// The words that a value must be one of; of a list, each. `--flag ''` is the empty list.
fn choices(field: &Field) -> Vec<PossibleValue> {
    let words = field.choices.iter().map(PossibleValue::new);
    let none =
        (field.form == Form::List && !field.choices.is_empty()).then(|| PossibleValue::new("").hide(true));
    words.chain(none).collect()
}

fn own(field: &Field) -> Arg {
    let arg = Arg::new(OWN)
        .value_name(field.flag.to_uppercase())
        .help(format!("{}; the same as --{}", field.help, field.flag))
        .conflicts_with(field.path.clone());
    if field.required { arg.required_unless_present(field.path.clone()) } else { arg }
}

fn secret_out(verb: &Verb) -> Option<Arg> {
    let name = verb.secrets.first()?;
    Some(
        Arg::new(ids::SECRET_OUT)
            .long(format!("{name}-out"))
            .value_name("FILE")
            .value_hint(ValueHint::FilePath)
            .help(format!("Write the {name} into this file, mode 0600, instead of showing it")),
    )
}

fn dry_run() -> Arg {
    Arg::new(ids::DRY_RUN)
        .long("dry-run")
        .action(ArgAction::SetTrue)
        .help("Print the request instead of sending it; what comes from files is left out")
}

/// The arguments that say where the relay is and how to answer.
pub(super) fn connection() -> Vec<Arg> {
    let context =
        context_name("The context to use (RELAY_CONTEXT) [default: the active one, see relay context]")
            .conflicts_with_all([ids::RELAY, ids::LOCAL])
            .help_heading(HEADING);
    let template = Arg::new(ids::TEMPLATE)
        .long("template")
        .value_name("TEXT")
        .conflicts_with(ids::OUTPUT)
        .help("Answer by this text, once for each thing of a list: {nodeId} or {certificate.expiresAt} stands for that field");
    relay().into_iter().chain([context, template, output()]).collect()
}

/// The heading of what says where the relay is.
const HEADING: &str = "The relay";

/// The name of a context, as an argument.
pub(super) fn context_name(help: &'static str) -> Arg {
    Arg::new(ids::CONTEXT).long("context").value_name("NAME").help(help)
}

/// The arguments that say where the relay is.
pub(super) fn relay() -> Vec<Arg> {
    let heading = HEADING;
    let file = |id, long, help| {
        Arg::new(id)
            .long(long)
            .value_name("FILE")
            .value_hint(ValueHint::FilePath)
            .help(help)
            .help_heading(heading)
    };
    vec![
        Arg::new(ids::RELAY)
            .long("relay")
            .value_name("URL")
            .help("Its address, https://host:port (RELAY_RELAY; RELAY_URL where no folder is named)")
            .help_heading(heading),
        file(ids::TOKEN_FILE, "token-file", "A file with the credential to show (RELAY_TOKEN_FILE)"),
        file(
            ids::CA_FILE,
            "ca-file",
            "The only CA certificates to trust, PEM (RELAY_CA_FILE) [default: the system's]",
        ),
        Arg::new(ids::LOCAL)
            .long("data-dir")
            .value_name("DIR")
            .value_hint(ValueHint::DirPath)
            .help("A relay on this machine: takes from its folder what is not given: address, CA and the bootstrap admin credential (RELAY_DATA_DIR)")
            .help_heading(heading),
    ]
}
