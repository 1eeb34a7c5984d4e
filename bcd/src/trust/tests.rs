//! Chains of every kind against every kind of anchor.

use super::*;
use crate::{
    host::{Host as _, System},
    testing::{Ca, Leaf, intermediate, pin, root},
};
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair, SubjectPublicKeyInfo};

fn algorithms() -> WebPkiSupportedAlgorithms {
    rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms
}

fn pinned(ca: &Ca) -> Policy {
    Policy { anchors: Anchors::Pinned { pins: vec![pin(ca)], known: Vec::new() }, trust_domain: None }
}

fn judge_at(
    policy: &Policy,
    leaf: &CertificateDer<'static>,
    rest: &[CertificateDer<'static>],
    host: &str,
    now: Timestamp,
) -> Result<Option<String>, TrustError> {
    judge_by(policy, leaf, rest, host, Clocks { wall: now, relay: None, is_fresh: false })
}

fn judge_by(
    policy: &Policy,
    leaf: &CertificateDer<'static>,
    rest: &[CertificateDer<'static>],
    host: &str,
    clocks: Clocks,
) -> Result<Option<String>, TrustError> {
    policy.judge(leaf, rest, &ServerName::try_from(host.to_owned()).unwrap(), clocks, &algorithms())
}

fn judge(
    policy: &Policy,
    leaf: &CertificateDer<'static>,
    rest: &[CertificateDer<'static>],
    host: &str,
) -> Result<Option<String>, TrustError> {
    judge_at(policy, leaf, rest, host, System.wall())
}

/// A root, its CA for relays, and the chain behind a leaf.
fn pki() -> (Ca, Ca, Vec<CertificateDer<'static>>) {
    let root = root("root");
    let issuing = intermediate("relay", &root);
    let chain = vec![issuing.der().clone(), root.der().clone()];
    (root, issuing, chain)
}

#[test]
fn our_relay_is_ours_by_every_kind_of_anchor() {
    let (root, issuing, chain) = pki();
    let (leaf, _) = Leaf::relay().issue(&issuing);
    let good = Ok(Some("td.example".to_owned()));
    assert_eq!(judge(&pinned(&root), &leaf, &chain, "localhost"), good);
    assert_eq!(judge(&pinned(&root), &leaf, &chain, "127.0.0.1"), good);
    // The issuing CA may be what is pinned.
    assert_eq!(judge(&pinned(&issuing), &leaf, &chain, "localhost"), good);
    let given = Policy { anchors: Anchors::Given(vec![root.der().clone()]), trust_domain: None };
    assert_eq!(judge(&given, &leaf, &chain[..1], "localhost"), good);
    // The root comes from ca.crt where the relay does not send it.
    let known = Anchors::Pinned { pins: vec![[0; 32], pin(&root)], known: vec![root.der().clone()] };
    let known = Policy { anchors: known, trust_domain: Some("td.example".into()) };
    assert_eq!(judge(&known, &leaf, &chain[..1], "localhost"), good);
}

#[test]
fn a_wrong_pin_is_named_with_the_one_that_is_offered() {
    let (root, issuing, chain) = pki();
    let (leaf, _) = Leaf::relay().issue(&issuing);
    let other = crate::testing::root("other");
    let error = judge(&pinned(&other), &leaf, &chain, "localhost").unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&show_pin(&pin(&other))) && text.contains(&show_pin(&pin(&root))), "{text}");
    // A chain without the root has no pinned key in it.
    assert!(matches!(
        judge(&pinned(&root), &leaf, &chain[..1], "localhost"),
        Err(TrustError::PinMismatch { .. })
    ));
}

#[test]
fn a_chain_that_merely_contains_the_pinned_certificate_is_refused() {
    let (root, issuing, _) = pki();
    let foreign_root = crate::testing::root("root");
    let foreign = intermediate("relay", &foreign_root);
    let (leaf, _) = Leaf::relay().issue(&foreign);
    for rest in [
        vec![root.der().clone()],
        vec![foreign.der().clone(), root.der().clone()],
        vec![issuing.der().clone(), root.der().clone()],
        vec![foreign.der().clone(), foreign_root.der().clone(), root.der().clone()],
    ] {
        let error = judge(&pinned(&root), &leaf, &rest, "localhost").unwrap_err();
        assert!(matches!(error, TrustError::NoPath(_)), "{error}");
    }
}

#[test]
fn a_certificate_for_the_pinned_key_that_somebody_else_made_helps_nobody() {
    let (root, _, _) = pki();
    let thief = crate::testing::root("root");
    let key =
        SubjectPublicKeyInfo::from_der(&rcgen::PublicKeyData::subject_public_key_info(root.key())).unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, "root");
    let forged = params.signed_by(&key, &thief).unwrap().der().clone();
    let (leaf, _) = Leaf::relay().issue(&thief);
    let error = judge(&pinned(&root), &leaf, &[thief.der().clone(), forged], "localhost").unwrap_err();
    assert!(matches!(error, TrustError::NoPath(_)), "{error}");
}

#[test]
fn a_leaf_with_the_pinned_key_is_no_anchor_for_itself() {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let leaf = params.self_signed(&key).unwrap().der().clone();
    let digest = aws_lc_rs::digest::digest(
        &aws_lc_rs::digest::SHA256,
        &rcgen::PublicKeyData::subject_public_key_info(&key),
    );
    let pins = vec![digest.as_ref().try_into().unwrap()];
    let policy = Policy { anchors: Anchors::Pinned { pins, known: Vec::new() }, trust_domain: None };
    for rest in [vec![], vec![leaf.clone()]] {
        let error = judge(&policy, &leaf, &rest, "localhost").unwrap_err();
        assert!(matches!(error, TrustError::PinMismatch { .. }), "{error}");
    }
}

#[test]
fn a_node_of_the_same_ca_is_no_relay() {
    let (root, issuing, chain) = pki();
    let node = Leaf { hosts: vec!["localhost"], ..Leaf::node(System.wall().plus_seconds(3600)) };
    let serving = Leaf { usage: ExtendedKeyUsagePurpose::ServerAuth, ..node.clone() };
    let (leaf, _) = node.issue(&issuing);
    assert!(matches!(judge(&pinned(&root), &leaf, &chain, "localhost"), Err(TrustError::NoPath(_))));
    let (leaf, _) = serving.issue(&issuing);
    assert!(matches!(judge(&pinned(&root), &leaf, &chain, "localhost"), Err(TrustError::NotARelay(_))));
    for uri in [
        None,
        Some("spiffe://td.example/relay/x"),
        Some("spiffe://td.example/node/relay"),
        Some("spiffe://td.example/relay?"),
        Some("spiffe:///relay"),
        Some("spiffe://td.example//relay"),
        Some("spiffe://user@td.example/relay"),
        Some("https://td.example/relay"),
    ] {
        let (leaf, _) = Leaf { uri: uri.map(str::to_owned), ..Leaf::relay() }.issue(&issuing);
        let verdict = judge(&pinned(&root), &leaf, &chain, "localhost");
        assert!(matches!(verdict, Err(TrustError::NotARelay(_))), "{uri:?} {verdict:?}");
    }
}

#[test]
fn the_systems_roots_need_no_uri() {
    let (root, issuing, chain) = pki();
    let policy = Policy { anchors: Anchors::System(vec![root.der().clone()]), trust_domain: None };
    let (leaf, _) = Leaf { uri: None, ..Leaf::relay() }.issue(&issuing);
    assert_eq!(judge(&policy, &leaf, &chain, "localhost"), Ok(None));
    assert!(matches!(judge(&policy, &leaf, &chain, "example.org"), Err(TrustError::NameMismatch { .. })));
}

#[test]
fn another_host_and_another_trust_domain_are_named() {
    let (root, issuing, chain) = pki();
    let (leaf, _) = Leaf::relay().issue(&issuing);
    for host in ["relay.example", "127.0.0.2", "::1"] {
        let text = judge(&pinned(&root), &leaf, &chain, host).unwrap_err().to_string();
        assert!(text.contains(host) && text.contains("localhost, 127.0.0.1"), "{text}");
    }
    let moved = Policy { trust_domain: Some("old.example".into()), ..pinned(&root) };
    let text = judge(&moved, &leaf, &chain, "localhost").unwrap_err().to_string();
    assert!(text.contains("old.example") && text.contains("td.example"), "{text}");
}

#[test]
fn a_clock_that_is_behind_is_blamed_only_if_nothing_else_is_wrong() {
    let (root, issuing, chain) = pki();
    let (leaf, _) = Leaf::relay().issue(&issuing);
    let not_before = Timestamp::from_seconds(Leaf::relay().from.seconds());
    let early = System.wall().plus_seconds(-3600);
    let near = |time: Timestamp| time.since(not_before).as_secs() < 60;
    match judge_at(&pinned(&root), &leaf, &chain, "localhost", early) {
        Err(TrustError::ClockBehind { clocks, not_before }) => {
            assert!(clocks.wall == early && near(not_before));
        }
        other => panic!("{other:?}"),
    }
    // In 1970 even the CA's certificates are of the future.
    let epoch = judge_at(&pinned(&root), &leaf, &chain, "localhost", Timestamp::from_seconds(0));
    assert!(matches!(epoch, Err(TrustError::ClockBehind { .. })), "{epoch:?}");
    let elsewhere = judge_at(&pinned(&root), &leaf, &chain, "elsewhere", early);
    assert!(matches!(elsewhere, Err(TrustError::NameMismatch { .. })), "{elsewhere:?}");
    let foreign = crate::testing::root("root");
    let (stolen, _) = Leaf::relay().issue(&foreign);
    let stolen = judge_at(&pinned(&root), &stolen, &chain, "localhost", early);
    assert!(matches!(stolen, Err(TrustError::NoPath(_))), "{stolen:?}");
}

#[test]
fn an_expired_certificate_names_both_dates() {
    let (root, issuing, chain) = pki();
    let (leaf, _) = Leaf::relay().issue(&issuing);
    let late = System.wall().plus_seconds(90_000);
    let error = judge_at(&pinned(&root), &leaf, &chain, "localhost", late).unwrap_err();
    assert!(matches!(error, TrustError::Expired { clocks, .. } if clocks.wall == late), "{error}");
}

#[test]
fn a_root_that_is_over_is_trusted_no_more_however_it_is_named() {
    let root = root("root");
    let end = System.wall().plus_seconds(157_000_000);
    let (leaf, _) = Leaf { until: end.plus_seconds(86_400), ..Leaf::relay() }.issue(&root);
    let chain = [root.der().clone()];
    let given = |anchors| Policy { anchors, trust_domain: None };
    let certificates = vec![root.der().clone()];
    for policy in [
        pinned(&root),
        given(Anchors::Given(certificates.clone())),
        given(Anchors::System(certificates.clone())),
    ] {
        judge_at(&policy, &leaf, &chain, "localhost", end.plus_seconds(-3600)).unwrap();
        let late = judge_at(&policy, &leaf, &chain, "localhost", end.plus_seconds(3600));
        assert!(matches!(late, Err(TrustError::AnchorExpired { .. })), "{late:?}");
    }
    // One that lives is enough.
    let both = vec![root.der().clone(), crate::testing::root("other").der().clone()];
    let clocks = Clocks { wall: end.plus_seconds(-3600), relay: None, is_fresh: false };
    let roots = given(Anchors::Given(both));
    assert!(judge_by(&roots, &leaf, &chain, "localhost", clocks).is_ok());
}

#[test]
fn either_clock_lets_a_certificate_begin_and_only_the_relays_lets_it_go_on() {
    const HOUR: i64 = 3600;
    let (root, issuing, chain) = pki();
    // It begins 5 minutes ago, and ends in a day.
    let (leaf, _) = Leaf::relay().issue(&issuing);
    for (wall, relay, is_fresh, expected) in [
        // The relay stood 3 hours behind and is right again.
        (0, -3 * HOUR, true, "good"),
        (-3 * HOUR, 0, true, "good"),
        (-3 * HOUR, -3 * HOUR, true, "begins"),
        // A stepped wall clock ends nothing, and revives nothing that has ended.
        (100 * HOUR, 0, true, "good"),
        (0, 100 * HOUR, true, "ended"),
        // What the relay said long ago is no better than the wall clock.
        (0, 100 * HOUR, false, "good"),
        (100 * HOUR, 100 * HOUR, false, "ended"),
    ] {
        let at = |off: i64| System.wall().plus_seconds(off);
        let clocks = Clocks { wall: at(wall), relay: Some(at(relay)), is_fresh };
        let word = match judge_by(&pinned(&root), &leaf, &chain, "localhost", clocks) {
            Ok(_) => "good",
            Err(TrustError::ClockBehind { .. }) => "begins",
            Err(TrustError::Expired { .. }) => "ended",
            Err(other) => panic!("{other}"),
        };
        assert_eq!(word, expected, "wall {wall}, relay {relay}");
    }
}

#[test]
fn which_clock_is_off_is_said_only_where_that_is_known() {
    let not_before = Timestamp::parse("2027-01-01T00:00:00Z").unwrap();
    let said = |wall: &str, relay: Option<&str>| {
        let parse = |text: &str| Timestamp::parse(text).unwrap();
        let clocks = Clocks { wall: parse(wall), relay: relay.map(parse), is_fresh: true };
        TrustError::ClockBehind { clocks, not_before }.to_string()
    };
    let text = said("1970-01-01T00:00:07Z", None);
    assert!(text.contains("1970-01-01") && text.contains("this machine's clock is wrong, set it"), "{text}");
    let text = said("2026-12-01T00:00:00Z", None);
    assert!(text.contains("set this machine's clock, or, if it is right, the relay's"), "{text}");
    let text = said("2026-12-01T00:00:00Z", Some("2026-11-30T23:59:59Z"));
    assert!(
        text.contains("2026-11-30T23:59:59") && text.contains("relay's clock has been put ahead"),
        "{text}"
    );
}

#[test]
fn what_is_no_certificate_is_refused() {
    let (root, issuing, chain) = pki();
    let nonsense = CertificateDer::from(vec![0x30, 0x03, 1, 2, 3]);
    assert!(judge(&pinned(&root), &nonsense, &chain, "localhost").is_err());
    let (leaf, _) = Leaf::relay().issue(&issuing);
    let verdict = judge(&pinned(&root), &leaf, &[nonsense.clone(), nonsense], "localhost");
    assert!(matches!(verdict, Err(TrustError::PinMismatch { .. })), "{verdict:?}");
    let long: Vec<_> = std::iter::repeat_n(issuing.der().clone(), 50).chain(chain).collect();
    assert!(judge(&pinned(&root), &leaf, &long, "localhost").is_err(), "a chain without end");
}
