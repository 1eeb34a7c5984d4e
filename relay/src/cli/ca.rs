//! `relay ca`: the certificate authority of a relay's own folder and store.

use super::{World, exit::Exit, local, terminal};
use crate::config::Settings;
use clap::ArgMatches;
use sha2::{Digest as _, Sha256};
use shared::hex;
use std::fs;
use x509_parser::pem::Pem;

/// Runs one of its commands.
pub(super) fn run(flags: &ArgMatches, world: &World<'_>) -> Exit {
    let Some((name, flags)) = flags.subcommand() else { return Exit::Usage };
    let settings = match local::settings(flags, world) {
        Ok(settings) => settings,
        Err(exit) => return exit,
    };
    match name {
        "pin" => pin(&settings),
        _ => Exit::Usage,
    }
}

/// Prints the pin of the root that signs: from the file that every start writes, which is enough without a store.
fn pin(settings: &Settings) -> Exit {
    let path = settings.data_dir.join("trust-bundle.pem");
    let pem = match fs::read_to_string(&path) {
        Ok(pem) => pem,
        Err(error) => {
            let path = path.display();
            let remedy = "the relay writes it when it starts; is this its --data-dir?";
            terminal::say(&format_args!("read {path}: {error}; {remedy}"));
            return Exit::NotFound;
        }
    };
    match pin_of(&pem) {
        Some(pin) => super::written(terminal::answer(&format!("{pin}\n"))),
        None => {
            terminal::say(&format_args!(
                "read {}: it holds no certificate; start the relay again",
                path.display()
            ));
            Exit::Refused
        }
    }
}

/// `sha256:` and the hex of the SHA-256 of the first certificate's SubjectPublicKeyInfo.
pub(super) fn pin_of(bundle: &str) -> Option<String> {
    let pem = Pem::iter_from_buffer(bundle.as_bytes()).next()?.ok()?;
    let certificate = pem.parse_x509().ok()?;
    Some(format!("sha256:{}", hex::encode(&Sha256::digest(certificate.tbs_certificate.subject_pki.raw))))
}
