//! compute/sites: where machines stand, and who vouches for them there.

use super::{
    Access, Op, PageLimit, Phase,
    access::{Action, Scope},
};
use crate::{
    bounded::{IdempotencyKey, Name, TenantId},
    time::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Makes a site.
pub const CREATE: Op<CreateSite, SiteAnswer> = Op::mutation(
    "compute.sites.create",
    Access::May(Action::SitesCreate, Scope::Site),
    Phase::V0_1,
    "Make a site; a tenant's OWNER may make custom sites that the tenant owns.",
);
/// Shows a site.
pub const GET: Op<GetSite, SiteAnswer> =
    Op::read("compute.sites.get", Access::Own(Action::SitesRead), Phase::V0_1, "Show a site.");
/// Lists sites.
pub const LIST: Op<ListSites, SiteList> =
    Op::read("compute.sites.list", Access::Own(Action::SitesRead), Phase::V0_1, "List the sites.");
/// Changes a site.
pub const UPDATE: Op<UpdateSite, SiteAnswer> = Op::mutation(
    "compute.sites.update",
    Access::May(Action::SitesUpdate, Scope::Site),
    Phase::V0_1,
    "Change the networks that a site's BMCs are in, as an admin: the relay connects to what is listed.",
);
/// Removes a site.
pub const DELETE: Op<GetSite, SiteAnswer> = Op::mutation(
    "compute.sites.delete",
    Access::May(Action::SitesDelete, Scope::Site),
    Phase::V0_1,
    "Delete a site that has no pools.",
);

/// A site to make. Owner and kind never change.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateSite {
    /// Its id, for good.
    pub site_id: Name,
    /// The tenant that vouches for what stands there.
    pub owner_tenant_id: TenantId,
    /// Whether it is a tenant's own site rather than the platform's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom: Option<bool>,
    /// The networks that its BMCs are in, as CIDRs; an admin gives them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub bmc_networks: Option<Vec<Cidr>>,
    /// Makes a retry the same request.
    pub idempotency_key: IdempotencyKey,
}

/// A network, `address/prefix`. The relay parses it fully.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Cidr(
    #[schemars(length(max = 49), regex(pattern = r"^[0-9A-Fa-f.:]{2,45}/[0-9]{1,3}$"))] pub String,
);

/// Which site.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GetSite {
    /// The site.
    pub site_id: Name,
}

/// A site's new networks.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UpdateSite {
    /// The site.
    pub site_id: Name,
    /// The networks that its BMCs are in, as CIDRs.
    #[schemars(length(max = 64))]
    pub bmc_networks: Vec<Cidr>,
}

/// Which sites to list.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListSites {
    /// The page's size, 100 unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageLimit>,
    /// The last page's cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<Name>,
}

/// A site.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Site {
    /// Its id.
    pub site_id: String,
    /// The tenant that vouches for what stands there.
    pub owner_tenant_id: String,
    /// Whether it is a tenant's own.
    pub custom: bool,
    /// The networks that its BMCs are in; shown to the owner's members and admins.
    pub bmc_networks: Vec<Cidr>,
    /// When it was made.
    pub created_at: Timestamp,
}

/// One site.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SiteAnswer {
    /// The site.
    pub site: Site,
}

/// A page of sites.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SiteList {
    /// In order of id.
    pub sites: Vec<Site>,
    /// Where the next page begins; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
