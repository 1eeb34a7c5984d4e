//! compute/inventory: the machines that a pool knows. All identifiers of an entry must match the machine.

use super::{
    Access, Op, PageLimit, Phase,
    access::{Action, Scope},
};
use crate::{
    bounded::{GpuUuidPin, MacPin, Name, ProductUuidPin, SerialPin, Sha256Hex, TenantId},
    hardware::{Claim, Identity, Machine, canonical_gpu_uuid, canonical_mac, canonical_uuid},
    problem::FieldError,
    time::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Writes an entry.
pub const PUT: Op<PutInventoryEntry, InventoryEntryAnswer> = Op::mutation(
    "compute.inventory.put",
    Access::May(Action::InventoryPut, Scope::Site),
    Phase::V0_1,
    "Write an entry of a pool's inventory, whole; decided by the site's owner.",
);
/// Lists the entries.
pub const LIST: Op<ListInventory, InventoryList> = Op::read(
    "compute.inventory.list",
    Access::May(Action::InventoryRead, Scope::Site),
    Phase::V0_1,
    "List the entries of a pool's inventory.",
);
/// Removes an entry.
pub const REMOVE: Op<RemoveInventoryEntry, InventoryEntryAnswer> = Op::mutation(
    "compute.inventory.remove",
    Access::May(Action::InventoryRemove, Scope::Site),
    Phase::V0_1,
    "Remove an entry of a pool's inventory; nodes that joined by it stay.",
);

/// An entry to write: at least one identifier, and none that many machines share.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PutInventoryEntry {
    /// The pool's tenant.
    pub tenant_id: TenantId,
    /// The pool.
    pub pool_id: Name,
    /// The operator's name for the machine in this pool.
    pub entry_id: Name,
    /// Its product UUID, in any case, with or without dashes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product_uuid: Option<ProductUuidPin>,
    /// Its serial number, to the letter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<SerialPin>,
    /// One of its permanent hardware addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacPin>,
    /// One of its GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_uuid: Option<GpuUuidPin>,
    /// SHA-256 of its endorsement key's SubjectPublicKeyInfo, which the TPM must prove.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ek_sha256: Option<Sha256Hex>,
}

/// Which entries to list.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListInventory {
    /// The pool's tenant.
    pub tenant_id: TenantId,
    /// The pool.
    pub pool_id: Name,
    /// The page's size, 100 unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageLimit>,
    /// The last page's cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<Name>,
}

/// An entry to remove.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RemoveInventoryEntry {
    /// The pool's tenant.
    pub tenant_id: TenantId,
    /// The pool.
    pub pool_id: Name,
    /// The entry.
    pub entry_id: Name,
}

/// What tells a machine from others, in canonical form.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Identifiers {
    /// The product UUID, 8-4-4-4-12, lower case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product_uuid: Option<String>,
    /// The serial number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// A hardware address, lower case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// A GPU, lower case behind `GPU-`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_uuid: Option<String>,
    /// SHA-256 of the endorsement key's SubjectPublicKeyInfo.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ek_sha256: Option<String>,
}

/// An entry of the inventory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InventoryEntry {
    /// The operator's name for the machine in this pool.
    pub entry_id: String,
    /// What the machine must be, all of it.
    #[serde(flatten)]
    pub identifiers: Identifiers,
    /// When it was last written.
    pub updated_at: Timestamp,
    /// Who wrote it.
    pub updated_by: String,
}

/// One entry.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InventoryEntryAnswer {
    /// The entry.
    pub entry: InventoryEntry,
}

/// A page of entries.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InventoryList {
    /// In order of entryId.
    pub entries: Vec<InventoryEntry>,
    /// Where the next page begins; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

impl PutInventoryEntry {
    /// The identifiers in canonical form.
    ///
    /// # Errors
    /// Each field with a value that no machine can have or that many machines share; the body where there is none.
    pub fn identifiers(&self) -> Result<Identifiers, Vec<FieldError>> {
        let uuid = self.product_uuid.as_ref().map(|uuid| usable_uuid(uuid.as_str()));
        let serial = self.serial.as_ref().map(|serial| usable_serial(serial.as_str()));
        let mac =
            self.mac.as_ref().map(|mac| canonical_mac(mac.as_str()).ok_or("is no machine's own address"));
        let gpu = self.gpu_uuid.as_ref();
        let gpu =
            gpu.map(|gpu| canonical_gpu_uuid(gpu.as_str()).ok_or("must be GPU- and 32 hexadecimal digits"));
        let mut errors = Vec::new();
        let mut judged = |field: &str, value: Option<Result<String, &str>>| match value {
            Some(Err(rule)) => {
                errors.push(FieldError { field: field.to_owned(), message: rule.to_owned() });
                None
            }
            Some(Ok(value)) => Some(value),
            None => None,
        };
        let identifiers = Identifiers {
            product_uuid: judged("productUuid", uuid),
            serial: judged("serial", serial),
            mac: judged("mac", mac),
            gpu_uuid: judged("gpuUuid", gpu),
            ek_sha256: self.ek_sha256.as_ref().map(|ek| ek.as_str().to_owned()),
        };
        if errors.is_empty() && identifiers == Identifiers::default() {
            let message = "must have at least one of productUuid, serial, mac, gpuUuid, ekSha256";
            errors.push(FieldError { field: String::new(), message: message.to_owned() });
        }
        if errors.is_empty() { Ok(identifiers) } else { Err(errors) }
    }
}

/// Why a value is none of one machine alone.
const SHARED: &str = "is a vendor's default that many machines share; name what is the machine's own";

/// Unlike a token's pin, which ends with its token, an entry that can match nothing would stay unnoticed.
fn usable_uuid(text: &str) -> Result<String, &'static str> {
    let uuid = canonical_uuid(text).ok_or("must be 32 hexadecimal digits, or 8-4-4-4-12")?;
    let claim = Identity { product_uuid: Some(uuid), ..Identity::default() };
    match Machine::judge(&claim).product_uuid {
        Claim::Usable(uuid) => Ok(uuid),
        Claim::Placeholder(_) | Claim::Absent => Err(SHARED),
    }
}

fn usable_serial(text: &str) -> Result<String, &'static str> {
    let claim = Identity { serial: Some(text.to_owned()), ..Identity::default() };
    match Machine::judge(&claim).serial {
        Claim::Usable(serial) => Ok(serial),
        Claim::Placeholder(_) | Claim::Absent => Err(SHARED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(identifiers: &str) -> Result<Identifiers, Vec<String>> {
        let body = format!(r#"{{"tenantId":"t","poolId":"p","entryId":"e"{identifiers}}}"#);
        let put: PutInventoryEntry = serde_json::from_str(&body).unwrap();
        put.identifiers().map_err(|errors| errors.into_iter().map(|error| error.field).collect())
    }

    #[test]
    fn identifiers_become_canonical() {
        let odd = r#","productUuid":"4C4C4544004330108052B4C04F4E3132","serial":"SN-a","mac":"00:1A:2B:3c:4d:5e",
            "gpuUuid":"GPU-4C4C4544-0043-3010-8052-B4C04F4E3132""#;
        let expected = Identifiers {
            product_uuid: Some("4c4c4544-0043-3010-8052-b4c04f4e3132".into()),
            serial: Some("SN-a".into()),
            mac: Some("00:1a:2b:3c:4d:5e".into()),
            gpu_uuid: Some("GPU-4c4c4544-0043-3010-8052-b4c04f4e3132".into()),
            ek_sha256: None,
        };
        assert_eq!(judged(odd), Ok(expected));
        let ek = "ab".repeat(32);
        let only_ek = Identifiers { ek_sha256: Some(ek.clone()), ..Identifiers::default() };
        assert_eq!(judged(&format!(r#","ekSha256":"{ek}""#)), Ok(only_ek));
    }

    #[test]
    fn what_would_match_nothing_or_everything_is_named() {
        let shared = r#","productUuid":"03000200-0400-0500-0006-000700080009","serial":"To-be-filled-by-OEM",
            "mac":"00:00:00:00:00:00","gpuUuid":"GPU-12345678""#;
        let fields = ["productUuid", "serial", "mac", "gpuUuid"].map(str::to_owned).to_vec();
        assert_eq!(judged(shared), Err(fields));
        for (identifiers, field) in [
            ("", ""),
            (r#","productUuid":"12345678""#, "productUuid"),
            (r#","productUuid":"4c4c45440-043-3010-8052-b4c04f4e3132""#, "productUuid"),
            (r#","serial":"0","mac":"00:1a:2b:3c:4d:5e""#, "serial"),
            (r#","mac":"ff:FF:ff:ff:ff:ff""#, "mac"),
        ] {
            assert_eq!(judged(identifiers), Err(vec![field.to_owned()]), "{identifiers}");
        }
    }
}
