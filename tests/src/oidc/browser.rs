//! A browser without a screen. It follows no redirect by itself: what each step is, its test sees.

use crate::client::tls;
use relay::clock::Clock;
use reqwest::{
    Client, Url,
    header::{CONTENT_TYPE, COOKIE, LOCATION, SET_COOKIE},
    redirect,
};
use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::{Mutex, PoisonError},
};

/// How many redirects it follows.
const MAX_STEPS: usize = 20;

/// What a browser shows.
#[derive(Clone, Debug)]
pub struct Page {
    /// The HTTP status.
    pub status: u16,
    /// Where it is sent, as an absolute address.
    pub location: Option<String>,
    /// The header `set-cookie`, each.
    pub cookies: Vec<String>,
    /// The body.
    pub body: String,
    /// Where it came from.
    pub address: String,
}

impl Page {
    /// What stands between `<code>` and `</code>`.
    #[must_use]
    pub fn code(&self) -> Option<String> {
        Some(self.body.split_once("<code>")?.1.split_once("</code>")?.0.to_owned())
    }
}

/// A browser: cookies by host and port, and trust in the CAs that it was given.
pub struct Browser {
    client: Client,
    cookies: Mutex<BTreeMap<(String, String), String>>,
}

impl Browser {
    /// A browser that trusts the certificates of these files.
    ///
    /// # Panics
    /// They can't be used.
    #[must_use]
    #[expect(clippy::panic, reason = "a test without its browser fails")]
    pub fn trusting(bundles: &[&Path], clock: &Clock) -> Self {
        let all = tempfile::NamedTempFile::new().unwrap_or_else(|error| panic!("a file: {error}"));
        let text: String = bundles.iter().filter_map(|path| fs::read_to_string(path).ok()).collect();
        fs::write(all.path(), text).unwrap_or_else(|error| panic!("a file: {error}"));
        let client = Client::builder()
            .tls_backend_preconfigured(tls(all.path(), clock, None))
            .redirect(redirect::Policy::none())
            .no_proxy()
            .build();
        let client = client.unwrap_or_else(|error| panic!("a browser: {error}"));
        Self { client, cookies: Mutex::default() }
    }

    /// Opens an address.
    pub async fn get(&self, address: &str) -> Page {
        self.send(address, None, None).await
    }

    /// Opens an address with one more header.
    pub async fn get_with(&self, address: &str, header: (&str, &str)) -> Page {
        self.send(address, None, Some(header)).await
    }

    /// Sends a form.
    pub async fn post(&self, address: &str, form: &str) -> Page {
        self.send(address, Some(form), None).await
    }

    /// Sends a form with one more header.
    pub async fn post_with(&self, address: &str, form: &str, header: (&str, &str)) -> Page {
        self.send(address, Some(form), Some(header)).await
    }

    /// Opens an address and follows redirects, until one leads to an address that begins with `end`, or none leads on.
    pub async fn follow(&self, address: &str, end: &str) -> Page {
        let mut page = self.get(address).await;
        for _ in 0..MAX_STEPS {
            match &page.location {
                Some(next) if !next.starts_with(end) => page = self.get(&next.clone()).await,
                _ => break,
            }
        }
        page
    }

    /// A cookie that it keeps for an address.
    ///
    /// # Panics
    /// It is no address.
    #[expect(clippy::panic, reason = "a story without its address fails")]
    #[must_use]
    pub fn cookie(&self, address: &str, name: &str) -> Option<String> {
        let url = Url::parse(address).unwrap_or_else(|error| panic!("{address}: {error}"));
        self.jar().get(&(place(&url), name.to_owned())).cloned()
    }

    /// Forgets all cookies.
    pub fn forget(&self) {
        self.jar().clear();
    }

    fn jar(&self) -> std::sync::MutexGuard<'_, BTreeMap<(String, String), String>> {
        self.cookies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[expect(clippy::panic, reason = "a story whose page does not come fails")]
    async fn send(&self, address: &str, form: Option<&str>, header: Option<(&str, &str)>) -> Page {
        let url = Url::parse(address).unwrap_or_else(|error| panic!("{address}: {error}"));
        let host = place(&url);
        let cookies: Vec<String> = self
            .jar()
            .iter()
            .filter(|((of, _), _)| *of == host)
            .map(|((_, name), value)| format!("{name}={value}"))
            .collect();
        let mut request = match form {
            None => self.client.get(url.clone()),
            Some(form) => self
                .client
                .post(url.clone())
                .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
                .body(form.to_owned()),
        };
        if !cookies.is_empty() {
            request = request.header(COOKIE, cookies.join("; "));
        }
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        let answer = request.send().await.unwrap_or_else(|error| panic!("{address}: {error:?}"));
        let text = |value: &reqwest::header::HeaderValue| value.to_str().unwrap_or_default().to_owned();
        let cookies: Vec<String> = answer.headers().get_all(SET_COOKIE).iter().map(text).collect();
        for cookie in &cookies {
            let pair = cookie.split(';').next().unwrap_or_default();
            if let Some((name, value)) = pair.split_once('=') {
                let key = (host.clone(), name.to_owned());
                if value.is_empty() {
                    self.jar().remove(&key)
                } else {
                    self.jar().insert(key, value.to_owned())
                };
            }
        }
        let location = answer.headers().get(LOCATION).map(text);
        let location = location.and_then(|to| url.join(&to).ok()).map(String::from);
        let status = answer.status().as_u16();
        let body = answer.text().await.unwrap_or_default();
        Page { status, location, cookies, body, address: url.into() }
    }
}

/// What cookies are kept by.
fn place(url: &Url) -> String {
    format!("{}:{}", url.host_str().unwrap_or_default(), url.port().unwrap_or_default())
}
