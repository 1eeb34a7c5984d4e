//! `relay ca init|requests|install`: roots of your own, with their keys or with the keys kept offline.
//!
//! A root must be dedicated to this relay: it is what machines pin. With offline roots the keys of the issuing CAs
//! are drawn first and wait, sealed, in `pending-ca.json` of the data directory until their certificates come.

use super::{World, exit::Exit, local, terminal};
use crate::{
    access::{self, FileError},
    ca::{self, CaName, CaRecord, Domain, PendingCa, RootSource, Roots, SignedRoots, TrustDomain},
    config::Settings,
    fault::{Fault, chain},
    files,
    first_start::{self, Beginning, PROVIDER},
    seal::KeyRing,
    store::{Store, authorities},
};
use clap::ArgMatches;
use serde_json::{Value, json};
use shared::{access::Use, bounded::TenantId, secret::Secret};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The file of the data directory where keys wait for their certificates.
const PENDING: &str = "pending-ca.json";
/// The longest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Runs one of the three.
pub(super) fn run(name: &str, settings: &Settings, flags: &ArgMatches, world: &World<'_>) -> Exit {
    let done = local::finish(async {
        let desk = Desk::open(settings, world).await?;
        match name {
            "init" => desk.init(flags).await,
            "requests" => desk.requests(flags).await,
            _ => desk.install(flags).await,
        }
    });
    match done {
        Ok(Ok(())) => Exit::Ok,
        Ok(Err(fault)) => {
            terminal::say(&chain(&fault));
            Exit::Refused
        }
        Err(exit) => exit,
    }
}

/// A store and its keys, and what they are worked on with.
struct Desk<'a> {
    settings: &'a Settings,
    world: &'a World<'a>,
    store: Store,
    keys: KeyRing,
    trust_domain: TrustDomain,
    empty: bool,
}

impl<'a> Desk<'a> {
    async fn open(settings: &'a Settings, world: &'a World<'a>) -> Result<Self, Fault> {
        files::directory(&settings.data_dir)
            .map_err(FileError::of("making", &settings.data_dir, Use::Folder))
            .map_err(Fault::internal("making the data directory"))?;
        let store = Store::open(settings.database_url.expose()).await?;
        store.migrate().await?;
        let keys = first_start::master_key(settings, &store, world.random).await?;
        let empty = first_start::is_empty(&store).await?;
        let trust_domain = if empty {
            let named = settings.trust_domain_at(settings.listen);
            named.map_err(Fault::internal("taking a trust domain"))?
        } else {
            let load = store.read("installation", &keys, |tx, keys| Box::pin(first_start::load(tx, keys)));
            let kept = load.await?.trust_domain;
            first_start::same_trust_domain(settings.trust_domain.as_ref(), &kept)
                .map_err(Fault::internal("taking a trust domain"))?;
            kept
        };
        Ok(Self { settings, world, store, keys, trust_domain, empty })
    }

    async fn init(&self, flags: &ArgMatches) -> Result<(), Fault> {
        if !self.empty {
            let rule = "the store has its CAs already; roots are given before the first start";
            return Err(Fault::internal("making the installation")(rule));
        }
        let source = |root: &str, key: &str| {
            let (certificate_pem, key_pem) = (read(flags, root)?, Secret::new(read(flags, key)?));
            Ok::<_, Fault>(RootSource::Given { certificate_pem, key_pem })
        };
        let roots = Roots {
            platform: source("platform-root", "platform-root-key")?,
            tenant: source("tenant-root", "tenant-root-key")?,
        };
        let now = self.world.clock.now();
        let records = ca::create(&self.trust_domain, roots, now, &self.keys, self.world.random)
            .map_err(Fault::internal("taking the roots"))?;
        self.make(&records).await?;
        terminal::say(
            &"the installation is made; `relay ca pin` prints what machines pin; next: start the relay",
        );
        Ok(())
    }

    async fn requests(&self, flags: &ArgMatches) -> Result<(), Fault> {
        let now = self.world.clock.now();
        let pending = ca::requests(&self.trust_domain, &CaName::ISSUING, now, &self.keys, self.world.random)
            .map_err(Fault::internal("drawing keys"))?;
        let all: Vec<Value> = pending.iter().map(to_json).collect();
        files::write(&self.pending(), json!(all).to_string().as_bytes(), files::SECRET)
            .map_err(Fault::internal("keeping the keys"))?;
        let out = Path::new(flags.get_one::<String>("folder").map_or(".", String::as_str));
        fs::create_dir_all(out).map_err(Fault::internal("making the folder"))?;
        for one in &pending {
            let file = out.join(format!("{}-{}.csr.pem", one.domain, one.name));
            files::write(&file, one.request_pem.as_bytes(), files::PUBLIC)
                .map_err(Fault::internal("writing a request"))?;
            terminal::say(&format_args!("{}: to be signed by the {} root", file.display(), one.domain));
        }
        terminal::say(&"next: let the offline roots sign them, then `relay ca install`");
        Ok(())
    }

    async fn install(&self, flags: &ArgMatches) -> Result<(), Fault> {
        let (platform, tenant) = (read(flags, "platform-root")?, read(flags, "tenant-root")?);
        let signed = read(flags, "signed")?;
        let pending = self.waiting()?;
        let roots = SignedRoots { platform: &platform, tenant: &tenant };
        let (trust_domain, keys, now) = (&self.trust_domain, &self.keys, self.world.clock.now());
        let install = |existing: Vec<CaRecord>| {
            ca::install(trust_domain, existing, &pending, roots, &signed, now, keys)
                .map_err(Fault::internal("installing the signed CAs"))
        };
        if self.empty {
            self.make(&install(Vec::new())?).await?;
        } else {
            let replaced = self.store.transact("install CAs", &install, |tx, install| {
                Box::pin(async move {
                    let records = install(authorities::lock_all(tx).await?)?;
                    Ok::<_, Fault>(authorities::replace(tx, &records).await?)
                })
            });
            replaced.await?;
        }
        fs::remove_file(self.pending()).map_err(Fault::internal("removing the keys that waited"))?;
        terminal::say(&match self.empty {
            true => {
                "the installation is made; `relay ca pin` prints what machines pin; next: start the relay"
            }
            false => "the issuing CAs are installed; running relays take them over within a minute",
        });
        Ok(())
    }

    async fn make(&self, records: &[CaRecord]) -> Result<(), Fault> {
        let beginning = Beginning {
            trust_domain: &self.trust_domain,
            provider_tenant: self.settings.provider_tenant.as_ref().map_or(PROVIDER, TenantId::as_str),
            authorities: records,
            keys: &self.keys,
            random: self.world.random,
            now: self.world.clock.now(),
        };
        first_start::ensure(&self.store, &beginning).await?;
        self.store.close().await;
        Ok(())
    }

    fn pending(&self) -> PathBuf {
        self.settings.data_dir.join(PENDING)
    }

    /// The keys that wait for their certificates.
    fn waiting(&self) -> Result<Vec<PendingCa>, Fault> {
        let absent = "reading the keys that wait for their certificates (relay ca requests draws them)";
        let text = access::read_text(&self.pending(), MAX_FILE_BYTES).map_err(Fault::internal(absent))?;
        let all: Vec<Value> = serde_json::from_str(&text).map_err(Fault::internal(absent))?;
        let all: Option<Vec<PendingCa>> = all.iter().map(from_json).collect();
        all.ok_or_else(|| Fault::internal(absent)("the file is not what relay ca requests writes"))
    }
}

fn to_json(pending: &PendingCa) -> Value {
    json!({
        "id": pending.id,
        "domain": pending.domain.as_str(),
        "name": pending.name.as_str(),
        "request": pending.request_pem,
        "sealedKey": pending.sealed_key,
    })
}

fn from_json(value: &Value) -> Option<PendingCa> {
    let text = |member: &str| value.get(member)?.as_str().map(str::to_owned);
    Some(PendingCa {
        id: text("id")?,
        domain: text("domain")?.parse::<Domain>().ok()?,
        name: text("name")?.parse().ok()?,
        request_pem: text("request")?,
        sealed_key: text("sealedKey")?,
    })
}

/// A file that a flag names, bounded.
fn read(flags: &ArgMatches, flag: &str) -> Result<String, Fault> {
    let path = flags.get_one::<String>(flag).map_or("", String::as_str);
    let said = |error: std::io::Error| {
        Fault::internal("reading a file that a flag names")(format!("{path}: {error}"))
    };
    access::read_given(Path::new(path), MAX_FILE_BYTES).map_err(said)
}
