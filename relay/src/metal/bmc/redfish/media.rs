//! Virtual media and the boot source of a Redfish service. Both are read before they are changed: what is as it is to be is left alone.
//! A service may refuse what it then does, so a refusal is no end before it was read again.

use super::{
    super::error::{BmcError, Reason},
    MAX_MEMBERS, Redfish,
    http::{Document, Path},
    text, words,
};
use serde_json::{Value, json};

impl Redfish {
    pub(in crate::metal::bmc) async fn clear(&self) -> Result<(), BmcError> {
        let manager = self.manager().await?;
        for slot in self.slots(manager.as_ref()).await? {
            if !is_inserted(&slot) {
                continue;
            }
            let ejected = match action(&slot, "#VirtualMedia.EjectMedia") {
                Some(target) => self.line.post(&target, &json!({})).await,
                None => self.line.patch(&slot, &json!({"Image": null, "Inserted": false})).await,
            };
            self.unless(ejected, &slot.path, |slot| !is_inserted(slot)).await?;
        }
        let enabled = self.boot("BootSourceOverrideEnabled");
        if enabled.is_none_or(|enabled| enabled == "Disabled") {
            return Ok(());
        }
        self.set_boot(&json!({"BootSourceOverrideEnabled": "Disabled"})).await
    }

    pub(in crate::metal::bmc) async fn insert(&self, url: &str) -> Result<(), BmcError> {
        let manager = self.manager().await?;
        let slots = self.slots(manager.as_ref()).await?;
        let has = |slot: &Document| {
            is_inserted(slot) && text(&slot.body, "Image").as_deref() == Some(cut(url).as_str())
        };
        if slots.iter().any(has) {
            return Ok(());
        }
        let slot = slots.first().ok_or(Reason::NoVirtualMedia)?;
        let inserted = match action(slot, "#VirtualMedia.InsertMedia") {
            Some(target) => {
                let whole = json!({"Image": url, "Inserted": true, "WriteProtected": true});
                match self.line.post(&target, &whole).await {
                    // Some know the one parameter only.
                    Err(error) if error.status == Some(400) => {
                        self.line.post(&target, &json!({"Image": url})).await
                    }
                    posted => posted,
                }
            }
            None => self.line.patch(slot, &json!({"Image": url, "Inserted": true})).await,
        };
        self.unless(inserted, &slot.path, has).await
    }

    pub(in crate::metal::bmc) async fn boot_media_once(&self) -> Result<(), BmcError> {
        let is = |name: &str, value: &str| self.boot(name).as_deref() == Some(value);
        if is("BootSourceOverrideEnabled", "Once") && is("BootSourceOverrideTarget", "Cd") {
            return Ok(());
        }
        let mut boot = json!({
            "BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "Cd", "BootSourceOverrideMode": "UEFI",
        });
        match self.set_boot(&boot).await {
            // Some do not let the mode be set, others not be left out.
            Err(error) if error.status == Some(400) => {
                if let Some(members) = boot.as_object_mut() {
                    members.remove("BootSourceOverrideMode");
                }
                self.set_boot(&boot).await
            }
            set => set,
        }
    }

    /// Changes the boot source, where the service has its pending settings if those are apart (`@Redfish.Settings`).
    async fn set_boot(&self, boot: &Value) -> Result<(), BmcError> {
        let body = json!({"Boot": boot});
        let set = match self.line.patch(&self.system, &body).await {
            Err(error) if matches!(error.status, Some(400 | 405)) => {
                let apart = self.system.body.get("@Redfish.Settings");
                let apart = Path::linked(apart.and_then(|settings| settings.get("SettingsObject")));
                match apart {
                    Some(path) => {
                        let settings = self.line.get(&path).await?;
                        self.line.patch(&settings, &body).await
                    }
                    None => Err(error),
                }
            }
            set => set,
        };
        let wanted = boot.get("BootSourceOverrideEnabled").and_then(Value::as_str).map(str::to_owned);
        self.unless(set, &self.system.path, |system| {
            let now = system.body.get("Boot").and_then(|boot| text(boot, "BootSourceOverrideEnabled"));
            now.is_some() && now == wanted
        })
        .await
    }

    /// A refusal, unless what was refused is there all the same.
    async fn unless(
        &self,
        done: Result<(), BmcError>,
        path: &Path,
        is: impl Fn(&Document) -> bool,
    ) -> Result<(), BmcError> {
        match done {
            Err(error) if error.reason == Reason::Refused => match self.line.get(path).await {
                Ok(now) if is(&now) => Ok(()),
                _ => Err(error),
            },
            done => done,
        }
    }

    fn boot(&self, name: &str) -> Option<String> {
        self.system.body.get("Boot").and_then(|boot| text(boot, name))
    }

    /// The slots that take a CD, below the system or below its manager.
    pub(super) async fn slots(&self, manager: Option<&Document>) -> Result<Vec<Document>, BmcError> {
        let mut slots = Vec::new();
        let of = |document: &Document| Path::linked(document.body.get("VirtualMedia"));
        let collections = [of(&self.system), manager.and_then(of)];
        let Some(collection) = collections.into_iter().flatten().next() else { return Ok(slots) };
        let collection = self.line.get(&collection).await?;
        for path in Path::list(collection.body.get("Members"), MAX_MEMBERS) {
            let slot = self.line.get(&path).await?;
            let kinds = words(slot.body.get("MediaTypes"));
            if kinds.iter().any(|kind| kind == "CD" || kind == "DVD") {
                slots.push(slot);
            }
        }
        Ok(slots)
    }
}

fn is_inserted(slot: &Document) -> bool {
    slot.body.get("Inserted").and_then(Value::as_bool) == Some(true)
}

fn action(of: &Document, name: &str) -> Option<Path> {
    Path::of(of.body.get("Actions")?.get(name)?.get("target")?.as_str()?)
}

/// As a text of an answer is cut.
fn cut(url: &str) -> String {
    url.chars().take(super::MAX_TEXT_CHARS).collect()
}
