//! Rescue: whoever holds a key logs in by SSH, until the time is over. Dropbear, which the agent's image has, does it; no
//! password opens anything.

use super::fault::{Fault, StepFault, fault, label};
use nix::{
    ifaddrs::getifaddrs,
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use shared::api::steps::RescueReport;
use std::{
    collections::BTreeSet,
    fs,
    net::IpAddr,
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::Path,
    process::Stdio,
    time::Duration,
};
use tokio::process::{Child, Command};

const DROPBEAR: &str = "/usr/sbin/dropbear";
const DROPBEARKEY: &str = "/usr/bin/dropbearkey";
const HOST_KEY: &str = "/run/bcd-agent/host-key";
const HOME: &str = "/root";
/// The process's name, its sessions' too.
const COMM: &str = "dropbear";

/// A rescue that is open.
pub(crate) struct Open {
    server: Child,
    /// Until when, since boot.
    pub(crate) until: Duration,
}

/// Lets the holder of a key log in.
///
/// # Errors
/// A program of the image is missing or fails.
pub(crate) async fn open(
    ssh_public_key: &str,
    ttl: Duration,
    now: Duration,
) -> Result<(Open, RescueReport), Fault> {
    allow(Path::new(HOME), ssh_public_key)
        .map_err(|error| fault(StepFault::Program, format!("writing the key that may log in: {error}")))?;
    let host_key = host_key().await?;
    let mut dropbear = Command::new(DROPBEAR);
    // In the foreground, keys only, no forwarding, at most a quarter of an hour for a login.
    dropbear.args(["-F", "-E", "-s", "-j", "-k", "-p", "22", "-r", HOST_KEY]);
    let server = dropbear
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| fault(StepFault::Program, format!("starting {DROPBEAR}: {error}")))?;
    let report = RescueReport { addresses: addresses(), host_keys: vec![label(&host_key)] };
    Ok((Open { server, until: now + ttl }, report))
}

impl Open {
    /// Ends it: nobody gets in any more, and who is in is out.
    pub(crate) async fn close(mut self) {
        drop(fs::remove_file(Path::new(HOME).join(".ssh/authorized_keys")));
        let _ = self.server.kill().await;
        for session in named(Path::new("/proc"), COMM) {
            let _ = kill(session, Signal::SIGKILL);
        }
        tracing::info!("the rescue is over");
    }
}

/// One key, and no other, may log in.
fn allow(home: &Path, key: &str) -> std::io::Result<()> {
    let folder = home.join(".ssh");
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
    let path = folder.join("authorized_keys");
    fs::write(&path, format!("{key}\n"))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600))
}

/// Makes the key that the machine shows; answers its fingerprint.
async fn host_key() -> Result<String, Fault> {
    drop(fs::remove_file(HOST_KEY));
    let failed = |why: &dyn std::fmt::Display| fault(StepFault::Program, format!("{DROPBEARKEY}: {why}"));
    let mut dropbearkey = Command::new(DROPBEARKEY);
    dropbearkey.args(["-t", "ed25519", "-f", HOST_KEY]).stdin(Stdio::null());
    let made = dropbearkey.output().await.map_err(|error| failed(&error))?;
    let said = String::from_utf8_lossy(&made.stdout).into_owned();
    fingerprint(&said).ok_or_else(|| failed(&"it says no fingerprint"))
}

fn fingerprint(said: &str) -> Option<String> {
    said.split_whitespace().find(|word| word.starts_with("SHA256:")).map(str::to_owned)
}

/// The machine's addresses that others can reach.
pub(super) fn addresses() -> Vec<shared::bounded::Label> {
    let interfaces = getifaddrs().into_iter().flatten();
    let of = |address: &nix::sys::socket::SockaddrStorage| {
        let v4 = address.as_sockaddr_in().map(|address| IpAddr::from(address.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::from(address.ip())))
    };
    let found: BTreeSet<IpAddr> = interfaces.filter_map(|interface| of(&interface.address?)).collect();
    let far = found.into_iter().filter(|address| match address {
        IpAddr::V4(address) => !address.is_loopback() && !address.is_link_local(),
        IpAddr::V6(address) => !address.is_loopback() && !address.is_unicast_link_local(),
    });
    far.take(64).map(|address| label(&address.to_string())).collect()
}

/// The processes of this name.
fn named(proc: &Path, name: &str) -> Vec<Pid> {
    let entries = fs::read_dir(proc).into_iter().flatten().flatten();
    entries
        .filter(|entry| fs::read_to_string(entry.path().join("comm")).is_ok_and(|comm| comm.trim() == name))
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid::from_raw))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_key_may_log_in_and_no_other() {
        let home = tempfile::tempdir().unwrap();
        for key in ["ssh-ed25519 AAAA first", "ssh-ed25519 BBBB second"] {
            allow(home.path(), key).unwrap();
        }
        let path = home.path().join(".ssh/authorized_keys");
        assert_eq!(fs::read_to_string(&path).unwrap(), "ssh-ed25519 BBBB second\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(home.path().join(".ssh")).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn the_fingerprint_is_found_in_what_the_program_says() {
        let said = "Generating 256 bit ed25519 key, this may take a while...\nPublic key portion is:\nssh-ed25519 AAAA root@agent\n\
            Fingerprint: SHA256:rrXAbgrhFhgRTQrAnqvVwUBXgh2jR5tLSNfGkyDXhIs\n";
        assert_eq!(fingerprint(said).unwrap(), "SHA256:rrXAbgrhFhgRTQrAnqvVwUBXgh2jR5tLSNfGkyDXhIs");
        assert_eq!(fingerprint("nothing"), None);
    }

    #[test]
    fn processes_are_found_by_their_name() {
        let proc = tempfile::tempdir().unwrap();
        for (pid, comm) in [("7", "dropbear"), ("8", "sh"), ("self", "dropbear"), ("9", "dropbear")] {
            fs::create_dir(proc.path().join(pid)).unwrap();
            fs::write(proc.path().join(pid).join("comm"), format!("{comm}\n")).unwrap();
        }
        let mut found: Vec<i32> = named(proc.path(), "dropbear").into_iter().map(Pid::as_raw).collect();
        found.sort_unstable();
        assert_eq!(found, [7, 9]);
    }
}
