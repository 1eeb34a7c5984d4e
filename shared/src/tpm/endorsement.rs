//! Endorsement keys: a TPMT_PUBLIC that is exactly one of the TCG's templates, but for the key itself.
//!
//! Whoever wraps a credential for an endorsement key works with the key's parameters. A template leaves nothing
//! of them to the one who sends the key: sizes, ciphers and hashes come from the table below.

use super::{
    fields::{Fields, InvalidPublic, KeyFields, alg, curve},
    public::{Name, NameHash, RsaModulus, point},
};
use crate::csr::{Curve, PublicKey};
use sha2::{Digest as _, Sha256};

/// PolicyA: PolicySecret of the endorsement hierarchy, SHA-256 (TCG EK Credential Profile 2.5, B.6.2).
pub const POLICY_A_SHA256: &[u8] = &[
    0x83, 0x71, 0x97, 0x67, 0x44, 0x84, 0xb3, 0xf8, 0x1a, 0x90, 0xcc, 0x8d, 0x46, 0xa5, 0xd7, 0x24, 0xfd,
    0x52, 0xd7, 0x6e, 0x06, 0x52, 0x0b, 0x64, 0xf2, 0xa1, 0xda, 0x1b, 0x33, 0x14, 0x69, 0xaa,
];
/// PolicyB: PolicyA or a policy in NV, SHA-256 (same profile, B.6.5).
const POLICY_B_SHA256: &[u8] = &[
    0xca, 0x3d, 0x0a, 0x99, 0xa2, 0xb9, 0x39, 0x06, 0xf7, 0xa3, 0x34, 0x24, 0x14, 0xef, 0xcf, 0xb3, 0xa3,
    0x85, 0xd4, 0x4c, 0xd1, 0xfd, 0x45, 0x90, 0x89, 0xd1, 0x9b, 0x50, 0x71, 0xc0, 0xb7, 0xa0,
];
/// PolicyB, SHA-384.
const POLICY_B_SHA384: &[u8] = &[
    0xb2, 0x6e, 0x7d, 0x28, 0xd1, 0x1a, 0x50, 0xbc, 0x53, 0xd8, 0x82, 0xbc, 0xf5, 0xfd, 0x3a, 0x1a, 0x07,
    0x41, 0x48, 0xbb, 0x35, 0xd3, 0xb4, 0xe4, 0xcb, 0x1c, 0x0a, 0xd9, 0xbd, 0xe4, 0x19, 0xca, 0xcb, 0x47,
    0xba, 0x09, 0x69, 0x96, 0x46, 0x15, 0x0f, 0x9f, 0xc0, 0x00, 0xf3, 0xf8, 0x0e, 0x12,
];

/// fixedTPM, fixedParent, sensitiveDataOrigin, adminWithPolicy, restricted, decrypt.
const LOW_RANGE: u32 = 0x0003_00b2;
/// The same and userWithAuth.
const HIGH_RANGE: u32 = 0x0003_00f2;

/// The kind of an endorsement key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndorsementKind {
    /// RSA, with the modulus' bits; the exponent is 65537.
    Rsa(u16),
    /// ECC.
    Ec(Curve),
}

/// What the profile fixes of an endorsement key: everything but the key.
#[derive(Debug, PartialEq, Eq)]
pub struct Template {
    /// The profile's name for it.
    pub name: &'static str,
    /// Type and size.
    pub kind: EndorsementKind,
    /// The hash of its name and of everything that is derived for it.
    pub name_hash: NameHash,
    /// TPMA_OBJECT.
    pub attributes: u32,
    /// authPolicy.
    pub auth_policy: &'static [u8],
    /// Bits of the AES key that protects what it wraps, in CFB mode.
    pub aes_bits: u16,
}

/// The templates that are taken: TCG EK Credential Profile for TPM Family 2.0, version 2.5, B.3 (low range) and
/// B.4 (high range). P-521 (H-4) and SM2 (H-5) are left out.
pub static TEMPLATES: [Template; 7] = [
    low_range("L-1", EndorsementKind::Rsa(2048)),
    low_range("L-2", EndorsementKind::Ec(Curve::P256)),
    high_range("H-1", EndorsementKind::Rsa(2048), NameHash::Sha256),
    high_range("H-2", EndorsementKind::Ec(Curve::P256), NameHash::Sha256),
    high_range("H-3", EndorsementKind::Ec(Curve::P384), NameHash::Sha384),
    high_range("H-6", EndorsementKind::Rsa(3072), NameHash::Sha384),
    high_range("H-7", EndorsementKind::Rsa(4096), NameHash::Sha384),
];

const fn low_range(name: &'static str, kind: EndorsementKind) -> Template {
    Template {
        name,
        kind,
        name_hash: NameHash::Sha256,
        attributes: LOW_RANGE,
        auth_policy: POLICY_A_SHA256,
        aes_bits: 128,
    }
}

const fn high_range(name: &'static str, kind: EndorsementKind, name_hash: NameHash) -> Template {
    let (auth_policy, aes_bits) = match name_hash {
        NameHash::Sha256 => (POLICY_B_SHA256, 128),
        NameHash::Sha384 => (POLICY_B_SHA384, 256),
    };
    Template { name, kind, name_hash, attributes: HIGH_RANGE, auth_policy, aes_bits }
}

/// An endorsement key whose every parameter is a template's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndorsementPublic {
    template: &'static Template,
    key: EndorsementKey,
    tpmt_public: Vec<u8>,
}

/// The key itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndorsementKey {
    /// RSA with the exponent 65537.
    Rsa(RsaModulus),
    /// ECC.
    Ec(PublicKey),
}

/// Why bytes are no endorsement key that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEndorsementKey {
    /// No TPMT_PUBLIC.
    #[error(transparent)]
    Form(#[from] InvalidPublic),
    /// No template has this value in this field, given the fields named before it.
    #[error("must be exactly one of the TCG's endorsement key templates; its {0} is of none")]
    NoTemplate(&'static str),
    /// Not a modulus or point of the template's size.
    #[error("must hold a key of its template's size; its {0} is not")]
    Key(&'static str),
}

/// Whether a field is as a template has it.
type Rule = (&'static str, fn(&Template, &Fields<'_>) -> bool);

/// What must be as in a template, in the order in which it is named when it is not.
const RULES: [Rule; 7] = [
    ("type and size", |template, fields| match (template.kind, fields.key) {
        (EndorsementKind::Rsa(wanted), KeyFields::Rsa { bits, .. }) => wanted == bits,
        (EndorsementKind::Ec(Curve::P256), KeyFields::Ecc { curve, .. }) => curve == curve::P256,
        (EndorsementKind::Ec(Curve::P384), KeyFields::Ecc { curve, .. }) => curve == curve::P384,
        _ => false,
    }),
    ("nameAlg", |template, fields| template.name_hash.id() == fields.name_alg),
    ("objectAttributes", |template, fields| template.attributes == fields.attributes),
    ("authPolicy", |template, fields| template.auth_policy == fields.auth_policy),
    ("symmetric cipher", |template, fields| fields.symmetric == Some((template.aes_bits, alg::CFB))),
    ("scheme", |_, fields| fields.scheme.is_none()),
    // A template's exponent is zero, which stands for 65537, and the TPM answers what it was asked for.
    ("exponent or kdf", |_, fields| {
        matches!(fields.key, KeyFields::Rsa { exponent: 0, .. } | KeyFields::Ecc { has_kdf: false, .. })
    }),
];

impl EndorsementPublic {
    /// Reads a TPMT_PUBLIC.
    ///
    /// # Errors
    /// The first rule that it breaks.
    pub fn parse(tpmt_public: &[u8]) -> Result<Self, InvalidEndorsementKey> {
        let fields = Fields::read(tpmt_public)?;
        let template = template_of(&fields)?;
        let key = match fields.key {
            KeyFields::Rsa { bits, modulus, .. } => EndorsementKey::Rsa(
                RsaModulus::new(bits, modulus).ok_or(InvalidEndorsementKey::Key("modulus"))?,
            ),
            KeyFields::Ecc { curve, x, y, .. } => {
                EndorsementKey::Ec(point(curve, x, y).ok_or(InvalidEndorsementKey::Key("point"))?)
            }
        };
        Ok(Self { template, key, tpmt_public: tpmt_public.to_vec() })
    }

    /// Its template.
    #[must_use]
    pub fn template(&self) -> &'static Template {
        self.template
    }

    /// The key itself.
    #[must_use]
    pub fn key(&self) -> &EndorsementKey {
        &self.key
    }

    /// Its Name.
    #[must_use]
    pub fn name(&self) -> Name {
        Name::of(self.template.name_hash, &self.tpmt_public)
    }

    /// The SubjectPublicKeyInfo in DER: rsaEncryption or named curve, whatever a certificate calls it.
    #[must_use]
    pub fn spki_der(&self) -> Vec<u8> {
        match &self.key {
            EndorsementKey::Rsa(modulus) => modulus.spki_der(),
            EndorsementKey::Ec(key) => key.spki_der(),
        }
    }

    /// `ekSha256`, by which the key is pinned, listed and bound: SHA-256 of its SubjectPublicKeyInfo.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.spki_der()).into()
    }
}

/// The one template that all fields are of.
fn template_of(fields: &Fields<'_>) -> Result<&'static Template, InvalidEndorsementKey> {
    let mut fitting: Vec<&'static Template> = TEMPLATES.iter().collect();
    for (field, fits) in RULES {
        fitting.retain(|template| fits(template, fields));
        if fitting.is_empty() {
            return Err(InvalidEndorsementKey::NoTemplate(field));
        }
    }
    fitting.first().copied().ok_or(InvalidEndorsementKey::NoTemplate("template"))
}
