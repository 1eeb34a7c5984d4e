//! Logins that a person confirms on another device (RFC 8628).

use super::{FakeProvider, Lie, Shared, State, answer_token, authorization, json_answer, refused};
use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use serde_json::json;
use std::collections::BTreeMap;

/// What a token of one is asked for with.
pub(super) const GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";
/// How often it may be asked, in seconds.
const INTERVAL_SECONDS: i64 = 2;

/// A login that a person confirms elsewhere, and whether they have.
#[derive(Clone)]
pub(super) struct Device {
    pub(super) nonce: String,
    pub(super) confirmed: Option<bool>,
}

impl FakeProvider {
    /// A person confirms every login that waits on another device, or refuses it.
    pub fn confirm_devices(&self, yes: bool) {
        for device in self.shared.state().devices.values_mut() {
            device.confirmed = Some(yes);
        }
    }

    /// The device codes that it has given and not exchanged.
    #[must_use]
    pub fn device_codes(&self) -> Vec<String> {
        self.shared.state().devices.keys().cloned().collect()
    }
}

/// Begins a login on another device.
pub(super) fn begin(
    shared: &Shared,
    lie: Lie,
    header: &str,
    form: &BTreeMap<String, String>,
) -> Response<Full<Bytes>> {
    let of = |name: &str| form.get(name).cloned().unwrap_or_default();
    if header != authorization() {
        return refused("invalid_client");
    }
    if !of("scope").split(' ').any(|scope| scope == "openid") {
        return refused("invalid_scope");
    }
    let mut state = shared.state();
    let number = state.asked.get("/device").copied().unwrap_or_default();
    let code = format!("device-code-{number}");
    state.devices.insert(code.clone(), Device { nonce: of("nonce"), confirmed: None });
    let issuer = match lie {
        Lie::DevicePageOverHttp => shared.issuer.replace("https", "http"),
        _ => shared.issuer.clone(),
    };
    json_answer(&json!({
        "device_code": code, "user_code": format!("USER-{number}"), "expires_in": 600, "interval": INTERVAL_SECONDS,
        "verification_uri": format!("{issuer}/enter"),
        "verification_uri_complete": format!("{issuer}/enter?user_code=USER-{number}"),
    }))
}

/// What a login on another device becomes.
pub(super) fn token(shared: &Shared, state: &mut State, lie: Lie, code: &str) -> Response<Full<Bytes>> {
    let Some(device) = state.devices.get(code).cloned() else { return refused("invalid_grant") };
    match device.confirmed {
        None if lie == Lie::SlowsDown => refused("slow_down"),
        None => refused("authorization_pending"),
        Some(yes) => {
            state.devices.remove(code);
            if yes { answer_token(shared, state, lie, &device.nonce) } else { refused("access_denied") }
        }
    }
}
