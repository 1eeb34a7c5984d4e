//! compute/endorsementAuthorities: the site's owner says which CAs of TPM manufacturers a pool believes.

use super::*;
use crate::join::attest::tpm::authorities::parse_bundle;
use Code::{Conflict, InvalidInput, InvalidState, NotFound, PermissionDenied};
use TenantRole::{Editor, Guest, Owner, Viewer};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair};
use sha2::{Digest as _, Sha256};
use std::time::Duration;

/// A self-signed certificate.
struct Root {
    pem: String,
    sha256: String,
}

fn certificate(name: &str, is_ca: IsCa) -> Root {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = is_ca;
    params.not_after = Timestamp::parse("2040-01-02T03:04:05.000Z").unwrap().to_offset_date_time();
    let signed = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
    Root { pem: signed.pem(), sha256: shared::hex::encode(&Sha256::digest(signed.der())) }
}

fn ca(name: &str) -> Root {
    certificate(name, IsCa::Ca(BasicConstraints::Unconstrained))
}

/// A bundle that can be added.
pub(super) fn bundle() -> String {
    ca("a").pem
}

fn pool() -> Value {
    json!({"tenantId": "acme", "poolId": "gpu-a"})
}

fn adding(certificates: &str) -> Value {
    json!({"tenantId": "acme", "poolId": "gpu-a", "certificates": certificates})
}

fn removing(id: &Value) -> Value {
    json!({"tenantId": "acme", "poolId": "gpu-a", "authorityId": id})
}

#[tokio::test]
async fn the_sites_owner_decides() {
    at_a_desk(async |desk| {
        let pem = bundle();
        let there = desk.good(&root(), "compute.endorsementAuthorities.add", adding(&pem)).await;
        let id = &there["endorsementAuthority"]["id"];
        for (caller, read, write) in [
            (auditor(), None, Some(PermissionDenied)),
            (member("provider", Editor), None, Some(PermissionDenied)),
            (member("provider", Viewer), None, Some(PermissionDenied)),
            (member("provider", Guest), Some(NotFound), Some(NotFound)),
            (member("acme", Owner), Some(PermissionDenied), Some(PermissionDenied)),
            (project_member("ml", ProjectRole::Owner), Some(PermissionDenied), Some(PermissionDenied)),
            (member("other", Owner), Some(NotFound), Some(NotFound)),
            (member("provider", Owner), None, None),
        ] {
            for (method, body, expected) in
                [("add", adding(&pem), write), ("list", pool(), read), ("remove", removing(id), write)]
            {
                let method = format!("compute.endorsementAuthorities.{method}");
                assert_eq!(desk.code(&caller, &method, body).await, expected, "{} {method}", caller.subject);
            }
        }
        assert_eq!(desk.events().await.len(), 3, "two added, one removed, nothing refused is told");
        // On acme's own site its owner is acme.
        let cows = json!({"poolId": "cows", "tenantId": "acme", "siteId": "barn"});
        desk.good(&root(), "compute.pools.create", cows).await;
        let mut own = adding(&pem);
        own["poolId"] = json!("cows");
        let (owner, method) = (member("acme", Owner), "compute.endorsementAuthorities.add");
        assert_eq!(desk.code(&owner, method, own.clone()).await, None);
        assert_eq!(desk.code(&member("provider", Owner), method, own).await, Some(NotFound));
    })
    .await;
}

#[tokio::test]
async fn a_bundle_is_shown_by_its_certificates_and_told() {
    at_a_desk(async |desk| {
        let (one, two) = (ca("one"), ca("two"));
        let mut add = adding(&format!("# TPM makers\n{}\n# more\n{}", one.pem, two.pem.replace('\n', "\r\n")));
        add["idempotencyKey"] = json!("k");
        let added = desk.good(&root(), "compute.endorsementAuthorities.add", add.clone()).await;
        let id = added["endorsementAuthority"]["id"].as_str().unwrap().to_owned();
        assert!(id.starts_with("ea_") && id.len() == 29, "{id}");
        let shown = |root: &Root, name: &str| {
            json!({"subject": format!("CN={name}"), "sha256": root.sha256, "notAfter": "2040-01-02T03:04:05.000Z"})
        };
        let record = json!({
            "id": id, "certificates": [shown(&one, "one"), shown(&two, "two")],
            "addedAt": "2026-01-02T03:04:05.678Z", "addedBy": root().subject,
        });
        assert_eq!(added, json!({"endorsementAuthority": record}));
        assert_eq!(desk.events().await, [("security.endorsement-authority.added".to_owned(), id.clone())]);
        assert_eq!(desk.last_event().await, json!({"poolId": "gpu-a", "certificates": [one.sha256, two.sha256]}));
        let stored = desk.relay.store.read("bundles", (), |tx, ()| {
            Box::pin(crate::store::endorsement_authorities::all(tx, "gpu-a"))
        });
        let stored = stored.await.unwrap();
        assert!(!stored[0].certificates.contains('#'), "what is no certificate is not kept");
        assert_eq!(parse_bundle(&stored[0].certificates).unwrap().len(), 2);
        desk.clock.advance(Duration::from_secs(5));
        assert_eq!(desk.good(&root(), "compute.endorsementAuthorities.add", add.clone()).await, added);
        add["certificates"] = json!(one.pem);
        assert_eq!(desk.code(&root(), "compute.endorsementAuthorities.add", add).await, Some(Conflict));
        let list = desk.good(&root(), "compute.endorsementAuthorities.list", pool()).await;
        assert_eq!(list, json!({"endorsementAuthorities": [record]}));
        // It is of this pool, and of no other.
        let elsewhere = json!({"tenantId": "provider", "poolId": "own", "authorityId": id});
        let remove = "compute.endorsementAuthorities.remove";
        assert_eq!(desk.code(&root(), remove, elsewhere).await, Some(NotFound));
        assert_eq!(desk.good(&root(), remove, removing(&json!(id))).await, added);
        assert_eq!(desk.code(&root(), remove, removing(&json!(id))).await, Some(NotFound));
        let told = ["security.endorsement-authority.added", "security.endorsement-authority.removed"];
        assert_eq!(desk.events().await, told.map(|kind| (kind.to_owned(), id.clone())));
    })
    .await;
}

#[tokio::test]
async fn every_problem_of_a_bundle_is_named_by_its_block() {
    at_a_desk(async |desk| {
        let (good, no_ca) = (ca("good"), certificate("leaf", IsCa::ExplicitNoCa));
        let secret = KeyPair::generate().unwrap().serialize_pem();
        let bad = [&good.pem, &no_ca.pem, &secret, &good.pem].map(String::as_str).concat();
        let padded = format!("{}\n{}", " ".repeat(64 * 1024 - 1 - good.pem.len()), good.pem);
        for (certificates, blocks) in [
            (bad, ["block 2: ", "block 3: ", "block 4: "].as_slice()),
            (String::new(), &["must hold"]),
            ("no PEM".to_owned(), &["must hold"]),
            (good.pem.replace("MII", "*"), &["block 1: "]),
            ((0..33).map(|at| ca(&at.to_string()).pem).collect(), &["must hold at most 32"]),
            (format!("{padded} "), &["must be at most 65536"]),
            // As many characters as may be, and more bytes.
            (padded.replacen("  ", "éé", 1), &["must be at most 65536"]),
            (padded, &[]),
        ] {
            let result = desk.ask(&root(), "compute.endorsementAuthorities.add", adding(&certificates)).await;
            let errors = result.err().map(|problem| {
                assert_eq!(problem.code, InvalidInput);
                let said = serde_json::to_string(&problem).unwrap();
                assert!(!said.contains(secret.lines().nth(1).unwrap()), "nothing of it is repeated");
                problem.errors
            });
            let errors = errors.unwrap_or_default();
            assert_eq!(errors.len(), blocks.len(), "{errors:?}");
            for (error, block) in errors.iter().zip(blocks) {
                assert_eq!(error.field, "certificates");
                assert!(error.message.starts_with(block), "{errors:?}");
            }
        }
        // Before it is looked whether the pool is there.
        let mut nowhere = adding("x");
        nowhere["poolId"] = json!("nowhere");
        let code = desk.code(&root(), "compute.endorsementAuthorities.add", nowhere).await;
        assert_eq!(code, Some(InvalidInput));
    })
    .await;
}

#[tokio::test]
async fn a_pool_holds_thirty_two_whoever_is_first() {
    at_a_desk(async |desk| {
        let (root, pem, add) = (root(), bundle(), "compute.endorsementAuthorities.add");
        let mut first = adding(&pem);
        first["idempotencyKey"] = json!("first");
        let first_answer = desk.good(&root, add, first.clone()).await;
        for _ in 1..28 {
            desk.good(&root, add, adding(&pem)).await;
        }
        let more = (28..38).map(|_| desk.ask(&root, add, adding(&pem)));
        let results = futures_util::future::join_all(more.collect::<Vec<_>>()).await;
        let refused: Vec<Code> =
            results.iter().filter_map(|result| Some(result.as_ref().err()?.code)).collect();
        assert_eq!(refused, [InvalidState; 6]);
        assert_eq!(desk.good(&root, add, first).await, first_answer, "a retry needs no room");
        let mut list = pool();
        list["limit"] = json!(5);
        let listed = ("endorsementAuthorities", "id");
        let all = desk.pages(&root, "compute.endorsementAuthorities.list", list, listed).await;
        assert_eq!(all.len(), 32);
        desk.good(&root, "compute.endorsementAuthorities.remove", removing(&json!(all[7]))).await;
        desk.good(&root, add, adding(&pem)).await;
        assert_eq!(desk.code(&root, add, adding(&pem)).await, Some(InvalidState));
    })
    .await;
}
