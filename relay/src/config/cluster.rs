//! The Kubernetes Secret of the bootstrap credentials, and the cluster that it is in: the one that this relay runs in.

use std::{
    net::Ipv6Addr,
    path::{Path, PathBuf},
};

/// Where the kubelet puts a pod's service account: `token`, `ca.crt` and `namespace`.
pub const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The longest name of a Secret, in bytes: a DNS subdomain's (RFC 1123).
const MAX_NAME_BYTES: usize = 253;

/// A Secret in the cluster that this relay runs in, and how to get at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSecret {
    name: String,
    api: String,
    account: PathBuf,
}

impl ClusterSecret {
    /// The Secret of this name, by the environment that the kubelet gives to every container, and the folder of the pod's
    /// service account.
    ///
    /// # Errors
    /// The rule that the name breaks, or that this is no pod.
    pub fn read(name: &str, env: &dyn Fn(&str) -> Option<String>, account: &Path) -> Result<Self, String> {
        if !is_name(name) {
            let rule = "must be the name of a Secret: letters in lower case, digits, - and ., at most 253";
            return Err(rule.to_owned());
        }
        let api = api(env).ok_or(
            "must be unset where the relay runs in no Kubernetes cluster: KUBERNETES_SERVICE_HOST and \
             KUBERNETES_SERVICE_PORT don't say where its API is",
        )?;
        Ok(Self { name: name.to_owned(), api, account: account.to_owned() })
    }

    /// The Secret's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The address of the cluster's API, without a path: `https://HOST:PORT`.
    #[must_use]
    pub fn api(&self) -> &str {
        &self.api
    }

    /// The folder with the files `token`, `ca.crt` and `namespace`, which the kubelet renews.
    #[must_use]
    pub fn account(&self) -> &Path {
        &self.account
    }
}

/// A DNS subdomain, as far as a URL's path must rely on it.
fn is_name(text: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= MAX_NAME_BYTES && text.bytes().all(inside) && edge(bytes.first()) && edge(bytes.last())
}

fn api(env: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let host = env("KUBERNETES_SERVICE_HOST")?;
    let port: u16 = env("KUBERNETES_SERVICE_PORT")?.parse().ok()?;
    if host.parse::<Ipv6Addr>().is_ok() {
        return Some(format!("https://[{host}]:{port}"));
    }
    is_name(&host).then(|| format!("https://{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, host: &str, port: &str) -> Result<ClusterSecret, String> {
        let env = |variable: &str| match variable {
            "KUBERNETES_SERVICE_HOST" => Some(host.to_owned()),
            "KUBERNETES_SERVICE_PORT" => Some(port.to_owned()),
            _ => None,
        };
        ClusterSecret::read(name, &env, Path::new(SERVICE_ACCOUNT))
    }

    #[test]
    fn a_cluster_is_where_the_environment_says() {
        for (host, api) in [
            ("10.96.0.1", "https://10.96.0.1:443"),
            ("fd00::1", "https://[fd00::1]:443"),
            ("api.example", "https://api.example:443"),
        ] {
            assert_eq!(read("relay-admin", host, "443").unwrap().api(), api);
        }
        for (host, port) in
            [("", "443"), ("a/b", "443"), ("u@h", "443"), ("10.96.0.1", ""), ("10.96.0.1", "65536")]
        {
            let refused = read("relay-admin", host, port).unwrap_err();
            assert!(refused.contains("KUBERNETES_SERVICE_HOST"), "{host} {port}: {refused}");
        }
        let nowhere = ClusterSecret::read("relay-admin", &|_| None, Path::new(SERVICE_ACCOUNT));
        assert!(nowhere.unwrap_err().contains("must be unset"));
    }

    #[test]
    fn names_are_those_of_secrets() {
        for good in ["a", "relay-admin", "relay.admin.2", &"a".repeat(253)] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "-a", "a-", "Relay", "a_b", "a/b", "../x", "a b", ".", &"a".repeat(254)] {
            assert!(!is_name(bad), "{bad}");
        }
    }
}
