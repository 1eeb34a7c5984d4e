//! What is generated from the command line: the completion scripts, the man pages, and what stands below the help.

use super::{Cli, print};
use crate::failure::{EXITS, Exit, Failure};
use clap::CommandFactory as _;
use clap_complete::Shell;
use std::{fmt::Write as _, fs, path::Path};

/// Prints the completion script of a shell.
pub(super) fn completion(shell: Shell) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "bcd", &mut script);
    print(&String::from_utf8_lossy(&script))
}

/// Writes a man page for every command that is shown: `bcd.1`, `bcd-join.1`, …
pub(super) fn man(folder: &Path) -> Result<Exit, Failure> {
    let written = fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(Cli::command(), folder));
    let failed =
        |error| Failure::new(Exit::Usage, format!("cannot write into {}: {error}", folder.display()));
    written.map(|()| Exit::Done).map_err(failed)
}

/// Files, environment and exit codes, for the end of the help.
pub(super) fn after_help() -> String {
    let mut text = "Settings, the last one wins:\n  /usr/lib/bcd/bcd.toml\n  /etc/bcd/bcd.toml\n  \
                    /etc/bcd/bcd.toml.d/*.toml, by name\n  BCD_ and the setting's name in upper case (BCD_RELAY, \
                    BCD_CA_PINS, …)\n  flags\n\nThe join token, the first one that there is:\n  the systemd credential \
                    bcd.join-token\n  the file of --token-file, or standard input where that is -\n  BCD_JOIN_TOKEN\n\n\
                    Exit codes:\n"
        .to_owned();
    for (exit, says) in EXITS {
        let _ = writeln!(text, "  {:<3} {says}", exit.code());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_made_of_the_whole_command_line() {
        Cli::command().debug_assert();
        let folder = tempfile::tempdir().unwrap();
        man(folder.path()).unwrap();
        for page in ["bcd.1", "bcd-join.1", "bcd-config-show.1"] {
            assert!(folder.path().join(page).exists(), "{page}");
        }
        let page = fs::read_to_string(folder.path().join("bcd.1")).unwrap();
        assert!(page.contains("/etc/bcd/bcd.toml") && page.contains("banned"), "{page}");
        let mut script = Vec::new();
        clap_complete::generate(Shell::Bash, &mut Cli::command(), "bcd", &mut script);
        assert!(String::from_utf8(script).unwrap().contains("token-file"));
    }

    #[test]
    fn the_help_has_every_exit_code_and_where_settings_are() {
        let text = after_help();
        for (exit, _) in EXITS {
            assert!(text.contains(&format!("\n  {:<3} ", exit.code())), "{exit:?}");
        }
        assert!(text.contains("BCD_JOIN_TOKEN") && text.contains("/etc/bcd/bcd.toml\n"));
    }
}
