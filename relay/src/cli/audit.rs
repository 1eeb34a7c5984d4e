//! `relay audit verify`: whether the audit's records are as they were sealed. It reads the store itself, with the master key,
//! and asks no relay: who may have tampered with the database is not asked about it.

use super::{World, exit::Exit, local, terminal, tree::with_settings};
use crate::{
    access,
    audit::{
        sealer::{HEAD_FILE, MAX_HEAD_BYTES},
        verify::{self, Whole},
    },
    config::Settings,
    fault::chain,
};
use clap::{ArgMatches, Command};
use std::io;

/// The group that it stands in, and its name there.
pub(super) const NAME: (&str, &str) = ("audit", "verify");

/// The command, as clap knows it.
pub(super) fn command() -> Command {
    with_settings(
        Command::new(NAME.1)
            .about("Verify that no record of the audit was changed, removed, moved or cut off")
            .after_help(
                "Works on the relay's own folder and store, as `relay doctor` does; relays may serve meanwhile. Exit codes: 0 \
                 the chain is whole; 1 it is not, and the first place is named (or the store can't be opened); 75 the store \
                 does not answer.",
            ),
    )
}

/// Verifies, and says what there is.
pub(super) fn run(flags: &ArgMatches, world: &World<'_>) -> Exit {
    let settings = match local::settings(flags, world) {
        Ok(settings) => settings,
        Err(exit) => return exit,
    };
    match local::finish(verified(&settings)) {
        Ok(exit) | Err(exit) => exit,
    }
}

async fn verified(settings: &Settings) -> Exit {
    let opened = match local::open(settings).await {
        Ok(opened) => opened,
        Err(error) => {
            terminal::say(&error);
            return error.exit();
        }
    };
    // Before the database is read: the head may go on meanwhile, and never goes back.
    let noted = match noted(settings) {
        Ok(noted) => noted,
        Err(error) => {
            let path = settings.data_dir.join(HEAD_FILE);
            terminal::say(&format_args!(
                "read {}: {error}; ask as the relay's user, or as root",
                path.display()
            ));
            return Exit::Refused;
        }
    };
    let verified = verify::verify(&opened.store, &opened.keys, noted.as_deref()).await;
    opened.store.close().await;
    match verified {
        Ok(Ok(whole)) => super::written(terminal::answer(&said(&whole, noted.is_some()))),
        Ok(Err(broken)) => {
            terminal::say(&format_args!("the audit is not whole, {broken}"));
            Exit::Refused
        }
        Err(fault) => {
            terminal::say(&format_args!("verify the audit: {}", chain(&fault)));
            match &fault {
                crate::fault::Fault::Store(error) => local::exit_of(error),
                _ => Exit::Refused,
            }
        }
    }
}

/// The head that this relay noted beside the database, if it ever sealed.
fn noted(settings: &Settings) -> io::Result<Option<String>> {
    let path = settings.data_dir.join(HEAD_FILE);
    match access::read_text(&path, MAX_HEAD_BYTES) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn said(whole: &Whole, noted: bool) -> String {
    let Whole { sealed, pruned, open, batches } = whole;
    let compared = if noted {
        "and holds the head that this relay noted beside the database"
    } else {
        "but no head was noted here to compare it with: an older database with its older head would not show"
    };
    format!(
        "the audit is whole, {compared}: {sealed} records up to batch {batches} ({pruned} more were pruned); \
         {open} wait to be sealed\n"
    )
}
