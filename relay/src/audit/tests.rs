//! The audit over whole stories, on both databases: what is recorded, for whom, and that nothing of it can be taken away
//! without showing.

use super::{
    chain::{self, End, Mark},
    sealer::{self, LEASE, Sealer},
    verify::{self, Break},
};
use crate::{
    api::tests::{Desk, at_a_desk, member, root, who},
    auth::{Grant, Principal, bootstrap},
    call::Caller,
    fault::Fault,
    random::Random,
    store::{
        StoreError, Value as Arg, audit,
        beside::Beside,
        meta::{self, Name},
    },
};
use serde_json::{Value, json};
use shared::{
    api::{
        access::{AdminRole, TenantRole},
        audit::{AuditDecision, AuditRecord},
        tokens::TokenType,
    },
    id::{AuditId, TokenId},
    problem::{Code, Problem},
    time::Timestamp,
};
use std::sync::{Arc, Mutex};

/// All records, in order.
async fn records(desk: &Desk) -> Vec<AuditRecord> {
    let read: Result<_, StoreError> = desk
        .relay
        .store
        .read("audit", audit::Listed::default(), |tx, all| Box::pin(audit::page(tx, all, 10_000)))
        .await;
    read.unwrap()
}

async fn last(desk: &Desk) -> AuditRecord {
    records(desk).await.pop().unwrap()
}

/// Three records, later than those before.
async fn three_more(desk: &Desk, round: u32) {
    for n in 0..3 {
        desk.clock.advance(std::time::Duration::from_millis(10));
        let project = json!({"tenantId": "acme", "projectId": format!("p{round}-{n}")});
        desk.good(&root(), "iam.projects.create", project).await;
    }
}

/// Three batches of three records, and one that is open.
async fn sealed(desk: &Desk) -> Vec<AuditId> {
    let mut sealer = Sealer::new(&desk.relay, None);
    for round in 0..3 {
        three_more(desk, round).await;
        rest(desk);
        assert_eq!(sealer.turn(&desk.relay).await.unwrap(), 3);
    }
    desk.good(&root(), "iam.tenants.update", json!({"tenantId": "acme", "displayName": "A"})).await;
    assert_eq!(sealer.turn(&desk.relay).await.unwrap(), 0, "it is too young");
    records(desk).await.into_iter().map(|record| record.id).collect()
}

/// Records of one millisecond are in no order.
fn tick(desk: &Desk) {
    desk.clock.advance(std::time::Duration::from_millis(1));
}

fn rest(desk: &Desk) {
    desk.clock.advance(std::time::Duration::from_secs(3));
}

async fn run(desk: &Desk, sql: &'static str, args: &[&str]) {
    let args: Vec<Arg<'_>> = args.iter().map(|text| Arg::from(*text)).collect();
    desk.relay.store.transact("test", args, |tx, args| Box::pin(tx.execute(sql, args))).await.unwrap();
}

/// What the chain is found to be after these statements, which are undone again. `$1` and `$2` are ids.
async fn found(desk: &Desk, statements: &[&'static str], ids: (&AuditId, &AuditId)) -> Option<Break> {
    let answer = Mutex::new(None);
    let work = (desk, statements, ids, &answer);
    let undone: Result<(), Fault> = desk
        .relay
        .store
        .transact("tamper", work, |tx, (desk, statements, (one, two), answer)| {
            Box::pin(async move {
                for sql in *statements {
                    let all = [one.as_str().into(), two.as_str().into()];
                    let many = usize::from(sql.contains("$1")) + usize::from(sql.contains("$2"));
                    assert!(tx.execute(sql, &all[..many]).await? > 0, "{sql}");
                }
                *answer.lock().unwrap() = Some(verify::walk(tx, &desk.relay.keys, None).await?);
                Err(Fault::internal("tampering")("it is undone"))
            })
        })
        .await;
    assert!(matches!(undone, Err(Fault::Internal { .. })), "{undone:?}");
    answer.into_inner().unwrap().unwrap().err()
}

async fn whole(desk: &Desk) -> verify::Whole {
    verify::verify(&desk.relay.store, &desk.relay.keys, None).await.unwrap().unwrap()
}

#[tokio::test]
async fn one_record_removed_changed_or_moved_is_found_at_its_place() {
    at_a_desk(async |desk| {
        let ids = sealed(&desk).await;
        let expected = verify::Whole { sealed: 9, pruned: 0, open: 1, batches: 3 };
        assert_eq!(whole(&desk).await, expected);
        let at = |broken: Option<Break>| broken.map(|broken| (broken.place.unwrap().0, broken.what)).unwrap();
        for (place, id) in ids.iter().enumerate().take(9) {
            let (there, what) = at(found(&desk, &["DELETE FROM audit WHERE id = $1"], (id, id)).await);
            assert_eq!(&there, id, "{place}");
            assert!(what.contains("is gone"), "{what}");
        }
        for change in [
            "UPDATE audit SET occurred_at = occurred_at + 1 WHERE id = $1",
            "UPDATE audit SET subject = 'eve' WHERE id = $1",
            "UPDATE audit SET token_id = NULL WHERE id = $1",
            "UPDATE audit SET created_by = NULL WHERE id = $1",
            "UPDATE audit SET tenant_id = 'other' WHERE id = $1",
            "UPDATE audit SET action = 'x' WHERE id = $1",
            "UPDATE audit SET method = 'x' WHERE id = $1",
            "UPDATE audit SET resource = '' WHERE id = $1",
            "UPDATE audit SET decision = 'denied' WHERE id = $1",
            "UPDATE audit SET code = 'x' WHERE id = $1",
            "UPDATE audit SET client_address = 'x' WHERE id = $1",
            "UPDATE audit SET request_id = 'x' WHERE id = $1",
            "UPDATE audit SET left_out = 1 WHERE id = $1",
        ] {
            let (there, what) = at(found(&desk, &[change], (&ids[4], &ids[4])).await);
            assert_eq!(there, ids[4], "{change}");
            assert!(what.contains("it was changed"), "{what}");
        }
        let swap = [
            "UPDATE audit SET id = 'au_x' WHERE id = $1",
            "UPDATE audit SET id = $1 WHERE id = $2",
            "UPDATE audit SET id = $2 WHERE id = 'au_x' AND $1 = $1",
        ];
        assert_eq!(at(found(&desk, &swap, (&ids[3], &ids[5])).await).0, ids[3]);
        let put_in = ["UPDATE audit SET batch = 2 WHERE id = $1"];
        let (there, what) = at(found(&desk, &put_in, (&ids[9], &ids[9])).await);
        assert_eq!(there, ids[9]);
        assert!(what.contains("put into a batch"), "{what}");
        let stray = ["UPDATE audit SET batch = 99 WHERE id = $1"];
        assert_eq!(at(found(&desk, &stray, (&ids[9], &ids[9])).await).0, ids[9]);
        assert_eq!(whole(&desk).await, expected, "all of it was undone");
    })
    .await;
}

#[tokio::test]
async fn a_batch_dropped_moved_or_cut_off_is_found_at_its_place() {
    at_a_desk(async |desk| {
        let ids = sealed(&desk).await;
        let none = (&ids[0], &ids[0]);
        for (statements, place, says) in [
            (
                ["DELETE FROM audit WHERE batch = 2", "DELETE FROM audit_batches WHERE number = 2"]
                    .as_slice(),
                Some(&ids[2]),
                "batch 2, which follows it, is gone",
            ),
            (
                &["DELETE FROM audit WHERE batch = 1", "DELETE FROM audit_batches WHERE number = 1"],
                None,
                "batch 1, which follows it, is gone",
            ),
            (
                &["DELETE FROM audit WHERE batch = 3", "DELETE FROM audit_batches WHERE number = 3"],
                Some(&ids[5]),
                "batch 3, which follows it, is gone",
            ),
            (
                &[
                    "DELETE FROM audit WHERE batch = 3",
                    "DELETE FROM audit_batches WHERE number = 3",
                    "DELETE FROM meta WHERE name = 'audit_head'",
                ],
                None,
                "its signed head is gone",
            ),
            (&["DELETE FROM meta WHERE name = 'audit_base'"], None, "its signed base is gone"),
            (
                &["UPDATE meta SET value = REPLACE(value, '.3.9.', '.3.8.') WHERE name = 'audit_head'"],
                None,
                "its head is not signed",
            ),
            (&["DELETE FROM meta WHERE name LIKE 'audit%'"], Some(&ids[0]), "in a batch that there is not"),
            (
                &[
                    "UPDATE audit_batches SET number = 99 WHERE number = 1",
                    "UPDATE audit_batches SET number = 1 WHERE number = 2",
                    "UPDATE audit_batches SET number = 2 WHERE number = 99",
                    "UPDATE audit SET batch = 3 - batch WHERE batch < 3",
                ],
                Some(&ids[3]),
                "it was changed, or moved",
            ),
        ] {
            let broken = found(&desk, statements, none).await.unwrap();
            assert_eq!(broken.place.as_ref().map(|(id, _)| id), place, "{broken}");
            assert!(broken.to_string().contains(says), "{broken}");
            let at = broken.place.map(|(_, at)| at.unwrap());
            assert!(at.is_none_or(|at| at <= desk.clock.now() && at > desk.clock.now().plus_seconds(-60)));
        }
        assert_eq!(whole(&desk).await.sealed, 9);
    })
    .await;
}

#[tokio::test]
async fn a_record_that_is_gone_with_its_entry_breaks_what_follows() {
    at_a_desk(async |desk| {
        let ids = sealed(&desk).await;
        let row = desk.relay.store.read("test", (), |tx, ()| Box::pin(audit::find_batch(tx, 2)));
        let mut entries = chain::read(&row.await.unwrap().unwrap().entries).unwrap();
        entries.remove(1);
        run(&desk, "UPDATE audit_batches SET entries = $1 WHERE number = 2", &[&chain::write(&entries)])
            .await;
        run(&desk, "DELETE FROM audit WHERE id = $1", &[ids[4].as_str()]).await;
        let broken = verify::verify(&desk.relay.store, &desk.relay.keys, None).await.unwrap().unwrap_err();
        assert_eq!(broken.place.unwrap().0, ids[5]);
    })
    .await;
}

#[tokio::test]
async fn an_older_database_with_its_older_head_is_found_by_the_head_beside_it() {
    at_a_desk(async |desk| {
        let head = async || {
            let found = desk.relay.store.read("test", (), |tx, ()| Box::pin(meta::find(tx, Name::AuditHead)));
            found.await.unwrap().unwrap()
        };
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("audit-head");
        let mut sealer = Sealer::new(&desk.relay, Some(file.clone()));
        three_more(&desk, 0).await;
        rest(&desk);
        sealer.turn(&desk.relay).await.unwrap();
        let old = head().await;
        three_more(&desk, 1).await;
        rest(&desk);
        sealer.turn(&desk.relay).await.unwrap();
        let noted = std::fs::read_to_string(&file).unwrap();
        assert_eq!(noted.trim_end(), head().await);
        let against = async |noted: &str| {
            verify::verify(&desk.relay.store, &desk.relay.keys, Some(noted)).await.unwrap()
        };
        assert!(against(&noted).await.is_ok());
        assert!(against(&old).await.is_ok(), "it went on since");
        assert!(against(&noted.replace("v1", "v2")).await.is_err(), "no head of ours");
        run(&desk, "DELETE FROM audit WHERE batch = 2", &[]).await;
        run(&desk, "DELETE FROM audit_batches WHERE number = 2", &[]).await;
        run(&desk, "UPDATE meta SET value = $1 WHERE name = 'audit_head'", &[&old]).await;
        assert!(against(&old).await.is_ok(), "nothing in the database says so");
        let broken = against(&noted).await.unwrap_err();
        assert!(broken.to_string().contains("after 3 records: 6 were sealed"), "{broken}");
        // Whoever has seen more goes on from there no more, neither now nor after a restart, and keeps what it noted.
        three_more(&desk, 2).await;
        rest(&desk);
        assert!(sealer.turn(&desk.relay).await.is_err());
        run(&desk, "UPDATE leases SET until = 0", &[]).await;
        let mut again = Sealer::new(&desk.relay, Some(file.clone()));
        assert!(again.turn(&desk.relay).await.is_err());
        // Another one that has seen nothing goes on, and that is another chain, for all that comes.
        let mut stranger = Sealer::new(&desk.relay, None);
        for more in [3, 4] {
            stranger.turn(&desk.relay).await.unwrap();
            let broken = against(&noted).await.unwrap_err();
            assert!(broken.to_string().contains("another chain"), "{broken}");
            assert!(sealer.turn(&desk.relay).await.is_err() && again.turn(&desk.relay).await.is_err());
            three_more(&desk, more).await;
            rest(&desk);
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), noted);
    })
    .await;
}

#[tokio::test]
async fn a_record_that_no_relay_wrote_is_not_sealed_and_is_named() {
    at_a_desk(async |desk| {
        sealed(&desk).await;
        three_more(&desk, 7).await;
        rest(&desk);
        run(&desk, "UPDATE leases SET until = 0", &[]).await;
        let whole = async || verify::verify(&desk.relay.store, &desk.relay.keys, None).await.unwrap();
        let records = records(&desk).await;
        let last = records.last().unwrap().id.to_string();
        // Changed before it was sealed.
        run(&desk, "UPDATE audit SET subject = 'mallory' WHERE id = $1", &[&last]).await;
        assert_eq!(whole().await.unwrap_err().place.unwrap().0.as_str(), last);
        assert!(Sealer::new(&desk.relay, None).turn(&desk.relay).await.is_err());
        run(&desk, "DELETE FROM audit WHERE id = $1", &[&last]).await;
        assert!(whole().await.is_ok());
        // Made up, with another's mark, of a time before all others.
        run(
            &desk,
            "INSERT INTO audit (id, occurred_at, subject, tenant_id, action, method, resource, decision, code, client_address, \
             request_id, left_out, mark) SELECT 'au_01k00000000000000000000000', occurred_at, 'mallory', tenant_id, action, method, \
             resource, decision, code, client_address, request_id, left_out, mark FROM audit WHERE batch IS NULL LIMIT 1",
            &[],
        )
        .await;
        let broken = whole().await.unwrap_err();
        assert_eq!(broken.place.as_ref().unwrap().0.as_str(), "au_01k00000000000000000000000", "{broken}");
        assert!(Sealer::new(&desk.relay, None).turn(&desk.relay).await.is_err());
    })
    .await;
}

#[tokio::test]
async fn a_relay_that_does_not_seal_sees_too_that_the_chain_was_cut_off_or_wiped() {
    at_a_desk(async |desk| {
        let (mut seals, mut looks) = (Sealer::new(&desk.relay, None), Sealer::new(&desk.relay, None));
        three_more(&desk, 0).await;
        rest(&desk);
        assert_eq!(seals.turn(&desk.relay).await.unwrap(), 3);
        assert_eq!(looks.turn(&desk.relay).await.unwrap(), 0);
        three_more(&desk, 1).await;
        rest(&desk);
        assert_eq!(seals.turn(&desk.relay).await.unwrap(), 3);
        assert_eq!(looks.turn(&desk.relay).await.unwrap(), 0, "it went on since");
        for wiped in
            ["DELETE FROM audit", "DELETE FROM audit_batches", "DELETE FROM meta WHERE name LIKE 'audit%'"]
        {
            run(&desk, wiped, &[]).await;
        }
        three_more(&desk, 2).await;
        rest(&desk);
        run(&desk, "UPDATE leases SET until = 0", &[]).await;
        assert!(looks.turn(&desk.relay).await.is_err() && seals.turn(&desk.relay).await.is_err());
    })
    .await;
}

#[tokio::test]
async fn a_head_that_was_changed_is_not_built_upon() {
    at_a_desk(async |desk| {
        sealed(&desk).await;
        rest(&desk);
        run(&desk, "UPDATE meta SET value = 'x' WHERE name = 'audit_head'", &[]).await;
        assert!(Sealer::new(&desk.relay, None).turn(&desk.relay).await.is_err());
        run(&desk, "DELETE FROM meta WHERE name = 'audit_head'", &[]).await;
        run(&desk, "UPDATE leases SET until = 0", &[]).await;
        assert!(Sealer::new(&desk.relay, None).turn(&desk.relay).await.is_err());
        assert!(sealer::prune(&desk.relay, 1).await.is_err());
    })
    .await;
}

#[tokio::test]
async fn a_sealer_that_dies_leaves_a_whole_chain_and_another_goes_on() {
    at_a_desk(async |desk| {
        let relay = &desk.relay;
        let (mut dead, mut next) = (Sealer::new(relay, None), Sealer::new(relay, None));
        three_more(&desk, 0).await;
        rest(&desk);
        assert_eq!(dead.turn(relay).await.unwrap(), 3);
        three_more(&desk, 1).await;
        rest(&desk);
        assert_eq!(next.turn(relay).await.unwrap(), 0, "the lease of the dead one runs");
        // In the middle of a transaction, whatever it did.
        let cut: Result<(), Fault> = relay
            .store
            .transact("test", relay, |tx, relay| {
                Box::pin(async move {
                    let all = audit::open(tx, None, &audit::first_at(Timestamp::MAX)).await?;
                    audit::seal(tx, 2, &all[0].0.id, &all[1].0.id).await?;
                    meta::put(tx, Name::AuditHead, "half").await?;
                    let _ = relay;
                    Err(Fault::internal("dying")("in the middle"))
                })
            })
            .await;
        assert!(cut.is_err());
        run(&desk, "UPDATE leases SET until = 0 WHERE name = $1", &[LEASE]).await;
        assert_eq!(next.turn(relay).await.unwrap(), 3);
        three_more(&desk, 2).await;
        rest(&desk);
        assert_eq!(dead.turn(relay).await.unwrap(), 0, "it was late, and is told so");
        assert_eq!(next.turn(relay).await.unwrap(), 3);
        assert_eq!(whole(&desk).await, verify::Whole { sealed: 9, pruned: 0, open: 0, batches: 3 });
    })
    .await;
}

#[tokio::test]
async fn two_sealers_at_once_make_one_chain_beside_those_who_write() {
    at_a_desk(async |desk| {
        let relay = &desk.relay;
        let sealing = async || {
            let mut sealer = Sealer::new(relay, None);
            for _ in 0..20 {
                sealer.turn(relay).await.unwrap();
                // Whoever has it may stand still at any time.
                run(&desk, "UPDATE leases SET until = 0 WHERE name = $1", &[LEASE]).await;
                rest(&desk);
            }
        };
        let writing = async || {
            for round in 10..30 {
                three_more(&desk, round).await;
            }
        };
        tokio::join!(sealing(), sealing(), writing());
        rest(&desk);
        run(&desk, "UPDATE leases SET until = 0 WHERE name = $1", &[LEASE]).await;
        Sealer::new(relay, None).turn(relay).await.unwrap();
        let whole = whole(&desk).await;
        assert_eq!((whole.sealed, whole.open), (60, 0));
    })
    .await;
}

#[tokio::test]
async fn what_is_old_is_pruned_in_whole_batches_and_the_rest_stays_proved() {
    at_a_desk(async |desk| {
        let relay = &desk.relay;
        let days = |many: u64| std::time::Duration::from_secs(many * 86_400);
        let mut sealer = Sealer::new(relay, None);
        for round in 0..4 {
            three_more(&desk, round).await;
            rest(&desk);
            assert_eq!(sealer.turn(relay).await.unwrap(), 3);
            desk.clock.advance(days(100));
        }
        assert_eq!(sealer::prune(relay, 500).await.unwrap(), 0);
        assert_eq!(sealer::prune(relay, 300).await.unwrap(), 2);
        let left = verify::Whole { sealed: 6, pruned: 6, open: 0, batches: 4 };
        assert_eq!(whole(&desk).await, left);
        let ids: Vec<AuditId> = records(&desk).await.into_iter().map(|record| record.id).collect();
        assert_eq!(ids.len(), 6);
        let also = ["DELETE FROM audit WHERE batch = 3", "DELETE FROM audit_batches WHERE number = 3"];
        let broken = found(&desk, &also, (&ids[0], &ids[0])).await.unwrap();
        assert!(broken.to_string().contains("batch 3"), "{broken}");
        // What shows that something was done does not go by itself.
        run(&desk, "UPDATE audit SET subject = 'eve' WHERE id = $1", &[ids[1].as_str()]).await;
        assert!(sealer::prune(relay, 1).await.is_err());
        assert_eq!(records(&desk).await.len(), 6);
        run(&desk, "UPDATE audit SET subject = 'bootstrap:editor' WHERE id = $1", &[ids[1].as_str()]).await;
        assert_eq!(sealer::prune(relay, 1).await.unwrap(), 1, "the last batch stays");
        assert_eq!(whole(&desk).await.pruned, 9);
        three_more(&desk, 9).await;
        rest(&desk);
        sealer.turn(relay).await.unwrap();
        assert_eq!(whole(&desk).await, verify::Whole { sealed: 6, pruned: 9, open: 0, batches: 5 });
        assert_eq!(sealer::prune(relay, 1).await.unwrap(), 1);
        let base = relay.store.read("test", (), |tx, ()| Box::pin(meta::find(tx, Name::AuditBase)));
        let base = Mark::open(&base.await.unwrap().unwrap(), End::Base, &relay.keys).unwrap();
        assert_eq!((base.batch, base.records), (4, 12));
    })
    .await;
}

fn person(subject: &str, created_by: &str, token_type: TokenType, grants: Vec<Grant>) -> Principal {
    Principal { created_by: created_by.to_owned(), token_type, ..who(subject, subject, grants) }
}

#[tokio::test]
async fn a_refusal_shows_at_no_foreign_owner_and_an_accepted_invite_is_named() {
    at_a_desk(async |desk| {
        let site = json!({"siteId": "mine", "ownerTenantId": "other", "custom": true});
        let mallory = person("mallory", "mallory", TokenType::User, Vec::new());
        let _ = desk.ask(&mallory, "compute.sites.create", site.clone()).await.unwrap_err();
        let looks = vec![Grant::Tenant { tenant_id: "other".to_owned(), role: TenantRole::Viewer }];
        let viewer = person("vic", "vic", TokenType::User, looks);
        let _ = desk.ask(&viewer, "compute.sites.create", site).await.unwrap_err();
        let bob = desk.login("bob").await;
        let ada = desk.login("ada").await;
        desk.member_of("acme", "ada", "OWNER").await;
        let asked = json!({"tenantId": "acme", "role": "VIEWER", "idempotencyKey": "k"});
        let invite = desk.done(&ada, "iam.invites.create", asked).await;
        desk.done(&bob, "iam.invites.accept", json!({"secret": invite["secret"]})).await;
        let records = records(&desk).await;
        let of = |subject: &str, action: &str| {
            let found = records.iter().find(|record| record.subject == subject && record.action == action);
            let found = found.unwrap_or_else(|| panic!("{subject} {action}: {records:?}"));
            (found.tenant_id.clone(), found.resource.clone())
        };
        assert_eq!(of("mallory", "compute:sites:create").0, "mallory");
        assert_eq!(of("vic", "compute:sites:create").0, "other");
        let (tenant, resource) = of("bob", "iam:invites:accept");
        let id = invite["invite"]["id"].as_str().unwrap();
        assert_eq!((tenant.as_str(), resource), ("acme", format!("id={id}")));
    })
    .await;
}

/// Behaviours 69, 70, 71, 72.
#[tokio::test]
async fn every_use_names_the_owner_and_who_made_its_token() {
    at_a_desk(async |desk| {
        let owner = |tenant: &str| Grant::Tenant { tenant_id: tenant.to_owned(), role: TenantRole::Owner };
        let rename = json!({"tenantId": "acme", "displayName": "A"});
        let used = async |by: &Principal| {
            tick(&desk);
            desk.good(by, "iam.tenants.update", rename.clone()).await;
            let record = last(&desk).await;
            assert_eq!(record.token_id, Some(by.token_id.to_string()));
            assert_eq!((record.tenant_id.as_str(), record.action.as_str()), ("acme", "iam:tenants:update"));
            assert_eq!(record.resource, "tenantId=acme");
            (record.subject, record.created_by.unwrap())
        };
        let of = |subject: &str, by: &str| (subject.to_owned(), by.to_owned());
        // 69: the owner, whichever of its tokens.
        let ann = person("ann", "ann", TokenType::User, vec![owner("acme")]);
        assert_eq!(used(&ann).await, of("ann", "ann"));
        // 70: an automation of its own, made from that login.
        let asked = json!({"description": "ci", "tenantRoles": [{"tenantId": "acme", "role": "OWNER"}]});
        tick(&desk);
        let made = desk.good(&ann, "iam.tokens.create", asked).await;
        assert_eq!(made["token"]["createdBy"], "ann");
        let record = last(&desk).await;
        assert!(record.resource.ends_with(made["token"]["id"].as_str().unwrap()), "{record:?}");
        // 72: an admin by --admin-role is a person, and so is whoever made a service's token.
        let admin = Grant::Admin { role: AdminRole::Editor };
        let bob = person("bob", "bob", TokenType::User, vec![admin.clone(), owner("acme")]);
        assert_eq!(used(&bob).await, of("bob", "bob"));
        desk.good(&bob, "admin.users.create", json!({"userId": "svc"})).await;
        let rights = json!({"subject": "svc", "description": "d", "tenantRoles": [{"tenantId": "svc", "role": "OWNER"}]});
        let made = desk.good(&bob, "admin.tokens.create", rights.clone()).await;
        assert_eq!(made["token"]["createdBy"], "bob");
        let svc = person("svc", made["token"]["createdBy"].as_str().unwrap(), TokenType::Api, vec![owner("acme")]);
        assert_eq!(used(&svc).await, of("svc", "bob"));
        // 71: from the provider's secret.
        let secret = person("bootstrap-admin-editor", "provider", TokenType::User, vec![admin]);
        assert!(bootstrap::role_of(&secret.subject).is_some());
        assert_eq!(used(&secret).await, of("bootstrap-admin-editor", "provider"));
        let made = desk.good(&secret, "admin.tokens.create", rights).await;
        assert_eq!(made["token"]["createdBy"], "provider");
    })
    .await;
}

#[tokio::test]
async fn a_change_and_its_record_are_one_and_a_refusal_is_one_too() {
    at_a_desk(async |desk| {
        let acme = member("acme", TenantRole::Editor);
        assert!(records(&desk).await.is_empty());
        // It may, and the state forbids it: nothing was done and nobody was denied anything.
        let again = json!({"tenantId": "acme", "projectId": "ml"});
        assert_eq!(desk.code(&root(), "iam.projects.create", again).await, Some(Code::Conflict));
        assert_eq!(desk.code(&root(), "iam.tenants.update", json!({})).await, Some(Code::InvalidInput));
        assert!(records(&desk).await.is_empty());
        let denied =
            desk.ask(&acme, "iam.tenants.update", json!({"tenantId": "acme", "displayName": "x"})).await;
        assert_eq!(denied.unwrap_err().code, Code::PermissionDenied);
        let record = last(&desk).await;
        assert_eq!((record.decision, record.code.as_str()), (AuditDecision::Denied, "PERMISSION_DENIED"));
        assert_eq!((record.tenant_id.as_str(), record.resource.as_str()), ("acme", "tenantId=acme"));
        assert_eq!((record.client_address.as_str(), record.request_id.as_str()), ("192.0.2.1", "req-1"));
        assert_eq!(record.occurred_at, desk.clock.now());
        // What is read is recorded only where it was refused.
        desk.good(&acme, "iam.projects.list", json!({"tenantId": "acme"})).await;
        assert_eq!(records(&desk).await.len(), 1);
        tick(&desk);
        assert!(desk.ask(&acme, "iam.audit.list", json!({"tenantId": "acme"})).await.is_err());
        assert_eq!(last(&desk).await.method, "iam.audit.list");
    })
    .await;
}

#[tokio::test]
async fn a_flood_of_refusals_is_cut_and_counted() {
    at_a_desk(async |desk| {
        let acme = member("acme", TenantRole::Viewer);
        let ask = async || {
            let denied = desk.ask(&acme, "iam.tenants.delete", json!({"tenantId": "acme"})).await;
            assert_eq!(denied.unwrap_err().code, Code::PermissionDenied);
        };
        for _ in 0..100 {
            ask().await;
        }
        assert_eq!(records(&desk).await.len(), 60);
        desk.clock.advance(std::time::Duration::from_secs(60));
        ask().await;
        assert_eq!(last(&desk).await.left_out, 40);
    })
    .await;
}

#[tokio::test]
async fn an_owner_sees_its_own_tenants_records_and_an_admin_all() {
    at_a_desk(async |desk| {
        let (acme, other) = (member("acme", TenantRole::Owner), member("other", TenantRole::Owner));
        for (by, tenant) in [(&acme, "acme"), (&other, "other"), (&acme, "acme")] {
            desk.clock.advance(std::time::Duration::from_secs(1));
            let rename = json!({"tenantId": tenant, "displayName": "x"});
            desk.good(by, "iam.tenants.update", rename).await;
        }
        // Who may not know of it leaves no trace there.
        desk.clock.advance(std::time::Duration::from_secs(1));
        let hidden = desk.code(&other, "iam.tenants.get", json!({"tenantId": "acme"})).await;
        assert_eq!(hidden, Some(Code::NotFound));
        let list = async |by: &Principal, method: &str, body: Value| -> Vec<String> {
            let answer = desk.good(by, method, body).await;
            let words = |record: &Value| {
                format!("{} {} {}", record["subject"], record["tenantId"], record["code"]).replace('"', "")
            };
            answer["records"].as_array().unwrap().iter().map(words).collect()
        };
        let ours = ["user:acme:Owner acme OK", "user:acme:Owner acme OK"];
        assert_eq!(list(&acme, "iam.audit.list", json!({"tenantId": "acme"})).await, ours);
        let home = member("home", TenantRole::Owner);
        let theirs = list(&home, "iam.audit.list", json!({"tenantId": "home"})).await;
        assert_eq!(theirs, ["user:other:Owner home NOT_FOUND"]);
        for (by, tenant, code) in [
            (&other, "acme", Code::NotFound),
            (&member("acme", TenantRole::Editor), "acme", Code::PermissionDenied),
            (&member("acme", TenantRole::Viewer), "acme", Code::PermissionDenied),
        ] {
            assert_eq!(desk.code(by, "iam.audit.list", json!({"tenantId": tenant})).await, Some(code));
        }
        assert_eq!(desk.code(&acme, "admin.audit.list", json!({})).await, Some(Code::PermissionDenied));
        let all = list(&root(), "admin.audit.list", json!({})).await;
        assert_eq!(all.len(), 4 + 4);
        let others = list(&root(), "admin.audit.list", json!({"subject": "user:other:Owner"})).await;
        assert_eq!(others.len(), 3, "{others:?}");
        let all = records(&desk).await;
        let (first, second) = (all[0].occurred_at, all[1].occurred_at);
        let within = json!({"since": first, "until": second});
        assert_eq!(list(&root(), "admin.audit.list", within).await, ours[..1]);
        let later = json!({"tenantId": "acme", "since": second, "subject": "user:acme:Owner"});
        assert_eq!(list(&acme, "iam.audit.list", later).await.len(), 1);
        let paged = desk.pages(&root(), "admin.audit.list", json!({"limit": 1}), ("records", "id")).await;
        assert_eq!(paged, all.iter().map(|record| record.id.to_string()).collect::<Vec<_>>());
    })
    .await;
}

#[tokio::test]
async fn no_secret_and_no_body_is_in_any_record() {
    at_a_desk(async |desk| {
        let mut hushed = vec!["words of a body".to_owned(), "hush".to_owned()];
        let root = root();
        for (method, body) in [
            ("iam.tenants.update", json!({"tenantId": "acme", "displayName": "words of a body"})),
            ("compute.secrets.put", json!({"tenantId": "acme", "poolId": "gpu-a", "name": "n", "value": "hush"})),
            (
                "compute.joinTokens.create",
                json!({"tenantId": "acme", "poolId": "gpu-a", "ttlSeconds": 600, "expect": {"serial": "hush"}}),
            ),
            ("iam.invites.create", json!({"tenantId": "acme"})),
            (
                "iam.tokens.create",
                json!({"description": "words of a body", "tenantRoles": [{"tenantId": "acme", "role": "OWNER"}],
                    "labels": {"a": "hush"}}),
            ),
        ] {
            let answer = desk.good(&root, method, body).await;
            for secret in ["token", "secret"].map(|name| answer[name].as_str().map(str::to_owned)) {
                // An invite's and a join token's begin with their id, which is none.
                let secret = secret.map(|text| text.split_once('.').map_or(text.clone(), |(_, rest)| rest.to_owned()));
                hushed.extend(secret);
            }
        }
        assert!(hushed.len() >= 5, "{}", hushed.len());
        let _ = desk.ask(&root, "iam.invites.accept", json!({"secret": "inv_x.hush"})).await;
        let records = records(&desk).await;
        assert!(records.len() >= 6);
        let text = format!("{records:?}");
        for secret in hushed {
            assert!(!text.contains(&secret), "{secret} in {text}");
        }
        assert!(text.contains("id=inv_") && text.contains("id=jt_") && text.contains("id=tk_"), "{text}");
    })
    .await;
}

#[tokio::test]
async fn a_login_is_recorded_beside_its_token() {
    at_a_desk(async |desk| {
        let token = TokenId::derive(&[3; 32]);
        let login = super::Login {
            subject: "ann",
            token_id: Some(&token),
            tenant_id: "ann",
            asked: "adminRole=EDITOR",
            remote: [192, 0, 2, 9].into(),
            request_id: "req-9",
            at: desk.clock.now(),
        };
        let beside = || {
            let when = crate::store::beside::When::Always { drawn: false };
            Beside::new(login.record(&Random::seeded(3)), when, desk.relay.keys.chain_key())
        };
        let made = async |fails: bool| {
            beside()
                .around(desk.relay.store.transact("login", fails, |_, fails| {
                    Box::pin(async move {
                        if *fails { Err(Fault::from(Problem::new(Code::Conflict, "x"))) } else { Ok(()) }
                    })
                }))
                .await
        };
        assert!(made(true).await.is_err());
        assert!(records(&desk).await.is_empty(), "no token, no login");
        made(false).await.unwrap();
        made(false).await.unwrap();
        let all = records(&desk).await;
        assert_eq!(all.len(), 1, "the same login");
        assert_eq!((all[0].action.as_str(), all[0].resource.as_str()), ("login", "adminRole=EDITOR"));
        assert_eq!(all[0].token_id.as_deref(), Some(token.as_str()));
    })
    .await;
}

#[tokio::test]
async fn a_machines_refusal_is_at_its_tenant() {
    at_a_desk(async |desk| {
        let minted = json!({"tenantId": "acme", "poolId": "gpu-a", "ttlSeconds": 600});
        let minted = desk.good(&root(), "compute.joinTokens.create", minted).await;
        let id = minted["joinToken"]["id"].as_str().unwrap();
        let caller = Caller::JoinToken(id.parse().unwrap());
        // As the edge does, with whatever the join was refused with.
        let method = crate::api::registry().unwrap().get("node.join").unwrap().method;
        let call = crate::call::Call {
            relay: Arc::clone(&desk.relay),
            caller,
            method: method.name,
            remote: [192, 0, 2, 7].into(),
            request_id: "r".to_owned(),
            now: desk.clock.now().plus_seconds(1),
        };
        let problem = Problem::new(Code::PermissionDenied, "x");
        super::refused(&super::Denials::default(), &call, method.name, br#"{"tenantId":"other"}"#, &problem)
            .await;
        let record = last(&desk).await;
        assert_eq!((record.subject.as_str(), record.tenant_id.as_str()), (id, "acme"));
        assert_eq!((record.action.as_str(), record.resource.as_str()), ("node.join", ""));
        for not in [Code::Unauthenticated, Code::ResourceExhausted, Code::InvalidInput, Code::Conflict] {
            super::refused(&super::Denials::default(), &call, method.name, b"", &Problem::new(not, "x"))
                .await;
        }
        assert_eq!(records(&desk).await.len(), 2);
    })
    .await;
}
