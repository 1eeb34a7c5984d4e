//! What an empty store gets, in one transaction: the CAs, the provider tenant, its project, site and pool. Several
//! relays may start on one empty store at once: one makes it all, the others find it.

use crate::{
    ca::{self, CaRecord, Roots, TrustDomain},
    config::{RelayUrl, Settings},
    facts::PoolFacts,
    fault::Fault,
    random::Random,
    seal::{KeyRing, MasterKey, MasterKeyError},
    store::{
        Store, Tx, authorities,
        meta::{self, Name},
        pools, projects, sites, tenants,
    },
};
use shared::{
    api::{
        pools::{AgentKind, Policy, UnknownKeys},
        projects::Project,
        sites::Site,
        tenants::Tenant,
    },
    bounded::TenantId,
    id::PoolUid,
    time::Timestamp,
};

/// The provider tenant's id where the settings say no other.
pub const PROVIDER: &str = "provider";
/// The id of the first project, site and pool.
pub const DEFAULT: &str = "default";

/// What an installation is, as its store says.
pub struct Installation {
    /// The platform's trust domain, fixed at the first start.
    pub trust_domain: TrustDomain,
    /// The tenant whose members may be admins.
    pub provider_tenant: String,
    /// The CAs.
    pub authorities: Vec<CaRecord>,
}

/// What a first start needs.
pub struct Beginning<'a> {
    /// The trust domain to take.
    pub trust_domain: &'a TrustDomain,
    /// The id of the provider tenant.
    pub provider_tenant: &'a str,
    /// The CAs to take; see [`drawn`]. Not looked at where the store has an installation.
    pub authorities: &'a [CaRecord],
    /// The master keys.
    pub keys: &'a KeyRing,
    /// Randomness.
    pub random: &'a Random,
    /// The time.
    pub now: Timestamp,
}

/// A setting of which the first one counts says another than the store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the store's {setting} is {kept} for good, and the setting says {told}; remove the setting, or give the store that belongs \
     to it (database_url, data_dir)"
)]
pub struct OtherThanKept {
    setting: &'static str,
    told: String,
    kept: String,
}

/// Whether what was told about the trust domain goes with what the store has kept. Pure.
///
/// # Errors
/// It is another one.
pub fn same_trust_domain(told: Option<&TrustDomain>, kept: &TrustDomain) -> Result<(), OtherThanKept> {
    same("trust_domain", told.map(TrustDomain::as_str), kept.as_str())
}

/// Whether what was told about the provider tenant goes with what the store has kept. Pure.
///
/// # Errors
/// It is another one.
pub fn same_provider_tenant(told: Option<&TenantId>, kept: &str) -> Result<(), OtherThanKept> {
    same("provider_tenant", told.map(TenantId::as_str), kept)
}

fn same(setting: &'static str, told: Option<&str>, kept: &str) -> Result<(), OtherThanKept> {
    match told {
        Some(told) if told != kept => {
            Err(OtherThanKept { setting, told: told.to_owned(), kept: kept.to_owned() })
        }
        _ => Ok(()),
    }
}

/// The settings say no url any more, and the store was served by one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "these settings have no url, and the relay of this store was reached at {kept}: without it its certificate would not hold \
     there; set url = \"{kept}\", or where it is reached from now on, in /etc/relay/relay.toml (or --url). Were the settings lost? \
     An rpm that is removed leaves them as /etc/relay/relay.toml.rpmsave"
)]
pub struct LostUrl {
    kept: String,
}

/// Whether what was told of the url goes with what the store has kept of it: another one may be told at any time, but none
/// only where there never was one. Pure.
///
/// # Errors
/// None is told, and there was one.
pub fn same_url(told: Option<&RelayUrl>, kept: Option<String>) -> Result<(), LostUrl> {
    match (told, kept) {
        (None, Some(kept)) => Err(LostUrl { kept }),
        _ => Ok(()),
    }
}

/// The address that the relay of this store was last told.
///
/// # Errors
/// The store's.
pub async fn kept_url(store: &Store) -> Result<Option<String>, Fault> {
    Ok(store.read("url", (), |tx, ()| Box::pin(meta::find(tx, Name::Url))).await?)
}

/// Judges the url that was told by the one that was kept, and keeps it.
///
/// # Errors
/// The store's; it was lost.
pub async fn keep_url(store: &Store, told: Option<&RelayUrl>) -> Result<(), Fault> {
    let kept = kept_url(store).await?;
    same_url(told, kept.clone()).map_err(Fault::internal("finding the address of this relay"))?;
    if let Some(told) = told.map(ToString::to_string).filter(|told| Some(told) != kept.as_ref()) {
        store.transact("url", told, |tx, told| Box::pin(meta::put(tx, Name::Url, told))).await?;
    }
    Ok(())
}

/// Whether the store has no installation yet.
///
/// # Errors
/// The store's.
pub async fn is_empty(store: &Store) -> Result<bool, Fault> {
    let check = store.read("first start", (), |tx, ()| Box::pin(meta::find(tx, Name::KeyCheck))).await?;
    Ok(check.is_none())
}

/// The CAs of a first start with roots of its own, if the store is empty; none if they are there already.
///
/// # Errors
/// The store's, or a key can't be drawn.
pub async fn drawn(
    store: &Store,
    trust_domain: &TrustDomain,
    keys: &KeyRing,
    random: &Random,
    now: Timestamp,
) -> Result<Vec<CaRecord>, Fault> {
    if !is_empty(store).await? {
        return Ok(Vec::new());
    }
    ca::create(trust_domain, Roots::drawn(), now, keys, random).map_err(Fault::internal("making the CAs"))
}

/// Whether an empty store could be begun with these settings; one that could not leaves neither key nor database behind.
///
/// # Errors
/// There is no name for the trust domain.
pub fn may_begin(settings: &Settings) -> Result<(), Fault> {
    let taken = settings.trust_domain_at(settings.listen);
    taken.map(drop).map_err(Fault::internal("taking a trust domain"))
}

/// The master key. It is made only for a store that holds nothing yet: a relay without its key must not make another.
///
/// # Errors
/// The store's; the key can't be read or made.
pub async fn master_key(settings: &Settings, store: &Store, random: &Random) -> Result<KeyRing, Fault> {
    let path = &settings.master_key_file;
    let missing = !path
        .try_exists()
        .map_err(|source| MasterKeyError::Read { path: path.clone(), source })
        .map_err(Fault::internal("looking for the master key"))?;
    let key = if missing && is_empty(store).await? {
        may_begin(settings)?;
        MasterKey::create(path, random)
    } else {
        MasterKey::load(path, settings.credentials_dir.as_deref())
    };
    key.map(|key| KeyRing::new(key, Vec::new())).map_err(Fault::internal("getting the master key"))
}

/// The installation; made now if the store is empty. The master key is checked against it first: a relay that can't
/// open what is sealed must not go on, and never makes a new CA.
///
/// # Errors
/// The store's; the master key is not the one that the store was sealed with.
pub async fn ensure(store: &Store, beginning: &Beginning<'_>) -> Result<Installation, Fault> {
    store
        .transact("first start", beginning, |tx, beginning| {
            Box::pin(async move {
                if meta::find(tx, Name::KeyCheck).await?.is_none() {
                    make(tx, beginning).await?;
                }
                load(tx, beginning.keys).await
            })
        })
        .await
}

/// The installation that is there.
///
/// # Errors
/// The store's; the master key is not the right one; something is missing.
pub async fn load(tx: &mut Tx<'_>, keys: &KeyRing) -> Result<Installation, Fault> {
    let missing = |what| move || Fault::internal(what)("the store holds no installation");
    let check = meta::find(tx, Name::KeyCheck).await?.ok_or_else(missing("checking the master key"))?;
    keys.verify_check_value(&check).map_err(Fault::internal("checking the master key"))?;
    let trust_domain =
        meta::find(tx, Name::TrustDomain).await?.ok_or_else(missing("reading the trust domain"))?;
    let provider_tenant =
        meta::find(tx, Name::ProviderTenant).await?.ok_or_else(missing("reading the provider"))?;
    Ok(Installation {
        trust_domain: trust_domain
            .parse()
            .map_err(Fault::internal::<ca::InvalidTrustDomain>("reading the trust domain"))?,
        provider_tenant,
        authorities: authorities::all(tx).await?,
    })
}

async fn make(tx: &mut Tx<'_>, beginning: &Beginning<'_>) -> Result<(), Fault> {
    let Beginning { trust_domain, provider_tenant, authorities: records, keys, random, now } = beginning;
    let check = keys.check_value(random).map_err(Fault::internal("sealing the key-check value"))?;
    meta::insert(tx, Name::KeyCheck, &check).await?;
    meta::insert(tx, Name::TrustDomain, trust_domain.as_str()).await?;
    meta::insert(tx, Name::ProviderTenant, provider_tenant).await?;
    authorities::replace(tx, records).await?;
    let (tenant, created_at) = ((*provider_tenant).to_owned(), *now);
    let provider = Tenant { tenant_id: tenant.clone(), display_name: "Provider".to_owned(), created_at };
    tenants::insert(tx, &provider).await?;
    let (project_id, display_name) = (DEFAULT.to_owned(), "Default".to_owned());
    let project = Project { tenant_id: tenant.clone(), project_id, display_name, created_at };
    projects::insert(tx, &project).await?;
    let (site_id, owner_tenant_id) = (DEFAULT.to_owned(), tenant.clone());
    let site = Site { site_id, owner_tenant_id, custom: false, bmc_networks: Vec::new(), created_at };
    sites::insert(tx, &site).await?;
    let pool = PoolFacts {
        uid: PoolUid::draw(*now, random.bytes()),
        pool_id: DEFAULT.to_owned(),
        tenant_id: tenant.clone(),
        project_id: DEFAULT.to_owned(),
        site_id: DEFAULT.to_owned(),
        agent: AgentKind::Bcd,
        // The first machine is to join without a list of keys: its endorsement key is recorded.
        policy: Policy { unknown_endorsement_keys: UnknownKeys::Accept, ..Policy::default() },
        created_at,
        site_owner: tenant,
        custom_site: false,
    };
    pools::insert(tx, &pool).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trust_domain_that_is_told_must_be_the_one_that_was_kept() {
        let domain = |text: &str| text.parse::<TrustDomain>().unwrap();
        let kept = domain("relay.example");
        assert_eq!(same_trust_domain(None, &kept), Ok(()));
        assert_eq!(same_trust_domain(Some(&kept), &kept), Ok(()));
        let refused = same_trust_domain(Some(&domain("other.example")), &kept).unwrap_err().to_string();
        assert!(refused.contains("relay.example") && refused.contains("other.example"), "{refused}");
    }

    #[test]
    fn a_url_may_change_and_not_be_lost() {
        let told: RelayUrl = "https://new.example:8443".parse().unwrap();
        let kept = || Some("https://old.example".to_owned());
        assert_eq!(same_url(None, None), Ok(()));
        assert_eq!(same_url(Some(&told), None), Ok(()));
        assert_eq!(same_url(Some(&told), kept()), Ok(()));
        let lost = same_url(None, kept()).unwrap_err().to_string();
        assert!(lost.contains("set url = \"https://old.example\"") && lost.contains("rpmsave"), "{lost}");
    }
}
