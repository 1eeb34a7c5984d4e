//! What a Redfish service says of itself, of its machine and of what is in that. A member that is away while its host is off is left
//! out.

use super::{
    super::{Said, error::BmcError},
    MAX_MEMBERS, Redfish,
    answer::Document,
    path::Path,
    text,
};
use serde_json::Value;
use shared::{
    api::metal::{Hardware, MachineIdentity},
    hardware::canonical_mac,
};

/// A memory of a million GiB is none.
const MAX_MEMORY_GIB: f64 = 1e6;

impl Redfish {
    pub(in crate::metal::bmc) async fn identity(&self) -> Result<Said, BmcError> {
        let system = &self.system.body;
        let redact = &self.line.redact;
        let managers = self.managers().await?;
        let manager = managers.first().map_or(&Value::Null, |manager| &manager.body);
        let vendor = text(&self.root.body, "Vendor").or_else(|| text(manager, "Manufacturer"));
        let uuid = text(system, "UUID").map(|uuid| uuid.to_ascii_lowercase());
        let identity = MachineIdentity {
            product_uuid: redact.text(uuid),
            serial: redact.text(text(system, "SerialNumber")),
            sku: redact.text(text(system, "SKU")),
            model: redact.text(text(system, "Model")),
            macs: self.macs().await?,
            ek_sha256: None,
        };
        Ok(Said {
            vendor: redact.text(vendor.or_else(|| text(system, "Manufacturer"))),
            firmware: redact.text(text(manager, "FirmwareVersion")),
            virtual_media: !self.slots().await?.is_empty(),
            identity,
        })
    }

    pub(in crate::metal::bmc) async fn inspect(&self) -> Result<Hardware, BmcError> {
        let redact = &self.line.redact;
        let system = &self.system.body;
        let memory = system.get("MemorySummary").and_then(|memory| memory.get("TotalSystemMemoryGiB"));
        let memory_gib = memory.and_then(Value::as_f64).filter(|gib| (0.0..MAX_MEMORY_GIB).contains(gib));
        let all = self.members(&self.system, "Processors").await?;
        let (processors, accelerators) = all.iter().partition(|it| is_main(it));
        let mut processors = counted(processors);
        if processors.is_empty() {
            processors.extend(system.get("ProcessorSummary").and_then(summary));
        }
        Ok(Hardware {
            processors: redact.texts(processors),
            #[expect(clippy::cast_possible_truncation, reason = "under a million GiB")]
            memory_mib: memory_gib.map(|gib| (gib * 1024.0) as i64),
            disks: redact.texts(self.disks().await?),
            accelerators: redact.texts(counted(accelerators)),
            firmware: redact.text(text(system, "BiosVersion")),
        })
    }

    async fn macs(&self) -> Result<Vec<String>, BmcError> {
        let cards = self.members(&self.system, "EthernetInterfaces").await?;
        let mac = |card: &Document| {
            let told = text(&card.body, "PermanentMACAddress").or_else(|| text(&card.body, "MACAddress"));
            canonical_mac(&told?)
        };
        let mut macs: Vec<String> = cards.iter().filter_map(mac).collect();
        macs.sort();
        macs.dedup();
        Ok(macs)
    }

    async fn disks(&self) -> Result<Vec<String>, BmcError> {
        let mut disks = Vec::new();
        for storage in self.members(&self.system, "Storage").await? {
            let left = MAX_MEMBERS.saturating_sub(disks.len());
            for path in Path::list(storage.body.get("Drives"), left) {
                let Some(drive) = self.line.get_if_there(&path).await? else { continue };
                let model = text(&drive.body, "Model").or_else(|| text(&drive.body, "Name"));
                let model = model.unwrap_or_default();
                let gib = drive.body.get("CapacityBytes").and_then(Value::as_u64).map(|bytes| bytes >> 30);
                disks.push(gib.map_or(model.clone(), |gib| format!("{model}, {gib} GiB")));
            }
        }
        Ok(disks)
    }
}

/// Whether a processor is one of the machine's own; services that say nothing of its kind have no others.
fn is_main(processor: &Document) -> bool {
    text(&processor.body, "ProcessorType").is_none_or(|kind| kind == "CPU")
}

/// Each model, and how often it is there.
fn counted(processors: Vec<&Document>) -> Vec<String> {
    let mut models: Vec<(String, u64)> = Vec::new();
    for model in processors.into_iter().filter_map(|it| text(&it.body, "Model")) {
        match models.iter_mut().find(|(known, _)| *known == model) {
            Some((_, count)) => *count += 1,
            None => models.push((model, 1)),
        }
    }
    models.into_iter().map(|(model, count)| format!("{count} × {model}")).collect()
}

fn summary(of: &Value) -> Option<String> {
    let count = of.get("Count").and_then(Value::as_u64).unwrap_or(1);
    text(of, "Model").map(|model| format!("{count} × {model}"))
}
