//! The API of the Kubernetes cluster that this relay runs in: one request, which writes a Secret.
//!
//! It reads nothing of the cluster and needs no more than the verbs `patch` and `create` on that one Secret. What the
//! kubelet renews (token, CA) is read for each request. Nothing of an answer is told but its status and the one word that
//! names the reason: its text may quote what was sent, and its body is the Secret.

use crate::{
    access,
    config::ClusterSecret,
    outside::client::{REQUEST_TIMEOUT, builder, innermost},
    trusting::{TrustError, trusting},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use reqwest::{Client, Response, header};
use serde_json::{Map, Value, json};
use shared::secret::Secret;
use std::{
    error::Error,
    io::{self, Read as _},
    path::{Path, PathBuf},
};
use zeroize::Zeroizing;

/// The most of a refusal that is read, in bytes.
const MAX_REFUSAL_BYTES: usize = 16 << 10;
/// The longest file of a service account, in bytes: a CA bundle, and room.
const MAX_FILE_BYTES: u64 = 256 << 10;
/// The longest name of a namespace, in bytes: a DNS label's (RFC 1123).
const MAX_NAMESPACE_BYTES: usize = 63;
/// Who owns the fields that are applied, in the object's `managedFields`.
const FIELD_MANAGER: &str = "relay";

/// Why a Secret was not written. No variant holds anything of it, or of the token.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// A file of the service account can't be read.
    #[error(
        "read the service account's {}: {source}; a pod has it where automountServiceAccountToken is true",
        path.display()
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file of the service account is not what it must be.
    #[error("read the service account's {}: {rule}", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// The rule that it breaks.
        rule: &'static str,
    },
    /// The client could not be made.
    #[error("set up the connection to the cluster's API: {0}")]
    SetUp(String),
    /// No answer came.
    #[error("reach the cluster's API at {api}: {why}; does a NetworkPolicy let the relay through?")]
    Transport {
        /// Its address.
        api: String,
        /// Why.
        why: String,
    },
    /// The cluster refused.
    #[error("the cluster's API answered {status} {reason}: {}", remedy(*status))]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The word that the answer gives as the reason, or none.
        reason: String,
    },
}

/// The cluster's API as this pod's service account reaches it now.
pub struct Cluster {
    client: Client,
    api: String,
    namespace: String,
    authorization: Secret,
}

impl Cluster {
    /// Reads the service account and gets ready to ask; connects at the request.
    ///
    /// # Errors
    /// A file is absent or not what it must be.
    pub fn open(place: &ClusterSecret) -> Result<Self, ClusterError> {
        let account = place.account();
        let ca = account.join("ca.crt");
        let tls = trusting(&read(&ca)?).map_err(|error| match error {
            TrustError::NoCertificates => {
                ClusterError::Form { path: ca, rule: "it must hold PEM certificates" }
            }
            TrustError::SetUp(why) => ClusterError::SetUp(why),
        })?;
        let client = builder(Some(tls)).build().map_err(|error| ClusterError::SetUp(innermost(&error)))?;
        Ok(Self {
            client,
            api: place.api().to_owned(),
            namespace: namespace(account)?,
            authorization: token(account)?,
        })
    }

    /// The namespace that the pod, and so the Secret, is in.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Makes these keys of the Secret what is given, by one server-side apply; the Secret is made if there is none.
    ///
    /// # Errors
    /// The cluster refused, or no answer came: then it may be written or not.
    pub async fn apply(&self, name: &str, data: &[(&str, Secret)]) -> Result<(), ClusterError> {
        let set_up = |error: &dyn Error| ClusterError::SetUp(innermost(error));
        let mut bearer =
            header::HeaderValue::from_str(self.authorization.expose()).map_err(|error| set_up(&error))?;
        bearer.set_sensitive(true);
        let url = format!("{}{}", self.api, path(&self.namespace, name));
        let request = self
            .client
            .patch(url)
            .header(header::CONTENT_TYPE, "application/apply-patch+yaml")
            .header(header::ACCEPT, "application/json")
            .header(header::AUTHORIZATION, bearer)
            .body(body(&self.namespace, name, data));
        let answer = request.send().await.map_err(|error| self.transport(&error))?;
        if answer.status().is_success() {
            return Ok(());
        }
        let status = answer.status().as_u16();
        Err(ClusterError::Refused { status, reason: reason(&refusal(answer).await) })
    }

    fn transport(&self, error: &reqwest::Error) -> ClusterError {
        let why = if error.is_timeout() {
            format!("no answer within {} seconds", REQUEST_TIMEOUT.as_secs())
        } else {
            innermost(error)
        };
        ClusterError::Transport { api: self.api.clone(), why }
    }
}

/// The request's path and query. Neither name holds a character that means something there.
fn path(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/secrets/{name}?fieldManager={FIELD_MANAGER}&force=true")
}

/// What is applied, as JSON, which is YAML.
fn body(namespace: &str, name: &str, data: &[(&str, Secret)]) -> String {
    let data: Map<String, Value> =
        data.iter().map(|(key, value)| ((*key).to_owned(), STANDARD.encode(value.expose()).into())).collect();
    let metadata = json!({"name": name, "namespace": namespace});
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}).to_string()
}

/// What to do about a refusal.
const fn remedy(status: u16) -> &'static str {
    match status {
        401 => "the service account's token does not count; is the service account still there?",
        403 => {
            "give the pod's service account a Role with the verbs patch and create on this Secret, or see what an \
             admission policy asks for"
        }
        404 => "is the pod's namespace being deleted?",
        400..=499 if status != 429 => {
            "look at the Secret: it must not be immutable; delete it, and it is made anew"
        }
        _ => "it may well do so later",
    }
}

/// The beginning of a refusal's body.
async fn refusal(mut answer: Response) -> Vec<u8> {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = answer.chunk().await {
        if body.len() + chunk.len() > MAX_REFUSAL_BYTES {
            break;
        }
        body.extend_from_slice(&chunk);
    }
    body
}

/// The word that a Kubernetes Status gives as its reason; empty if it gives none.
fn reason(body: &[u8]) -> String {
    let status: Value = serde_json::from_slice(body).unwrap_or_default();
    let word = status.get("reason").and_then(Value::as_str).unwrap_or_default();
    let is_word = word.len() <= 64 && word.bytes().all(|byte| byte.is_ascii_alphabetic());
    if is_word { word.to_owned() } else { String::new() }
}

fn namespace(account: &Path) -> Result<String, ClusterError> {
    let path = account.join("namespace");
    let text = String::from_utf8_lossy(&read(&path)?).trim().to_owned();
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if (1..=MAX_NAMESPACE_BYTES).contains(&text.len()) && text.bytes().all(allowed) {
        Ok(text)
    } else {
        Err(ClusterError::Form { path, rule: "it must be one line with the name of a namespace" })
    }
}

/// The header's value.
fn token(account: &Path) -> Result<Secret, ClusterError> {
    let path = account.join("token");
    let bytes = read(&path)?;
    let text = str::from_utf8(&bytes).unwrap_or_default().trim();
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(ClusterError::Form { path, rule: "it must be one line with a token" });
    }
    Ok(Secret::new(format!("Bearer {text}")))
}

fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, ClusterError> {
    let mut bytes = Zeroizing::new(Vec::new());
    access::open(path)
        .and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|source| ClusterError::Read { path: path.to_owned(), source })?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(ClusterError::Form { path: path.to_owned(), rule: "it must not be over 256 KiB" });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_request_is_one_server_side_apply() {
        let data = [("one", Secret::new("1".to_owned())), ("two", Secret::new("tk_2.x".to_owned()))];
        let sent: Value = serde_json::from_str(&body("fleet", "relay-admin", &data)).unwrap();
        let expected = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "relay-admin", "namespace": "fleet"},
            "data": {"one": "MQ==", "two": "dGtfMi54"},
        });
        assert_eq!(sent, expected);
        assert_eq!(
            path("fleet", "relay-admin"),
            "/api/v1/namespaces/fleet/secrets/relay-admin?fieldManager=relay&force=true"
        );
    }

    #[test]
    fn of_a_refusal_only_its_word_is_told() {
        let status =
            |reason: &str| json!({"kind": "Status", "reason": reason, "message": "tk_x"}).to_string();
        assert_eq!(reason(status("Forbidden").as_bytes()), "Forbidden");
        for odd in [status("tk_1.secret"), status(&"a".repeat(65)), "{".to_owned(), "[]".to_owned()] {
            assert_eq!(reason(odd.as_bytes()), "", "{odd}");
        }
        let refused = ClusterError::Refused { status: 403, reason: "Forbidden".to_owned() }.to_string();
        assert!(refused.contains("403 Forbidden") && refused.contains("patch and create"), "{refused}");
    }

    #[test]
    fn a_service_account_is_read_and_judged() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        assert!(matches!(token(folder.path()), Err(ClusterError::Read { .. })));
        put("token", "ey.J0\n");
        assert_eq!(token(folder.path()).ok().unwrap().expose(), "Bearer ey.J0");
        put("namespace", "fleet\n");
        assert_eq!(namespace(folder.path()).unwrap(), "fleet");
        for odd in ["", "\n", "two words", "two\nlines", "t\u{e9}"] {
            put("token", odd);
            let refused = token(folder.path()).err().unwrap().to_string();
            assert!(refused.contains("one line"), "{odd:?}: {refused}");
        }
        for odd in ["", "a/b", "..", "A", &"a".repeat(64)] {
            put("namespace", odd);
            assert!(matches!(namespace(folder.path()), Err(ClusterError::Form { .. })), "{odd:?}");
        }
        put("token", &"a".repeat(300 << 10));
        assert!(matches!(token(folder.path()), Err(ClusterError::Form { .. })));
    }
}
