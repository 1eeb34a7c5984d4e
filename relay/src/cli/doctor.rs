//! `relay doctor`: looks at settings, files, store, keys, CAs and clock, and says what to do. It changes nothing and
//! never shows a secret. What is judged is in `doctor/judge.rs`, pure; here is only where to look.

mod judge;
mod metal;
mod owners;

use super::{
    World,
    exit::Exit,
    local::{self, OpenError},
    target, terminal,
};
use crate::{
    access,
    ca::Authority,
    config::Settings,
    fault::{Fault, chain},
    first_start,
    random::Random,
    seal::{KeyRing, MasterKey, MasterKeyError},
    store::Store,
};
use clap::ArgMatches;
use judge::{Finding, Mark};
use nix::{sys::statvfs::statvfs, unistd::geteuid};
use owners::Home;
use shared::{access::Use, time::Timestamp};
use std::{
    io,
    net::{TcpStream, ToSocketAddrs as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

/// How long a relay may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs all checks and prints a line for each; the exit says whether something is wrong.
pub(super) fn run(flags: &ArgMatches, world: &World<'_>) -> Exit {
    // A setting that is not right has been told with its remedy; nothing else can be looked at without.
    let Ok(settings) = local::settings(flags, world) else { return Exit::Refused };
    let now = world.clock.now();
    let running = target::listening(&settings.data_dir.join("listen")).ok();
    // Before the store is opened: root's SQLite may remove what is looked for.
    let in_folder = files(&settings);
    let (in_store, kept_url) = match local::finish(store(&settings, world.random, now)) {
        Ok(found) => found,
        Err(exit) => return exit,
    };
    let mut findings = vec![judge::clock(now), judge::url(&settings, running.as_ref(), kept_url)];
    findings.extend(told_secrets(&settings));
    findings.extend(metal::look(&settings));
    let home = Home::of(&settings.data_dir);
    findings.extend(home.and_then(|home| owners::settings(home, &local::settings_path(flags, world))));
    findings.extend(in_folder);
    findings.extend(in_store);
    let text: String = findings.iter().map(ToString::to_string).collect();
    let wrong = findings.iter().any(|finding| finding.mark == Mark::Wrong);
    match super::written(terminal::answer(&text)) {
        Exit::Ok if wrong => Exit::Refused,
        exit => exit,
    }
}

/// The settings, if a password is in them, and the file of the secret that the identity provider knows.
fn told_secrets(settings: &Settings) -> Vec<Finding> {
    let client = settings.oidc.as_ref().and_then(|oidc| oidc.client_secret_file.as_deref());
    let password = settings.password_file.as_deref().map(|path| (path, "the database's password"));
    let told = password.into_iter().chain(client.map(|path| (path, "the secret of oidc.client_id")));
    told.filter_map(|(path, what)| match path.metadata() {
        Ok(metadata) => judge::told_secret(path, metadata.mode(), what),
        Err(error) => Some(hidden("files", &settings.data_dir, path, &error)),
    })
    .collect()
}

fn files(settings: &Settings) -> Vec<Finding> {
    let dir = &settings.data_dir;
    let mut findings = Vec::new();
    // What can't be looked into is not what is not there.
    let metadata = match dir.metadata().and_then(|metadata| dir.read_dir().map(|_| metadata)) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let text = format!("{} is not there yet", dir.display());
            return vec![Finding::note("data_dir", text, "`relay serve` makes it at its first start")];
        }
        Err(error) => return vec![hidden("data_dir", dir, dir, &error)],
    };
    findings.push(judge::folder_mode(dir, metadata.mode()));
    for path in secret_files(settings) {
        findings.extend(path.metadata().ok().and_then(|metadata| judge::secret_mode(&path, metadata.mode())));
    }
    if let Some(home) = Home::of(dir) {
        findings.extend(owners::look(home, &kept_elsewhere(settings)));
    }
    let stray = dir.join("master.key");
    if stray != settings.master_key_file && stray.exists() {
        findings.push(judge::stray_key(&stray, &settings.master_key_file));
    }
    findings.push(space(dir));
    findings.extend(running(dir));
    findings
}

/// What the relay keeps and may have outside of its folder. What systemd hands to it is systemd's.
fn kept_elsewhere(settings: &Settings) -> Vec<PathBuf> {
    let key = &settings.master_key_file;
    let is_credential = settings.credentials_dir.as_ref().is_some_and(|folder| key.starts_with(folder));
    let key = (!is_credential).then(|| key.clone());
    key.into_iter().chain(settings.database_url.file().map(Path::to_owned)).collect()
}

/// What this user may not look at, and who may or what would let it.
fn hidden(subject: &'static str, data_dir: &Path, path: &Path, error: &io::Error) -> Finding {
    let home = Home::of(data_dir);
    let remedy = match home.and_then(|home| home.remedy_for(geteuid().as_raw())) {
        Some(remedy) => remedy,
        None => access::remedy(path, Use::Keep, error).trim_start_matches("; ").to_owned(),
    };
    judge::hidden(subject, path, error, remedy)
}

/// The files that only their owner may read. (The master key's mode is judged where it is loaded.)
fn secret_files(settings: &Settings) -> Vec<PathBuf> {
    let bootstrap = settings.data_dir.join("bootstrap");
    let mut paths = vec![bootstrap.join("admin_editor_token"), bootstrap.join("admin_viewer_token")];
    if let Some(file) = settings.database_url.file() {
        let beside = |end: &str| PathBuf::from(format!("{}{end}", file.display()));
        paths.extend([file.to_owned(), beside("-wal"), beside("-shm")]);
    }
    paths
}

fn space(dir: &Path) -> Finding {
    match statvfs(dir) {
        Ok(disk) => judge::space(disk.blocks_available().saturating_mul(disk.fragment_size())),
        Err(error) => Finding::wrong(
            "disk",
            format!("{} can't be asked for its space: {error}", dir.display()),
            "check the disk",
        ),
    }
}

/// Whether the relay that says it listens does.
fn running(dir: &Path) -> Option<Finding> {
    let path = dir.join("listen");
    match path.try_exists() {
        Ok(true) => {}
        Ok(false) => return Some(judge::none_runs(dir.join("trust-bundle.pem").exists())),
        Err(error) => return Some(hidden("relay", dir, &path, &error)),
    }
    let url = target::listening(&path).ok()?;
    let address = (url.host(), url.port()).to_socket_addrs().ok()?.next()?;
    let text = format!("{url}, where it said that it listens,");
    Some(match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
        Ok(_) => Finding::good("relay", format!("one listens at {url}")),
        Err(error) => Finding::wrong(
            "relay",
            format!("{text} does not answer: {error}"),
            "start it again (systemctl start relay); its log says why it ended (journalctl -u relay)",
        ),
    })
}

/// What there is to say of the store, and the url that it has kept.
async fn store(settings: &Settings, random: &Random, now: Timestamp) -> (Vec<Finding>, Option<String>) {
    let store = match local::store(settings).await {
        Ok(store) => store,
        Err(error) => return (no_store(settings, &error), None),
    };
    let place = settings.database_url.redacted();
    let mut findings = vec![match store.pending().await {
        Ok(applied) => judge::schema(&place, &applied),
        Err(error) => judge::store(&place, &error),
    }];
    let mut kept_url = None;
    if findings.iter().all(|finding| finding.mark != Mark::Wrong) {
        findings.extend(installation(settings, &store, random, now).await);
        kept_url = first_start::kept_url(&store).await.ok().flatten();
    }
    store.close().await;
    (findings, kept_url)
}

fn no_store(settings: &Settings, error: &OpenError) -> Vec<Finding> {
    let place = settings.database_url.redacted();
    match error {
        OpenError::Absent(_) => {
            let text = format!("{place} is not there yet");
            vec![
                Finding::note("store", text, "`relay serve` makes it at its first start"),
                judge::master_key_place(&settings.data_dir, &settings.master_key_file),
                judge::first_trust_domain(settings.trust_domain_at(settings.listen)),
            ]
        }
        OpenError::Hidden { path, source } => vec![hidden("store", &settings.data_dir, path, source)],
        OpenError::Store(error) => vec![judge::store(&place, error)],
        error => vec![Finding::wrong("store", format!("{place}: {error}"), "")],
    }
}

async fn installation(settings: &Settings, store: &Store, random: &Random, now: Timestamp) -> Vec<Finding> {
    match first_start::is_empty(store).await {
        Ok(false) => {}
        Ok(true) => {
            let text = "the store holds no installation yet".to_owned();
            let begins = settings.trust_domain_at(settings.listen);
            return vec![
                Finding::note("store", text, "`relay serve` makes it at its first start"),
                judge::master_key_place(&settings.data_dir, &settings.master_key_file),
                judge::first_trust_domain(begins),
            ];
        }
        Err(fault) => return vec![unopened(&fault)],
    }
    let key = match MasterKey::load(&settings.master_key_file, settings.credentials_dir.as_deref()) {
        Ok(key) => key,
        Err(MasterKeyError::Read { path, source }) => {
            return vec![hidden("master key", &settings.data_dir, &path, &source)];
        }
        Err(error) => return vec![judge::master_key(&error)],
    };
    let keys = KeyRing::new(key, Vec::new());
    let loaded = store.read("doctor", &keys, |tx, keys| Box::pin(first_start::load(tx, keys))).await;
    let installation = match loaded {
        Ok(installation) => installation,
        Err(fault) => return vec![unopened(&fault)],
    };
    let mut findings = vec![
        Finding::good("master key", "it opens the store".to_owned()),
        // Only of a key that is the right one: a lost one gives nothing away.
        judge::master_key_place(&settings.data_dir, &settings.master_key_file),
        judge::trust_domain(settings.trust_domain.as_ref(), &installation.trust_domain),
    ];
    let told = settings.provider_tenant.as_ref();
    findings.extend(judge::provider_tenant(told, &installation.provider_tenant));
    let records = installation.authorities;
    findings.extend(records.iter().map(|record| judge::ca(record, now)));
    if let Err(error) = Authority::open(&installation.trust_domain, records, &keys, random) {
        findings.push(Finding::wrong("CA", chain(&error), "restore the store from a backup"));
    }
    findings
}

fn unopened(fault: &Fault) -> Finding {
    match fault {
        Fault::Store(error) => judge::store("reading it failed", error),
        fault => Finding::wrong(
            "master key",
            chain(fault),
            "put the master key that belongs to this store into its place, or name its file (master_key_file in relay.toml, or \
             --master-key-file)",
        ),
    }
}
