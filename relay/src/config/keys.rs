//! THE LIST of settings: one row each. Flags, environment, files, help and the check for unknown keys come from it.

use super::database;

/// What a setting's value is in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A TOML string.
    Text,
    /// A TOML integer.
    Number,
    /// A TOML array of strings; by commas where there is one text.
    Words,
}

/// A setting.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name in a file; a dot leads into a table.
    pub name: &'static str,
    /// What its value is.
    pub form: Form,
    /// What the value is called in the help.
    pub value: &'static str,
    /// One line for people, with the default.
    pub help: &'static str,
}

const fn text(name: &'static str, value: &'static str, help: &'static str) -> Key {
    Key { name, form: Form::Text, value, help }
}

const fn number(name: &'static str, help: &'static str) -> Key {
    Key { name, form: Form::Number, value: "N", help }
}

/// The folder that holds all that the relay keeps.
pub(super) const DATA_DIR: Key =
    text("data_dir", "DIR", "The folder for all that the relay keeps; made with mode 0700 if absent");
/// The address of the API.
pub(super) const LISTEN: Key =
    text("listen", "IP:PORT", "Where to serve the API; port 0 picks a free one [default: 127.0.0.1:8443]");
/// The relay's public address.
pub(super) const URL: Key = text(
    "url",
    "URL",
    "The address that machines and people reach the relay at [default: https:// and the address listened on]",
);
/// The store.
pub(super) const DATABASE_URL: Key = text("database_url", "URL", database::HELP);
/// The master key.
pub(super) const MASTER_KEY_FILE: Key = text(
    "master_key_file",
    "FILE",
    "The key that seals secrets at rest [default: the systemd credential relay.master-key if there is one, else DATA_DIR/master.key]",
);
/// The Secret of the bootstrap credentials.
pub(super) const BOOTSTRAP_SECRET: Key = text(
    "bootstrap_secret",
    "NAME",
    "In a Kubernetes cluster: the Secret, in the pod's namespace, that one pair of admin credentials of all relays of the \
     store is written to as well [default: none]",
);
/// The pod's service account.
pub(super) const SERVICE_ACCOUNT_DIR: Key = text(
    "service_account_dir",
    "DIR",
    "The folder with token, ca.crt and namespace of the pod's service account, for bootstrap_secret [default: \
     /var/run/secrets/kubernetes.io/serviceaccount]",
);
/// The proxies that are believed.
pub(super) const TRUSTED_PROXIES: Key = Key {
    name: "trusted_proxies",
    form: Form::Words,
    value: "CIDR,…",
    help: "The networks of load balancers that say by the PROXY protocol, version 2, who the client is, and must [default: none]",
};
/// How long the audit is kept.
pub(super) const AUDIT_DAYS: Key =
    number("audit_days", "Days that records of the audit are kept, in whole batches [default: 400]");
/// How long completed tasks are kept.
pub(super) const TASK_COMPLETED_DAYS: Key =
    number("task_completed_days", "Days that completed tasks are kept [default: 14]");
/// How long archived tasks are kept.
pub(super) const TASK_ARCHIVED_DAYS: Key =
    number("task_archived_days", "Days that archived tasks are kept, which were given up [default: 90]");
/// How long a key signs tokens.
pub(super) const SIGNING_KEY_DAYS: Key = number(
    "signing_key_days",
    "Days that a key signs tokens before a new one does, 7 to 365; it verifies to the end of its last token [default: 30]",
);
/// Where webhooks may lead to beside the public Internet.
pub(super) const WEBHOOK_NETWORKS: Key = Key {
    name: "webhook_networks",
    form: Form::Words,
    value: "CIDR,…",
    help: "Networks that webhooks may lead into although they are private, or this machine's own [default: none]",
};
/// Whom the connections to webhooks trust.
pub(super) const WEBHOOK_CA_FILE: Key = text(
    "webhook_ca_file",
    "FILE",
    "The only CA certificates to trust for webhooks, PEM [default: the system's]",
);
/// The SPIFFE trust domain.
pub(super) const TRUST_DOMAIN: Key = text(
    "trust_domain",
    "NAME",
    "The SPIFFE trust domain in every certificate; stored at the first start, for good [default: the host of the URL]",
);
/// The tenant whose members may be admins.
pub(super) const PROVIDER_TENANT: Key = text(
    "provider_tenant",
    "ID",
    "The tenant whose members may be admins; stored at the first start, for good [default: provider]",
);
/// The address of the metrics.
pub(super) const METRICS_LISTEN: Key = text(
    "metrics_listen",
    "IP:PORT",
    "Where to serve /metrics, in plain HTTP; keep it private [default: 127.0.0.1:9464]",
);
/// The address that BMCs get images from.
pub(super) const BOOT_LISTEN: Key = text(
    "boot_listen",
    "IP:PORT",
    "Where BMCs get the image of the metal agent, in a network that only they reach; none get any where it is absent",
);
/// The address that BMCs reach that by.
pub(super) const BOOT_URL: Key = text(
    "boot_url",
    "URL",
    "The address that BMCs reach boot_listen by: http://, or https:// to serve it over TLS, where many BMCs can't check a private \
     CA [default: http:// and the address listened on, or the host of the URL]",
);
/// The agent's image.
pub(super) const AGENT_IMAGE: Key = text(
    "agent_image",
    "FILE",
    "The image of the metal agent, which the package bcd-agent-image has [default: /usr/share/relay/agent.iso]",
);
/// Whom agents trust with images.
pub(super) const IMAGE_CA_FILE: Key = text(
    "image_ca_file",
    "FILE",
    "More CA certificates that servers of disk images may come from, PEM [default: none but the public ones]",
);
/// Calls of one credential.
pub(super) const LIMIT_TOKEN: Key =
    number("limits.per_token_per_minute", "Calls a minute of one credential [default: 1000]");
/// Bad credentials of one address.
pub(super) const LIMIT_IP: Key = number(
    "limits.per_ip_per_minute",
    "Calls a minute with a missing or wrong credential from one address [default: 100]",
);
/// Health calls.
pub(super) const LIMIT_HEALTH: Key = number(
    "limits.health_per_minute",
    "Calls a minute that need no credential from one address: health, documents, trust bundles, CRLs, and what is no \
     method's [default: 3000]",
);
/// Joins of one address.
pub(super) const LIMIT_JOIN: Key =
    number("limits.join_per_ip_per_minute", "Joins a minute from one address [default: 6000]");
/// Joins at a time.
pub(super) const LIMIT_JOIN_IN_FLIGHT: Key =
    number("limits.join_in_flight", "Joins judged at a time before others are asked to wait [default: 256]");
/// Who vouches for people.
pub(super) const OIDC_ISSUER: Key = text(
    "oidc.issuer",
    "URL",
    "The OpenID Connect provider by which people log in, https:// [default: none; nobody logs in]",
);
/// What the provider knows this relay as.
pub(super) const OIDC_CLIENT_ID: Key = text(
    "oidc.client_id",
    "ID",
    "What the provider knows this relay as; its redirect URL is URL/auth/callback",
);
/// The secret that the relay shows to the provider.
pub(super) const OIDC_CLIENT_SECRET_FILE: Key = text(
    "oidc.client_secret_file",
    "FILE",
    "The secret that the provider gave this relay, read anew at each login [default: none, for a public client]",
);
/// What the provider is asked for.
pub(super) const OIDC_SCOPES: Key = text(
    "oidc.scopes",
    "SCOPES",
    "What the provider is asked for, by spaces [default: openid profile, and email where that is the key]",
);
/// What a user is known by.
pub(super) const OIDC_KEY: Key = text(
    "oidc.key",
    "CLAIM",
    "What a user is known by: sub, or email, which the provider must have verified [default: sub]",
);
/// Whom the connection to the provider trusts.
pub(super) const OIDC_CA_FILE: Key = text(
    "oidc.ca_file",
    "FILE",
    "The only CA certificates to trust for the provider, PEM [default: the system's]",
);
/// What is logged.
pub(super) const LOG: Key = text(
    "log",
    "FILTER",
    "What is logged: error, warn, info, debug, trace, or directives such as info,relay::join=debug [default: info]",
);
/// How it is logged.
pub(super) const LOG_FORMAT: Key =
    text("log_format", "FORMAT", "json, pretty, or auto: pretty on a terminal, else json [default: auto]");

/// Every setting, in the order of the help.
pub const KEYS: &[Key] = &[
    DATA_DIR,
    LISTEN,
    URL,
    DATABASE_URL,
    MASTER_KEY_FILE,
    BOOTSTRAP_SECRET,
    SERVICE_ACCOUNT_DIR,
    TRUST_DOMAIN,
    PROVIDER_TENANT,
    METRICS_LISTEN,
    BOOT_LISTEN,
    BOOT_URL,
    AGENT_IMAGE,
    IMAGE_CA_FILE,
    TRUSTED_PROXIES,
    AUDIT_DAYS,
    TASK_COMPLETED_DAYS,
    TASK_ARCHIVED_DAYS,
    SIGNING_KEY_DAYS,
    WEBHOOK_NETWORKS,
    WEBHOOK_CA_FILE,
    LIMIT_TOKEN,
    LIMIT_IP,
    LIMIT_HEALTH,
    LIMIT_JOIN,
    LIMIT_JOIN_IN_FLIGHT,
    OIDC_ISSUER,
    OIDC_CLIENT_ID,
    OIDC_CLIENT_SECRET_FILE,
    OIDC_SCOPES,
    OIDC_KEY,
    OIDC_CA_FILE,
    LOG,
    LOG_FORMAT,
];

impl Key {
    /// The variable that sets it: `RELAY_` and the key in upper case.
    #[must_use]
    pub fn env(&self) -> String {
        format!("RELAY_{}", self.name.replace('.', "_").to_uppercase())
    }

    /// The flag that sets it, without its dashes: kebab case, dots for members.
    #[must_use]
    pub fn flag(&self) -> String {
        self.name.replace('_', "-")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_flags_and_variables_are_unique_and_well_formed() {
        let names: BTreeSet<&str> = KEYS.iter().map(|key| key.name).collect();
        let variables: BTreeSet<String> = KEYS.iter().map(Key::env).collect();
        assert_eq!((names.len(), variables.len()), (KEYS.len(), KEYS.len()));
        for key in KEYS {
            assert!(key.name.split('.').count() <= 2, "{}: one table deep", key.name);
            assert!(key.name.bytes().all(|b| b.is_ascii_lowercase() || b"._".contains(&b)), "{}", key.name);
        }
        assert_eq!(LIMIT_JOIN.env(), "RELAY_LIMITS_JOIN_PER_IP_PER_MINUTE");
        assert_eq!(LIMIT_JOIN.flag(), "limits.join-per-ip-per-minute");
    }
}
