//! The pool's platform secrets, in memory only: fetched by a node with a `node` certificate, dropped with its right.

use crate::{failure::Failure, node::Node};
use shared::{
    api::node::{SECRETS, SecretsInput, Trust},
    secret::Secret,
};
use std::collections::BTreeMap;

/// The secrets by name. They are wiped when they are dropped.
#[derive(Default)]
pub struct Secrets(BTreeMap<String, Secret>);

impl Secrets {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Whether this node may have any: those of tenants may not, and are not to ask.
#[must_use]
pub fn may_have(node: &Node) -> bool {
    node.enrolled().is_some_and(|node| node.trust == Trust::Platform)
}

/// Fetches them all.
///
/// # Errors
/// Refused, or not reached. A final refusal is written down.
pub async fn fetch(node: &mut Node) -> Result<Secrets, Failure> {
    match node.client.call(&SECRETS, &SecretsInput {}, None).await {
        Ok(answer) => {
            Ok(Secrets(answer.secrets.into_iter().map(|(name, text)| (name, text.into_secret())).collect()))
        }
        Err(error) => {
            let failure = Failure::of_call(&error, true);
            node.finish(&failure)?;
            Err(failure)
        }
    }
}
