//! Redfish (DMTF DSP0266): the service root, the system that can be reset, its manager, and what they link to. Targets and allowable
//! values come from the documents, and are never guessed.

mod http;
mod media;

use super::{
    Said,
    address::Networks,
    error::{BmcError, Reason},
};
use crate::metal::facts::{Asked, Credentials, Reach};
use http::{Document, Line, Path};
use serde_json::{Value, json};
use shared::api::metal::{Hardware, MachineIdentity, PowerState};

/// The most members of a collection that are looked at.
const MAX_MEMBERS: usize = 32;
/// The longest text that is taken from an answer, in characters.
const MAX_TEXT_CHARS: usize = 128;

/// A Redfish service that has let us in, and its machine.
pub struct Redfish {
    line: Line,
    root: Document,
    system: Document,
}

impl Redfish {
    /// Connects, logs in by what each request carries, and finds the machine: of several systems the first that can be reset.
    ///
    /// # Errors
    /// [`BmcError`].
    pub(super) async fn open(
        reach: &Reach,
        credentials: &Credentials,
        networks: &Networks,
    ) -> Result<Self, BmcError> {
        let line = Line::to(reach, Some(credentials), networks).await?;
        let root = line.get(&Path::root()).await?;
        let systems = Path::linked(root.body.get("Systems")).ok_or(Reason::Malformed)?;
        let systems = line.get(&systems).await?;
        let mut busy = None;
        for path in Path::list(systems.body.get("Members"), MAX_MEMBERS) {
            match line.get(&path).await {
                Ok(system) if reset(&system).is_some() => return Ok(Self { line, root, system }),
                Ok(_) => {}
                // One member may be away while its host is off.
                Err(error) if error.reason == Reason::Busy => busy = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(busy.unwrap_or_else(|| Reason::NoSystem.into()))
    }

    /// SHA-256 of the SubjectPublicKeyInfo that is shown to somebody who only reads the service root.
    ///
    /// # Errors
    /// [`BmcError`].
    pub(super) async fn shown_key(reach: &Reach, networks: &Networks) -> Result<Option<String>, BmcError> {
        let line = Line::to(reach, None, networks).await?;
        line.get(&Path::root()).await?;
        Ok(line.seen.pin())
    }

    pub(super) fn power(&self) -> PowerState {
        match self.system.body.get("PowerState").and_then(Value::as_str) {
            Some("On") => PowerState::On,
            Some("Off") => PowerState::Off,
            Some("PoweringOn") => PowerState::PoweringOn,
            Some("PoweringOff") => PowerState::PoweringOff,
            _ => PowerState::Unknown,
        }
    }

    pub(super) async fn identity(&self) -> Result<Said, BmcError> {
        let system = &self.system.body;
        let manager = self.manager().await?;
        let firmware = manager.as_ref().and_then(|manager| text(&manager.body, "FirmwareVersion"));
        let vendor = text(&self.root.body, "Vendor").or_else(|| text(system, "Manufacturer"));
        let virtual_media = !self.slots(manager.as_ref()).await?.is_empty();
        let identity = MachineIdentity {
            product_uuid: text(system, "UUID").map(|uuid| uuid.to_ascii_lowercase()),
            serial: text(system, "SerialNumber"),
            sku: text(system, "SKU"),
            model: text(system, "Model"),
            macs: self.macs().await?,
            ek_sha256: None,
        };
        Ok(Said { vendor, firmware, virtual_media, identity })
    }

    pub(super) async fn inspect(&self) -> Result<Hardware, BmcError> {
        let system = &self.system.body;
        let summary = system.get("ProcessorSummary");
        let model = summary.and_then(|summary| text(summary, "Model"));
        let count = summary.and_then(|summary| summary.get("Count")).and_then(Value::as_u64);
        let processors = model.map(|model| format!("{} × {model}", count.unwrap_or(1)));
        let memory = system.get("MemorySummary").and_then(|memory| memory.get("TotalSystemMemoryGiB"));
        let memory_mib = memory.and_then(Value::as_f64).filter(|gib| (0.0..1e6).contains(gib));
        Ok(Hardware {
            processors: processors.into_iter().collect(),
            #[expect(clippy::cast_possible_truncation, reason = "under a million GiB")]
            memory_mib: memory_mib.map(|gib| (gib * 1024.0) as i64),
            disks: self.disks().await?,
            accelerators: Vec::new(),
            firmware: text(system, "BiosVersion"),
        })
    }

    pub(super) async fn ask(&self, asked: Asked) -> Result<(), BmcError> {
        let (target, allowed) = reset(&self.system).ok_or(Reason::NoSystem)?;
        let words: &[&str] = match asked {
            Asked::On => &["On", "ForceOn"],
            Asked::ForceOff => &["ForceOff"],
            Asked::GracefulShutdown => &["GracefulShutdown"],
            Asked::PowerCycle => &["PowerCycle", "ForceRestart"],
        };
        let allowed = match allowed {
            Some(allowed) => allowed,
            None => self.action_info().await?,
        };
        // A service that says nothing of what it allows is asked for the first.
        let word = words.iter().find(|word| allowed.is_empty() || allowed.iter().any(|it| it == *word));
        let word = word.ok_or(Reason::Unsupported)?;
        self.line.post(&target, &json!({"ResetType": word})).await
    }

    /// What a service allows of the reset, where it says so apart (`@Redfish.ActionInfo`).
    async fn action_info(&self) -> Result<Vec<String>, BmcError> {
        let action = self.system.body.get("Actions").and_then(|it| it.get("#ComputerSystem.Reset"));
        let info = action.and_then(|it| Path::of(it.get("@Redfish.ActionInfo")?.as_str()?));
        let Some(info) = info else { return Ok(Vec::new()) };
        let document = self.line.get(&info).await?;
        let parameters =
            document.body.get("Parameters").and_then(Value::as_array).cloned().unwrap_or_default();
        let of_reset = parameters.iter().find(|it| text(it, "Name").as_deref() == Some("ResetType"));
        Ok(of_reset.map(|it| words(it.get("AllowableValues"))).unwrap_or_default())
    }

    async fn manager(&self) -> Result<Option<Document>, BmcError> {
        let linked = self.system.body.get("Links").and_then(|links| links.get("ManagedBy"));
        if let Some(path) = Path::list(linked, 1).pop() {
            return self.line.get(&path).await.map(Some);
        }
        let Some(all) = Path::linked(self.root.body.get("Managers")) else { return Ok(None) };
        let all = self.line.get(&all).await?;
        match Path::list(all.body.get("Members"), 1).pop() {
            Some(path) => self.line.get(&path).await.map(Some),
            None => Ok(None),
        }
    }

    async fn macs(&self) -> Result<Vec<String>, BmcError> {
        let mut macs = Vec::new();
        for card in self.members(&self.system, "EthernetInterfaces").await? {
            let mac = text(&card.body, "PermanentMACAddress").or_else(|| text(&card.body, "MACAddress"));
            macs.extend(mac.map(|mac| mac.to_ascii_lowercase()).filter(|mac| is_mac(mac)));
        }
        macs.sort();
        macs.dedup();
        Ok(macs)
    }

    async fn disks(&self) -> Result<Vec<String>, BmcError> {
        let mut disks = Vec::new();
        for storage in self.members(&self.system, "Storage").await? {
            for path in Path::list(storage.body.get("Drives"), MAX_MEMBERS.saturating_sub(disks.len())) {
                let drive = self.line.get(&path).await?.body;
                let model = text(&drive, "Model").or_else(|| text(&drive, "Name")).unwrap_or_default();
                let gib = drive.get("CapacityBytes").and_then(Value::as_u64).map(|bytes| bytes >> 30);
                disks.push(gib.map_or(model.clone(), |gib| format!("{model}, {gib} GiB")));
            }
        }
        Ok(disks)
    }

    /// What a document's collection has.
    async fn members(&self, of: &Document, name: &str) -> Result<Vec<Document>, BmcError> {
        let Some(path) = Path::linked(of.body.get(name)) else { return Ok(Vec::new()) };
        let collection = self.line.get(&path).await?;
        let mut members = Vec::new();
        for path in Path::list(collection.body.get("Members"), MAX_MEMBERS) {
            members.push(self.line.get(&path).await?);
        }
        Ok(members)
    }
}

/// The target of a system's reset, and what it allows where that stands beside it.
fn reset(system: &Document) -> Option<(Path, Option<Vec<String>>)> {
    let action = system.body.get("Actions")?.get("#ComputerSystem.Reset")?;
    let target = Path::of(action.get("target")?.as_str()?)?;
    let allowed = action.get("ResetType@Redfish.AllowableValues");
    Some((target, allowed.map(|allowed| words(Some(allowed)))))
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

fn is_mac(text: &str) -> bool {
    text.len() == 17
        && text.split(':').count() == 6
        && text.bytes().all(|byte| byte == b':' || byte.is_ascii_hexdigit())
}
