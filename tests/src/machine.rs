//! A machine that does not exist, as the folders that bcd can be told to read: SMBIOS tables and interfaces.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// A machine with an SMBIOS 3.3 table and one Ethernet interface.
#[derive(Clone, Debug)]
pub struct FakeMachine {
    dmi: PathBuf,
    net: PathBuf,
    /// As bcd reports it, lower case with dashes.
    pub product_uuid: String,
    /// As the table holds it.
    pub serial: String,
    /// The permanent address of its interface.
    pub mac: String,
}

impl FakeMachine {
    /// Machine number `number` in a folder: another number is another machine in every identifier.
    ///
    /// # Panics
    /// The folder can't be written.
    #[must_use]
    pub fn new(folder: &Path, number: u32) -> Self {
        let [a, b, c, d] = number.to_be_bytes();
        let uuid = [a, b, c, d, 0x5e, 0x17, 0x4a, 0x11, 0x9c, 0x0f, 0x52, 0x54, a, b, c, d];
        Self::with(folder, uuid, &format!("SN-{number:08}"), [0x00, 0x16, b, 0x3e, c, d])
    }

    /// A machine with these identifiers; the UUID in the order in which it is written.
    ///
    /// # Panics
    /// The folder can't be written.
    #[must_use]
    pub fn with(folder: &Path, uuid: [u8; 16], serial: &str, mac: [u8; 6]) -> Self {
        let (dmi, net) = (folder.join("dmi"), folder.join("net"));
        let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
        write(&dmi.join("smbios_entry_point"), &entry_point());
        write(&dmi.join("DMI"), &table(uuid, serial));
        for (file, text) in
            [("type", "1"), ("addr_assign_type", "0"), ("address", &mac), ("device/vendor", "0x1af4")]
        {
            write(&net.join("eth0").join(file), format!("{text}\n").as_bytes());
        }
        Self { dmi, net, product_uuid: dashed(uuid), serial: serial.to_owned(), mac }
    }

    /// What bcd is told, so that it sees this machine.
    #[must_use]
    pub fn flags(&self) -> Vec<String> {
        let text = |path: &Path| path.display().to_string();
        vec!["--dmi-dir".to_owned(), text(&self.dmi), "--net-dir".to_owned(), text(&self.net)]
    }
}

/// The 64-bit entry point (SMBIOS 3.7, 5.2.2).
fn entry_point() -> Vec<u8> {
    let mut bytes = b"_SM3_\0\x18\x03\x03\0\x01\0".to_vec();
    bytes.resize(24, 0);
    let sum = bytes.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    if let Some(checksum) = bytes.get_mut(5) {
        *checksum = sum.wrapping_neg();
    }
    bytes
}

/// System Information (type 1, 7.2) and the end of the table (type 127).
fn table(uuid: [u8; 16], serial: &str) -> Vec<u8> {
    let [a, b, c, d, e, f, g, h, rest @ ..] = uuid;
    let mut bytes = vec![1, 27, 1, 0];
    bytes.extend([1, 2, 0, 3]); // manufacturer, product name, version, serial number
    bytes.extend([d, c, b, a, f, e, h, g]);
    bytes.extend(rest);
    bytes.extend([6, 4, 0]); // wake-up type, SKU number, family
    for text in ["Example", "Machine", serial, "SKU-1"] {
        bytes.extend(text.bytes().chain([0]));
    }
    bytes.extend([0, 127, 4, 2, 0, 0, 0]);
    bytes
}

fn dashed(uuid: [u8; 16]) -> String {
    let digits: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    shared::hardware::canonical_uuid(&digits).unwrap_or(digits)
}

#[expect(clippy::panic, reason = "a test without its machine fails")]
fn write(path: &Path, bytes: &[u8]) {
    let folder = path.parent().unwrap_or(path);
    if let Err(error) = fs::create_dir_all(folder).and_then(|()| fs::write(path, bytes)) {
        panic!("writing {}: {error}", path.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::bcd::identity::{Places, Report};

    #[test]
    fn bcd_sees_the_machine_that_was_made() {
        let folder = tempfile::tempdir().unwrap();
        let machine = FakeMachine::new(folder.path(), 0x0102_0304);
        let places = Places {
            dmi_dir: Some(machine.dmi.clone()),
            net_dir: Some(machine.net.clone()),
            credentials: None,
        };
        let seen = Report::gather_with(&places, Vec::new());
        assert_eq!(seen.product_uuid, Some(machine.product_uuid));
        assert_eq!(seen.serial, Some(machine.serial));
        assert_eq!(seen.sku.as_deref(), Some("SKU-1"));
        assert_eq!(seen.macs, [machine.mac]);
        assert!(seen.placeholders.is_empty() && seen.weak.is_empty());
    }
}
