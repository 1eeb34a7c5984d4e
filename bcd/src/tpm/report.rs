//! What `bcd identity` says of the TPM: the contract's fields, in its order.

use super::{Endorsement, Found};
use serde::Serialize;
use shared::{csr::Curve, hex, tpm::EndorsementKind};
use std::fmt;
use x509_parser::{
    certificate::X509Certificate, extensions::GeneralName, prelude::FromDer as _, x509::X509Name,
};

/// A TPM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TpmReport {
    /// Four letters of the TCG's vendor registry.
    pub manufacturer: String,
    /// Firmware version.
    pub firmware: String,
    /// Its endorsement keys.
    pub endorsement_keys: Vec<EndorsementReport>,
}

/// An endorsement key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EndorsementReport {
    /// RSA-2048, P-256 and so on.
    pub algorithm: String,
    /// What it is pinned and listed by: SHA-256 of its SubjectPublicKeyInfo.
    pub ek_sha256: String,
    /// Where its certificate is, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nv_index: Option<String>,
    /// The certificate's subject; where that is empty, its alternative name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_subject: Option<String>,
}

impl Found {
    /// For people and programs.
    #[must_use]
    pub fn report(&self) -> TpmReport {
        TpmReport {
            manufacturer: self.manufacturer.clone(),
            firmware: self.firmware.clone(),
            endorsement_keys: self.endorsement_keys.iter().map(report).collect(),
        }
    }
}

fn report(key: &Endorsement) -> EndorsementReport {
    let certificate = key.certificate.as_ref();
    EndorsementReport {
        algorithm: match key.public.template().kind {
            EndorsementKind::Rsa(bits) => format!("RSA-{bits}"),
            EndorsementKind::Ec(Curve::P256) => "P-256".to_owned(),
            EndorsementKind::Ec(Curve::P384) => "P-384".to_owned(),
        },
        ek_sha256: hex::encode(&key.public.digest()),
        nv_index: certificate.map(|(index, _)| format!("{index:#010x}")),
        certificate_subject: certificate.and_then(|(_, der)| subject(der)),
    }
}

/// It goes to terminals.
fn subject(der: &[u8]) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let printable = |name: &X509Name<'_>| name.to_string().replace(char::is_control, " ");
    let own = printable(certificate.subject());
    if !own.is_empty() {
        return Some(own);
    }
    let names = certificate.subject_alternative_name().ok()??;
    names.value.general_names.iter().find_map(|name| match name {
        GeneralName::DirectoryName(name) => Some(printable(name)),
        _ => None,
    })
}

impl fmt::Display for TpmReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{:<20} {}, firmware {}", "TPM 2.0", self.manufacturer, self.firmware)?;
        for key in &self.endorsement_keys {
            let name = format!("  EK {}", key.algorithm);
            writeln!(out, "{name:<20} {}", key.ek_sha256)?;
            if let Some(index) = &key.nv_index {
                let subject = key.certificate_subject.as_deref().unwrap_or("no subject");
                writeln!(out, "{:<20} {subject} (NV {index})", "    certificate")?;
            }
        }
        Ok(())
    }
}
