//! The roles of each scope, from the least up: a role holds all that the lower ones of its scope hold.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A role in a tenant, from the least up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum TenantRole {
    /// Sees the tenant's name.
    Guest,
    /// Reads.
    Viewer,
    /// Also mints and revokes join tokens, decides requests, runs metal verbs.
    Editor,
    /// Also sets policy, bans nodes, manages members.
    Owner,
}

/// A role in a project, from the least up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum ProjectRole {
    /// Reads.
    Viewer,
    /// As a tenant's EDITOR, in this project.
    Editor,
    /// As a tenant's OWNER, in this project.
    Owner,
}

/// A role over all tenants, from the least up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum AdminRole {
    /// Reads everything but secrets.
    Viewer,
    /// Holds OWNER's actions everywhere.
    Editor,
}

/// A role of a service on a site, from the least up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum InfraRole {
    /// Reads what concerns its site.
    Viewer,
    /// Also says that it is there, and does the site's work.
    Editor,
}

impl TenantRole {
    /// As the wire says it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Guest => "GUEST",
            Self::Viewer => "VIEWER",
            Self::Editor => "EDITOR",
            Self::Owner => "OWNER",
        }
    }
}

impl ProjectRole {
    /// As the wire says it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "VIEWER",
            Self::Editor => "EDITOR",
            Self::Owner => "OWNER",
        }
    }
}

impl AdminRole {
    /// As the wire says it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "VIEWER",
            Self::Editor => "EDITOR",
        }
    }
}

impl InfraRole {
    /// As the wire says it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "VIEWER",
            Self::Editor => "EDITOR",
        }
    }
}

impl From<ProjectRole> for TenantRole {
    fn from(role: ProjectRole) -> Self {
        match role {
            ProjectRole::Viewer => Self::Viewer,
            ProjectRole::Editor => Self::Editor,
            ProjectRole::Owner => Self::Owner,
        }
    }
}

/// GUEST is no role of a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be OWNER, EDITOR or VIEWER for a project; GUEST is a tenant's only")]
pub struct NotOfProject;

impl TryFrom<TenantRole> for ProjectRole {
    type Error = NotOfProject;
    fn try_from(role: TenantRole) -> Result<Self, NotOfProject> {
        match role {
            TenantRole::Guest => Err(NotOfProject),
            TenantRole::Viewer => Ok(Self::Viewer),
            TenantRole::Editor => Ok(Self::Editor),
            TenantRole::Owner => Ok(Self::Owner),
        }
    }
}
