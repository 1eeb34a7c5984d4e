//! Who a client certificate is of: the path to our roots, then a strict reading of the leaf.
//!
//! An expired certificate is judged as of its own last second: the whole path is verified at
//! min(now, notAfter), signatures included, so that "expired" can hide no other fault. Whether an expired,
//! revoked or superseded one may still do something is the application's to say, at every request.

use super::{
    Authority, SERIAL_BYTES,
    name::{Domain, Profile, TrustDomain},
    opened::unix_time,
};
use rustls::pki_types::{CertificateDer, TrustAnchor};
use shared::{
    csr::PublicKey,
    hex,
    id::{NodeId, PoolUid},
    time::Timestamp,
};
use webpki::{EndEntityCert, KeyUsage};
use x509_parser::{
    certificate::X509Certificate,
    extensions::{GeneralName, ParsedExtension},
    oid_registry::OID_X509_COMMON_NAME,
    prelude::FromDer as _,
    x509::{X509Name, X509Version},
};

/// The most certificates that a client may send beside its own.
const MAX_INTERMEDIATES: usize = 4;
/// The longest leaf, in bytes of DER. Ours take less than 700.
const MAX_LEAF_BYTES: usize = 4096;

/// What a client certificate says, once its path has been verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerCertificate {
    /// Its serial number, 32 lower-case hex digits.
    pub serial: String,
    /// What the machine is.
    pub kind: Profile,
    /// The pool it joined.
    pub pool: PoolUid,
    /// The node that it is.
    pub node: NodeId,
    /// The first second.
    pub not_before: Timestamp,
    /// The last second; it may have passed.
    pub not_after: Timestamp,
    /// SHA-256 of its SubjectPublicKeyInfo.
    pub key_digest: [u8; 32],
    /// The id of the CA that issued it.
    pub issuer: String,
}

/// Why a client certificate is nobody's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerRefused {
    /// More certificates than a client of ours has.
    #[error("more than {MAX_INTERMEDIATES} certificates beside the leaf")]
    TooMany,
    /// The leaf is not what this relay issues.
    #[error("the certificate is not one that this relay issues: not so: {0}")]
    Form(&'static str),
    /// The leaf names an issuing CA that this relay does not know (any more).
    #[error("the certificate's issuing CA is not one of this relay's")]
    Issuer,
    /// The path to the root does not verify.
    #[error("the certificate's path does not verify: {0}")]
    Path(webpki::Error),
}

/// What the relay trusts client certificates by: the roots of both domains and the CAs that issue for machines.
#[derive(Clone, Debug)]
pub struct Trust {
    trust_domain: TrustDomain,
    platform: Vec<TrustAnchor<'static>>,
    tenant: Vec<TrustAnchor<'static>>,
    issuers: Vec<TrustedIssuer>,
}

#[derive(Clone, Debug)]
struct TrustedIssuer {
    id: String,
    profile: Profile,
    key_id: Vec<u8>,
    spki: Vec<u8>,
}

impl Authority {
    /// What this relay trusts client certificates by now.
    #[must_use]
    pub fn trust(&self) -> Trust {
        let anchors = |domain| self.roots_of(domain).map(|root| root.certificate.anchor.clone()).collect();
        let issuer = |ca: &super::Ca| {
            let profile = Profile::ALL.into_iter().find(|profile| profile.issuer() == ca.record.name)?;
            Some(TrustedIssuer {
                id: ca.record.id.clone(),
                profile,
                key_id: ca.certificate.key_id.clone(),
                spki: ca.certificate.spki.clone(),
            })
        };
        Trust {
            trust_domain: self.trust_domain.clone(),
            platform: anchors(Domain::Platform),
            tenant: anchors(Domain::Tenant),
            issuers: self.issuers.iter().filter_map(issuer).collect(),
        }
    }
}

impl Trust {
    /// Judges what a client presents: path, then form. For the handshake.
    ///
    /// # Errors
    /// It is not a certificate that this relay has issued, or not yet valid.
    pub fn judge(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: Timestamp,
    ) -> Result<PeerCertificate, PeerRefused> {
        if intermediates.len() > MAX_INTERMEDIATES {
            return Err(PeerRefused::TooMany);
        }
        let (peer, issuer) = self.parse(leaf)?;
        let time = unix_time(now.min(peer.not_after));
        let parsed = EndEntityCert::try_from(leaf).map_err(PeerRefused::Path)?;
        let path = parsed.verify_for_usage(
            webpki::ALL_VERIFICATION_ALGS,
            self.anchors(issuer.profile.domain()),
            intermediates,
            time,
            KeyUsage::client_auth(),
            None,
            None,
        );
        // The names say which CA it should be; the signature says which it is.
        if path.map_err(PeerRefused::Path)?.issuer_spki().as_ref() == issuer.spki {
            Ok(peer)
        } else {
            Err(PeerRefused::Issuer)
        }
    }

    /// Reads a leaf that the handshake has judged. Verifies no signature: never for anything else.
    ///
    /// # Errors
    /// Its issuing CA is no longer trusted.
    pub fn read(&self, leaf: &CertificateDer<'_>) -> Result<PeerCertificate, PeerRefused> {
        self.parse(leaf).map(|(peer, _)| peer)
    }

    /// The subjects of all roots (the content of their DER sequences), as a hint to clients.
    pub fn subjects(&self) -> impl Iterator<Item = &[u8]> {
        self.platform.iter().chain(&self.tenant).map(|anchor| anchor.subject.as_ref())
    }

    fn anchors(&self, domain: Domain) -> &[TrustAnchor<'static>] {
        match domain {
            Domain::Platform => &self.platform,
            Domain::Tenant => &self.tenant,
        }
    }

    /// The strict reading: every field is exactly what `profile.rs` writes.
    fn parse(&self, leaf: &CertificateDer<'_>) -> Result<(PeerCertificate, &TrustedIssuer), PeerRefused> {
        if leaf.len() > MAX_LEAF_BYTES {
            return Err(PeerRefused::Form("it is at most 4 KiB"));
        }
        let form = PeerRefused::Form("it is one X.509 certificate of version 3");
        let (rest, parsed) = X509Certificate::from_der(leaf).map_err(|_| form.clone())?;
        if !rest.is_empty() || parsed.version != X509Version::V3 {
            return Err(form);
        }
        let extensions = Extensions::read(&parsed).map_err(PeerRefused::Form)?;
        let issuer = self.issuers.iter().find(|issuer| issuer.key_id == extensions.authority);
        let issuer = issuer.ok_or(PeerRefused::Issuer)?;
        let (kind, pool, node) =
            self.trust_domain.parse_node_uri(extensions.uri).ok_or(PeerRefused::Form("its SPIFFE id"))?;
        if kind != issuer.profile {
            return Err(PeerRefused::Form("its SPIFFE id is of its issuing CA's kind"));
        }
        if common_name(parsed.subject()) != Some(node.as_str()) {
            return Err(PeerRefused::Form("its subject is its node's id"));
        }
        let serial = <[u8; SERIAL_BYTES]>::try_from(parsed.raw_serial());
        let serial = serial.ok().filter(|serial| (1..0x80).contains(&serial[0]));
        let key = PublicKey::from_spki_der(parsed.public_key().raw);
        let (Some(serial), Some(key)) = (serial, key) else {
            return Err(PeerRefused::Form("its serial number has 16 bytes and its key is on P-256 or P-384"));
        };
        let peer = PeerCertificate {
            serial: hex::encode(&serial),
            kind,
            pool,
            node,
            not_before: Timestamp::from_seconds(parsed.validity().not_before.timestamp()),
            not_after: Timestamp::from_seconds(parsed.validity().not_after.timestamp()),
            key_digest: key.digest(),
            issuer: issuer.id.clone(),
        };
        Ok((peer, issuer))
    }
}

/// The two values that a leaf's extensions carry; the rest is fixed.
struct Extensions<'a> {
    uri: &'a str,
    authority: &'a [u8],
}

impl<'a> Extensions<'a> {
    /// Exactly our six extensions, each once. The error is the rule that is broken.
    fn read(parsed: &'a X509Certificate<'_>) -> Result<Self, &'static str> {
        let (mut uri, mut authority) = (None, None);
        let (mut not_ca, mut signs, mut client, mut subject) = (false, false, false, false);
        for extension in parsed.extensions() {
            match extension.parsed_extension() {
                ParsedExtension::SubjectAlternativeName(names) => match names.general_names.as_slice() {
                    [GeneralName::URI(text)] if uri.is_none() => uri = Some(*text),
                    _ => return Err("it has one URI and no other subject alternative name"),
                },
                ParsedExtension::AuthorityKeyIdentifier(id) if authority.is_none() => {
                    authority = id.key_identifier.as_ref().map(|id| id.0);
                }
                ParsedExtension::BasicConstraints(value) if !not_ca => {
                    not_ca = extension.critical && !value.ca && value.path_len_constraint.is_none();
                }
                ParsedExtension::KeyUsage(usage) if !signs => {
                    signs = extension.critical && usage.flags == 1;
                }
                ParsedExtension::ExtendedKeyUsage(usage) if !client => {
                    client = *usage == only_client_auth();
                }
                ParsedExtension::SubjectKeyIdentifier(_) if !subject => subject = true,
                _ => return Err("it has the relay's six extensions, each once"),
            }
        }
        if !(not_ca && signs && client) {
            return Err("it is CA:FALSE, for digitalSignature and clientAuth only");
        }
        match (uri, authority) {
            (Some(uri), Some(authority)) => Ok(Self { uri, authority }),
            _ => Err("it has a SPIFFE id and an authority key identifier"),
        }
    }
}

fn only_client_auth() -> x509_parser::extensions::ExtendedKeyUsage<'static> {
    x509_parser::extensions::ExtendedKeyUsage {
        any: false,
        server_auth: false,
        client_auth: true,
        code_signing: false,
        email_protection: false,
        time_stamping: false,
        ocsp_signing: false,
        other: vec![],
    }
}

/// The common name, if it is all that the name says.
fn common_name<'a>(name: &'a X509Name<'_>) -> Option<&'a str> {
    let mut attributes = name.iter_attributes();
    match (attributes.next(), attributes.next()) {
        (Some(only), None) if *only.attr_type() == OID_X509_COMMON_NAME => only.as_str().ok(),
        _ => None,
    }
}
