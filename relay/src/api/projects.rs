//! iam/projects.

use super::{
    idempotency,
    steps::{News, announce, conflict, invalid_state, page, page_size, permitted},
    tenants::hold,
};
use crate::{
    auth::{
        Grant, Powers,
        policy::{Decision, Resource, may},
    },
    call::Call,
    events::Kind,
    fault::Fault,
    store::{StoreError, Tx, memberships, projects, tenants},
};
use serde_json::json;
use shared::api::{
    access::Action,
    projects::{CreateProject, GetProject, ListProjects, Project, ProjectAnswer, ProjectList, UpdateProject},
    subject::Subject,
};
use std::collections::BTreeSet;

/// iam/projects/create.
///
/// # Errors
/// NOT_FOUND, PERMISSION_DENIED; CONFLICT if the id is taken.
pub async fn create(call: Call, input: CreateProject) -> Result<ProjectAnswer, Fault> {
    let store = &call.relay.store;
    store.transact(call.method, (&call, &input), |tx, (call, input)| Box::pin(make(tx, call, input))).await
}

/// iam/projects/get.
///
/// # Errors
/// NOT_FOUND.
pub async fn get(call: Call, input: GetProject) -> Result<ProjectAnswer, Fault> {
    let store = &call.relay.store;
    let show = store.read(call.method, (&call, &input), |tx, (call, input)| {
        Box::pin(async move {
            let (tenant, id) = (input.tenant_id.as_str(), input.project_id.as_str());
            let found = projects::find(tx, tenant, id).await?;
            let project = decide(call, found, (tenant, id), Action::ProjectsRead)?;
            Ok::<_, Fault>(ProjectAnswer { project })
        })
    });
    show.await
}

/// iam/projects/list: a tenant's VIEWER sees all of its projects, a member of single ones sees those.
///
/// # Errors
/// NOT_FOUND if the caller may not see the tenant; PERMISSION_DENIED for a GUEST without a project.
pub async fn list(call: Call, input: ListProjects) -> Result<ProjectList, Fault> {
    let size = page_size(input.limit);
    let store = &call.relay.store;
    let read = store
        .read(call.method, (&call, &input), |tx, (call, input)| {
            Box::pin(async move {
                let tenant = input.tenant_id.as_str();
                let after = input.cursor.as_ref().map_or("", |id| id.as_str());
                let powers = &call.principal()?.powers;
                let decision = may(powers, Action::ProjectsRead, Resource::Tenant { tenant });
                let own = named(powers, tenant);
                let decision =
                    if decision == Decision::Deny && !own.is_empty() { Decision::Allow } else { decision };
                let found = tenants::find(tx, tenant).await?;
                permitted(found, decision, Action::ProjectsRead, &format!("tenant {tenant}"))?;
                if may(powers, Action::ProjectsRead, Resource::Tenant { tenant }) == Decision::Allow {
                    return Ok::<_, Fault>(projects::page(tx, tenant, after, size + 1).await?);
                }
                Ok(some(tx, tenant, own, after, size).await?)
            })
        })
        .await?;
    let (projects, cursor) = page(read, size, |project| project.project_id.clone());
    Ok(ProjectList { projects, cursor })
}

/// iam/projects/update: the display name.
///
/// # Errors
/// NOT_FOUND, PERMISSION_DENIED.
pub async fn update(call: Call, input: UpdateProject) -> Result<ProjectAnswer, Fault> {
    let store = &call.relay.store;
    store.transact(call.method, (&call, &input), |tx, (call, input)| Box::pin(rename(tx, call, input))).await
}

/// iam/projects/delete.
///
/// # Errors
/// NOT_FOUND, PERMISSION_DENIED; INVALID_STATE while it has pools.
pub async fn delete(call: Call, input: GetProject) -> Result<ProjectAnswer, Fault> {
    let store = &call.relay.store;
    store.transact(call.method, (&call, &input), |tx, (call, input)| Box::pin(remove(tx, call, input))).await
}

async fn make(tx: &mut Tx<'_>, call: &Call, input: &CreateProject) -> Result<ProjectAnswer, Fault> {
    let (tenant, id) = (input.tenant_id.as_str(), input.project_id.as_str());
    may(&call.principal()?.powers, Action::ProjectsCreate, Resource::Tenant { tenant })
        .require(Action::ProjectsCreate, &format!("tenant {tenant}"))?;
    hold(tx, tenant).await?;
    if let Some(answer) = idempotency::replay(tx, call, &input.idempotency_key, input).await? {
        return Ok(answer);
    }
    let project = Project {
        tenant_id: tenant.to_owned(),
        project_id: id.to_owned(),
        display_name: input.display_name.as_ref().map_or(id, |name| name.as_str()).to_owned(),
        created_at: call.now,
    };
    if !projects::insert(tx, &project).await? {
        return Err(conflict(format!("The project id {id} is taken in {tenant}; choose another.")));
    }
    announce(tx, call, News { kind: Kind::ProjectCreated, tenant, subject: id }, json!(project)).await?;
    let answer = ProjectAnswer { project };
    idempotency::keep(tx, call, &input.idempotency_key, input, &answer).await?;
    Ok(answer)
}

async fn rename(tx: &mut Tx<'_>, call: &Call, input: &UpdateProject) -> Result<ProjectAnswer, Fault> {
    let (tenant, id) = (input.tenant_id.as_str(), input.project_id.as_str());
    let found = projects::lock(tx, tenant, id).await?;
    let mut project = decide(call, found, (tenant, id), Action::ProjectsUpdate)?;
    if project.display_name != input.display_name.as_str() {
        input.display_name.as_str().clone_into(&mut project.display_name);
        projects::rename(tx, tenant, id, &project.display_name).await?;
        announce(tx, call, News { kind: Kind::ProjectUpdated, tenant, subject: id }, json!(project)).await?;
    }
    Ok(ProjectAnswer { project })
}

async fn remove(tx: &mut Tx<'_>, call: &Call, input: &GetProject) -> Result<ProjectAnswer, Fault> {
    let (tenant, id) = (input.tenant_id.as_str(), input.project_id.as_str());
    let found = projects::lock(tx, tenant, id).await?;
    let project = decide(call, found, (tenant, id), Action::ProjectsDelete)?;
    if projects::has_pools(tx, tenant, id).await? {
        return Err(invalid_state(format!("The project {id} has pools; delete them first.")));
    }
    projects::delete(tx, tenant, id).await?;
    memberships::remove_all(tx, tenant, id).await?;
    announce(tx, call, News { kind: Kind::ProjectDeleted, tenant, subject: id }, json!(project)).await?;
    Ok(ProjectAnswer { project })
}

fn decide(
    call: &Call,
    found: Option<Project>,
    (tenant, project): (&str, &str),
    action: Action,
) -> Result<Project, Fault> {
    let decision = may(&call.principal()?.powers, action, Resource::Project { tenant, project });
    Ok(permitted(found, decision, action, &format!("project {project} in {tenant}"))?)
}

/// The projects of the tenant that are named and that the caller may read.
fn named<'a>(powers: &'a Powers, tenant: &str) -> BTreeSet<&'a str> {
    let named = powers.sides().flatten().filter_map(|grant| match grant {
        Grant::Project { tenant_id, project_id, .. } if tenant_id == tenant => Some(project_id.as_str()),
        Grant::Actions { subject: Subject::Project(of, id), .. } if of.as_str() == tenant => {
            Some(id.as_str())
        }
        _ => None,
    });
    let may_read = |project: &&str| {
        may(powers, Action::ProjectsRead, Resource::Project { tenant, project }) == Decision::Allow
    };
    named.filter(may_read).collect()
}

/// Those of the named projects that are there, one more than the page holds.
async fn some(
    tx: &mut Tx<'_>,
    tenant: &str,
    named: BTreeSet<&str>,
    after: &str,
    size: i64,
) -> Result<Vec<Project>, StoreError> {
    let mut some = Vec::new();
    for id in named.into_iter().filter(|id| *id > after) {
        if i64::try_from(some.len()).is_ok_and(|read| read > size) {
            break;
        }
        some.extend(projects::find(tx, tenant, id).await?);
    }
    Ok(some)
}
