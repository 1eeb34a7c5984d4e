//! The methods: THE LIST binds each row of the table to the handler that does it.

pub mod document;
pub mod idempotency;
pub mod node;
pub mod reference;
pub mod registry;
pub mod schema;
pub mod validate;

use registry::Registry;
use shared::api;

/// THE LIST. A row that is bound to nothing, or twice, is found by the tests that walk the table.
///
/// # Errors
/// A fault of the table.
pub fn registry() -> Result<Registry, String> {
    Registry::default()
        .on(api::node::JOIN, node::join)?
        .on(api::node::RENEW, node::renew)?
        .on(api::node::HEARTBEAT, node::heartbeat)?
        .on(api::node::SECRETS, node::secrets)
}
