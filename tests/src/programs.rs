//! The built programs: where they are, running one to its end, and keeping one running.

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    env,
    ffi::OsStr,
    fmt,
    fs::{self, OpenOptions},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// How long a program may take until it is ready: debug builds on a busy machine.
const LONGEST_START: Duration = Duration::from_secs(60);
/// How long a program may take to end: the relay drains for 10 s at most.
const LONGEST_END: Duration = Duration::from_secs(20);

/// What a program that ended left.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Its exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl fmt::Display for Finished {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "exit code {:?}\nstdout: {}\nstderr: {}", self.code, self.stdout, self.stderr)
    }
}

/// A program of the workspace, beside the test's own executable, with no setting from this environment.
///
/// # Panics
/// It has not been built; `tests/run` builds it, so does `cargo build --workspace`.
#[must_use]
#[expect(clippy::panic, reason = "a test without its program fails")]
pub fn program(name: &str) -> Command {
    let path = folder().join(name);
    if !path.is_file() {
        panic!("{} is not built; run cargo build --workspace", path.display());
    }
    let mut command = Command::new(path);
    for (key, _) in env::vars_os().filter(|(key, _)| is_setting(key)) {
        command.env_remove(key);
    }
    command.env_remove("NOTIFY_SOCKET").env_remove("CREDENTIALS_DIRECTORY").stdin(Stdio::null());
    command
}

/// Runs it to its end.
///
/// # Panics
/// It can't be started.
#[must_use]
#[expect(clippy::panic, reason = "a test without its program fails")]
pub fn finish(mut command: Command) -> Finished {
    match command.output() {
        Ok(output) => Finished {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        },
        Err(error) => panic!("starting {command:?}: {error}"),
    }
}

fn is_setting(key: &OsStr) -> bool {
    let key = key.to_string_lossy();
    key.starts_with("RELAY_") || key.starts_with("BCD_")
}

/// `target/debug`, from `target/debug/deps/<this test>`.
fn folder() -> PathBuf {
    let executable = env::current_exe().unwrap_or_default();
    let deps = executable.parent().map(PathBuf::from).unwrap_or_default();
    if deps.ends_with("deps") { deps.parent().map(PathBuf::from).unwrap_or_default() } else { deps }
}

/// A program that runs until it is told to end. It is killed when this value goes.
pub(crate) struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    /// Starts it; its standard output and error go to the end of `log`.
    ///
    /// # Panics
    /// It can't be started.
    #[expect(clippy::panic, reason = "a test without its program fails")]
    pub(crate) fn start(mut command: Command, log: &Path) -> Self {
        let file = || OpenOptions::new().create(true).append(true).open(log);
        let child = file()
            .and_then(|out| Ok((out, file()?)))
            .and_then(|(out, err)| command.stdout(out).stderr(err).spawn());
        match child {
            Ok(child) => Self { child, log: log.to_owned() },
            Err(error) => panic!("starting {command:?} with its log in {}: {error}", log.display()),
        }
    }

    /// Waits until `ready` gives something, at most [`LONGEST_START`].
    ///
    /// # Panics
    /// The program ended, or it takes too long; the panic shows its log.
    #[expect(clippy::panic, reason = "a test without its program fails")]
    pub(crate) fn wait_for<T>(&mut self, what: &str, ready: impl Fn() -> Option<T>) -> T {
        let started = Instant::now();
        loop {
            if let Some(found) = ready() {
                return found;
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                panic!("no {what}: the program ended ({status})\n{}", self.log());
            }
            if started.elapsed() > LONGEST_START {
                panic!("no {what} within {LONGEST_START:?}\n{}", self.log());
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// All that it has written.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has not ended by itself.
    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// SIGKILL: nothing is flushed, nobody is told.
    pub(crate) fn kill9(mut self) {
        self.end();
    }

    /// SIGTERM; answers the exit code, `None` if a signal ended it.
    ///
    /// # Panics
    /// It does not end within [`LONGEST_END`].
    pub(crate) fn terminate(self) -> Option<i32> {
        let process = i32::try_from(self.child.id()).map(Pid::from_raw);
        if let Ok(process) = process {
            // It may have ended before; its exit code is still there.
            let _ = kill(process, Signal::SIGTERM);
        }
        self.wait(LONGEST_END)
    }

    /// Waits until it has ended; answers the exit code, `None` if a signal ended it.
    ///
    /// # Panics
    /// It takes longer.
    #[expect(clippy::panic, reason = "a program that does not end fails its test")]
    pub(crate) fn wait(mut self, longest: Duration) -> Option<i32> {
        let told = Instant::now();
        while told.elapsed() < longest {
            if let Ok(Some(status)) = self.child.try_wait() {
                return status.code();
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("still running after {longest:?}\n{}", self.log());
    }

    fn end(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_program_is_waited_for_and_ends_when_told() {
        let folder = tempfile::tempdir().unwrap();
        let (log, ready) = (folder.path().join("log"), folder.path().join("ready"));
        let script = format!(
            "trap 'echo told; exit 3' TERM; echo > {}; while :; do sleep 0.01; done",
            ready.display()
        );
        let mut running = Running::start(shell(&script), &log);
        running.wait_for("file", || ready.exists().then_some(()));
        assert!(running.is_running());
        assert_eq!(running.terminate(), Some(3));
        assert_eq!(fs::read_to_string(&log).unwrap(), "told\n");
    }

    #[test]
    #[should_panic(expected = "bad day")]
    fn a_program_that_ends_too_early_shows_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let mut running = Running::start(shell("echo bad day; exit 1"), &folder.path().join("log"));
        running.wait_for("miracle", || None::<()>);
    }

    #[test]
    fn settings_of_this_environment_do_not_reach_a_program() {
        assert!(is_setting(OsStr::new("RELAY_URL")) && is_setting(OsStr::new("BCD_LOG")));
        assert!(!is_setting(OsStr::new("PATH")));
    }
}
