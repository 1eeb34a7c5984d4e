//! The command line against the whole method table: every row has a verb, every flag is its own, and what is
//! parsed is what a method takes.

use super::{input::Surroundings, verbs::Form, *};
use crate::api::validate::InputSchema;
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn rows() -> Vec<Method> {
    crate::api::registry().unwrap().methods().copied().collect()
}

fn verbs() -> Vec<Verb> {
    verbs_of(&rows()).unwrap()
}

fn parse(line: &str) -> Result<(Value, Option<String>), String> {
    let verbs = verbs();
    let words = ["relay"].into_iter().chain(line.split(' ')).map(|word| word.replace(BLANK, " "));
    let matches = tree::command(&verbs).try_get_matches_from(words).map_err(|error| error.to_string())?;
    let (mut group, mut flags) =
        matches.subcommand().map(|(group, flags)| (group.to_owned(), flags)).unwrap();
    let (mut name, mut inner) = flags.subcommand().unwrap();
    if verbs.iter().any(|verb| verb.group == format!("{group} {name}")) {
        (group, flags) = (format!("{group} {name}"), inner);
        (name, inner) = flags.subcommand().unwrap();
    }
    let flags = inner;
    let verb = verbs.iter().find(|verb| verb.group == group && verb.name == name).unwrap();
    let mut around = Surroundings {
        tenant: "acme".into(),
        project: None,
        fresh_key: Box::new(|| "fresh".into()),
        stdin: &mut "from stdin\n".as_bytes(),
    };
    let input = input::build(verb, flags, &mut around).map_err(|error| error.to_string())?;
    Ok((input.body, input.idempotency_key))
}

fn body(line: &str) -> Value {
    parse(line).unwrap_or_else(|error| panic!("{line}: {error}")).0
}

#[test]
fn clap_finds_no_fault() {
    tree::command(&verbs()).debug_assert();
}

#[test]
fn every_operator_row_has_a_verb_of_its_own() {
    let verbs = verbs();
    assert_eq!(verbs.len(), rows().iter().filter(|row| row.for_operators()).count());
    let names: BTreeSet<String> = verbs.iter().map(|verb| format!("{} {}", verb.group, verb.name)).collect();
    assert_eq!(names.len(), verbs.len());
    assert!(names.contains("join-tokens create") && names.contains("tenants list"));
    for verb in &verbs {
        assert!(!tree::FIXED.contains(&verb.group.as_str()), "{} is a fixed command", verb.group);
        let (_, group, _) = verb.method.parts();
        assert!(
            !verbs.iter().any(|other| other.group.starts_with(&format!("{} ", verb.group))),
            "{}",
            verb.group
        );
        let same = verbs.iter().filter(|other| other.group == verb.group);
        for other in same {
            assert_eq!(
                other.method.parts().1,
                group,
                "{} and {} share a name",
                verb.method.name,
                other.method.name
            );
        }
    }
}

#[test]
fn every_group_says_what_it_is_about() {
    for verb in verbs() {
        assert!(
            !verbs::about(&verb.group).starts_with("Methods of"),
            "{}: add it to verbs::ABOUT",
            verb.group
        );
    }
}

#[test]
fn a_context_is_named_before_the_command_as_well_as_behind_it() {
    let moved = |line: &str| {
        let words = line.split(' ').map(Into::into).collect();
        let words = context_last(words).into_iter().map(|word: OsString| word.into_string().unwrap());
        words.collect::<Vec<_>>().join(" ")
    };
    for (said, meant) in [
        ("relay --context a pools list", "relay pools list --context a"),
        ("relay --context=a pools list", "relay pools list --context=a"),
        ("relay pools list --context a", "relay pools list --context a"),
        ("relay --context a", "relay --context a"),
        ("relay --context", "relay --context"),
        ("relay", "relay"),
    ] {
        assert_eq!(moved(said), meant);
    }
}

#[test]
fn every_field_has_a_flag_of_its_own() {
    for verb in verbs() {
        let mut flags = BTreeSet::new();
        for field in &verb.fields {
            for flag in [Some(&field.flag), field.full_flag.as_ref()].into_iter().flatten() {
                assert!(flags.insert(flag.clone()), "{}: --{flag} twice", verb.method.name);
                assert!(!flag.contains(|c: char| c.is_uppercase()), "{flag}");
            }
            assert!(!field.help.is_empty(), "{} {}", verb.method.name, field.path);
        }
        for taken in
            ["relay", "token-file", "ca-file", "data-dir", "context", "dry-run", "template", "output", "help"]
        {
            assert!(!flags.contains(taken), "{}: --{taken} is everybody's", verb.method.name);
        }
        assert!(verb.fields.iter().filter(|field| field.own).count() <= 1, "{}", verb.method.name);
    }
}

/// What stands for a blank within a word of a line.
const BLANK: &str = "\u{2423}";

/// A value that a field may have.
fn sample(verb: &Verb, field: &verbs::Field) -> String {
    match field.path.rsplit('.').next().unwrap() {
        "tokenId" if verb.method.name.contains(".join") => format!("jt_{}", "0".repeat(26)),
        "tokenId" => format!("tk_{}", "0".repeat(26)),
        "secret" => "-".into(),
        "inviteId" => format!("inv_{}", "0".repeat(26)),
        "tenantRoles" => "acme=OWNER".into(),
        "projectRoles" => "acme/*=VIEWER".into(),
        "infraRoles" => "north=EDITOR".into(),
        "permissions" => "project/acme/ml=compute:pools:read,compute:nodes:read".into(),
        "labels" => "a=b=c".into(),
        "joinRequestId" => format!("jr_{}", "0".repeat(26)),
        "authorityId" => format!("ea_{}", "0".repeat(26)),
        "nodeId" => format!("nd_{}", "0".repeat(26)),
        "taskId" => format!("task_{}", "0".repeat(26)),
        "startedAt" => "2026-01-02T03:04:05Z".into(),
        "cursor" => "will-be-left-out".into(),
        "webhookId" => format!("wh_{}", "0".repeat(26)),
        "url" => "https://hooks.example.org/x".into(),
        "mac" => "00:1a:2b:3c:4d:5e".into(),
        "gpuUuid" => "GPU-12345678".into(),
        "productUuid" => "12345678".into(),
        "ekSha256" | "sha256" | "tlsPinSha256" => "a".repeat(64),
        "sshPublicKey" => format!("ssh-ed25519{BLANK}AAAAC3NzaC1lZDI1NTE5AAAA"),
        "bmcNetworks" => "10.0.0.0/8".into(),
        _ if field.form == Form::Seconds => "1h".into(),
        _ if field.form == Form::Integer => "7".into(),
        _ if field.form == Form::Boolean => "true".into(),
        _ if field.form == Form::File => "-".into(),
        _ => field.choices.first().cloned().unwrap_or_else(|| "x".into()),
    }
}

#[test]
fn what_all_flags_of_a_row_say_the_relay_takes() {
    for verb in verbs() {
        let schema = InputSchema::compile(&verb.method).unwrap();
        let line = |all: bool| {
            let chosen = verb.fields.iter().filter(|field| field.path != "cursor" && (all || field.required));
            let flags = chosen.map(|field| format!(" --{}={}", field.flag, sample(&verb, field)));
            format!("{} {}{}", verb.group, verb.name, flags.collect::<String>())
        };
        for all in [true, false] {
            // A change of nothing is refused: what must be there is an object that no flag has filled.
            if !all && verb.method.name == "compute.pools.update" {
                continue;
            }
            let body = body(&line(all));
            let read = schema.read::<Value>(body.to_string().as_bytes());
            assert!(read.is_ok(), "{}: {body}: {:?}", line(all), read.err());
        }
    }
}

#[test]
fn what_must_be_there_is_asked_for_at_once() {
    let error = parse("join-tokens create").unwrap_err();
    assert!(error.contains("--pool") && error.contains("--ttl"), "{error}");
    assert!(parse("nodes get --pool p").unwrap_err().contains("<NODE>"));
    assert!(parse("nodes get nd_1 --node nd_1 --pool p").is_err());
}

#[test]
fn durations_by_example_are_allowed_ones() {
    for verb in verbs() {
        for field in verb.fields.iter().filter(|field| field.form == Form::Seconds) {
            let Some((examples, bounds)) =
                field.help.split_once(": such as ").and_then(|(_, rest)| rest.split_once(" ("))
            else {
                continue;
            };
            let bounds = bounds.trim_end_matches("s)").split_once("s to ").unwrap();
            let bounds = bounds.0.parse::<i64>().unwrap()..=bounds.1.parse::<i64>().unwrap();
            for example in examples.split(", ") {
                let seconds = humane::parse_seconds(example).unwrap();
                assert!(bounds.contains(&seconds), "{} --{}: {example}", verb.method.name, field.flag);
            }
        }
    }
}

#[test]
fn a_token_to_mint() {
    let short =
        body("join-tokens create --pool gpu-a --ttl 1h30m --expect.mac 00:00:00:00:00:01 --allow-reclaim");
    let expected = json!({
        "tenantId": "acme", "poolId": "gpu-a", "ttlSeconds": 5400,
        "expect": {"mac": "00:00:00:00:00:01"}, "allowReclaim": true, "idempotencyKey": "fresh",
    });
    assert_eq!(short, expected);
    let full = "join-tokens create --tenant-id t --pool-id gpu-a --ttl-seconds 60 --allow-reclaim=false --idempotency-key k";
    let expected = json!({"tenantId": "t", "poolId": "gpu-a", "ttlSeconds": 60, "allowReclaim": false, "idempotencyKey": "k"});
    assert_eq!(body(full), expected);
    assert!(parse("join-tokens create --pool p --ttl 1fortnight").unwrap_err().contains("duration"));
    assert!(parse("join-tokens create --pool p --ttl 60 --hosted cloud").unwrap_err().contains("kubernetes"));
}

#[test]
fn the_thing_itself_stands_without_a_flag() {
    assert_eq!(body("nodes get nd_1 --pool p"), json!({"tenantId": "acme", "poolId": "p", "nodeId": "nd_1"}));
    assert_eq!(body("join-tokens revoke jt_1 --pool p")["tokenId"], "jt_1");
    assert_eq!(body("tenants create blue")["tenantId"], "blue");
    assert_eq!(body("tenants get --tenant blue"), json!({"tenantId": "blue"}));
    assert_eq!(body("projects get web"), json!({"tenantId": "acme", "projectId": "web"}));
    assert!(parse("nodes list nd_1 --pool p").is_err());
}

/// Methods of things that have no name before the relay gives them one, and which are about no one thing.
const NAMELESS: &[&str] = &[
    "compute.joinTokens.create",
    "compute.endorsementAuthorities.add",
    "iam.members.leave",
    "iam.invites.create",
    "iam.invites.accept",
    "iam.webhooks.create",
    "iam.tokens.create",
    "iam.tokens.refresh",
    "admin.tokens.create",
    "iam.self.whoAmI",
    "iam.self.permissions",
    "admin.tasks.queues",
];

#[test]
fn whatever_is_about_one_thing_takes_its_name_without_a_flag() {
    for verb in verbs() {
        let is_about_many = verb.name.starts_with("list") || NAMELESS.contains(&verb.method.name);
        let Some(own) = verb.fields.iter().find(|field| field.own) else {
            assert!(is_about_many, "{} does not know what it is about", verb.method.name);
            continue;
        };
        assert!(!is_about_many, "{}", verb.method.name);
        let others = verb.fields.iter().filter(|field| field.required && !field.own);
        let others: String =
            others.map(|field| format!(" --{}={}", field.flag, sample(&verb, field))).collect();
        let (verb_of, name) = (format!("{} {}", verb.group, verb.name), sample(&verb, own));
        let bare = body(&format!("{verb_of} {name}{others}"));
        assert_eq!(bare, body(&format!("{verb_of} --{}={name}{others}", own.flag)), "{verb_of}");
        assert_eq!(bare[&own.path], name, "{verb_of}");
    }
    let all = "join-requests deny --pool p --token jt_1";
    assert_eq!(body(all), json!({"tenantId": "acme", "poolId": "p", "tokenId": "jt_1"}));
}

#[test]
fn words_to_choose_from_are_shown_and_no_other_is_taken() {
    let verbs = verbs();
    let all = tree::command(&verbs);
    let mut with_words = 0;
    for verb in &verbs {
        let path = verb.group.split(' ').chain([verb.name.as_str()]);
        let command = path.fold(&all, |command, word| command.find_subcommand(word).unwrap());
        for field in verb.fields.iter().filter(|field| !field.choices.is_empty()) {
            let arg = command.get_arguments().find(|arg| arg.get_id() == field.path.as_str()).unwrap();
            let words = arg.get_value_parser().possible_values().into_iter().flatten();
            let shown: Vec<String> =
                words.filter(|word| !word.is_hide_set()).map(|word| word.get_name().to_owned()).collect();
            assert_eq!(shown, field.choices, "{} --{}", verb.method.name, field.flag);
            with_words += 1;
        }
    }
    assert!(with_words > 5, "{with_words}");
    assert!(parse("nodes ban nd_1 --pool p --identifiers colour").unwrap_err().contains("productUuid"));
    assert_eq!(body("nodes ban nd_1 --pool p --identifiers=")["identifiers"], json!([]));
}

#[test]
fn documents_come_from_files_and_machines_by_their_own_names() {
    let add = body("endorsement-authorities add --pool p --certificates-file -");
    assert_eq!(add["certificates"], "from stdin\n");
    assert_eq!(body("endorsement-authorities remove ea_1 --pool p")["authorityId"], "ea_1");
    assert_eq!(body("endorsement-keys add abcd --pool p --note x")["ekSha256"], "abcd");
    assert_eq!(body("endorsement-keys list-unmatched --pool p"), json!({"tenantId": "acme", "poolId": "p"}));
    assert_eq!(body("inventory put rack-1 --pool p --serial s")["entryId"], "rack-1");
    assert_eq!(body("inventory remove --entry rack-1 --pool p")["entryId"], "rack-1");
}

#[test]
fn an_import_takes_a_file_and_a_pool() {
    let parse = |line: &str| {
        tree::command(&verbs()).try_get_matches_from(line.split(' ')).map_err(|error| error.to_string())
    };
    assert!(parse("relay inventory import machines.csv --pool p --tenant t --data-dir d -o json").is_ok());
    assert!(parse("relay inventory import machines.csv").unwrap_err().contains("--pool"));
    assert!(parse("relay inventory import --pool p").unwrap_err().contains("<FILE.csv>"));
}

#[test]
fn lists_nested_members_and_secrets() {
    let update = body("pools update gpu-a --policy.certificate-ttl 7d --policy.tpm.authority-admits=false");
    assert_eq!(
        update["policy"],
        json!({"certificateTtlSeconds": 604_800, "tpm": {"authorityAdmits": false}})
    );
    let ban = body("nodes ban nd_1 --pool p --identifiers productUuid,serial");
    assert_eq!(ban["identifiers"], json!(["productUuid", "serial"]));
    assert_eq!(body("sites update s --bmc-networks=")["bmcNetworks"], json!([]));
    let put = body("secrets put registry --pool p --value-file -");
    assert_eq!((put["name"].as_str(), put["value"].as_str()), (Some("registry"), Some("from stdin\n")));
    assert!(parse("secrets put registry --pool p --value hunter2").is_err(), "no secret in argv");
    let absent = parse("secrets put registry --pool p --value-file /nonexistent/file").unwrap_err();
    assert!(absent.contains("--value-file /nonexistent/file"), "{absent}");
}

#[test]
fn every_list_has_columns_that_exist() {
    use crate::api::schema::TypeSchema;
    for row in rows().iter().filter(|row| row.for_operators() && row.parts().2.starts_with("list")) {
        let schema = TypeSchema::of(row.output);
        let (name, items) =
            output::list_of(&schema).unwrap_or_else(|| panic!("{} answers no list", row.name));
        for column in output::columns_of(row, &name).unwrap() {
            assert!(items.at(column).is_some(), "{name} has no {column}");
        }
    }
}

/// Whoever decides by it must see what it is worth, in whatever form that is for people.
#[test]
fn a_manufacturer_that_nobody_vouches_for_is_marked() {
    use output::{Format, render};
    let now = shared::time::Timestamp::from_seconds(0);
    let rows = rows();
    let shown = |method: &str, answer: &Value, format: Option<Format>| {
        render(rows.iter().find(|row| row.name == method).unwrap(), answer, format, now)
    };
    for (vouched, marked) in [(json!(true), false), (json!(false), true), (Value::Null, true)] {
        let of = json!({"id": "jr_1", "ekManufacturer": "INTC", "ekVouched": vouched});
        let request = json!({"joinRequest": of});
        for text in [
            shown("compute.endorsementKeys.listUnmatched", &json!({"endorsementKeys": [of]}), None),
            shown("compute.joinRequests.list", &json!({"joinRequests": [of]}), Some(Format::Wide)),
            shown("compute.joinRequests.get", &request, Some(Format::Table)),
        ] {
            assert!(text.contains("INTC"), "{text}");
            assert_eq!(text.contains("INTC (unverified)"), marked, "{text}");
        }
        // What programs read stays what the relay said.
        assert!(!shown("compute.joinRequests.get", &request, Some(Format::Json)).contains("unverified"));
    }
}

#[test]
fn pages_are_made_of_the_whole_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let verbs = verbs();
    pages::man(tree::command(&verbs), folder.path()).unwrap();
    assert!(folder.path().join("relay-join-tokens-create.1").exists());
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        assert!(pages::completion(tree::command(&verbs), shell).contains("join-tokens"), "{shell}");
    }
}

#[test]
fn the_reference_and_the_openapi_document_are_fresh() {
    for (name, text) in pages::references(&rows()) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
        let stored = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(stored == text, "{name} is stale; run: cargo run -p relay -- reference --write relay");
    }
}
