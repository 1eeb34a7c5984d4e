//! The methods: THE LIST binds each row of the table to the handler that does it.

pub mod audit;
pub mod components;
pub mod document;
pub mod endorsement_authorities;
pub mod endorsement_keys;
pub mod events;
pub mod idempotency;
pub mod inventory;
pub mod invites;
pub mod join_requests;
pub mod join_tokens;
mod json;
pub mod members;
pub mod metal;
pub mod node;
pub mod node_steps;
pub mod nodes;
pub mod pools;
pub mod projects;
pub mod reference;
pub mod registry;
mod rights;
pub mod schema;
pub mod secrets;
pub mod sites;
mod steps;
pub mod tasks;
pub mod tenants;
#[cfg(test)]
pub(crate) mod tests;
pub mod tokens;
pub mod users;
pub mod validate;
pub mod webhooks;
pub mod whoami;

use registry::Registry;
use shared::api;

/// THE LIST. A row that is bound to nothing, or twice, is found by the tests that walk the table.
///
/// # Errors
/// A fault of the table.
pub fn registry() -> Result<Registry, String> {
    [node_plane, compute, metal, iam, admin]
        .into_iter()
        .try_fold(Registry::default(), |registry, add| add(registry))
}

fn node_plane(registry: Registry) -> Result<Registry, String> {
    registry
        .on(api::node::JOIN, node::join)?
        .on(api::node::RENEW, node::renew)?
        .on(api::node::HEARTBEAT, node::heartbeat)?
        .on(api::node::SECRETS, node::secrets)?
        .on(api::steps::POLL, node_steps::poll)?
        .on(api::steps::REPORT, node_steps::report)
}

fn compute(registry: Registry) -> Result<Registry, String> {
    registry
        .on(api::sites::CREATE, sites::create)?
        .on(api::sites::GET, sites::get)?
        .on(api::sites::LIST, sites::list)?
        .on(api::sites::UPDATE, sites::update)?
        .on(api::sites::DELETE, sites::delete)?
        .on(api::pools::CREATE, pools::create)?
        .on(api::pools::GET, pools::get)?
        .on(api::pools::LIST, pools::list)?
        .on(api::pools::UPDATE, pools::update)?
        .on(api::pools::DELETE, pools::delete)?
        .on(api::join_tokens::CREATE, join_tokens::create)?
        .on(api::join_tokens::LIST, join_tokens::list)?
        .on(api::join_tokens::REVOKE, join_tokens::revoke)?
        .on(api::join_requests::LIST, join_requests::list)?
        .on(api::join_requests::GET, join_requests::get)?
        .on(api::join_requests::APPROVE, join_requests::approve)?
        .on(api::join_requests::DENY, join_requests::deny)?
        .on(api::nodes::LIST, nodes::list)?
        .on(api::nodes::GET, nodes::get)?
        .on(api::nodes::BAN, nodes::ban)?
        .on(api::nodes::UNBAN, nodes::unban)?
        .on(api::nodes::RELEASE, nodes::release)?
        .on(api::inventory::PUT, inventory::put)?
        .on(api::inventory::LIST, inventory::list)?
        .on(api::inventory::REMOVE, inventory::remove)?
        .on(api::endorsement_authorities::ADD, endorsement_authorities::add)?
        .on(api::endorsement_authorities::LIST, endorsement_authorities::list)?
        .on(api::endorsement_authorities::REMOVE, endorsement_authorities::remove)?
        .on(api::endorsement_keys::ADD, endorsement_keys::add)?
        .on(api::endorsement_keys::LIST, endorsement_keys::list)?
        .on(api::endorsement_keys::REMOVE, endorsement_keys::remove)?
        .on(api::endorsement_keys::LIST_UNMATCHED, endorsement_keys::list_unmatched)?
        .on(api::secrets::PUT, secrets::put)?
        .on(api::secrets::LIST, secrets::list)?
        .on(api::events::LIST, events::list)?
        .on(api::secrets::REMOVE, secrets::remove)
}

fn metal(registry: Registry) -> Result<Registry, String> {
    registry
        .on(api::metal::ENROLL, metal::enroll)?
        .on(api::metal::GET, metal::get)?
        .on(api::metal::LIST, metal::list)?
        .on(api::metal::HISTORY, metal::history)?
        .on(api::metal::SET_CREDENTIALS, metal::set_credentials)?
        .on(api::metal::POWER, metal::power)?
        .on(api::metal::INSPECT, metal::inspect)?
        .on(api::metal::COMMISSION, metal::commission)?
        .on(api::metal::DEPLOY, metal::deploy)?
        .on(api::metal::RESCUE, metal::rescue)?
        .on(api::metal::RELEASE, metal::release)?
        .on(api::metal::RETIRE, metal::retire)?
        .on(api::metal::ABORT, metal::abort)
}

fn iam(registry: Registry) -> Result<Registry, String> {
    registry
        .on(api::tenants::CREATE, tenants::create)?
        .on(api::tenants::GET, tenants::get)?
        .on(api::tenants::LIST, tenants::list)?
        .on(api::tenants::UPDATE, tenants::update)?
        .on(api::tenants::DELETE, tenants::delete)?
        .on(api::projects::CREATE, projects::create)?
        .on(api::projects::GET, projects::get)?
        .on(api::projects::LIST, projects::list)?
        .on(api::projects::UPDATE, projects::update)?
        .on(api::projects::DELETE, projects::delete)?
        .on(api::members::ADD, members::add)?
        .on(api::members::LIST, members::list)?
        .on(api::members::UPDATE, members::update)?
        .on(api::members::REMOVE, members::remove)?
        .on(api::members::LEAVE, members::leave)?
        .on(api::invites::CREATE, invites::create)?
        .on(api::invites::LIST, invites::list)?
        .on(api::invites::DELETE, invites::delete)?
        .on(api::invites::ACCEPT, invites::accept)?
        .on(api::tokens::CREATE, tokens::create)?
        .on(api::tokens::GET, tokens::get)?
        .on(api::tokens::LIST, tokens::list)?
        .on(api::tokens::UPDATE, tokens::update)?
        .on(api::tokens::REVOKE, tokens::revoke)?
        .on(api::tokens::REFRESH, tokens::refresh)?
        .on(api::webhooks::CREATE, webhooks::create)?
        .on(api::webhooks::LIST, webhooks::list)?
        .on(api::webhooks::UPDATE, webhooks::update)?
        .on(api::webhooks::DELETE, webhooks::delete)?
        .on(api::audit::LIST, audit::list)?
        .on(api::whoami::WHO_AM_I, whoami::who_am_i)?
        .on(api::whoami::PERMISSIONS, whoami::permissions)
}

fn admin(registry: Registry) -> Result<Registry, String> {
    registry
        .on(api::users::CREATE, users::create)?
        .on(api::users::LIST, users::list)?
        .on(api::users::GRANTS_PUT, users::put_grant)?
        .on(api::users::GRANTS_LIST, users::list_grants)?
        .on(api::users::GRANTS_REMOVE, users::remove_grant)?
        .on(api::users::TENANTS_LIST, users::list_tenants)?
        .on(api::users::TENANTS_ADD_MEMBER, users::add_member)?
        .on(api::tokens::ADMIN_CREATE, tokens::create_for)?
        .on(api::tokens::ADMIN_GET, tokens::admin_get)?
        .on(api::tokens::ADMIN_LIST, tokens::admin_list)?
        .on(api::tokens::ADMIN_REVOKE, tokens::admin_revoke)?
        .on(api::components::PING, components::ping)?
        .on(api::components::LIST, components::list)?
        .on(api::components::GET, components::get)?
        .on(api::components::DELETE, components::delete)?
        .on(api::tasks::LIST, tasks::list)?
        .on(api::tasks::GET, tasks::get)?
        .on(api::tasks::RETRY, tasks::retry)?
        .on(api::tasks::DELETE, tasks::delete)?
        .on(api::tasks::QUEUES, tasks::queues)?
        .on(api::audit::ADMIN_LIST, audit::list_all)
}
