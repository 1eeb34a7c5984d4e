//! The certificate profiles: everything a certificate of each kind says, and nothing that anybody asked for.
//!
//! No URI name constraints: webpki refuses every URI SAN under them. The extended key usages of issuing CAs
//! nest, so that a stolen `node` CA can't make a server certificate.

use super::{
    CaError,
    name::{CaName, Domain, Profile, TrustDomain},
};
use crate::random::Random;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyUsagePurpose, SanType, SerialNumber,
};
use rustls::pki_types::ServerName;
use shared::{
    hex,
    id::{NodeId, PoolUid},
    time::Timestamp,
};
use std::net::IpAddr;

/// How far back certificates are dated, in seconds, for machines whose clock is behind.
pub const BACKDATE_SECONDS: i64 = 300;
/// The life of a root, in seconds (10 years).
pub const ROOT_SECONDS: i64 = 10 * 365 * 86_400;
/// The life of an issuing CA, in seconds (one year).
pub const ISSUER_SECONDS: i64 = 365 * 86_400;
/// The life of the relay's own server certificate, in seconds (30 days).
pub const RELAY_SECONDS: i64 = 30 * 86_400;
/// Bytes of a serial number.
pub const SERIAL_BYTES: usize = 16;

/// The first and the last second of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) not_before: Timestamp,
    pub(super) not_after: Timestamp,
}

impl Validity {
    /// From a little before `now` for `seconds`, in whole seconds.
    pub(super) fn starting(now: Timestamp, seconds: i64) -> Self {
        let now = Timestamp::from_seconds(now.seconds());
        Self { not_before: now.plus_seconds(-BACKDATE_SECONDS), not_after: now.plus_seconds(seconds) }
    }

    /// The part of it that lies within `outer`.
    pub(super) fn within(self, outer: Self) -> Self {
        Self {
            not_before: self.not_before.max(outer.not_before),
            not_after: self.not_after.min(outer.not_after),
        }
    }

    pub(super) fn holds(self, at: Timestamp) -> bool {
        self.not_before <= at && at <= self.not_after
    }

    /// Whether two thirds of it have passed.
    pub(super) fn is_due(self, now: Timestamp) -> bool {
        let life = self.not_after.millis().saturating_sub(self.not_before.millis());
        now.millis() >= self.not_before.millis().saturating_add(life / 3 * 2)
    }
}

/// A drawn serial number: exactly 16 bytes, positive, no leading zero (its one DER and its one hex form).
pub(super) fn serial(random: &Random) -> [u8; SERIAL_BYTES] {
    let mut serial = random.bytes::<SERIAL_BYTES>();
    if let Some(first) = serial.first_mut() {
        *first = (*first & 0x3f) | 0x40;
    }
    serial
}

/// What one of our CA certificates says; `mark` tells CAs of one name apart.
pub(super) fn ca(
    trust_domain: &TrustDomain,
    domain: Domain,
    name: CaName,
    mark: &str,
    validity: Validity,
) -> Result<CertificateParams, CaError> {
    let common_name = match name {
        CaName::Root => format!("{domain} root {mark}"),
        issuing => format!("{issuing} CA {mark}"),
    };
    let mut params = base(&common_name, validity);
    params.is_ca = IsCa::Ca(match name {
        CaName::Root => BasicConstraints::Unconstrained,
        _ => BasicConstraints::Constrained(0),
    });
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.extended_key_usages = ca_usages(name);
    params.subject_alt_names = vec![uri(trust_domain.uri(domain))?];
    Ok(params)
}

/// What an issuing CA may issue for; roots are not limited.
pub(super) fn ca_usages(name: CaName) -> Vec<ExtendedKeyUsagePurpose> {
    match name {
        CaName::Root => vec![],
        CaName::Relay => vec![ExtendedKeyUsagePurpose::ServerAuth],
        CaName::Node | CaName::Agent | CaName::NodeTenant => vec![ExtendedKeyUsagePurpose::ClientAuth],
    }
}

/// What a machine's certificate says.
pub(super) fn machine(
    trust_domain: &TrustDomain,
    profile: Profile,
    pool: &PoolUid,
    node: &NodeId,
    validity: Validity,
) -> Result<CertificateParams, CaError> {
    let mut params = leaf(node.as_str(), ExtendedKeyUsagePurpose::ClientAuth, validity);
    params.subject_alt_names = vec![uri(trust_domain.node_uri(profile, pool, node))?];
    Ok(params)
}

/// What the relay's own certificate says: its SPIFFE id and the names that clients reach it by.
pub(super) fn relay(
    trust_domain: &TrustDomain,
    names: &[ServerName<'_>],
    validity: Validity,
) -> Result<CertificateParams, CaError> {
    let mut params = leaf("relay", ExtendedKeyUsagePurpose::ServerAuth, validity);
    params.subject_alt_names.push(uri(trust_domain.relay_uri())?);
    for name in names {
        params.subject_alt_names.push(match name {
            ServerName::DnsName(name) => SanType::DnsName(name.as_ref().try_into()?),
            ServerName::IpAddress(address) => SanType::IpAddress(IpAddr::from(*address)),
            _ => return Err(CaError::Provider { operation: "name the relay's certificate" }),
        });
    }
    Ok(params)
}

/// Adds the serial number; answers its hex form.
pub(super) fn number(params: &mut CertificateParams, random: &Random) -> String {
    let serial = serial(random);
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    hex::encode(&serial)
}

fn leaf(common_name: &str, usage: ExtendedKeyUsagePurpose, validity: Validity) -> CertificateParams {
    let mut params = base(common_name, validity);
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
    params
}

fn base(common_name: &str, validity: Validity) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.not_before = validity.not_before.to_offset_date_time();
    params.not_after = validity.not_after.to_offset_date_time();
    params.use_authority_key_identifier_extension = true;
    params
}

fn uri(text: String) -> Result<SanType, CaError> {
    Ok(SanType::URI(text.try_into()?))
}
