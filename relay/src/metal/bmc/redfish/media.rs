//! Virtual media of a Redfish service, below the system or a manager. A slot is read before it is changed: what is as it is to be is
//! left alone.

use super::{
    super::error::{BmcError, Reason},
    MAX_MEMBERS, MAX_TEXT_CHARS, Redfish,
    answer::Document,
    path::Path,
    text, words,
};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;

/// How often an image is inserted, where the service fails at it by its own fault.
const MAX_INSERTS: usize = 3;
/// How long is waited in between.
const INSERT_EVERY: Duration = Duration::from_secs(1);

impl Redfish {
    /// Takes out what is inserted.
    pub(super) async fn eject(&self) -> Result<(), BmcError> {
        for slot in self.slots().await? {
            if is_inserted(&slot) {
                self.eject_from(&slot).await?;
            }
        }
        Ok(())
    }

    async fn eject_from(&self, slot: &Document) -> Result<(), BmcError> {
        let ejected = match action(slot, "#VirtualMedia.EjectMedia") {
            Some(target) => self.line.post(&target, &json!({})).await,
            None => self.line.patch(slot, &json!({"Image": null, "Inserted": false})).await,
        };
        match self.settled(ejected, &slot.path, |slot| !is_inserted(slot)).await {
            // Some have no member that says whether something is inserted: it follows from the image.
            Err(error) if error.status == Some(400) && action(slot, "#VirtualMedia.EjectMedia").is_none() => {
                let ejected = self.line.patch(slot, &json!({"Image": null})).await;
                self.settled(ejected, &slot.path, |slot| !is_inserted(slot)).await
            }
            settled => settled,
        }
    }

    pub(in crate::metal::bmc) async fn insert(&self, url: &str) -> Result<(), BmcError> {
        let slots = self.slots().await?;
        let has = |slot: &Document| {
            is_inserted(slot) && text(&slot.body, "Image").as_deref() == Some(cut(url).as_str())
        };
        if slots.iter().any(has) {
            return Ok(());
        }
        let slot = slots.first().ok_or(Reason::NoVirtualMedia)?;
        if is_inserted(slot) {
            self.eject_from(slot).await?;
        }
        let mut tries = 1;
        loop {
            match self.insert_into(slot, url, has).await {
                Err(error) if tries < MAX_INSERTS && matches!(error.status, Some(500 | 502 | 504)) => {
                    tries += 1;
                    sleep(INSERT_EVERY).await;
                }
                inserted => return inserted,
            }
        }
    }

    /// Inserts an image, in each form until one is taken.
    async fn insert_into(
        &self,
        slot: &Document,
        url: &str,
        has: impl Fn(&Document) -> bool,
    ) -> Result<(), BmcError> {
        let target = action(slot, "#VirtualMedia.InsertMedia");
        let mut last = BmcError::from(Reason::Unsupported);
        for form in forms(url, target.is_some(), self.line.quirks.image_alone) {
            let inserted = match &target {
                Some(target) => self.line.post(target, &form).await,
                None => self.line.patch(slot, &form).await,
            };
            match self.settled(inserted, &slot.path, &has).await {
                Err(error) if error.reason == Reason::Refused && error.status == Some(400) => last = error,
                settled => return settled,
            }
        }
        Err(last)
    }

    /// The slots that take a CD: below the system, or below a manager of it.
    pub(super) async fn slots(&self) -> Result<Vec<Document>, BmcError> {
        let mut slots = Vec::new();
        let managers = self.managers().await?;
        for of in [&self.system].into_iter().chain(&managers) {
            let Some(path) = Path::linked(of.body.get("VirtualMedia")) else { continue };
            let collection = self.line.get(&path).await?;
            for path in Path::list(collection.body.get("Members"), MAX_MEMBERS) {
                // One that is away is no reason to think that there is none.
                let slot = self.line.get(&path).await?;
                let kinds = words(slot.body.get("MediaTypes"));
                if kinds.iter().any(|kind| kind == "CD" || kind == "DVD") {
                    slots.push(slot);
                }
            }
            if !slots.is_empty() {
                break;
            }
        }
        Ok(slots)
    }
}

/// The forms of an insertion, the one to be tried first before the others.
fn forms(url: &str, by_action: bool, image_alone: bool) -> Vec<Value> {
    let alone = json!({"Image": url});
    let whole = match by_action {
        true => json!({"Image": url, "Inserted": true, "WriteProtected": true}),
        false => json!({"Image": url, "Inserted": true}),
    };
    if image_alone { vec![alone, whole] } else { vec![whole, alone] }
}

fn is_inserted(slot: &Document) -> bool {
    let image = text(&slot.body, "Image");
    slot.body.get("Inserted").and_then(Value::as_bool).unwrap_or(image.is_some())
}

fn action(of: &Document, name: &str) -> Option<Path> {
    Path::of(of.body.get("Actions")?.get(name)?.get("target")?.as_str()?)
}

/// As a text of an answer is cut.
fn cut(url: &str) -> String {
    url.chars().take(MAX_TEXT_CHARS).collect()
}
