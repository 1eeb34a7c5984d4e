//! The doctor's rules: functions of what was found. No file, no store and no clock is read here.

use crate::{
    ca::{CaRecord, CaState, TrustDomain},
    cli::humane,
    config::{NoTrustDomain, RelayUrl, Settings},
    fault::chain,
    first_start::{same_provider_tenant, same_trust_domain, same_url},
    seal::MasterKeyError,
    store::{Applied, StoreError},
};
use shared::{bounded::TenantId, time::Timestamp};
use std::{fmt, io, path::Path};

/// A clock before this is wrong: 2026-01-01T00:00:00Z, when this program did not exist.
const EARLIEST: Timestamp = Timestamp::from_seconds(1_767_225_600);
/// Certificates are made back-dated; one that begins later than this many seconds from now was made by another clock.
const CLOCK_SLACK_SECONDS: i64 = 60;
/// A CA that ends sooner than this should have been rotated by a relay that runs: 30 days.
const CA_SOON_SECONDS: i64 = 30 * 86_400;
/// Less than this is too little to go on, in bytes.
const SPACE_WRONG: u64 = 100 << 20;
/// Less than this is soon too little, in bytes.
const SPACE_SOON: u64 = 1 << 30;

/// What helps where a CA does not hold now.
const ROTATE_OR_SET: &str = "if this clock is wrong, set it; if it is right, run `relay ca rotate`, which replaces what does not hold now";

/// How the doctor, and other commands, come to see a credential that systemd gives to the unit alone.
const UNSEEN_CREDENTIAL: &str = "if the unit has it as a systemd credential, this was no look at it: while the relay runs, as root, \
     CREDENTIALS_DIRECTORY=/run/credentials/relay.service relay doctor; while it is down, systemd-run --pipe --wait -p User=relay -p \
     LoadCredential=relay.master-key relay doctor (LoadCredentialEncrypted= for an encrypted one). If not, restore it from where it \
     is kept; without it the store can't be opened";

/// How a finding counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// As it should be.
    Good,
    /// As it should be so early.
    Note,
    /// It works, and could be better.
    Warn,
    /// It has to be put right.
    Wrong,
}

/// What was found of one subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) mark: Mark,
    subject: &'static str,
    text: String,
    /// What to do; empty if nothing.
    remedy: String,
}

impl Finding {
    pub(super) fn good(subject: &'static str, text: String) -> Self {
        Self { mark: Mark::Good, subject, text, remedy: String::new() }
    }

    pub(super) fn note(subject: &'static str, text: String, remedy: impl Into<String>) -> Self {
        Self { mark: Mark::Note, subject, text, remedy: remedy.into() }
    }

    fn warn(subject: &'static str, text: String, remedy: impl Into<String>) -> Self {
        Self { mark: Mark::Warn, subject, text, remedy: remedy.into() }
    }

    pub(super) fn wrong(subject: &'static str, text: String, remedy: impl Into<String>) -> Self {
        Self { mark: Mark::Wrong, subject, text, remedy: remedy.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.mark {
            Mark::Good => "ok",
            Mark::Note => "note",
            Mark::Warn => "warn",
            Mark::Wrong => "WRONG",
        };
        writeln!(out, "{mark:<6}{}: {}", self.subject, self.text)?;
        if self.remedy.is_empty() { Ok(()) } else { writeln!(out, "      → {}", self.remedy) }
    }
}

pub(super) fn clock(now: Timestamp) -> Finding {
    if now < EARLIEST {
        let text = format!("it says {now}, before this program was made");
        return Finding::wrong("clock", text, "set it, and keep it right by NTP: certificates depend on it");
    }
    Finding::good("clock", format!("it says {now}"))
}

/// `running` is where a relay on this folder says that it listens, `kept` the url that the store was last served by.
pub(super) fn url(settings: &Settings, running: Option<&RelayUrl>, kept: Option<String>) -> Finding {
    if let Err(error) = same_url(settings.url.as_ref(), kept) {
        let remedy = if running.is_some() {
            "the relay that runs was told another way, perhaps by flags: give the doctor the same; without it the next start ends \
             with 1"
        } else {
            "before that `relay serve` ends with 1"
        };
        return Finding::wrong("url", error.to_string(), remedy);
    }
    // A relay that was told by flags; the port that was picked for 0 is none.
    let elsewhere = running.filter(|url| settings.listen.port() != 0 && url.port() != settings.listen.port());
    match &settings.url {
        None if elsewhere.is_some() || (running.is_some() && settings.listen.ip().is_loopback()) => {
            let at = running.map(ToString::to_string).unwrap_or_default();
            Finding::note(
                "url",
                format!("these settings have none; a relay runs at {at}, perhaps with others"),
                "what the relay is told by flags the doctor does not know: put it into /etc/relay/relay.toml, or give the same flags",
            )
        }
        Some(url) => Finding::good("url", url.to_string()),
        None if settings.listen.ip().is_unspecified() => Finding::warn(
            "url",
            format!("it isn't set, and {} is no address that a machine can reach", settings.listen),
            "set url in /etc/relay/relay.toml (or --url) to the address that machines use; the relay's certificate names its host",
        ),
        None if settings.listen.ip().is_loopback() => Finding::note(
            "url",
            "only this machine reaches the relay".to_owned(),
            "for others set listen and url in /etc/relay/relay.toml (or --listen and --url)",
        ),
        None => Finding::good("url", format!("it isn't set; {} is taken", settings.listen)),
    }
}

pub(super) fn folder_mode(path: &Path, mode: u32) -> Finding {
    let shown = path.display();
    if mode & 0o022 == 0 {
        return Finding::good("data_dir", format!("{shown}, mode {:04o}", mode & 0o7777));
    }
    let text = format!("others may write into {shown} (mode {:04o})", mode & 0o7777);
    Finding::wrong("data_dir", text, format!("run: chmod 700 {shown}"))
}

/// What this user may not look at: the truth about it is not known.
pub(super) fn hidden(subject: &'static str, path: &Path, error: &io::Error, remedy: String) -> Finding {
    let text = format!("{} can't be looked at: {error}", path.display());
    let remedy = if remedy.is_empty() { "check that it is what its name says".to_owned() } else { remedy };
    Finding::wrong(subject, text, remedy)
}

/// A store that can't be worked on.
pub(super) fn store(place: &str, error: &StoreError) -> Finding {
    let remedy = match error {
        StoreError::NewerSchema { .. } => "install the relay that migrated it, or a newer one",
        // It has said so itself.
        StoreError::File(_) => "",
        StoreError::Full(_) => "free some space",
        StoreError::Corrupt { .. } => "restore the store from a backup",
        StoreError::Url(_) => "correct database_url",
        error if error.is_transient() => "check that the database runs, and database_url",
        _ => "run `relay migrate`; if that fails too, restore the store from a backup",
    };
    Finding::wrong("store", format!("{place}: {}", chain(error)), remedy)
}

/// No relay listens by this folder.
pub(super) fn none_runs(ran_before: bool) -> Finding {
    if ran_before {
        return Finding::warn(
            "relay",
            "it is down: none runs on this folder".to_owned(),
            "start it: systemctl start relay, or `relay serve`",
        );
    }
    Finding::note(
        "relay",
        "none runs on this folder".to_owned(),
        "start it: systemctl start relay, or `relay serve`",
    )
}

/// A master key that can't be used. The error says its remedy, but where the file itself is lost.
pub(super) fn master_key(error: &MasterKeyError) -> Finding {
    let remedy = match error {
        MasterKeyError::Absent { credential: None, .. } => UNSEEN_CREDENTIAL,
        MasterKeyError::Absent { .. } => {
            "restore it from where it is kept; without it the store can't be opened"
        }
        MasterKeyError::Form { .. } => "put the file that belongs to this store in its place",
        MasterKeyError::Read { .. } | MasterKeyError::Mode { .. } | MasterKeyError::Create { .. } => "",
    };
    Finding::wrong("master key", error.to_string(), remedy)
}

/// The trust domain that is in force, and whether a setting contradicts it.
pub(super) fn trust_domain(told: Option<&TrustDomain>, kept: &TrustDomain) -> Finding {
    match same_trust_domain(told, kept) {
        Ok(()) => Finding::good("trust domain", format!("{kept}, from the first start on")),
        Err(error) => Finding::wrong("trust domain", error.to_string(), ""),
    }
}

/// The provider tenant, where a setting contradicts it.
pub(super) fn provider_tenant(told: Option<&TenantId>, kept: &str) -> Option<Finding> {
    let refused = same_provider_tenant(told, kept).err()?;
    Some(Finding::wrong("provider tenant", refused.to_string(), ""))
}

/// The trust domain that a first start would take for good.
pub(super) fn first_trust_domain(begins: Result<TrustDomain, NoTrustDomain>) -> Finding {
    match begins {
        Ok(domain) => Finding::note(
            "trust domain",
            format!("the first start takes {domain}, for good"),
            "if that is not the name that is to stay, set url or trust_domain in /etc/relay/relay.toml (or --url, --trust-domain) before it",
        ),
        Err(error) => Finding::wrong("trust domain", error.to_string(), ""),
    }
}

/// A finding only if others may read the file.
pub(super) fn secret_mode(path: &Path, mode: u32) -> Option<Finding> {
    let shown = path.display();
    (mode & 0o077 != 0).then(|| {
        let text = format!("others may use {shown} (mode {:04o}), which holds secrets", mode & 0o7777);
        Finding::wrong("files", text, format!("run: chmod 600 {shown}"))
    })
}

/// A finding only if others may use a file that the relay was given, with a secret in it. A group may: the relay's user reads
/// it by its own.
pub(super) fn told_secret(path: &Path, mode: u32, secret: &str) -> Option<Finding> {
    let shown = path.display();
    (mode & 0o007 != 0).then(|| {
        let text = format!("others may use {shown} (mode {:04o}), which holds {secret}", mode & 0o7777);
        Finding::wrong("files", text, format!("run: chgrp relay {shown} && chmod 640 {shown}"))
    })
}

pub(super) fn master_key_place(data_dir: &Path, master_key: &Path) -> Finding {
    let shown = master_key.display();
    if master_key.starts_with(data_dir) {
        let text = format!(
            "its place, {shown}, is in the data folder: a copy of that folder opens the store's secrets"
        );
        let remedy = "keep it elsewhere (master_key_file in /etc/relay/relay.toml, or --master-key-file), or as the systemd credential relay.master-key (the default suits a first try)";
        return Finding::warn("master key", text, remedy);
    }
    Finding::good("master key", format!("its place is {shown}, apart from the data folder"))
}

/// A key in the data folder that is not the one in use: somebody may take it for that, and keep the wrong one.
pub(super) fn stray_key(stray: &Path, master_key: &Path) -> Finding {
    let text = format!("{} is not the one in use, which is {}", stray.display(), master_key.display());
    let remedy = "if nothing was ever sealed by it, as after a first start that failed, remove it";
    Finding::warn("master key", text, remedy)
}

pub(super) fn space(free_bytes: u64) -> Finding {
    let text = format!("{} MiB free", free_bytes >> 20);
    let remedy = "free some, or move the data folder: a store without space admits nobody";
    match free_bytes {
        ..SPACE_WRONG => Finding::wrong("disk", text, remedy),
        SPACE_WRONG..SPACE_SOON => Finding::warn("disk", text, remedy),
        _ => Finding::good("disk", text),
    }
}

pub(super) fn schema(place: &str, applied: &Applied) -> Finding {
    if applied.from == applied.to {
        return Finding::good("store", format!("{place}, schema version {}", applied.from));
    }
    let text = format!("{place} has schema version {}, this relay wants {}", applied.from, applied.to);
    Finding::warn("store", text, "run `relay migrate`; `relay serve` does it too")
}

pub(super) fn ca(record: &CaRecord, now: Timestamp) -> Finding {
    let name = &record.id;
    let until = humane::relative(record.not_after, now);
    if record.not_before > now.plus_seconds(CLOCK_SLACK_SECONDS) {
        let begins = humane::relative(record.not_before, now);
        let text = format!("{name} begins {begins}: this clock is behind, or the one that made it was ahead");
        // Another one signs in its place; it goes when its time is over.
        if record.state == CaState::Overlap {
            return Finding::note("CA", text, "nothing, if this clock is right");
        }
        return Finding::wrong("CA", text, ROTATE_OR_SET);
    }
    if record.state != CaState::Active {
        return Finding::good("CA", format!("{name} ({}), ends {until}", record.state));
    }
    if record.not_after <= now {
        let text = format!("{name} ended {until}: nothing that it signed holds");
        return Finding::wrong("CA", text, ROTATE_OR_SET);
    }
    if record.not_after <= now.plus_seconds(CA_SOON_SECONDS) {
        let remedy =
            "run `relay ca rotate`; a relay that runs does it by itself, unless the root's key is offline";
        return Finding::warn("CA", format!("{name} ends {until}"), remedy);
    }
    Finding::good("CA", format!("{name}, ends {until}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ca::{CaName, Domain};

    const NOW: Timestamp = Timestamp::from_seconds(1_800_000_000);

    fn record(begins: i64, ends: i64, state: CaState) -> CaRecord {
        CaRecord {
            id: "node-0123".into(),
            domain: Domain::Platform,
            name: CaName::Node,
            certificate_pem: String::new(),
            sealed_key: None,
            not_before: NOW.plus_seconds(begins),
            not_after: NOW.plus_seconds(ends),
            state,
        }
    }

    #[test]
    fn cas_by_their_dates() {
        for (begins, ends, state, mark) in [
            (-300, 100 * 86_400, CaState::Active, Mark::Good),
            (-300, 30 * 86_400, CaState::Active, Mark::Warn),
            (-300, 0, CaState::Active, Mark::Wrong),
            (-300, 0, CaState::Overlap, Mark::Good),
            (60, 100 * 86_400, CaState::Active, Mark::Good),
            (61, 100 * 86_400, CaState::Active, Mark::Wrong),
            (61, 100 * 86_400, CaState::Announced, Mark::Wrong),
            (61, 100 * 86_400, CaState::Overlap, Mark::Note),
        ] {
            let finding = ca(&record(begins, ends, state), NOW);
            assert_eq!(finding.mark, mark, "{begins} {ends} {state}");
            assert_eq!(finding.remedy.contains("relay ca rotate"), matches!(mark, Mark::Wrong | Mark::Warn));
        }
    }

    #[test]
    fn clocks_disks_and_schemas_at_their_edges() {
        assert_eq!(clock(EARLIEST).mark, Mark::Good);
        assert_eq!(clock(EARLIEST.plus_seconds(-1)).mark, Mark::Wrong);
        let marks = [SPACE_WRONG - 1, SPACE_WRONG, SPACE_SOON - 1, SPACE_SOON].map(|free| space(free).mark);
        assert_eq!(marks, [Mark::Wrong, Mark::Warn, Mark::Warn, Mark::Good]);
        assert_eq!(schema("x", &Applied { from: 1, to: 1 }).mark, Mark::Good);
        assert_eq!(schema("x", &Applied { from: 0, to: 1 }).mark, Mark::Warn);
    }

    #[test]
    fn what_is_hidden_is_wrong_and_what_is_down_is_said() {
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        let finding = hidden("data_dir", Path::new("/srv/relay"), &denied(), "ask".to_owned()).to_string();
        assert!(finding.starts_with("WRONG") && finding.ends_with("→ ask\n"), "{finding}");
        assert_eq!([none_runs(true).mark, none_runs(false).mark], [Mark::Warn, Mark::Note]);
        let path = || "/srv/relay/master.key".into();
        for (error, remedy) in [
            (MasterKeyError::Absent { path: path(), credential: Some(path()) }, "restore it"),
            (MasterKeyError::Absent { path: path(), credential: None }, "systemd-run --pipe"),
            (
                MasterKeyError::Absent { path: path(), credential: None },
                "CREDENTIALS_DIRECTORY=/run/credentials/relay.service relay doctor",
            ),
        ] {
            assert!(master_key(&error).remedy.contains(remedy), "{error}");
        }
        let open = master_key(&MasterKeyError::Mode { path: path(), mode: 0o644 }).to_string();
        assert!(open.contains("chmod 600") && !open.contains("restore"), "{open}");
    }

    #[test]
    fn trust_domains_that_are_kept_and_that_would_be() {
        let domain = |text: &str| text.parse::<TrustDomain>().unwrap();
        let (kept, other) = (domain("relay.example"), domain("other.example"));
        assert!(trust_domain(None, &kept).to_string().contains("relay.example"));
        assert_eq!(trust_domain(Some(&other), &kept).mark, Mark::Wrong);
        assert_eq!(first_trust_domain(Ok(kept)).mark, Mark::Note);
        let nobody: RelayUrl = "https://0.0.0.0:8443".parse().unwrap();
        let refused = first_trust_domain(nobody.trust_domain());
        assert!(refused.mark == Mark::Wrong && refused.text.contains("--url"), "{refused}");
    }

    #[test]
    fn modes_and_the_place_of_the_master_key() {
        let dir = Path::new("/srv/relay");
        assert_eq!(
            [0o40700, 0o40755, 0o40770].map(|mode| folder_mode(dir, mode).mark),
            [Mark::Good, Mark::Good, Mark::Wrong]
        );
        assert!(secret_mode(dir, 0o100_600).is_none());
        for mode in [0o100_640, 0o100_604, 0o100_601] {
            assert_eq!(secret_mode(dir, mode).unwrap().mark, Mark::Wrong, "{mode:o}");
        }
        assert!(told_secret(dir, 0o100_640, "x").is_none());
        for mode in [0o100_644, 0o100_642] {
            assert_eq!(told_secret(dir, mode, "x").unwrap().mark, Mark::Wrong, "{mode:o}");
        }
        assert_eq!(master_key_place(dir, Path::new("/srv/relay/master.key")).mark, Mark::Warn);
        assert_eq!(master_key_place(dir, Path::new("/srv/relay.key")).mark, Mark::Good);
    }

    #[test]
    fn a_finding_says_what_to_do() {
        let text = secret_mode(Path::new("/x"), 0o644).unwrap().to_string();
        assert_eq!(
            text,
            "WRONG files: others may use /x (mode 0644), which holds secrets\n      → run: chmod 600 /x\n"
        );
        assert_eq!(Finding::good("disk", "much".into()).to_string(), "ok    disk: much\n");
    }
}
