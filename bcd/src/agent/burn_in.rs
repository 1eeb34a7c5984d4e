//! The hook that tries a machine out: programs of the image, one after the other, each of which must end well.

use super::fault::{Fault, StepFault, fault};
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{ExitStatus, Stdio},
    time::Duration,
};
use tokio::{process::Command, time::timeout};

/// Where the programs are in the agent's image; whoever builds it puts them there.
pub(crate) const FOLDER: &str = "/usr/lib/bcd/burn-in.d";
/// How long all of it may take; the relay gives up sooner where its own deadline is shorter.
pub(crate) const LIMIT: Duration = Duration::from_secs(24 * 3600);
/// The most of them.
const MAX_PROGRAMS: usize = 64;

/// Runs every program of a folder, in order of name; answers which.
///
/// # Errors
/// One did not end well, or all together took too long.
pub(crate) async fn run(folder: &Path, limit: Duration) -> Result<Vec<String>, Fault> {
    let run = async {
        let mut names = programs(folder);
        names.truncate(MAX_PROGRAMS);
        for name in &names {
            tracing::info!(name, "trying the machine out");
            match ended(&folder.join(name)).await {
                Ok(status) if status.success() => {}
                Ok(status) => {
                    return Err(fault(StepFault::Program, format!("{name} found a fault: {status}")));
                }
                Err(error) => {
                    return Err(fault(StepFault::Program, format!("{name} does not start: {error}")));
                }
            }
        }
        Ok(names)
    };
    let late = || fault(StepFault::Timeout, format!("the trial took longer than {} s", limit.as_secs()));
    timeout(limit, run).await.map_err(|_| late())?
}

/// Runs a program to its end. If that is waited for no more, it ends with all that it has started.
async fn ended(path: &Path) -> io::Result<ExitStatus> {
    let mut program = Command::new(path).stdin(Stdio::null()).process_group(0).spawn()?;
    let group = Group(program.id().and_then(|id| id.try_into().ok()));
    let ended = program.wait().await;
    drop(group);
    ended
}

/// A program and what it has started.
struct Group(Option<i32>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
    }
}

/// What can be run in a folder, by name.
fn programs(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_program = |entry: &fs::DirEntry| {
        fs::metadata(entry.path()).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    let mut names: Vec<String> = entries
        .filter(is_program)
        .filter_map(|entry| entry.file_name().to_str().map(str::to_owned))
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(programs: &[(&str, &str, u32)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text, mode) in programs {
            let path = folder.path().join(name);
            fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(*mode)).unwrap();
        }
        folder
    }

    async fn ran(programs: &[(&str, &str, u32)], seconds: u64) -> Result<Vec<String>, StepFault> {
        let folder = folder(programs);
        run(folder.path(), Duration::from_secs(seconds)).await.map_err(|fault| fault.code)
    }

    #[tokio::test]
    async fn programs_run_in_order_and_each_must_end_well() {
        let good = [("20-b", "exit 0", 0o755), ("10-a", "exit 0", 0o700), ("README", "exit 1", 0o644)];
        assert_eq!(ran(&good, 20).await, Ok(vec!["10-a".into(), "20-b".into()]));
        assert_eq!(ran(&[], 20).await, Ok(vec![]));
        assert_eq!(ran(&[("a", "exit 3", 0o755)], 20).await, Err(StepFault::Program));
        assert_eq!(ran(&[("a", "sleep 30", 0o755)], 1).await, Err(StepFault::Timeout));
    }
}
