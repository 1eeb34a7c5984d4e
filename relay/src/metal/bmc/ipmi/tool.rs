//! One run of `ipmitool`: bounded in time and output. The password is in its environment, and never among its arguments, which everybody
//! on the machine can read.

use super::{
    super::error::{BmcError, Reason},
    words,
};
use crate::metal::facts::Credentials;
use shared::secret::Secret;
use std::{env, ffi::OsString, net::SocketAddr, process::Stdio, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    process::{Child, Command},
    time::{sleep, timeout},
};

/// How long a run may take; then it is killed.
const RUN_TIMEOUT: Duration = Duration::from_secs(30);
/// How long is waited before each run: BMCs lose what comes faster. Whoever waits before need not know who ran the last one.
const WAIT_BEFORE: Duration = Duration::from_secs(1);
/// The most that is read of what it says, in bytes.
const MAX_OUTPUT_BYTES: u64 = 64 << 10;
/// What the password is handed over by (`-E`).
const PASSWORD: &str = "IPMI_PASSWORD";

/// The way to one BMC.
pub(super) struct Tool {
    pub(super) program: OsString,
    address: SocketAddr,
    suite: i64,
    credentials: Credentials,
    pub(super) longest: Duration,
}

impl Tool {
    /// To a BMC, by this cipher suite (IPMI 2.0, table 22-20).
    pub(super) fn to(address: SocketAddr, suite: i64, credentials: Credentials) -> Self {
        Self { program: "ipmitool".into(), address, suite, credentials, longest: RUN_TIMEOUT }
    }

    pub(super) fn password(&self) -> &Secret {
        &self.credentials.password
    }

    /// What a command says.
    ///
    /// # Errors
    /// [`BmcError`].
    pub(super) async fn run(&self, command: &[&str]) -> Result<String, BmcError> {
        sleep(WAIT_BEFORE).await;
        let mut child = self.started(command)?;
        let ran = timeout(self.longest, ended(&mut child)).await;
        // Whatever it was, nothing of it goes on.
        let _ = child.start_kill();
        let (success, said, errors) = ran.map_err(|_| BmcError::from(Reason::Timeout))??;
        if success { Ok(said) } else { Err(words::meaning(&errors).into()) }
    }

    fn started(&self, command: &[&str]) -> Result<Child, BmcError> {
        let mut run = Command::new(&self.program);
        run.env_clear()
            .envs(env::var_os("PATH").map(|path| ("PATH", path)))
            .env("LC_ALL", "C")
            .env(PASSWORD, self.credentials.password.expose())
            // Without -v it does not tell a wrong password from a BMC that is not there; from -vvv on it would tell keys.
            .args(["-v", "-I", "lanplus", "-E", "-N", "2", "-R", "1"])
            .args(["-C", &self.suite.to_string(), "-U", &self.credentials.username])
            .args(["-H", &self.address.ip().to_string(), "-p", &self.address.port().to_string()])
            .args(command)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        run.spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Reason::ToolMissing.into(),
            _ => Reason::Busy.into(),
        })
    }
}

/// Whether it succeeded, what it said, and what it said of errors.
async fn ended(child: &mut Child) -> Result<(bool, String, String), BmcError> {
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let (said, errors) = tokio::join!(read(out), read(err));
    let (said, errors) = (said?, errors?);
    let status = child.wait().await.map_err(|_| BmcError::from(Reason::Malformed))?;
    Ok((status.success(), said, errors))
}

async fn read(from: Option<impl AsyncRead + Unpin>) -> Result<String, BmcError> {
    let mut text = Vec::new();
    let Some(from) = from else { return Ok(String::new()) };
    let read = from.take(MAX_OUTPUT_BYTES + 1).read_to_end(&mut text).await;
    match read {
        Ok(bytes) if bytes as u64 > MAX_OUTPUT_BYTES => Err(Reason::TooLarge.into()),
        Ok(_) => Ok(String::from_utf8_lossy(&text).into_owned()),
        Err(_) => Err(Reason::Malformed.into()),
    }
}
