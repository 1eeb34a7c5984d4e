//! What this machine is: SMBIOS, network interfaces, GPUs; [`crate::tpm`] says what its TPM is.
//!
//! It reports and never judges: which values are placeholders is said by the table that the relay uses too. Nothing
//! that is missing, masked or broken is an error; it is absent. It never uses `/etc/machine-id`, which clones share.

mod ethtool;
pub mod gpus;
pub mod nics;
pub mod smbios;

use crate::tpm::TpmReport;
use serde::Serialize;
use shared::hardware::{Identity, MAX_STRING_BYTES, Machine};
use std::{
    fmt,
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

/// Where Linux shows the tables.
const TABLES: &str = "/sys/firmware/dmi/tables";
/// Where Linux shows what it decoded itself; containers see it even where the tables are masked.
const DMI_ID: &str = "/sys/class/dmi/id";
/// The serial of boards without SMBIOS.
const DEVICETREE_SERIALS: [&str; 2] =
    ["/proc/device-tree/serial-number", "/sys/firmware/devicetree/base/serial-number"];
const HOSTNAME: &str = "/proc/sys/kernel/hostname";
/// The most bytes of a one-line file that are read.
const MAX_TEXT_BYTES: u64 = 4096;

/// Which folders to read instead of the usual ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// A folder with `smbios_entry_point` and `DMI`. Then nothing else is asked for UUID, serial and SKU.
    pub dmi_dir: Option<PathBuf>,
    /// A folder like `/sys/class/net`.
    pub net_dir: Option<PathBuf>,
    /// systemd's folder of credentials, where a unit that is not root's has the tables in.
    pub credentials: Option<PathBuf>,
}

/// What `bcd identity` prints: the contract's fields, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The UUID as it is compared: decoded, lower case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub product_uuid: Option<String>,
    /// The sixteen bytes in the table, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub product_uuid_raw: Option<String>,
    /// The folder it was read from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub product_uuid_source: Option<String>,
    /// System serial number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// System SKU number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sku: Option<String>,
    /// Permanent MACs.
    pub macs: Vec<String>,
    /// GPU UUIDs.
    pub gpu_uuids: Vec<String>,
    /// The members above that hold a vendor's default.
    pub placeholders: Vec<&'static str>,
    /// The members above that are only weak evidence: MACs that are locally administered.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub weak: Vec<&'static str>,
    /// The TPM 2.0; [`Report::gather`] does not ask it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tpm: Option<TpmReport>,
    /// The host name, which is sent for people and identifies nothing.
    #[serde(skip)]
    pub hostname: Option<String>,
}

impl Report {
    /// Looks at the machine. The GPUs may take up to 20 s, on a machine whose driver stalls.
    #[must_use]
    pub fn gather(places: &Places) -> Self {
        Self::gather_with(places, gpus::uuids())
    }

    /// The same with GPUs that were asked before: this part takes a millisecond.
    #[must_use]
    pub fn gather_with(places: &Places, gpu_uuids: Vec<String>) -> Self {
        let macs = nics::macs(places.net_dir.as_deref());
        let mut report = Self {
            weak: if macs.weak { vec!["macs"] } else { Vec::new() },
            macs: macs.addresses,
            gpu_uuids,
            hostname: read_text(Path::new(HOSTNAME)),
            ..Self::default()
        };
        match &places.dmi_dir {
            Some(folder) => report.take_tables(folder),
            None => {
                report.take_first_tables(&[Some(Path::new(TABLES)), places.credentials.as_deref()]);
                report.take_decoded(Path::new(DMI_ID));
                report.take_devicetree();
            }
        }
        report.placeholders = Machine::judge(&report.to_claim()).placeholders();
        report
    }

    /// The claim as it goes on the wire.
    #[must_use]
    pub fn to_claim(&self) -> Identity {
        Identity {
            product_uuid: self.product_uuid.clone(),
            serial: self.serial.clone(),
            sku: self.sku.clone(),
            macs: self.macs.clone(),
            gpu_uuids: self.gpu_uuids.clone(),
            hostname: self.hostname.clone(),
        }
    }

    /// The tables of the first folder where this user may read some.
    fn take_first_tables(&mut self, folders: &[Option<&Path>]) {
        for folder in folders.iter().flatten() {
            if self.product_uuid_raw.is_none() {
                self.take_tables(folder);
            }
        }
    }

    fn take_tables(&mut self, folder: &Path) {
        let limit = u64::try_from(smbios::MAX_TABLE_BYTES).unwrap_or(u64::MAX);
        let Some(table) = read_bounded(&folder.join("DMI"), limit) else { return };
        let entry_point = read_bounded(&folder.join("smbios_entry_point"), limit).unwrap_or_default();
        let system = smbios::parse(&entry_point, &table);
        self.product_uuid_raw = system.uuid_raw.map(|raw| shared::hex::encode(&raw));
        self.product_uuid_source = system.uuid.as_ref().map(|_| folder.display().to_string());
        self.product_uuid = system.uuid;
        self.serial = system.serial.map(short);
        self.sku = system.sku.map(short);
    }

    /// Fills in what the tables did not say.
    fn take_decoded(&mut self, folder: &Path) {
        if self.product_uuid.is_none()
            && let Some(uuid) = read_text(&folder.join("product_uuid"))
        {
            self.product_uuid = Some(short(uuid.to_lowercase()));
            self.product_uuid_source = Some(folder.display().to_string());
        }
        let read = |name: &str| read_text(&folder.join(name)).map(short);
        self.serial = self.serial.take().or_else(|| read("product_serial"));
        self.sku = self.sku.take().or_else(|| read("product_sku"));
    }

    fn take_devicetree(&mut self) {
        let read = || DEVICETREE_SERIALS.iter().find_map(|path| read_text(Path::new(path)));
        self.serial = self.serial.take().or_else(|| read().map(short));
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = |member: &str| match member {
            _ if self.placeholders.contains(&member) => "  (placeholder: identifies nothing)",
            _ if self.weak.contains(&member) => "  (locally administered: weak evidence)",
            _ => "",
        };
        let mut line = |name: &str, value: &str, note: &str| writeln!(out, "{name:<20} {value}{note}");
        line("product UUID", text(self.product_uuid.as_ref()), mark("productUuid"))?;
        line("  raw bytes", text(self.product_uuid_raw.as_ref()), "")?;
        line("  read from", text(self.product_uuid_source.as_ref()), "")?;
        line("serial", text(self.serial.as_ref()), mark("serial"))?;
        line("SKU", text(self.sku.as_ref()), "")?;
        line("permanent MACs", &list(&self.macs), mark("macs"))?;
        line("GPU UUIDs", &list(&self.gpu_uuids), "")?;
        match &self.tpm {
            Some(tpm) => write!(out, "{tpm}"),
            None => line("TPM 2.0", "-", ""),
        }
    }
}

fn text(value: Option<&String>) -> &str {
    value.map_or("-", String::as_str)
}

fn list(values: &[String]) -> String {
    if values.is_empty() { "-".to_owned() } else { values.join(" ") }
}

/// Cut to what the wire allows, at a character's end.
fn short(mut value: String) -> String {
    while value.len() > MAX_STRING_BYTES {
        value.pop();
    }
    value
}

/// A file's one line, trimmed of blanks and zero bytes; `None` if it can't be read or is empty.
fn read_text(path: &Path) -> Option<String> {
    let bytes = read_bounded(path, MAX_TEXT_BYTES)?;
    let text = String::from_utf8_lossy(&bytes);
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    (!text.is_empty()).then(|| text.to_owned())
}

/// At most this many bytes of a regular file. A FIFO or device in its place would block us.
fn read_bounded(path: &Path, limit: u64) -> Option<Vec<u8>> {
    let is_file = std::fs::metadata(path).ok()?.is_file();
    let mut bytes = Vec::new();
    if is_file {
        File::open(path).ok()?.take(limit).read_to_end(&mut bytes).ok()?;
    }
    is_file.then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder_with(entry: &[u8], table: &[u8]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("smbios_entry_point"), entry).unwrap();
        std::fs::write(folder.path().join("DMI"), table).unwrap();
        folder
    }

    fn gather(dmi: &Path) -> Report {
        let places = Places {
            dmi_dir: Some(dmi.to_owned()),
            net_dir: Some(PathBuf::from("/nonexistent")),
            credentials: None,
        };
        Report::gather_with(&places, Vec::new())
    }

    #[test]
    fn the_json_has_the_contracts_members() {
        let folder = folder_with(
            include_bytes!("../../testdata/dmi/entry.64"),
            include_bytes!("../../testdata/dmi/DMI.64"),
        );
        let json = serde_json::to_value(gather(folder.path())).unwrap();
        let expected = serde_json::json!({
            "productUuid": "00112233-4455-6677-8899-aabbccddeeff",
            "productUuidRaw": "33221100554477668899aabbccddeeff",
            "productUuidSource": folder.path().to_str().unwrap(),
            "serial": "SN-0042",
            "sku": "SKU1",
            "macs": [],
            "gpuUuids": [],
            "placeholders": [],
        });
        assert_eq!(json, expected);
    }

    #[test]
    fn tables_are_of_the_first_folder_that_has_some() {
        let empty = tempfile::tempdir().unwrap();
        let [given, other] = ["SN-1", "SN-2"].map(|serial| {
            let mut table = b"\x01\x1b\0\x01\0\0\0\x01".to_vec();
            table.extend([7; 16]);
            table.extend(format!("\x06\0\0{serial}\0\0").into_bytes());
            folder_with(include_bytes!("../../testdata/dmi/entry.64"), &table)
        });
        let serial = |folders: &[Option<&Path>]| {
            let mut report = Report::default();
            report.take_first_tables(folders);
            report.serial
        };
        let (empty, given, other) = (Some(empty.path()), Some(given.path()), Some(other.path()));
        assert_eq!(serial(&[empty, None, given, other]).as_deref(), Some("SN-1"));
        assert_eq!(serial(&[other, given]).as_deref(), Some("SN-2"));
        assert_eq!(serial(&[empty, None]), None);
    }

    #[test]
    fn an_empty_folder_is_a_machine_without_tables() {
        let folder = tempfile::tempdir().unwrap();
        let report = Report { hostname: None, ..gather(folder.path()) };
        assert_eq!(report, Report::default());
    }

    #[test]
    fn placeholders_are_named() {
        let mut table = b"\x01\x1b\0\x01\0\0\0\x01".to_vec();
        table.extend([0; 16]);
        table.extend(b"\x06\0\0To be filled by O.E.M.\0\0");
        let folder = folder_with(include_bytes!("../../testdata/dmi/entry.64"), &table);
        assert_eq!(gather(folder.path()).placeholders, ["productUuid", "serial"]);
    }

    #[test]
    fn long_strings_are_cut_to_what_the_wire_takes() {
        assert_eq!(short("é".repeat(200)).len(), MAX_STRING_BYTES);
    }

    #[test]
    fn a_fifo_in_place_of_a_table_does_not_block() {
        let folder = tempfile::tempdir().unwrap();
        nix::unistd::mkfifo(&folder.path().join("DMI"), nix::sys::stat::Mode::S_IRUSR).unwrap();
        assert_eq!(gather(folder.path()).product_uuid, None);
    }
}
