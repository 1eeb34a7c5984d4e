//! What is generated from the command line and the table: completion scripts, man pages, the reference.

use crate::api::{document, reference};
use clap::Command;
use clap_complete::Shell;
use shared::api::Method;
use std::{fs, io, path::Path};

/// The completion script of a shell.
#[must_use]
pub(super) fn completion(mut command: Command, shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "relay", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Writes a man page for every command that is shown: `relay.1`, `relay-serve.1`, …
///
/// # Errors
/// The folder can't be written.
pub(super) fn man(command: Command, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    clap_mangen::generate_to(command, folder)
}

/// The generated files of the repository, by name.
#[must_use]
pub(super) fn references(methods: &[Method]) -> [(&'static str, String); 2] {
    let document = format!("{:#}\n", document::openapi(methods));
    [("api.md", reference::page(methods)), ("openapi.json", document)]
}

/// Writes the reference page and the OpenAPI document.
///
/// # Errors
/// The folder can't be written.
pub(super) fn reference(methods: &[Method], folder: &Path) -> io::Result<()> {
    references(methods).into_iter().try_for_each(|(name, text)| fs::write(folder.join(name), text))
}
