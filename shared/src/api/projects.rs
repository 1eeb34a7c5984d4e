//! iam/projects: a folder of pools within a tenant.

use super::{
    Access, Op, PageLimit, Phase,
    access::{Action, Scope},
};
use crate::{
    bounded::{IdempotencyKey, Label, Name, TenantId},
    time::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Makes a project.
pub const CREATE: Op<CreateProject, ProjectAnswer> = Op::mutation(
    "iam.projects.create",
    Access::May(Action::ProjectsCreate, Scope::Tenant),
    Phase::V0_1,
    "Make a project in a tenant.",
);
/// Shows a project.
pub const GET: Op<GetProject, ProjectAnswer> = Op::read(
    "iam.projects.get",
    Access::May(Action::ProjectsRead, Scope::Project),
    Phase::V0_1,
    "Show a project.",
);
/// Lists a tenant's projects.
pub const LIST: Op<ListProjects, ProjectList> = Op::read(
    "iam.projects.list",
    Access::May(Action::ProjectsRead, Scope::Tenant),
    Phase::V0_1,
    "List the projects of a tenant that the caller may see.",
);
/// Renames a project.
pub const UPDATE: Op<UpdateProject, ProjectAnswer> = Op::mutation(
    "iam.projects.update",
    Access::May(Action::ProjectsUpdate, Scope::Project),
    Phase::V0_1,
    "Change a project's display name.",
);
/// Removes a project.
pub const DELETE: Op<GetProject, ProjectAnswer> = Op::mutation(
    "iam.projects.delete",
    Access::May(Action::ProjectsDelete, Scope::Project),
    Phase::V0_1,
    "Delete a project that has no pools.",
);

/// A project to make.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateProject {
    /// Its tenant.
    pub tenant_id: TenantId,
    /// Its id within the tenant, for good.
    pub project_id: Name,
    /// Its name for people; the id unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<Label>,
    /// Makes a retry the same request.
    pub idempotency_key: IdempotencyKey,
}

/// Which project.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GetProject {
    /// Its tenant.
    pub tenant_id: TenantId,
    /// The project.
    pub project_id: Name,
}

/// A project's new name.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UpdateProject {
    /// Its tenant.
    pub tenant_id: TenantId,
    /// The project.
    pub project_id: Name,
    /// Its name for people.
    pub display_name: Label,
}

/// Which projects to list.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListProjects {
    /// The tenant.
    pub tenant_id: TenantId,
    /// The page's size, 100 unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageLimit>,
    /// The last page's cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<Name>,
}

/// A project.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Project {
    /// Its tenant.
    pub tenant_id: String,
    /// Its id within the tenant.
    pub project_id: String,
    /// Its name for people.
    pub display_name: String,
    /// When it was made.
    pub created_at: Timestamp,
}

/// One project.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProjectAnswer {
    /// The project.
    pub project: Project,
}

/// A page of projects.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProjectList {
    /// In order of id.
    pub projects: Vec<Project>,
    /// Where the next page begins; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
