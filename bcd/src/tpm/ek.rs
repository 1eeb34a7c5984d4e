//! The endorsement keys: made again from the TCG's templates, and their certificates from NV.
//!
//! Which templates there are is said by the table that the relay judges by. Keys are made, never taken out of a
//! certificate: what is offered is what this TPM can prove. Certificates are only carried; the relay judges them.

use super::{
    TpmError,
    chip::Chip,
    error::{failed, kind},
};
use aws_lc_rs::digest;
use shared::{
    api::node::{self, MAX_EK_CERTIFICATE_BYTES, MAX_ENDORSEMENT_KEYS},
    binary::Binary,
    csr::Curve,
    tpm::{EndorsementKind, EndorsementPublic, NameHash, TEMPLATES, Template},
};
use std::ops::RangeInclusive;
use tss_esapi::{
    abstraction::nv,
    attributes::ObjectAttributes,
    constants::{PropertyTag, response_code::Tss2ResponseCodeKind as Kind},
    handles::{KeyHandle, NvIndexHandle, NvIndexTpmHandle, PersistentTpmHandle, TpmHandle},
    interface_types::{
        algorithm::{HashingAlgorithm, PublicAlgorithm},
        ecc::EccCurve,
        key_bits::RsaKeyBits,
        resource_handles::{Hierarchy, NvAuth},
        session_handles::AuthSession,
    },
    structures::{
        Digest, EccParameter, EccPoint, EccScheme, KeyDerivationFunctionScheme, Public, PublicBuilder,
        PublicEccParametersBuilder, PublicKeyRsa, PublicRsaParametersBuilder, RsaExponent, RsaScheme,
        SymmetricDefinitionObject,
    },
    traits::Marshall as _,
    utils::TpmsContext,
};
use x509_parser::{certificate::X509Certificate, prelude::FromDer as _, x509::SubjectPublicKeyInfo};

/// The NV indices of the profile (TCG EK Credential Profile 2.5, 2.2.1.4 and 2.2.1.5; registry of reserved handles).
const INDICES: RangeInclusive<u32> = 0x01c0_0000..=0x01c0_7fff;
/// CA certificates, one behind the other, over as many indices as they need.
const CHAIN_INDICES: RangeInclusive<u32> = 0x01c0_0100..=0x01c0_01ff;
/// Endorsement keys that somebody has made persistent (registry of reserved handles, 2.3.1): nothing is to be made then.
const PERSISTENT: RangeInclusive<u32> = 0x8101_0000..=0x8101_00ff;
/// TPM_RH_ENDORSEMENT.
const ENDORSEMENT_HIERARCHY: u32 = 0x4000_000b;
/// The most of them that are looked at.
const MAX_PERSISTENT: u32 = 16;
/// The most indices that are read, and the most bytes of one: certificates with their padding.
const MAX_INDICES: u32 = 64;
const MAX_INDEX_BYTES: usize = 2 * MAX_EK_CERTIFICATE_BYTES;
/// The most certificates that go with a key: its own and those of CAs.
const MAX_CERTIFICATES: usize = 8;

/// Where each template's certificate is, by the profile, and whether its key is offered without one too. Keys of the
/// rarer templates are made only where the vendor has certified one: an RSA key takes a chip long.
const PLACES: [(&str, u32, bool); 7] = [
    ("L-1", 0x01c0_0002, true),
    ("L-2", 0x01c0_000a, true),
    ("H-3", 0x01c0_0016, true),
    ("H-1", 0x01c0_0012, false),
    ("H-2", 0x01c0_0014, false),
    ("H-6", 0x01c0_001c, false),
    ("H-7", 0x01c0_001e, false),
];

/// What a look at the TPM has found.
#[derive(Clone, Debug)]
pub struct Found {
    /// Who made it: four letters of the TCG's vendor registry.
    pub manufacturer: String,
    /// Firmware version, four numbers.
    pub firmware: String,
    /// Its endorsement keys, in the order of [`PLACES`].
    pub endorsement_keys: Vec<Endorsement>,
    /// CA certificates that it holds, DER.
    pub authorities: Vec<Vec<u8>>,
}

/// An endorsement key.
#[derive(Clone, Debug)]
pub struct Endorsement {
    /// The key.
    pub public: EndorsementPublic,
    /// Its TPMT_PUBLIC.
    pub tpmt_public: Vec<u8>,
    /// The NV index of its certificate, and the certificate, DER.
    pub certificate: Option<(u32, Vec<u8>)>,
    place: Place,
}

/// Where the key is when it is needed again: making an RSA key twice would take a slow chip a minute.
#[derive(Clone, Debug)]
enum Place {
    /// It is persistent.
    Persistent(PersistentTpmHandle),
    /// The TPM loads it out of this until its next reset.
    Saved(Box<TpmsContext>),
    /// It is made again.
    Template,
}

impl Found {
    /// What a join sends, for the node key with this TPMT_PUBLIC. What does not fit the wire's bounds is left out.
    #[must_use]
    pub fn offer(&self, key_public: &[u8]) -> Option<node::Tpm> {
        let offer = |key: &Endorsement| {
            let authorities = self.authorities.iter().filter(|_| key.certificate.is_some());
            let own = key.certificate.iter().map(|(_, der)| der);
            let certificates = own.chain(authorities).filter_map(|der| Binary::new(der.clone()));
            Some(node::EndorsementKey {
                public: Binary::new(key.tpmt_public.clone())?,
                certificates: certificates.take(MAX_CERTIFICATES).collect(),
            })
        };
        // Every key fits: the index that the relay answers is that of this list.
        let keys: Option<Vec<_>> =
            self.endorsement_keys.iter().take(MAX_ENDORSEMENT_KEYS).map(offer).collect();
        let keys = keys.filter(|keys| !keys.is_empty())?;
        Some(node::Tpm { endorsement_keys: keys, key_public: Binary::new(key_public.to_vec())? })
    }
}

/// Looks at everything.
pub(super) fn find(chip: &mut Chip) -> Result<Found, TpmError> {
    let stored = read_indices(chip)?;
    let mut found = Found {
        manufacturer: text_of(chip.property(PropertyTag::Manufacturer)?.unwrap_or_default()),
        firmware: version_of(
            chip.property(PropertyTag::FirmwareVersion1)?.unwrap_or_default(),
            chip.property(PropertyTag::FirmwareVersion2)?.unwrap_or_default(),
        ),
        endorsement_keys: Vec::new(),
        authorities: authorities(&stored),
    };
    let mut certificates: Vec<(u32, Vec<u8>)> = stored
        .into_iter()
        .filter(|(index, _)| !CHAIN_INDICES.contains(index))
        .filter_map(|(index, bytes)| Some((index, split_certificate(&bytes)?.0.to_vec())))
        .collect();
    let persistent = persistent(chip)?;
    for (name, index, always) in PLACES {
        let Some(template) = TEMPLATES.iter().find(|template| template.name == name) else { continue };
        if !always && !certificates.iter().any(|(at, _)| *at == index) {
            continue;
        }
        if let Some(key) = persistent.iter().find(|key| key.public.template() == template) {
            found.endorsement_keys.push(key.clone());
            continue;
        }
        match make(chip, template) {
            Ok(key) => found.endorsement_keys.push(key),
            Err(TpmError::Lacks(_)) => tracing::debug!(template = name, "the TPM does not make this key"),
            Err(error) => return Err(error),
        }
    }
    assign(&mut found.endorsement_keys, &mut certificates);
    if found.endorsement_keys.is_empty() { Err(TpmError::Lacks("any endorsement key")) } else { Ok(found) }
}

/// Makes the key, and flushes it again.
fn make(chip: &mut Chip, template: &'static Template) -> Result<Endorsement, TpmError> {
    let (handle, public) = chip.primary(Hierarchy::Endorsement, to_public(template)?)?;
    let saved = chip.context.context_save(handle.into());
    chip.flush(handle)?;
    let place = saved.map_or(Place::Template, |context| Place::Saved(Box::new(context)));
    Endorsement::new(&public, place).ok_or(TpmError::Odd("an endorsement key that is not as its template"))
}

/// The persistent endorsement keys that are of a template.
fn persistent(chip: &mut Chip) -> Result<Vec<Endorsement>, TpmError> {
    let mut keys = Vec::new();
    for handle in chip.handles(*PERSISTENT.start(), MAX_PERSISTENT)? {
        let TpmHandle::Persistent(at) = handle else { continue };
        if !PERSISTENT.contains(&u32::from(at)) {
            continue;
        }
        let read = chip
            .context
            .tr_from_tpm_public(handle)
            .and_then(|object| chip.context.read_public(object.into()));
        let Ok((public, _, qualified_name)) = read else { continue };
        keys.extend(
            Endorsement::new(&public, Place::Persistent(at))
                .filter(|key| is_endorsements_own(key, qualified_name.value())),
        );
    }
    Ok(keys)
}

/// Whether the endorsement hierarchy has made the key itself: its qualified name says who has (part 1, 26.5).
fn is_endorsements_own(key: &Endorsement, qualified_name: &[u8]) -> bool {
    let algorithm = match key.public.template().name_hash {
        NameHash::Sha256 => &digest::SHA256,
        NameHash::Sha384 => &digest::SHA384,
    };
    let name = key.public.name();
    let made = [&ENDORSEMENT_HIERARCHY.to_be_bytes(), name.as_bytes()].concat();
    qualified_name.get(..2) == name.as_bytes().get(..2)
        && qualified_name.get(2..) == Some(digest::digest(algorithm, &made).as_ref())
}

/// Loads the key.
pub(super) fn load(chip: &mut Chip, key: &Endorsement) -> Result<KeyHandle, TpmError> {
    let loaded = match &key.place {
        Place::Persistent(at) => {
            chip.context.tr_from_tpm_public(TpmHandle::Persistent(*at)).map(KeyHandle::from).ok()
        }
        Place::Saved(context) => chip.context.context_load((**context).clone()).map(KeyHandle::from).ok(),
        Place::Template => None,
    };
    match loaded {
        Some(handle) => Ok(handle),
        None => Ok(chip.primary(Hierarchy::Endorsement, to_public(key.public.template())?)?.0),
    }
}

impl Endorsement {
    /// `None` if it is not of a template.
    fn new(public: &Public, place: Place) -> Option<Self> {
        let tpmt_public = public.marshall().ok()?;
        let public = EndorsementPublic::parse(&tpmt_public).ok()?;
        Some(Self { public, tpmt_public, certificate: None, place })
    }
}

/// Gives each key its certificate: the one for this very key, at whatever index; else the one at the key's own index,
/// so that the relay can say that it is not the key's.
fn assign(keys: &mut [Endorsement], certificates: &mut Vec<(u32, Vec<u8>)>) {
    let mut take = |keys: &mut [Endorsement], fits: &dyn Fn(&Endorsement, u32, &[u8]) -> bool| {
        for key in keys.iter_mut().filter(|key| key.certificate.is_none()) {
            let at = certificates.iter().position(|(index, der)| fits(key, *index, der));
            key.certificate = at.map(|at| certificates.swap_remove(at));
        }
    };
    take(keys, &|key, _, der| is_for(der, &key.public.spki_der()));
    let is_place = |name, index| PLACES.iter().any(|(of, at, _)| (*of, *at) == (name, index));
    take(keys, &|key, index, _| is_place(key.public.template().name, index));
}

/// Whether the certificate is for this key, whatever it calls the key's algorithm.
fn is_for(certificate: &[u8], spki: &[u8]) -> bool {
    let (Ok((_, certificate)), Ok((_, spki))) =
        (X509Certificate::from_der(certificate), SubjectPublicKeyInfo::from_der(spki))
    else {
        return false;
    };
    certificate.tbs_certificate.subject_pki.subject_public_key.data == spki.subject_public_key.data
}

/// The CA certificates: all chain indices, one behind the other.
fn authorities(stored: &[(u32, Vec<u8>)]) -> Vec<Vec<u8>> {
    let parts = stored.iter().filter(|(index, _)| CHAIN_INDICES.contains(index));
    let whole: Vec<u8> = parts.flat_map(|(_, bytes)| bytes.iter().copied()).collect();
    let mut rest = whole.as_slice();
    let mut list = Vec::new();
    while let Some((certificate, after)) = split_certificate(rest).filter(|_| list.len() < MAX_CERTIFICATES) {
        list.push(certificate.to_vec());
        rest = after;
    }
    list
}

/// The certificate at the beginning, without the padding behind it, and what follows. `None` if there is none.
fn split_certificate(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (rest, _) = X509Certificate::from_der(bytes).ok()?;
    bytes.split_at_checked(bytes.len().checked_sub(rest.len())?)
}

/// Every index of the profile that can be read, in order. One that can't be is none.
fn read_indices(chip: &mut Chip) -> Result<Vec<(u32, Vec<u8>)>, TpmError> {
    let handles = chip.handles(*INDICES.start(), MAX_INDICES)?;
    let mut stored = Vec::new();
    for handle in handles {
        let index = u32::from(handle);
        if !INDICES.contains(&index) {
            continue;
        }
        match read_index(chip, handle) {
            Ok(bytes) => stored.push((index, bytes)),
            Err(error) => match (kind(error), failed("reading NV")(error)) {
                // An area that only its owner reads, or that was never written.
                (Some(Kind::Lockout), _) | (_, TpmError::Failed { .. }) => {
                    tracing::debug!("NV index {index:#010x} cannot be read: {error}");
                }
                (_, error) => return Err(error),
            },
        }
    }
    stored.sort();
    Ok(stored)
}

fn read_index(chip: &mut Chip, handle: TpmHandle) -> tss_esapi::Result<Vec<u8>> {
    let object = chip.context.tr_from_tpm_public(handle)?;
    let index = NvIndexHandle::from(object);
    let (public, _) = chip.context.nv_read_public(index)?;
    if public.data_size() > MAX_INDEX_BYTES {
        return Ok(Vec::new());
    }
    let at = NvIndexTpmHandle::new(u32::from(handle))?;
    let mut read = |by| {
        chip.context
            .execute_with_session(Some(AuthSession::Password), |context| nv::read_full(context, by, at))
    };
    // By the index's own empty password, else by the owner's.
    read(NvAuth::NvIndex(index)).or_else(|_| read(NvAuth::Owner))
}

/// The template as TPM2_CreatePrimary takes it.
pub(super) fn to_public(template: &Template) -> Result<Public, TpmError> {
    template_to_public(template).map_err(failed("writing an endorsement key's template"))
}

fn template_to_public(template: &Template) -> tss_esapi::Result<Public> {
    let (hash, cipher) = match template.name_hash {
        NameHash::Sha256 => (HashingAlgorithm::Sha256, SymmetricDefinitionObject::AES_128_CFB),
        NameHash::Sha384 => (HashingAlgorithm::Sha384, SymmetricDefinitionObject::AES_256_CFB),
    };
    // The low range fills what will hold the key with zeros (B.3), the high range leaves it empty (B.4).
    let is_low = template.name.starts_with('L');
    let public = PublicBuilder::new()
        .with_name_hashing_algorithm(hash)
        .with_object_attributes(ObjectAttributes::from(template.attributes))
        .with_auth_policy(Digest::try_from(template.auth_policy)?);
    match template.kind {
        EndorsementKind::Rsa(bits) => {
            let bits = RsaKeyBits::try_from(bits)?;
            let parameters = PublicRsaParametersBuilder::new()
                .with_symmetric(cipher)
                .with_scheme(RsaScheme::Null)
                .with_key_bits(bits)
                .with_exponent(RsaExponent::default())
                .with_is_decryption_key(true)
                .with_restricted(true);
            let unique =
                if is_low { PublicKeyRsa::new_empty_with_size(bits) } else { PublicKeyRsa::default() };
            public
                .with_public_algorithm(PublicAlgorithm::Rsa)
                .with_rsa_parameters(parameters.build()?)
                .with_rsa_unique_identifier(unique)
        }
        EndorsementKind::Ec(curve) => {
            let (curve, bytes) = match curve {
                Curve::P256 => (EccCurve::NistP256, 32),
                Curve::P384 => (EccCurve::NistP384, 48),
            };
            let parameters = PublicEccParametersBuilder::new()
                .with_symmetric(cipher)
                .with_ecc_scheme(EccScheme::Null)
                .with_curve(curve)
                .with_key_derivation_function_scheme(KeyDerivationFunctionScheme::Null)
                .with_is_decryption_key(true)
                .with_restricted(true);
            let zeros = EccParameter::try_from(vec![0; if is_low { bytes } else { 0 }])?;
            public
                .with_public_algorithm(PublicAlgorithm::Ecc)
                .with_ecc_parameters(parameters.build()?)
                .with_ecc_unique_identifier(EccPoint::new(zeros.clone(), zeros))
        }
    }
    .build()
}

/// Four letters, those that are some.
fn text_of(value: u32) -> String {
    let letters = value.to_be_bytes();
    letters.iter().filter(|byte| byte.is_ascii_graphic()).map(|byte| char::from(*byte)).collect()
}

/// As vendors and Windows write it.
fn version_of(high: u32, low: u32) -> String {
    format!("{}.{}.{}.{}", high >> 16, high & 0xffff, low >> 16, low & 0xffff)
}
