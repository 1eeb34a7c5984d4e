//! What a BMC's answer may lead to: paths of its own below `/redfish/`. Pure.

use reqwest::Url;
use serde_json::Value;
use std::fmt;

/// The longest path that is followed, in bytes.
const MAX_PATH_BYTES: usize = 512;

/// A path below `/redfish/`: what a BMC's answer may lead to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Path(String);

impl Path {
    /// `/redfish/v1/`, the service root.
    pub(super) fn root() -> Self {
        Self("/redfish/v1/".to_owned())
    }

    /// The path that an answer names: no other host, nothing that climbs, no query.
    pub(super) fn of(text: &str) -> Option<Self> {
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"/._~:@!$&'()*+,;=-".contains(&byte);
        let fits = text.len() <= MAX_PATH_BYTES && text.bytes().all(inner);
        let climbs = text.split('/').any(|part| part == "..") || text.contains("//");
        (text.starts_with("/redfish/") && fits && !climbs).then(|| Self(text.to_owned()))
    }

    /// The path of a `Location` header. Services write whole URLs there; one of another host or port than theirs leads nowhere.
    pub(super) fn located(text: &str, base: &Url) -> Option<Self> {
        match Url::parse(text) {
            Ok(url) if url.origin() == base.origin() && url.query().is_none() => Self::of(url.path()),
            Ok(_) => None,
            Err(_) => Self::of(text),
        }
    }

    /// The path of a link, `{"@odata.id": …}`.
    pub(super) fn linked(value: Option<&Value>) -> Option<Self> {
        Self::of(value?.get("@odata.id")?.as_str()?)
    }

    /// The paths of a list of links, as many as `most`.
    pub(super) fn list(value: Option<&Value>, most: usize) -> Vec<Self> {
        let links = value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        links.iter().take(most).filter_map(|link| Self::linked(Some(link))).collect()
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Path {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_path_leads_nowhere_but_below_redfish() {
        for good in
            ["/redfish/v1/", "/redfish/v1/Systems/437XR1138R2", "/redfish/v1/Managers/1/VirtualMedia/CD1"]
        {
            assert_eq!(Path::of(good).map(|it| it.0).as_deref(), Some(good));
        }
        let long = format!("/redfish/{}", "a".repeat(MAX_PATH_BYTES));
        for bad in [
            "",
            "/",
            "/redfish",
            "//evil.example/redfish/",
            "https://evil.example/redfish/v1",
            "/redfish/../etc",
            "/redfish//evil.example",
            "/redfish/v1?x=y",
            "/redfish/v1#x",
            "/redfish/v1/%2e%2e/x",
            "/redfish/v1/a b",
            "/redfish/v1/\\evil",
            &long,
        ] {
            assert_eq!(Path::of(bad), None, "{bad}");
        }
        assert_eq!(Path::linked(Some(&json!({"@odata.id": 1}))), None);
        assert_eq!(
            Path::list(Some(&json!([{"@odata.id": "/redfish/a"}, {}, 1, {"@odata.id": "/redfish/b"}])), 3)
                .len(),
            1
        );
    }

    #[test]
    fn a_location_is_one_of_the_same_service() {
        let base = Url::parse("https://10.0.0.17:443/").unwrap();
        let located = |text: &str| Path::located(text, &base).map(|path| path.0);
        for good in
            ["/redfish/v1/S/1", "https://10.0.0.17/redfish/v1/S/1", "https://10.0.0.17:443/redfish/v1/S/1"]
        {
            assert_eq!(located(good).as_deref(), Some("/redfish/v1/S/1"), "{good}");
        }
        for bad in [
            "https://10.0.0.18/redfish/v1/S/1",
            "https://10.0.0.17:8443/redfish/v1/S/1",
            "http://10.0.0.17/redfish/v1/S/1",
            "https://10.0.0.17/admin",
            "https://10.0.0.17/redfish/v1/S/1?x",
            "file:///redfish/v1/S/1",
            "S/1",
        ] {
            assert_eq!(located(bad), None, "{bad}");
        }
    }
}
