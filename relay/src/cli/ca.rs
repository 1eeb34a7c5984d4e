//! `relay ca`: the certificate authority of a relay's own folder and store.

use super::{
    World,
    exit::Exit,
    local::{self, OpenError, Opened},
    output::{self, Format},
    own_root, terminal,
    tree::ids,
};
use crate::{
    access,
    ca::{CaName, CaRecord, CaState, Change, Demand, Domain},
    config::Settings,
    fault::Fault,
    rotation::{self, Rotator},
    store::authorities,
};
use clap::ArgMatches;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use shared::hex;
use std::io;
use x509_parser::pem::Pem;

/// The longest file of CA certificates, in bytes.
const MAX_BUNDLE_BYTES: u64 = 1 << 20;
/// What `rotate` can be told: the issuing CAs, and the roots of both domains.
pub(super) const ROTATABLE: [&str; 6] =
    ["relay", "node", "agent", "node-tenant", "platform-root", "tenant-root"];

/// What to do about CAs that only an offline root can sign.
const SIGN_OFFLINE: &str = "next: `relay ca requests --out DIR` writes requests for all issuing CAs; let your offline roots \
    sign them, then `relay ca install` (operators.md in /usr/share/doc/relay has the commands)";

/// The columns of its tables, and which hold times; the last only in wide ones.
const COLUMNS: [(&str, bool); 8] = [
    ("id", false),
    ("domain", false),
    ("name", false),
    ("state", false),
    ("notAfter", true),
    ("keyHere", false),
    ("notBefore", true),
    ("pin", false),
];

/// Runs one of its commands.
pub(super) fn run(flags: &ArgMatches, world: &World<'_>) -> Exit {
    let Some((name, flags)) = flags.subcommand() else { return Exit::Usage };
    let settings = match local::settings(flags, world) {
        Ok(settings) => settings,
        Err(exit) => return exit,
    };
    let done = match name {
        "pin" => return pin(&settings),
        "show" => local::finish(show(&settings, flags, world)),
        "init" | "requests" | "install" => return own_root::run(name, &settings, flags, world),
        _ => local::finish(rotate(&settings, flags, world)),
    };
    match done {
        Ok(Ok((text, exit))) => match super::written(terminal::answer(&text)) {
            Exit::Ok => exit,
            unwritten => unwritten,
        },
        Ok(Err(error)) => {
            terminal::say(&error);
            error.exit()
        }
        Err(exit) => exit,
    }
}

/// What goes to standard output, and what it means for a script.
type Told = (String, Exit);

async fn show(settings: &Settings, flags: &ArgMatches, world: &World<'_>) -> Result<Told, OpenError> {
    let opened = local::open(settings).await?;
    opened.store.close().await;
    let authorities: Vec<Value> = opened.installation.authorities.iter().map(shown).collect();
    Ok((render(&json!({"authorities": authorities}), flags, world), Exit::Ok))
}

async fn rotate(settings: &Settings, flags: &ArgMatches, world: &World<'_>) -> Result<Told, OpenError> {
    let demand = match flags.get_one::<String>("which").map(String::as_str) {
        None => Demand::Needed,
        Some("platform-root") => Demand::Root(Domain::Platform),
        Some("tenant-root") => Demand::Root(Domain::Tenant),
        // clap lets no other words through than ROTATABLE, whose others are issuing CAs.
        Some(name) => name.parse().map_or(Demand::Needed, Demand::Issuer),
    };
    let Opened { store, keys, installation } = local::open(settings).await?;
    let rotator = Rotator {
        trust_domain: &installation.trust_domain,
        provider_tenant: &installation.provider_tenant,
        keys: &keys,
        random: world.random,
        actor: "relay ca rotate",
    };
    let rotation = rotation::rotate(&store, &rotator, demand, world.clock.now()).await;
    store.close().await;
    let rotation = rotation?;
    if rotation.changes.is_empty() {
        terminal::say(&"nothing is due");
    }
    rotation.changes.iter().for_each(|change| terminal::say(&told(change)));
    let waits = rotation.changes.iter().any(|change| matches!(change, Change::Waiting { .. }));
    if waits {
        terminal::say(&SIGN_OFFLINE);
    }
    let authorities: Vec<Value> = rotation.records.iter().map(shown).collect();
    let exit = if waits { Exit::Refused } else { Exit::Ok };
    Ok((render(&json!({"authorities": authorities}), flags, world), exit))
}

fn told(change: &Change) -> String {
    match change {
        Change::Issued { id } => {
            format!("{id} signs from now on; running relays take it over within a minute")
        }
        Change::Announced { id } => {
            format!(
                "{id} is announced: machines learn it with their next certificate, and it signs in 60 days"
            )
        }
        Change::Reissued { id } => {
            format!("{id} has a certificate that holds now, for the same key: its pin stays as it is")
        }
        Change::Promoted { id } => format!("{id} signs from now on"),
        Change::Dropped { id } => format!("{id} is trusted no more"),
        Change::Waiting { name, domain } => {
            format!(
                "the {domain} domain's {name} CA is not rotated: its root's key is offline, so that only you can sign another"
            )
        }
    }
}

fn shown(record: &CaRecord) -> Value {
    json!({
        "id": record.id,
        "domain": record.domain.as_str(),
        "name": record.name.as_str(),
        "state": record.state.as_str(),
        "pin": pin_of(&record.certificate_pem),
        "notBefore": record.not_before,
        "notAfter": record.not_after,
        "keyHere": record.sealed_key.is_some(),
        "certificate": record.certificate_pem,
    })
}

fn render(answer: &Value, flags: &ArgMatches, world: &World<'_>) -> String {
    let format = flags.get_one::<Format>(ids::OUTPUT).copied();
    let columns: &[_] = if format == Some(Format::Wide) { &COLUMNS } else { &COLUMNS[..6] };
    output::render_list("authorities", columns, answer, format, world.clock.now())
}

/// Prints the pin of the root that signs: from the file that every start writes, which is enough without a store; before the
/// first start from the store, where an installation with roots of its own is made already.
fn pin(settings: &Settings) -> Exit {
    let path = settings.data_dir.join("trust-bundle.pem");
    let read = match access::read_text(&path, MAX_BUNDLE_BYTES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => match local::finish(root_in_store(settings))
        {
            Ok(Ok(Some(pem))) => Ok(pem),
            Ok(Ok(None) | Err(OpenError::Absent(_))) => Err(error),
            Ok(Err(error)) => {
                terminal::say(&error);
                return error.exit();
            }
            Err(exit) => return exit,
        },
        read => read,
    };
    let path = path.display();
    let pem = match read {
        Ok(pem) => pem,
        Err(error) => {
            let remedy = "the relay writes it when it starts; is this its data folder (data_dir in relay.toml, or --data-dir)?";
            terminal::say(&format_args!("read {path}: {error}; {remedy}"));
            return Exit::NotFound;
        }
    };
    match pin_of(&pem) {
        Some(pin) => super::written(terminal::answer(&format!("{pin}\n"))),
        None => {
            terminal::say(&format_args!("read {path}: it holds no certificate; start the relay again"));
            Exit::Refused
        }
    }
}

/// The platform's root that signs, PEM; `None` if the store holds no installation. Certificates are no secret, so this needs
/// no master key.
async fn root_in_store(settings: &Settings) -> Result<Option<String>, OpenError> {
    let store = local::store(settings).await?;
    let is_migrated = store.pending().await?.from > 0;
    let records: Vec<CaRecord> = if is_migrated {
        let read = store
            .read("pin", (), |tx, ()| Box::pin(async move { Ok::<_, Fault>(authorities::all(tx).await?) }));
        read.await?
    } else {
        Vec::new()
    };
    store.close().await;
    let signs = |record: &CaRecord| {
        (record.domain, record.name, record.state) == (Domain::Platform, CaName::Root, CaState::Active)
    };
    Ok(records.into_iter().find(signs).map(|record| record.certificate_pem))
}

/// `sha256:` and the hex of the SHA-256 of the first certificate's SubjectPublicKeyInfo.
pub(super) fn pin_of(bundle: &str) -> Option<String> {
    let pem = Pem::iter_from_buffer(bundle.as_bytes()).next()?.ok()?;
    let certificate = pem.parse_x509().ok()?;
    Some(format!("sha256:{}", hex::encode(&Sha256::digest(certificate.tbs_certificate.subject_pki.raw))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_issuing_ca_and_both_roots_can_be_rotated() {
        let issuing: Vec<&str> = CaName::ISSUING.iter().map(|name| name.as_str()).collect();
        let (names, roots) = ROTATABLE.split_at(issuing.len());
        assert_eq!(names, issuing);
        assert_eq!(roots, ["platform-root", "tenant-root"]);
    }

    #[test]
    fn only_a_certificate_has_a_pin() {
        for text in ["", "x", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            assert_eq!(pin_of(text), None, "{text}");
        }
    }
}
