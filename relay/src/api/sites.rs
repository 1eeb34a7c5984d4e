//! compute/sites. Who owns a site vouches for what stands there, so owner and kind never change.

use super::{
    idempotency,
    steps::{conflict, invalid_state, page, page_size, permitted},
    tenants::hold,
};
use crate::{
    auth::{
        Powers,
        policy::{Decision, Resource, may, not_found},
    },
    call::Call,
    fault::Fault,
    store::{
        Tx,
        sites::{self, MAX_CUSTOM_SITES},
    },
};
use ipnet::IpNet;
use shared::{
    api::{
        access::{Action, AdminRole},
        sites::{Cidr, CreateSite, GetSite, ListSites, Site, SiteAnswer, SiteList, UpdateSite},
    },
    problem::{Code, FieldError, Problem},
};
use std::net::IpAddr;

/// compute/sites/create.
///
/// # Errors
/// INVALID_INPUT for a network that is none; PERMISSION_DENIED; NOT_FOUND for the owner; CONFLICT if the id is taken
/// or was used before.
pub async fn create(call: Call, input: CreateSite) -> Result<SiteAnswer, Fault> {
    let networks = canonical(input.bmc_networks.as_deref().unwrap_or_default())?;
    let work = (&call, &input, &networks);
    let make = call
        .relay
        .store
        .transact(call.method, work, |tx, (call, input, networks)| Box::pin(make(tx, call, input, networks)));
    make.await
}

/// compute/sites/get: everybody sees sites, their networks only who reads in the owner's tenant.
///
/// # Errors
/// NOT_FOUND.
pub async fn get(call: Call, input: GetSite) -> Result<SiteAnswer, Fault> {
    let powers = &call.principal()?.powers;
    let id = input.site_id.as_str();
    let store = &call.relay.store;
    let found = store
        .read(call.method, id, |tx, id| Box::pin(async move { Ok::<_, Fault>(sites::find(tx, id).await?) }));
    let site = found.await?.ok_or_else(|| not_found(&format!("site {id}")))?;
    Ok(SiteAnswer { site: shown(site, powers) })
}

/// compute/sites/list.
///
/// # Errors
/// UNAUTHENTICATED.
pub async fn list(call: Call, input: ListSites) -> Result<SiteList, Fault> {
    let powers = &call.principal()?.powers;
    let size = page_size(input.limit);
    let after = input.cursor.as_ref().map_or("", |id| id.as_str());
    let read = call.relay.store.read(call.method, after, |tx, after| {
        Box::pin(async move { Ok::<_, Fault>(sites::page(tx, after, size + 1).await?) })
    });
    let (sites, cursor) = page(read.await?, size, |site| site.site_id.clone());
    Ok(SiteList { sites: sites.into_iter().map(|site| shown(site, powers)).collect(), cursor })
}

/// compute/sites/update: the networks, by an admin.
///
/// # Errors
/// INVALID_INPUT for a network that is none; NOT_FOUND, PERMISSION_DENIED.
pub async fn update(call: Call, input: UpdateSite) -> Result<SiteAnswer, Fault> {
    let networks = canonical(&input.bmc_networks)?;
    let work = (&call, &input, &networks);
    let change = call.relay.store.transact(call.method, work, |tx, (call, input, networks)| {
        Box::pin(async move {
            let id = input.site_id.as_str();
            let found = sites::lock(tx, id).await?;
            let site = decide(call, found, id, Action::SitesUpdate)?;
            sites::set_networks(tx, id, networks).await?;
            Ok::<_, Fault>(SiteAnswer { site: Site { bmc_networks: (*networks).clone(), ..site } })
        })
    });
    change.await
}

/// compute/sites/delete.
///
/// # Errors
/// NOT_FOUND, PERMISSION_DENIED; INVALID_STATE while it has pools.
pub async fn delete(call: Call, input: GetSite) -> Result<SiteAnswer, Fault> {
    let store = &call.relay.store;
    let remove = store.transact(call.method, (&call, &input), |tx, (call, input)| {
        Box::pin(async move {
            let id = input.site_id.as_str();
            let found = sites::lock(tx, id).await?;
            let site = decide(call, found, id, Action::SitesDelete)?;
            if sites::has_pools(tx, id).await? {
                return Err(invalid_state(format!("The site {id} has pools; delete them first.")));
            }
            sites::delete(tx, id, call.now).await?;
            Ok(SiteAnswer { site })
        })
    });
    remove.await
}

async fn make(
    tx: &mut Tx<'_>,
    call: &Call,
    input: &CreateSite,
    networks: &[Cidr],
) -> Result<SiteAnswer, Fault> {
    let (id, owner) = (input.site_id.as_str(), input.owner_tenant_id.as_str());
    let custom = input.custom.unwrap_or(false);
    let what = if custom { format!("a custom site of {owner}") } else { "a site of the platform".to_owned() };
    may(&call.principal()?.powers, Action::SitesCreate, Resource::NewSite { owner, custom })
        .require(Action::SitesCreate, &what)?;
    let by_admin = call.principal()?.powers.admin_role() == Some(AdminRole::Editor);
    if !by_admin && !networks.is_empty() {
        return Err(networks_are_an_admins().into());
    }
    hold(tx, owner).await?;
    if let Some(answer) = idempotency::replay(tx, call, &input.idempotency_key, input).await? {
        return Ok(answer);
    }
    if custom && !by_admin && sites::made(tx, owner).await? >= MAX_CUSTOM_SITES {
        let detail = format!(
            "{owner} has made {MAX_CUSTOM_SITES} sites, which is the most, deleted ones included; an admin may make more."
        );
        return Err(invalid_state(detail));
    }
    let site = Site {
        site_id: id.to_owned(),
        owner_tenant_id: owner.to_owned(),
        custom,
        bmc_networks: networks.to_vec(),
        created_at: call.now,
    };
    if !sites::insert(tx, &site).await? {
        return Err(conflict(format!("The site id {id} is taken or was used before; choose another.")));
    }
    let answer = SiteAnswer { site };
    idempotency::keep(tx, call, &input.idempotency_key, input, &answer).await?;
    Ok(answer)
}

/// What the relay connects to within its own network is not a tenant's to say, whosever the site is.
fn networks_are_an_admins() -> Problem {
    let detail = "bmcNetworks is set by an admin, since the relay itself connects to what is listed; leave it out, and \
        ask an admin for relay sites update.";
    Problem::new(Code::PermissionDenied, detail)
}

fn decide(call: &Call, found: Option<Site>, id: &str, action: Action) -> Result<Site, Fault> {
    let owner = found.as_ref().map_or("", |site| site.owner_tenant_id.as_str());
    let decision = may(&call.principal()?.powers, action, Resource::Site { site: id, owner });
    Ok(permitted(found, decision, action, &format!("site {id}"))?)
}

/// The site as this caller sees it: its networks are for those who read pools in the owner's tenant.
fn shown(site: Site, powers: &Powers) -> Site {
    let owner = Resource::Site { site: &site.site_id, owner: &site.owner_tenant_id };
    if may(powers, Action::PoolsRead, owner) == Decision::Allow {
        return site;
    }
    Site { bmc_networks: Vec::new(), ..site }
}

/// Every network in its one form, or every bad one named.
fn canonical(networks: &[Cidr]) -> Result<Vec<Cidr>, Problem> {
    let mut good = Vec::new();
    let mut errors = Vec::new();
    for (at, network) in networks.iter().enumerate() {
        match parse(&network.0) {
            Some(parsed) if parsed.trunc() == parsed => good.push(Cidr(parsed.to_string())),
            Some(parsed) => {
                errors.push(bad_network(
                    at,
                    format!("has bits behind its prefix; is {} meant?", parsed.trunc()),
                ));
            }
            None => errors
                .push(bad_network(at, "must be a network such as 10.1.0.0/16 or fd00:1::/64".to_owned())),
        }
    }
    if errors.is_empty() { Ok(good) } else { Err(Problem::invalid(errors)) }
}

/// By the parts, since ipnet takes 010 for 10 and others take it for 8.
fn parse(text: &str) -> Option<IpNet> {
    let (address, prefix) = text.split_once('/')?;
    IpNet::new(address.parse::<IpAddr>().ok()?, prefix.parse().ok()?).ok()
}

fn bad_network(at: usize, message: String) -> FieldError {
    FieldError { field: format!("bmcNetworks.{at}"), message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_parsed_fully_and_every_bad_one_is_named() {
        let judge = |texts: &[&str]| {
            let networks: Vec<Cidr> = texts.iter().map(|text| Cidr((*text).to_owned())).collect();
            canonical(&networks)
                .map(|good| good.into_iter().map(|network| network.0).collect::<Vec<_>>())
                .map_err(|problem| problem.errors.into_iter().map(|error| error.field).collect::<Vec<_>>())
        };
        let named = |fields: &[&str]| Err(fields.iter().map(|field| (*field).to_owned()).collect());
        assert_eq!(judge(&[]), Ok(vec![]));
        let good = ["10.0.0.0/8", "192.0.2.1/32", "0.0.0.0/0", "FD00:0::/16", "::/0"];
        assert_eq!(judge(&good).unwrap(), ["10.0.0.0/8", "192.0.2.1/32", "0.0.0.0/0", "fd00::/16", "::/0"]);
        let bad =
            ["10.0.0.0/8", "10.0.0.0/33", "10.0.0/24", "fd00::/129", "10.0.0.1/24", "010.0.0.0/8", ":::/1"];
        let fields = [1, 2, 3, 4, 5, 6].map(|at| format!("bmcNetworks.{at}"));
        assert_eq!(judge(&bad), named(&fields.each_ref().map(String::as_str)));
    }
}
