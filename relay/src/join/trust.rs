//! What the relay takes a machine for: the trust table of the API, as one pure function.

use crate::{ca::Profile, facts::PoolFacts};
use shared::api::{join_tokens::Hosted, node::Trust};

/// The trust that site, pool and token give. The token decides `hosted`, never the machine's claims.
#[must_use]
pub fn evaluate(pool: &PoolFacts, hosted: Option<Hosted>) -> Trust {
    match hosted {
        _ if pool.custom_site => Trust::TenantOwned,
        None => Trust::Platform,
        Some(Hosted::Kubernetes) => {
            if pool.policy.kubernetes.platform_operated && pool.platform_operated_counts() {
                Trust::Platform
            } else {
                Trust::TenantControlled
            }
        }
    }
}

/// The trust of a node that had `before`: it can only fall until the machine joins as a new node.
#[must_use]
pub fn fallen(before: Trust, now: Trust) -> Trust {
    // In order of the enum: from the most trusted down.
    before.max(now)
}

/// The certificate that goes with it.
#[must_use]
pub fn profile(trust: Trust) -> Profile {
    match trust {
        Trust::Platform => Profile::Node,
        Trust::TenantControlled | Trust::TenantOwned => Profile::NodeTenant,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::{
        api::pools::{AgentKind, Policy},
        id::PoolUid,
        time::Timestamp,
    };

    fn pool(custom_site: bool, tenant: &str, platform_operated: bool) -> PoolFacts {
        let mut policy = Policy::default();
        policy.kubernetes.platform_operated = platform_operated;
        PoolFacts {
            uid: PoolUid::derive(&[1; 32]),
            pool_id: "p".into(),
            tenant_id: tenant.into(),
            project_id: "default".into(),
            site_id: "s".into(),
            agent: AgentKind::Bcd,
            policy,
            created_at: Timestamp::default(),
            site_owner: "provider".into(),
            custom_site,
        }
    }

    #[test]
    fn every_row_of_the_trust_table() {
        use Trust::{Platform, TenantControlled, TenantOwned};
        let k8s = Some(Hosted::Kubernetes);
        for (custom, tenant, hosted, operated, expected) in [
            (true, "provider", None, false, TenantOwned),
            (true, "provider", k8s, true, TenantOwned),
            (true, "acme", k8s, false, TenantOwned),
            (false, "provider", None, false, Platform),
            (false, "acme", None, true, Platform),
            (false, "provider", k8s, false, TenantControlled),
            // Set where it doesn't count: another tenant's pool on the platform's site.
            (false, "acme", k8s, true, TenantControlled),
            (false, "provider", k8s, true, Platform),
        ] {
            let trust = evaluate(&pool(custom, tenant, operated), hosted);
            assert_eq!(
                trust, expected,
                "custom {custom}, tenant {tenant}, hosted {hosted:?}, operated {operated}"
            );
            assert_eq!(profile(trust) == Profile::Node, expected == Platform);
        }
    }

    #[test]
    fn trust_only_falls() {
        let ladder = [Trust::Platform, Trust::TenantControlled, Trust::TenantOwned];
        for before in ladder {
            for now in ladder {
                assert!(fallen(before, now) >= before, "{before:?} {now:?}");
                assert!(fallen(before, now) >= now, "{before:?} {now:?}");
            }
        }
    }
}
