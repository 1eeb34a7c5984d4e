//! What a call is about: the names in its input. No other member is even read, as it may be a secret. Pure.

use serde::{Deserialize, Serialize};
use shared::token::without_tokens;

/// The names of an input.
#[derive(Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Named {
    tenant_id: Option<String>,
    project_id: Option<String>,
    site_id: Option<String>,
    owner_tenant_id: Option<String>,
    pool_id: Option<String>,
    token_id: Option<String>,
    join_request_id: Option<String>,
    node_id: Option<String>,
    entry_id: Option<String>,
    ek_sha256: Option<String>,
    authority_id: Option<String>,
    user_id: Option<String>,
    member_id: Option<String>,
    invite_id: Option<String>,
    subject: Option<String>,
    name: Option<String>,
    task_id: Option<String>,
    webhook_id: Option<String>,
    #[serde(rename = "type")]
    component_type: Option<String>,
    identifier: Option<String>,
}

impl Named {
    /// The names of an input; none of what is not JSON, or not of this form.
    #[must_use]
    pub fn read(input: &[u8]) -> Self {
        serde_json::from_slice(input).unwrap_or_default()
    }

    /// The tenant, if one is named.
    #[must_use]
    pub fn tenant(&self) -> Option<&str> {
        self.tenant_id.as_deref().or(self.owner_tenant_id.as_deref())
    }

    /// The tenant that something new is to belong to, if one is named.
    #[must_use]
    pub fn owner(&self) -> Option<&str> {
        self.owner_tenant_id.as_deref()
    }

    /// Each name behind its word, as `tenantId=acme`; names have no spaces. A token that somebody took for a name is not
    /// repeated: it would be kept.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        let named = serde_json::to_value(self).unwrap_or_default();
        let words = named.as_object().into_iter().flatten();
        words.filter_map(|(word, name)| Some(format!("{word}={}", without_tokens(name.as_str()?)))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_in_the_place_of_a_name_is_not_repeated() {
        let token = format!("bcjt_{}.{}", "0".repeat(26), "1".repeat(52));
        let input = format!(r#"{{"tenantId": "acme", "poolId": "{token}"}}"#);
        let words = Named::read(input.as_bytes()).words();
        assert_eq!(words[0], "tenantId=acme");
        assert!(words[1].starts_with("poolId=") && !words[1].contains("1111"), "{}", words[1]);
    }
}
