//! The API of the Kubernetes cluster that this runs in: a Secret is written, and a value of one is exchanged.
//!
//! The relay itself reads nothing of the cluster and needs no more than the verbs `patch` and `create` on its one Secret;
//! whoever exchanges a value needs `get` and `patch` on that one. What the kubelet renews (token, CA) is read for each
//! use. Nothing of an answer is told but its status and the one word that names the reason: its text may quote what was
//! sent, and its body is the Secret.

use crate::{
    access,
    config::ClusterSecret,
    outside::client::{REQUEST_TIMEOUT, builder, innermost, wiped},
    trusting::{TrustError, trusting},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use reqwest::{Client, RequestBuilder, Response, header};
use serde::{Deserialize, Serialize};
use serde_json::json;
use shared::secret::{Reveal, Secret};
use std::{
    collections::BTreeMap,
    io::{self, Read as _},
    path::{Path, PathBuf},
};
use zeroize::Zeroizing;

/// The most of a Secret that is read, in bytes: etcd takes 1.5 MiB, in base64.
const MAX_SECRET_BYTES: usize = 3 << 20;
/// What the value of a key takes of a body, in bytes: a token in base64, and room.
const MAX_VALUE_BYTES: usize = 4 << 10;
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
    /// The Secret is not what it must be.
    #[error("read the Secret {name}: {rule}")]
    Secret {
        /// Its name.
        name: String,
        /// The rule that it breaks.
        rule: &'static str,
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

impl ClusterError {
    /// Whether the object is another by now than it was when it was read.
    #[must_use]
    pub const fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused { status: 409, .. })
    }

    /// Whether it may pass by itself.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Transport { .. } | Self::Refused { status: 429 | 500.., .. })
    }
}

/// A value of a Secret, and the state of the Secret that it was read from.
pub struct Value {
    /// The text.
    pub text: Secret,
    version: String,
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
        let url =
            format!("{}{}?fieldManager={FIELD_MANAGER}&force=true", self.api, path(&self.namespace, name));
        let request = self.client.patch(url).header(header::CONTENT_TYPE, "application/apply-patch+yaml");
        let metadata = json!({"name": name, "namespace": self.namespace});
        let body = Sent { api_version: Some("v1"), kind: Some("Secret"), metadata, data: encoded(data) };
        self.ask(request.body(wiped(body.written()?))).await.map(drop)
    }

    /// The value of a key of a Secret.
    ///
    /// # Errors
    /// The cluster refused, no answer came, or the Secret has no such key with a text.
    pub async fn read(&self, name: &str, key: &str) -> Result<Value, ClusterError> {
        let url = format!("{}{}", self.api, path(&self.namespace, name));
        let mut answer = self.ask(self.client.get(url)).await?;
        let mut body = Zeroizing::new(Vec::new());
        while let Some(chunk) = answer.chunk().await.map_err(|error| self.transport(&error))? {
            if body.len() + chunk.len() > MAX_SECRET_BYTES {
                return Err(ClusterError::Secret {
                    name: name.to_owned(),
                    rule: "it must not be over 3 MiB",
                });
            }
            body.extend_from_slice(&chunk);
        }
        value(&body, key).map_err(|rule| ClusterError::Secret { name: name.to_owned(), rule })
    }

    /// Makes the value of a key another, if the Secret is still the one that `before` was read from.
    ///
    /// # Errors
    /// It is not ([`ClusterError::is_conflict`]), the cluster refused, or no answer came: then it may be written or not.
    pub async fn exchange(
        &self,
        name: &str,
        key: &str,
        text: &Secret,
        before: &Value,
    ) -> Result<(), ClusterError> {
        let url = format!("{}{}?fieldManager={FIELD_MANAGER}", self.api, path(&self.namespace, name));
        let metadata = json!({"resourceVersion": before.version});
        let data = encoded(&[(key, text.clone())]);
        let body = Sent { api_version: None, kind: None, metadata, data };
        let request = self.client.patch(url).header(header::CONTENT_TYPE, "application/merge-patch+json");
        self.ask(request.body(wiped(body.written()?))).await.map(drop)
    }

    async fn ask(&self, request: RequestBuilder) -> Result<Response, ClusterError> {
        let mut bearer = header::HeaderValue::from_str(self.authorization.expose())
            .map_err(|error| ClusterError::SetUp(innermost(&error)))?;
        bearer.set_sensitive(true);
        let request =
            request.header(header::ACCEPT, "application/json").header(header::AUTHORIZATION, bearer);
        let answer = request.send().await.map_err(|error| self.transport(&error))?;
        if answer.status().is_success() {
            return Ok(answer);
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

/// A Secret's path. Neither name holds a character that means something there.
fn path(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/secrets/{name}")
}

/// The value of a key, by a Secret as the API shows it; the rule that it breaks.
fn value(secret: &[u8], key: &str) -> Result<Value, &'static str> {
    #[derive(Deserialize)]
    struct Shown {
        metadata: Metadata,
        #[serde(default)]
        data: BTreeMap<String, Secret>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        resource_version: String,
    }
    let Shown { metadata, data } =
        serde_json::from_slice(secret).map_err(|_| "the answer must be a Secret with a resourceVersion")?;
    let encoded = data.get(key).ok_or("it must have the key that was named")?;
    let bytes = STANDARD.decode(encoded.expose()).ok().map(Zeroizing::new);
    let text = bytes.as_deref().and_then(|bytes| str::from_utf8(bytes).ok());
    let text = text.map(|text| Secret::new(text.to_owned())).ok_or("the key's value must be a text")?;
    Ok(Value { text, version: metadata.resource_version })
}

/// What is sent of a Secret, as JSON, which is YAML. No `Debug`; it is wiped, and so is what is written of it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Sent<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    api_version: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    metadata: serde_json::Value,
    data: BTreeMap<&'a str, Reveal>,
}

impl Sent<'_> {
    fn written(&self) -> Result<Zeroizing<Vec<u8>>, ClusterError> {
        // Room for all of it, so that nothing is copied on the way.
        let room = self.data.len().saturating_mul(MAX_VALUE_BYTES).saturating_add(MAX_VALUE_BYTES);
        let mut body = Zeroizing::new(Vec::with_capacity(room));
        serde_json::to_writer(&mut *body, self).map_err(|error| ClusterError::SetUp(error.to_string()))?;
        Ok(body)
    }
}

fn encoded<'a>(data: &[(&'a str, Secret)]) -> BTreeMap<&'a str, Reveal> {
    let one = |value: &Secret| Secret::new(STANDARD.encode(value.expose())).reveal();
    data.iter().map(|(key, value)| (*key, one(value))).collect()
}

/// What to do about a refusal.
const fn remedy(status: u16) -> &'static str {
    match status {
        401 => "the service account's token does not count; is the service account still there?",
        403 => {
            "give the pod's service account a Role with the verbs patch and create on this Secret (get and patch to refresh \
             a token), or see what an admission policy asks for"
        }
        404 => "is there this Secret, if it is one to refresh, and is the pod's namespace not being deleted?",
        409 => "it was changed meanwhile; try again",
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
    let status: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let word = status.get("reason").and_then(serde_json::Value::as_str).unwrap_or_default();
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
        let metadata = json!({"name": "relay-admin", "namespace": "fleet"});
        let body = Sent { api_version: Some("v1"), kind: Some("Secret"), metadata, data: encoded(&data) };
        let sent: serde_json::Value = serde_json::from_slice(&body.written().unwrap()).unwrap();
        let expected = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "relay-admin", "namespace": "fleet"},
            "data": {"one": "MQ==", "two": "dGtfMi54"},
        });
        assert_eq!(sent, expected);
        assert_eq!(path("fleet", "relay-admin"), "/api/v1/namespaces/fleet/secrets/relay-admin");
    }

    #[test]
    fn a_value_is_read_with_the_state_of_its_secret() {
        let shown = json!({"metadata": {"resourceVersion": "7"}, "data": {"token": "dGtfMg==", "odd": "/w==", "bad": "?"}});
        let shown = shown.to_string();
        let found = value(shown.as_bytes(), "token").unwrap_or_else(|rule| panic!("{rule}"));
        assert_eq!((found.text.expose(), found.version.as_str()), ("tk_2", "7"));
        for (key, rule) in [("none", "key that was named"), ("odd", "a text"), ("bad", "a text")] {
            assert!(value(shown.as_bytes(), key).err().is_some_and(|told| told.contains(rule)), "{key}");
        }
        for odd in [
            "",
            "[]",
            "{}",
            r#"{"metadata":{}}"#,
            r#"{"metadata":{"resourceVersion":"1"},"data":{"token":1}}"#,
        ] {
            assert!(value(odd.as_bytes(), "token").is_err(), "{odd}");
        }
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
