//! Requests that are not what they should be: refused by name, or given exactly our profile, never what they ask.

use super::{World, outcome};
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, IsCa, KeyPair, PKCS_ECDSA_P256_SHA256,
    PKCS_ECDSA_P384_SHA384, SanType,
};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU32, Ordering};
use tests::{Answer, Database, LocalRelay, Machine, on_both_databases};

on_both_databases!(a_request_is_given_our_profile_or_refused, bodies_are_bounded_and_named);

async fn join(relay: &LocalRelay, token: &str, csr: &str) -> Answer {
    static NUMBER: AtomicU32 = AtomicU32::new(1);
    let mut input = Machine::new(NUMBER.fetch_add(1, Ordering::Relaxed)).join_input();
    input["csr"] = json!(csr);
    relay.call_as(token, "node/join", &input).await
}

fn request(key: &KeyPair, change: impl FnOnce(&mut CertificateParams)) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, tests::unique("machine"));
    change(&mut params);
    params.serialize_request(key).unwrap().pem().unwrap()
}

fn p256() -> KeyPair {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap()
}

/// Everything of a certificate that a request might have wanted otherwise.
fn profile(answer: &Answer) -> Value {
    let text = answer.body["certificate"].as_str().unwrap_or_else(|| panic!("{}", answer.body)).to_owned();
    let (_, pem) = x509_parser::pem::parse_x509_pem(text.as_bytes()).unwrap();
    let parsed = pem.parse_x509().unwrap();
    let usage = parsed.key_usage().unwrap().unwrap().value;
    let extended = parsed.extended_key_usage().unwrap().unwrap().value;
    let sans = &parsed.subject_alternative_name().unwrap().unwrap().value.general_names;
    json!({
        "ca": parsed.is_ca(),
        "names": sans.len(),
        "uri": sans[0].to_string().contains(answer.body["nodeId"].as_str().unwrap()),
        "subject": parsed.subject().to_string() == format!("CN={}", answer.body["nodeId"].as_str().unwrap()),
        "usage": usage.flags,
        "client": extended.client_auth && !extended.server_auth && !extended.any,
        "seconds": parsed.validity().not_after.timestamp() - parsed.validity().not_before.timestamp(),
        "extensions": parsed.extensions().len(),
        "serialBytes": parsed.raw_serial().iter().skip_while(|byte| **byte == 0).count() <= 16,
    })
}

async fn a_request_is_given_our_profile_or_refused(database: Database) {
    let world = World::new(database).await;
    let token = world.relay.mint(json!({"maxUses": 20})).await;
    let plain = profile(&join(&world.relay, &token, &request(&p256(), |_| {})).await);
    assert_eq!(plain["seconds"], 86_400 + 300);
    assert_eq!((&plain["ca"], &plain["names"], &plain["client"]), (&json!(false), &json!(1), &json!(true)));
    let greedy: [fn(&mut CertificateParams); 4] = [
        |params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained),
        |params| {
            params.subject_alt_names = vec![
                SanType::DnsName("relay".try_into().unwrap()),
                SanType::URI("spiffe://127.0.0.1/relay".try_into().unwrap()),
            ];
        },
        |params| params.distinguished_name.push(DnType::OrganizationName, "system:masters"),
        |params| {
            let extension = CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 99999, 1], vec![4; 600]);
            params.custom_extensions = vec![extension];
        },
    ];
    for change in greedy {
        // rcgen itself may not put it into a request; what it does put there must change nothing.
        let Ok(csr) = std::panic::catch_unwind(|| request(&p256(), change)) else { continue };
        assert_eq!(profile(&join(&world.relay, &token, &csr).await), plain);
    }
    let p384 = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap();
    assert_eq!(profile(&join(&world.relay, &token, &request(&p384, |_| {})).await), plain);
    for csr in broken() {
        let answer = join(&world.relay, &token, &csr).await;
        assert_eq!(outcome(&answer), "badCsr", "{csr}");
        assert_eq!((answer.status, answer.body["errors"][0]["field"].as_str()), (400, Some("csr")));
    }
}

/// Requests that can't be granted: each breaks one rule.
fn broken() -> Vec<String> {
    let good = request(&p256(), |_| {});
    let (begin, end) = ("-----BEGIN CERTIFICATE REQUEST-----", "-----END CERTIFICATE REQUEST-----");
    let body: String = good.replace(begin, "").replace(end, "").split_whitespace().collect();
    let wrap = |body: &str| format!("{begin}\n{body}\n{end}\n");
    let mut flipped = body.clone().into_bytes();
    let last = flipped.len() - 8;
    flipped[last] = if flipped[last] == b'A' { b'B' } else { b'A' };
    let ed25519 = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    vec![
        String::new(),
        "hello".to_owned(),
        good.replace(begin, "-----BEGIN CERTIFICATE-----"),
        format!("{good}{good}"),
        format!("{good}tail"),
        wrap(&body[..body.len() / 2]),
        wrap("AAAA"),
        wrap(std::str::from_utf8(&flipped).unwrap()),
        request(&ed25519, |_| {}),
    ]
}

async fn bodies_are_bounded_and_named(database: Database) {
    let world = World::new(database).await;
    let token = world.relay.mint(json!({"maxUses": 20})).await;
    let input = Machine::new(1).join_input();
    for (member, value, field) in [
        ("csr", json!("x".repeat(16_385)), "csr"),
        ("csr", json!(7), "csr"),
        ("identity", json!([]), "identity"),
        ("agent", json!({"version": "1", "os": "x", "arch": "y", "extra": 1}), "agent.extra"),
        ("proof", json!({"challengeId": "x"}), "proof.secret"),
        ("identity", json!({"macs": vec!["00:00:00:00:00:01"; 65]}), "identity.macs"),
    ] {
        let mut bad = input.clone();
        bad[member] = value;
        let answer = world.relay.call_as(&token, "node/join", &bad).await;
        assert_eq!(outcome(&answer), "INVALID_INPUT", "{member}");
        assert_eq!(answer.body["errors"][0]["field"], field, "{}", answer.body);
    }
    let mut huge = input.clone();
    huge["identity"]["hostname"] = json!("h".repeat(300_000));
    assert_eq!(outcome(&world.relay.call_as(&token, "node/join", &huge).await), "PAYLOAD_TOO_LARGE");
    // An odd identity never refuses a join: at most a person looks at it.
    let mut odd = input;
    odd["identity"] = json!({"productUuid": "\u{0}\u{1}", "serial": "s".repeat(5000), "macs": ["é"], "gpuUuids": [""], "hostname": "\n"});
    let answer = world.relay.call_as(&token, "node/join", &odd).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
}
