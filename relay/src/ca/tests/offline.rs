//! Roots of your own: what a keeper may sign, and what is not installed.

use super::*;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use shared::secret::Secret;

/// A root's keeper, who signs what it is given, as told.
struct Keeper {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    key_pem: String,
}

impl Keeper {
    fn new(name: &str) -> Self {
        Self::with(name, |_| {})
    }

    fn with(name: &str, change: impl Fn(&mut CertificateParams)) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.not_before = now().plus_seconds(-DAY).to_offset_date_time();
        params.not_after = now().plus_seconds(9000 * DAY).to_offset_date_time();
        change(&mut params);
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let key_pem = key.serialize_pem();
        Self { issuer: Issuer::new(params, key), pem, key_pem }
    }

    fn sign(&self, pending: &PendingCa) -> String {
        self.sign_as(pending, |_| {})
    }

    fn sign_as(&self, pending: &PendingCa, change: impl Fn(&mut CertificateParams)) -> String {
        let mut request = CertificateSigningRequestParams::from_pem(&pending.request_pem).unwrap();
        request.params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        request.params.use_authority_key_identifier_extension = true;
        request.params.not_before = now().plus_seconds(-DAY).to_offset_date_time();
        request.params.not_after = now().plus_seconds(400 * DAY).to_offset_date_time();
        change(&mut request.params);
        request.params.signed_by(&request.public_key, &self.issuer).unwrap().pem()
    }
}

fn pending(names: &[CaName]) -> Vec<PendingCa> {
    requests(&trust_domain(), names, now(), &ring(), &random()).unwrap()
}

fn put(
    existing: Vec<CaRecord>,
    pending: &[PendingCa],
    (platform, tenant): (&Keeper, &Keeper),
    signed: &str,
) -> Result<Vec<CaRecord>, CaError> {
    let roots = SignedRoots { platform: &platform.pem, tenant: &tenant.pem };
    install(&trust_domain(), existing, pending, roots, signed, now(), &ring())
}

fn keepers() -> (Keeper, Keeper) {
    (Keeper::new("my platform root"), Keeper::new("my tenant root"))
}

fn signed_by(platform: &Keeper, tenant: &Keeper, pending: &[PendingCa]) -> String {
    let sign =
        |one: &PendingCa| if one.domain == Domain::Tenant { tenant.sign(one) } else { platform.sign(one) };
    pending.iter().rev().map(sign).collect()
}

#[test]
fn offline_roots_sign_requests_and_the_relay_runs_on_them() {
    let (platform, tenant) = keepers();
    let pending = pending(&CaName::ISSUING);
    for one in &pending {
        assert!(one.request_pem.contains("BEGIN CERTIFICATE REQUEST"));
        crate::csr::verify_request(&CertificateRequest::parse(&one.request_pem).unwrap()).unwrap();
    }
    let signed = signed_by(&platform, &tenant, &pending);
    let records = put(vec![], &pending, (&platform, &tenant), &signed).unwrap();
    let authority = open(records.clone()).unwrap();
    let root = der(&platform.pem);
    assert_eq!(authority.issue_relay(&[], now()).unwrap().chain[2], root);
    assert_eq!(
        authority.pin().unwrap(),
        format!("sha256:{}", hex::encode(&Sha256::digest(parsed(&root).public_key().raw)))
    );
    for profile in Profile::ALL {
        let issued = issue(&authority, profile);
        let leaf = der(&issued.certificate_pem);
        assert_eq!(authority.trust().judge(&leaf, &[der(&issued.chain_pem)], now()).unwrap().kind, profile);
    }
    // One is renewed later: the old one overlaps, the roots stay.
    let again = offline::pending(&[CaName::Node]);
    let renewed = put(records, &again, (&platform, &tenant), &platform.sign(&again[0])).unwrap();
    assert_eq!(renewed.len(), 7);
    let authority = open(renewed).unwrap();
    assert_eq!(issue(&authority, Profile::Node).issuer, again[0].id);
}

#[test]
fn a_signed_ca_that_breaks_a_rule_is_not_installed() {
    let (platform, tenant) = keepers();
    let pending = pending(&[CaName::Node]);
    let node = &pending[0];
    let refuse = |what: &str, signed: &str| {
        let refused = put(vec![], &pending, (&platform, &tenant), signed);
        assert!(matches!(refused, Err(CaError::Certificate { .. })), "{what}: {refused:?}");
    };
    let changed = |change: &dyn Fn(&mut CertificateParams)| platform.sign_as(node, change);
    assert!(put(vec![], &pending, (&platform, &tenant), &platform.sign(node)).is_ok());
    refuse("the other root", &tenant.sign(node));
    refuse("a stranger of the root's name", &Keeper::new("my platform root").sign(node));
    refuse("no CA", &changed(&|params| params.is_ca = IsCa::ExplicitNoCa));
    refuse("pathLen 1", &changed(&|params| params.is_ca = IsCa::Ca(BasicConstraints::Constrained(1))));
    refuse("no pathLen", &changed(&|params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained)));
    refuse("no keyUsage", &changed(&|params| params.key_usages = vec![]));
    refuse("no keyCertSign", &changed(&|params| params.key_usages = vec![KeyUsagePurpose::CrlSign]));
    refuse("no cRLSign", &changed(&|params| params.key_usages = vec![KeyUsagePurpose::KeyCertSign]));
    refuse("no AKI", &changed(&|params| params.use_authority_key_identifier_extension = false));
    refuse("expired", &changed(&|params| params.not_after = now().plus_seconds(-1).to_offset_date_time()));
    refuse("not yet", &changed(&|params| params.not_before = now().plus_seconds(60).to_offset_date_time()));
    refuse(
        "longer than its root",
        &changed(&|params| params.not_after = now().plus_seconds(9001 * DAY).to_offset_date_time()),
    );
    refuse(
        "for servers only",
        &changed(&|params| params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth]),
    );
    refuse(
        "name constraints",
        &changed(&|params| {
            params.name_constraints = Some(rcgen::NameConstraints {
                permitted_subtrees: vec![rcgen::GeneralSubtree::DnsName("example".to_owned())],
                excluded_subtrees: vec![],
            });
        }),
    );
    refuse(
        "an unknown critical extension",
        &changed(&|params| {
            let mut extension = rcgen::CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0]);
            extension.set_criticality(true);
            params.custom_extensions = vec![extension];
        }),
    );
    let stranger = offline::pending(&[CaName::Node]);
    refuse("another key", &platform.sign(&stranger[0]));
    refuse("nothing", "");
    refuse("no certificate", &node.request_pem);
    refuse("too many", &platform.sign(node).repeat(33));
}

#[test]
fn a_root_that_breaks_a_rule_is_not_installed() {
    let (platform, tenant) = keepers();
    let pending = pending(&[CaName::Node]);
    let refuse = |what: &str, root: &Keeper| {
        let refused = put(vec![], &pending, (root, &tenant), &root.sign(&pending[0]));
        assert!(matches!(refused, Err(CaError::Certificate { .. })), "{what}: {refused:?}");
    };
    refuse("no CA", &Keeper::with("root", |params| params.is_ca = IsCa::ExplicitNoCa));
    refuse(
        "no room",
        &Keeper::with("root", |params| params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0))),
    );
    refuse("no keyUsage", &Keeper::with("root", |params| params.key_usages = vec![]));
    refuse(
        "expired",
        &Keeper::with("root", |params| params.not_after = now().plus_seconds(-1).to_offset_date_time()),
    );
    let same = put(vec![], &pending, (&tenant, &tenant), &tenant.sign(&pending[0]));
    assert!(matches!(same, Err(CaError::Certificate { .. })), "one root for both domains");
    // A root's certificate with another signature than its own.
    let mut forged = Keeper::new("my platform root");
    let text = forged.pem.clone();
    let mut bytes = der(&text).to_vec();
    *bytes.last_mut().unwrap() ^= 1;
    forged.pem = pem_of(&bytes);
    refuse("a broken self-signature", &forged);
    assert!(put(vec![], &pending, (&platform, &tenant), &platform.sign(&pending[0])).is_ok());
}

#[test]
fn a_root_with_its_key_is_taken_over_and_a_wrong_key_is_not() {
    let (platform, tenant) = keepers();
    let given = |certificate: &Keeper, key: &Keeper| RootSource::Given {
        certificate_pem: certificate.pem.clone(),
        key_pem: Secret::new(key.key_pem.clone()),
    };
    let make =
        |platform, tenant| create(&trust_domain(), Roots { platform, tenant }, now(), &ring(), &random());
    let records = make(given(&platform, &platform), RootSource::Drawn).unwrap();
    assert_eq!(records[0].certificate_pem, platform.pem);
    assert!(records[0].sealed_key.as_ref().is_some_and(|sealed| sealed.starts_with("v1.")));
    let authority = open(records.clone()).unwrap();
    let issued = issue(&authority, Profile::Node);
    authority.trust().judge(&der(&issued.certificate_pem), &[der(&issued.chain_pem)], now()).unwrap();
    let turned =
        rotate(&trust_domain(), records, Demand::Issuer(CaName::Node), now(), &ring(), &random()).unwrap();
    assert!(matches!(turned.changes.as_slice(), [Change::Issued { .. }]));

    let wrong = make(given(&platform, &tenant), RootSource::Drawn);
    assert!(matches!(wrong, Err(CaError::Certificate { .. })));
    let twice = make(given(&platform, &platform), given(&platform, &platform));
    assert!(matches!(twice, Err(CaError::Certificate { .. })));
    for bad in ["", "x", &platform.pem] {
        let key_pem = Secret::new(bad.to_owned());
        let source = RootSource::Given { certificate_pem: platform.pem.clone(), key_pem };
        assert!(matches!(make(source, RootSource::Drawn), Err(CaError::RootKeyForm)));
    }
}

#[test]
fn a_roots_key_may_be_in_either_form_of_ec_keys_and_is_no_rsa_key() {
    use aws_lc_rs::{
        encoding::{AsDer as _, EcPrivateKeyRfc5915Der},
        signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _},
    };
    let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap();
    let sec1: EcPrivateKeyRfc5915Der<'_> = pair.private_key().as_der().unwrap();
    let text = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, sec1.as_ref());
    let pem = format!("-----BEGIN EC PRIVATE KEY-----\n{text}\n-----END EC PRIVATE KEY-----\n");
    let key = keys::CaKey::from_pem(&Secret::new(pem)).unwrap();
    assert_eq!(key.public().point(), pair.public_key().as_ref());

    let rsa = KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap().serialize_pem();
    assert!(matches!(keys::CaKey::from_pem(&Secret::new(rsa)), Err(CaError::RootKeyForm)));
}

#[test]
fn no_request_is_made_for_a_root() {
    let refused = requests(&trust_domain(), &[CaName::Root], now(), &ring(), &random());
    assert!(matches!(refused, Err(CaError::UnknownIssuer { .. })));
}
