//! A real provider: `oidc-provider` for Node.js, which tests/install-deps installs into `target/oidc-provider`.

use super::{Browser, Page, certified};
use crate::programs::Running;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use tempfile::TempDir;

/// The secret of its one client, `relay`: with characters that mean something elsewhere.
const SECRET: &str = "s3cret:with+odd/characters=&%";

/// A running provider. It ends when this value goes.
pub struct RealProvider {
    folder: TempDir,
    issuer: String,
    _running: Running,
}

impl RealProvider {
    /// Starts it on a free port of 127.0.0.1.
    ///
    /// # Panics
    /// It is not installed, or does not start.
    #[must_use]
    #[expect(clippy::panic, reason = "a test without its provider fails")]
    pub fn start() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
        let modules = root.join("target/oidc-provider/node_modules");
        if !modules.is_dir() {
            panic!("{} is not there; run tests/install-deps", modules.display());
        }
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("a folder: {error}"));
        let made = certified().unwrap_or_else(|error| panic!("a certificate: {error}"));
        let put = |name: &str, text: &str| {
            let written = fs::write(folder.path().join(name), text);
            written.unwrap_or_else(|error| panic!("{name}: {error}"));
        };
        put("ca.pem", &made.ca);
        put("cert.pem", &made.certificate);
        put("key.pem", &made.key);
        put("secret", SECRET);
        let mut command = Command::new("node");
        command.arg(root.join("tests/oidc-provider/provider.mjs")).arg(modules).arg(folder.path());
        // Its standard input ends with this process.
        command.stdin(Stdio::piped());
        let mut running = Running::start(command, &folder.path().join("log"));
        let told = folder.path().join("issuer");
        let issuer = running.wait_for("issuer", || Some(fs::read_to_string(&told).ok()?.trim().to_owned()));
        Self { folder, issuer, _running: running }
    }

    /// The only address that it sends answers to.
    ///
    /// # Panics
    /// It can't be told.
    #[expect(clippy::panic, reason = "a test without its provider fails")]
    pub fn set_redirect_uri(&self, address: &str) {
        let written = fs::write(self.folder.path().join("redirect_uri"), address);
        written.unwrap_or_else(|error| panic!("a redirect address: {error}"));
    }

    /// The settings of a relay that goes by it.
    #[must_use]
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let file = |name: &str| self.folder.path().join(name).display().to_string();
        vec![
            ("oidc.issuer", self.issuer.clone()),
            ("oidc.client_id", "relay".to_owned()),
            ("oidc.client_secret_file", file("secret")),
            ("oidc.ca_file", file("ca.pem")),
        ]
    }

    /// The file with its CA.
    #[must_use]
    pub fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Logs in as a person does, on its pages; answers the redirect that leads back, or the page where it ends.
    pub async fn log_in(&self, browser: &Browser, address: &str, user: &str, back: &str) -> Page {
        let mut page = browser.follow(address, back).await;
        for form in [format!("prompt=login&login={user}&password=x"), "prompt=consent".to_owned()] {
            if page.location.is_some() {
                break;
            }
            let sent = browser.post(&page.address, &form).await;
            let Some(next) = sent.location else { return sent };
            page = browser.follow(&next, back).await;
        }
        page
    }

    /// Confirms a login of another device as a person does; answers the page where it ends.
    ///
    /// # Panics
    /// The provider shows another page than its own.
    #[expect(clippy::panic, reason = "a story whose page does not come fails")]
    pub async fn confirm(&self, browser: &Browser, address: &str, user: &str) -> Page {
        let mut page = browser.get(address).await;
        for more in ["", "&confirm=yes"] {
            let of = |name: &str| hidden(&page.body, name).unwrap_or_else(|| panic!("{name}: {page:?}"));
            let form = format!("xsrf={}&user_code={}{more}", of("xsrf"), of("user_code"));
            page = browser.post(&format!("{}/device", self.issuer), &form).await;
        }
        match &page.location {
            Some(next) => self.log_in(browser, &next.clone(), user, "nowhere").await,
            None => page,
        }
    }
}

/// The value of a hidden field of a page.
fn hidden(body: &str, name: &str) -> Option<String> {
    let field = body.split("<input").find(|field| field.contains(&format!("name=\"{name}\"")))?;
    Some(field.split_once("value=\"")?.1.split_once('"')?.0.to_owned())
}
