//! bcd as a machine runs it: the built program, told by flags what machine it is on.

use crate::{
    FakeMachine, RelayProcess,
    programs::{Finished, Running, finish, program},
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// A machine with bcd on it: its state lives in `home/bcd`.
pub struct Bcd {
    home: PathBuf,
    flags: Vec<String>,
}

impl Bcd {
    /// bcd for this machine, which is given the relay's pin and a join token (in a file, `home/join-token`).
    ///
    /// # Panics
    /// `home` can't be written, or the relay has no pin.
    #[must_use]
    pub fn new(home: &Path, machine: &FakeMachine, relay: &RelayProcess, token: &str) -> Self {
        let mut flags = machine.flags();
        flags.extend(["--relay".to_owned(), relay.url(), "--ca-pin".to_owned(), relay.pin()]);
        flags.extend(["--token-file".to_owned(), home.join("join-token").display().to_string()]);
        flags.extend(["--state-dir".to_owned(), home.join("bcd").display().to_string()]);
        // The TPM of the machine that tests run on is left alone.
        flags.extend(["--tpm".to_owned(), "off".to_owned()]);
        let bcd = Self { home: home.to_owned(), flags };
        bcd.give_token(token);
        bcd
    }

    /// The same machine, whose way to the relay leads over another address.
    #[must_use]
    pub fn over(&self, url: &str) -> Self {
        self.told("--relay", url)
    }

    /// The same machine with a TPM: `mode` is the setting `tpm`, `tcti` leads to the TPM.
    #[must_use]
    pub fn with_tpm(&self, mode: &str, tcti: &str) -> Self {
        self.told("--tpm", mode).told("--tcti", tcti)
    }

    /// The same machine, whose bcd is told what it is told in a pod: to wait when it is over.
    #[must_use]
    pub fn in_a_cluster(&self) -> Self {
        self.told("--when-final", "wait")
    }

    /// With another value of this flag.
    fn told(&self, flag: &str, value: &str) -> Self {
        let mut flags = self.flags.clone();
        match flags.iter().position(|told| told == flag).and_then(|told| flags.get_mut(told + 1)) {
            Some(told) => value.clone_into(told),
            None => flags.extend([flag.to_owned(), value.to_owned()]),
        }
        Self { home: self.home.clone(), flags }
    }

    /// Replaces the join token.
    ///
    /// # Panics
    /// `home` can't be written.
    #[expect(clippy::panic, reason = "a test without its token fails")]
    pub fn give_token(&self, token: &str) {
        let path = self.home.join("join-token");
        if let Err(error) =
            fs::create_dir_all(&self.home).and_then(|()| fs::write(&path, format!("{token}\n")))
        {
            panic!("writing {}: {error}", path.display());
        }
    }

    /// Where it keeps its key and certificate.
    #[must_use]
    pub fn state_dir(&self) -> PathBuf {
        self.home.join("bcd")
    }

    /// A command of bcd (`join`, `status`) with all flags, to be run by the caller.
    #[must_use]
    pub fn command(&self, verb: &str) -> Command {
        let mut command = program("bcd");
        command.arg(verb).args(&self.flags);
        command
    }

    /// `bcd join`, to its end.
    ///
    /// # Panics
    /// It can't be started.
    #[must_use]
    pub fn join(&self) -> Finished {
        finish(self.command("join"))
    }

    /// `bcd run`, until it is told to end; its log is `home/bcd.log`.
    ///
    /// # Panics
    /// It can't be started.
    #[must_use]
    pub fn run(&self) -> BcdProcess {
        BcdProcess { running: Running::start(self.command("run"), &self.home.join("bcd.log")) }
    }
}

/// A running `bcd run`. It is killed when this value goes.
pub struct BcdProcess {
    running: Running,
}

impl BcdProcess {
    /// Waits until `ready` gives something, at most a minute.
    ///
    /// # Panics
    /// bcd ended, or it takes too long; the panic shows its log.
    pub fn wait_for<T>(&mut self, what: &str, ready: impl Fn() -> Option<T>) -> T {
        self.running.wait_for(what, ready)
    }

    /// All that it has logged, over all its starts.
    #[must_use]
    pub fn log(&self) -> String {
        self.running.log()
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.running.id()
    }

    /// Whether it has not ended by itself.
    #[must_use]
    pub fn is_running(&mut self) -> bool {
        self.running.is_running()
    }

    /// SIGKILL.
    pub fn kill9(self) {
        self.running.kill9();
    }

    /// SIGTERM; answers the exit code.
    ///
    /// # Panics
    /// It does not end in time.
    #[must_use]
    pub fn terminate(self) -> Option<i32> {
        self.running.terminate()
    }
}
