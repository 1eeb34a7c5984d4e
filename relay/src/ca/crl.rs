//! Certificate revocation lists, for services that check machines' certificates themselves.
//!
//! The relay never reads one: it judges each request by the store.

use super::{Authority, CaError, profile::BACKDATE_SECONDS};
use rcgen::{CertificateRevocationListParams, KeyIdMethod, RevokedCertParams, SerialNumber};
use shared::{hex, time::Timestamp};

/// How long a list holds, in seconds (one day).
pub const CRL_SECONDS: i64 = 86_400;

/// A certificate that must not be accepted any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revoked {
    /// Its serial number, 32 hex digits.
    pub serial: String,
    /// Since when.
    pub at: Timestamp,
}

impl Authority {
    /// The list of an issuing CA (by id, or the active one by name) in DER. A later list must have a higher number: `now`
    /// in milliseconds, unless an earlier one has that.
    ///
    /// # Errors
    /// No such CA, or a serial number that is none.
    pub fn crl(
        &self,
        issuer: &str,
        revoked: &[Revoked],
        now: Timestamp,
        number: i64,
    ) -> Result<Vec<u8>, CaError> {
        let issuer = self.issuer(issuer)?;
        let signer =
            issuer.signer().ok_or_else(|| CaError::UnknownIssuer { name: issuer.record.id.clone() })?;
        let params = CertificateRevocationListParams {
            this_update: now.plus_seconds(-BACKDATE_SECONDS).to_offset_date_time(),
            next_update: now.plus_seconds(CRL_SECONDS).to_offset_date_time(),
            crl_number: SerialNumber::from(number.unsigned_abs()),
            issuing_distribution_point: None,
            revoked_certs: revoked.iter().map(entry).collect::<Result<_, _>>()?,
            key_identifier_method: KeyIdMethod::PreSpecified(issuer.certificate.key_id.clone()),
        };
        Ok(params.signed_by(signer)?.der().to_vec())
    }
}

fn entry(revoked: &Revoked) -> Result<RevokedCertParams, CaError> {
    let serial = hex::decode::<{ super::SERIAL_BYTES }>(&revoked.serial)
        .ok_or_else(|| CaError::Serial { serial: revoked.serial.clone() })?;
    Ok(RevokedCertParams {
        serial_number: SerialNumber::from_slice(&serial),
        revocation_time: revoked.at.to_offset_date_time(),
        reason_code: None,
        invalidity_date: None,
    })
}
