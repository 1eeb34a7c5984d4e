//! The view of a machine: what people see of it. Pure.

use super::{facts::Machine, machine};
use shared::api::metal::{Bmc, LastError, Metal};

/// Who looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Viewer {
    /// One of the pool's tenant, who sees categories of errors.
    Tenant,
    /// One of the site's owner, who sees what a BMC said.
    SiteOwner,
}

/// The view.
#[must_use]
pub fn shown(machine: &Machine, viewer: Viewer) -> Metal {
    Metal {
        node_id: machine.node_id.clone(),
        tenant_id: machine.tenant_id.clone(),
        pool_id: machine.pool_id.clone(),
        state: machine.state,
        step: machine.step.clone(),
        attempt: (machine.attempt > 0).then_some(machine.attempt),
        deadline: machine.deadline,
        waiting_for: machine.waiting_for,
        progress: machine.progress,
        last_error: machine.last_error.as_ref().map(|error| told(error, viewer)),
        skipped: machine.skipped.clone(),
        allowed_verbs: machine::allowed(machine.state),
        bmc: Bmc {
            address: machine.reach.address.clone(),
            protocol: machine.reach.protocol,
            vendor: machine.vendor.clone(),
            firmware: machine.firmware.clone(),
            credentials_set: machine.sealed_credentials.is_some(),
            tls_pin_sha256: machine.reach.tls.pin().map(str::to_owned),
            virtual_media: machine.virtual_media,
        },
        identity: machine.identity.clone(),
        hardware: machine.hardware.clone(),
        power_state: machine.power_state,
        certificate: machine.certificate.clone(),
        version: machine.version,
        created_at: machine.created_at,
        updated_at: machine.updated_at,
    }
}

fn told(error: &LastError, viewer: Viewer) -> LastError {
    match viewer {
        Viewer::SiteOwner => error.clone(),
        Viewer::Tenant => LastError { bmc_status: None, bmc_message_id: None, ..error.clone() },
    }
}
