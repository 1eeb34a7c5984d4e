//! iam/audit, admin/audit: what was done and refused, for a tenant's OWNER and for admins.

use super::steps::{page, page_size};
use crate::{
    auth::policy::{Resource, may},
    call::Call,
    fault::Fault,
    store::audit::{self, Listed},
};
use shared::{
    api::{
        PageLimit,
        access::Action,
        audit::{AuditList, ListAllAudit, ListAudit},
    },
    bounded::TenantId,
};

/// iam/audit/list.
///
/// # Errors
/// NOT_FOUND, PERMISSION_DENIED.
pub async fn list(call: Call, input: ListAudit) -> Result<AuditList, Fault> {
    let tenant = input.tenant_id.as_str();
    let decision = may(&call.principal()?.powers, Action::AuditRead, Resource::Tenant { tenant });
    decision.require(Action::AuditRead, &format!("tenant {tenant}"))?;
    let listed = Listed {
        tenant: Some(tenant.to_owned()),
        subject: text(input.subject.as_ref()),
        since: input.since,
        until: input.until,
        after: input.cursor,
    };
    read(&call, &listed, input.limit).await
}

/// admin/audit/list.
///
/// # Errors
/// PERMISSION_DENIED.
pub async fn list_all(call: Call, input: ListAllAudit) -> Result<AuditList, Fault> {
    let decision = may(&call.principal()?.powers, Action::AdminAuditRead, Resource::Platform);
    decision.require(Action::AdminAuditRead, "this installation")?;
    let listed = Listed {
        tenant: None,
        subject: text(input.subject.as_ref()),
        since: input.since,
        until: input.until,
        after: input.cursor,
    };
    read(&call, &listed, input.limit).await
}

fn text(subject: Option<&TenantId>) -> Option<String> {
    subject.map(|subject| subject.as_str().to_owned())
}

async fn read(call: &Call, listed: &Listed, limit: Option<PageLimit>) -> Result<AuditList, Fault> {
    let size = page_size(limit);
    let read = call.relay.store.read(call.method, listed, |tx, listed| {
        Box::pin(async move { Ok::<_, Fault>(audit::page(tx, listed, size + 1).await?) })
    });
    let (records, cursor) = page(read.await?, size, |record| record.id.clone());
    Ok(AuditList { records, cursor })
}
