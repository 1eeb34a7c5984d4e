//! Redfish (DMTF DSP0266): the service root, the system that can be reset, its managers, and what they link to. Targets and allowable
//! values come from the documents, and are never guessed.

mod account;
mod answer;
mod boot;
mod http;
mod inventory;
mod media;
mod path;
mod power;
mod session;
mod settle;

use super::{
    address::Networks,
    error::{BmcError, Reason},
    quirks::Quirks,
};
use crate::metal::facts::{Credentials, Reach};
use answer::Document;
use http::Line;
use path::Path;
use serde_json::Value;

/// The most members of a collection that are looked at.
const MAX_MEMBERS: usize = 32;
/// The most managers of a system that are looked at.
const MAX_MANAGERS: usize = 4;
/// The longest text that is taken from an answer, in characters.
const MAX_TEXT_CHARS: usize = 128;

/// A Redfish service that has let us in, and its machine.
pub struct Redfish {
    line: Line,
    root: Document,
    system: Document,
}

impl Redfish {
    /// Connects, logs in, and finds the machine: of several systems the first that can be reset.
    ///
    /// # Errors
    /// [`BmcError`].
    pub(super) async fn open(
        reach: &Reach,
        credentials: &Credentials,
        networks: &Networks,
    ) -> Result<Self, BmcError> {
        let mut line = Line::to(reach, networks).await?;
        let root = line.get(&Path::root()).await?;
        line.quirks = Quirks::of(&makers(&root.body));
        let systems = Path::linked(root.body.get("Systems")).ok_or(Reason::Malformed)?;
        let systems = line.log_in(credentials, sessions(&root.body), &systems).await?;
        match found(&line, &systems).await {
            Ok(system) => Ok(Self { line, root, system }),
            Err(error) => {
                line.log_out().await;
                Err(error)
            }
        }
    }

    /// Leaves nothing of us behind at the service.
    pub(super) async fn close(mut self) {
        self.line.log_out().await;
    }

    /// SHA-256 of the SubjectPublicKeyInfo that is shown to somebody who only reads the service root.
    ///
    /// # Errors
    /// [`BmcError`].
    pub(super) async fn shown_key(reach: &Reach, networks: &Networks) -> Result<Option<String>, BmcError> {
        let line = Line::to(reach, networks).await?;
        line.get(&Path::root()).await?;
        Ok(line.seen.pin())
    }

    /// Takes an inserted image out, and lets the machine start from where it does by itself.
    pub(super) async fn clear(&self) -> Result<(), BmcError> {
        self.eject().await?;
        self.clear_boot().await
    }

    /// What comes of a request, by what is then read. A refusal is none where what was refused is so all the same.
    async fn settled(
        &self,
        asked: Result<Option<Path>, BmcError>,
        path: &Path,
        is: impl Fn(&Document) -> bool,
    ) -> Result<(), BmcError> {
        let followed = match asked {
            Ok(task) => self.line.followed(task).await,
            Err(error) => Err(error),
        };
        match followed {
            Ok(()) => self.line.until(path, is).await,
            Err(error) if error.reason == Reason::Refused && self.line.is_so(path, is).await => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The managers of the system; those of the service where it names none.
    async fn managers(&self) -> Result<Vec<Document>, BmcError> {
        let linked = self.system.body.get("Links").and_then(|links| links.get("ManagedBy"));
        let mut paths = Path::list(linked, MAX_MANAGERS);
        if paths.is_empty()
            && let Some(all) = Path::linked(self.root.body.get("Managers"))
        {
            paths = Path::list(self.line.get(&all).await?.body.get("Members"), MAX_MANAGERS);
        }
        let mut managers = Vec::new();
        for path in paths {
            managers.push(self.line.get(&path).await?);
        }
        Ok(managers)
    }

    /// What is there of a document's collection.
    async fn members(&self, of: &Document, name: &str) -> Result<Vec<Document>, BmcError> {
        let mut members = Vec::new();
        let Some(path) = Path::linked(of.body.get(name)) else { return Ok(members) };
        let Some(collection) = self.line.get_if_there(&path).await? else { return Ok(members) };
        for path in Path::list(collection.body.get("Members"), MAX_MEMBERS) {
            members.extend(self.line.get_if_there(&path).await?);
        }
        Ok(members)
    }
}

/// The first system that can be reset.
async fn found(line: &Line, systems: &Document) -> Result<Document, BmcError> {
    let mut away = None;
    for path in Path::list(systems.body.get("Members"), MAX_MEMBERS) {
        match line.get(&path).await {
            Ok(system) if power::reset(&system).is_some() => return Ok(system),
            Ok(_) => {}
            // One member may be away while its host is off.
            Err(error) if matches!(error.status, Some(404 | 500..=599)) => away = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(away.unwrap_or_else(|| Reason::NoSystem.into()))
}

/// What a service root says of who made it.
fn makers(root: &Value) -> [Option<&str>; 3] {
    let oem = root.get("Oem").and_then(Value::as_object).and_then(|oem| oem.keys().next());
    let text = |name: &str| root.get(name).and_then(Value::as_str);
    [text("Vendor"), text("Product"), oem.map(String::as_str)]
}

/// Where sessions of a service are begun.
fn sessions(root: &Value) -> Option<Path> {
    let linked = Path::linked(root.get("Links").and_then(|links| links.get("Sessions")));
    // Where the root does not link them, they are below their service.
    linked.or_else(|| Path::of(&format!("{}/Sessions", Path::linked(root.get("SessionService"))?)))
}

/// The texts of a list.
fn words(list: Option<&Value>) -> Vec<String> {
    let all = list.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    all.iter().take(MAX_MEMBERS).filter_map(Value::as_str).map(str::to_owned).collect()
}

/// A member's text, trimmed, cut and without control characters; `None` for a blank one.
fn text(of: &Value, name: &str) -> Option<String> {
    let text = of.get(name)?.as_str()?.trim();
    let text: String = text.chars().filter(|c| !c.is_control()).take(MAX_TEXT_CHARS).collect();
    (!text.is_empty()).then_some(text)
}
