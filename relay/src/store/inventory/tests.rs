//! Entries are found by their anchor and match by all that they name, in their own pool, whatever else the machine has.

use super::*;
use crate::{
    join::attest::discovery::{known, lookups},
    store::{Store, testing::on_both_migrated},
};
use shared::{
    hardware::{Identity, Machine},
    time::Timestamp,
};

/// Two pools with nothing around them.
async fn pools(store: &Store) {
    let make = store.transact("pools", (), |tx, ()| {
        Box::pin(async move {
            for sql in [
                "INSERT INTO tenants (id, display_name, created_at) VALUES ('t', 't', 0)",
                "INSERT INTO projects (tenant_id, id, display_name, created_at) VALUES ('t', 'j', 'j', 0)",
                "INSERT INTO sites (id, owner_tenant_id, custom, bmc_networks, created_at) VALUES ('s', 't', 1, '[]', 0)",
                "INSERT INTO pools (id, uid, tenant_id, project_id, site_id, agent, policy, created_at) \
                    VALUES ('p', 'pl_p', 't', 'j', 's', 'bcd', '{}', 0), ('q', 'pl_q', 't', 'j', 's', 'bcd', '{}', 0)",
            ] {
                tx.execute(sql, &[]).await?;
            }
            Ok::<_, StoreError>(())
        })
    });
    make.await.unwrap();
}

async fn write(store: &Store, pool: &str, id: &str, identifiers: Identifiers) {
    let updated_at = Timestamp::from_millis(7);
    let entry = InventoryEntry { entry_id: id.into(), identifiers, updated_at, updated_by: "ann".into() };
    let put = store.transact("put", (pool, &entry), |tx, (pool, entry)| Box::pin(put(tx, pool, entry)));
    put.await.unwrap();
    let found = store.read("find", (pool, id), |tx, (pool, id)| Box::pin(find(tx, pool, id)));
    assert_eq!(found.await.unwrap(), Some(entry));
}

async fn found(store: &Store, pool: &str, machine: &Machine, ek: Option<&str>) -> Vec<String> {
    let values = lookups(machine, ek);
    let found =
        store.read("matching", (pool, values), |tx, (pool, values)| Box::pin(matching(tx, pool, values)));
    found.await.unwrap().into_iter().map(|entry| entry.entry_id).collect()
}

fn serial(text: &str) -> Identifiers {
    Identifiers { serial: Some(text.into()), ..Identifiers::default() }
}

#[tokio::test]
async fn a_machine_finds_the_entries_that_it_is() {
    on_both_migrated(async |store| {
        pools(&store).await;
        let mac = |last: usize| format!("02:00:00:00:00:{last:02x}");
        let gpu = |last: usize| format!("GPU-00112233-4455-6677-8899-aabbccddee{last:02x}");
        let of_mac = |last| Identifiers { mac: Some(mac(last)), ..Identifiers::default() };
        let of_gpu = |last| Identifiers { gpu_uuid: Some(gpu(last)), ..Identifiers::default() };
        let with_ek = Identifiers { ek_sha256: Some("ab".into()), ..serial("SN-1") };
        write(&store, "p", "by-ek", with_ek).await;
        write(&store, "p", "by-serial", Identifiers { mac: Some(mac(63)), ..serial("SN-1") }).await;
        write(&store, "p", "by-serial-of-another", Identifiers { mac: Some(mac(99)), ..serial("SN-1") })
            .await;
        for last in [0, 40, 63, 64] {
            write(&store, "p", &format!("by-mac-{last}"), of_mac(last)).await;
            write(&store, "p", &format!("by-gpu-{last}"), of_gpu(last)).await;
        }
        write(&store, "q", "elsewhere", serial("SN-1")).await;
        let machine = Machine::judge(&Identity {
            serial: Some("SN-1".into()),
            macs: (0..64).map(mac).collect(),
            gpu_uuids: (0..64).map(gpu).collect(),
            ..Identity::default()
        });
        let all = ["by-gpu-0", "by-gpu-40", "by-gpu-63", "by-mac-0", "by-mac-40", "by-mac-63", "by-serial"];
        assert_eq!(found(&store, "p", &machine, None).await, all);
        assert!(found(&store, "p", &machine, Some("ab")).await.contains(&"by-ek".to_owned()));
        assert_eq!(found(&store, "q", &machine, None).await, ["elsewhere"]);
        assert!(found(&store, "p", &Machine::default(), None).await.is_empty());
        // Written again, it is found by its new anchor only.
        write(&store, "p", "by-serial", serial("SN-2")).await;
        assert!(!found(&store, "p", &machine, None).await.contains(&"by-serial".to_owned()));
    })
    .await;
}

#[tokio::test]
async fn machines_that_share_an_anchor_are_each_found() {
    on_both_migrated(async |store| {
        pools(&store).await;
        let mac = |at: u32| format!("00:1a:2b:3c:4d:{at:02x}");
        for at in 0..100 {
            let blade = Identifiers { mac: Some(mac(at)), ..serial("CHASSIS-1") };
            write(&store, "p", &format!("blade-{at:03}"), blade).await;
        }
        for at in [0, 63, 64, 99] {
            let claim =
                Identity { serial: Some("CHASSIS-1".into()), macs: vec![mac(at)], ..Identity::default() };
            let found = found(&store, "p", &Machine::judge(&claim), None).await;
            assert_eq!(found, [format!("blade-{at:03}")]);
        }
        // One machine that was entered again and again costs no more.
        for at in 0..=MAX_MATCHES {
            write(&store, "q", &format!("e{at:03}"), serial("SN-1")).await;
        }
        let machine = Machine::judge(&Identity { serial: Some("SN-1".into()), ..Identity::default() });
        let found = found(&store, "q", &machine, None).await;
        assert_eq!((found.len(), found[0].as_str(), found[15].as_str()), (16, "e000", "e015"));
    })
    .await;
}

/// Every entry that names some of a machine's identifiers, and of those some that are another's: the store finds it if
/// and only if the attestor takes it for the machine.
#[tokio::test]
async fn the_store_matches_as_the_attestor_does() {
    on_both_migrated(async |store| {
        pools(&store).await;
        let machine = Machine::judge(&Identity {
            product_uuid: Some("00112233445566778899AABBCCDDEEFF".into()),
            serial: Some("SN-1".into()),
            macs: vec!["00:1A:2B:3C:4D:5E".into(), "00:1a:2b:3c:4d:5f".into()],
            gpu_uuids: vec!["GPU-00112233-4455-6677-8899-AABBCCDDEEFF".into()],
            ..Identity::default()
        });
        let uuids = [
            "00112233-4455-6677-8899-aabbccddeeff",
            "33221100-5544-7766-8899-aabbccddeeff",
            "10112233-4455-6677-8899-aabbccddeeff",
        ];
        let gpus = ["GPU-00112233-4455-6677-8899-aabbccddeeff", "GPU-10112233-4455-6677-8899-aabbccddeeff"];
        let some = |list: &[&str], at: usize| at.checked_sub(1).map(|at| list[at].to_owned());
        let mut entries = Vec::new();
        for at in 1..4 * 3 * 3 * 3 * 3 {
            let (uuid, rest) = (at % 4, at / 4);
            let identifiers = Identifiers {
                product_uuid: some(&uuids, uuid),
                serial: some(&["SN-1", "sn-1"], rest % 3),
                mac: some(&["00:1a:2b:3c:4d:5f", "00:1a:2b:3c:4d:60"], rest / 3 % 3),
                gpu_uuid: some(&gpus, rest / 9 % 3),
                ek_sha256: some(&["ab", "cd"], rest / 27),
            };
            entries.push(InventoryEntry {
                entry_id: format!("e{at:03}"),
                identifiers,
                updated_at: Timestamp::from_millis(7),
                updated_by: "ann".into(),
            });
        }
        let mut matched = 0;
        for entry in &entries {
            let put = store.transact("put", entry, |tx, entry| Box::pin(put(tx, "p", entry)));
            put.await.unwrap();
            for ek in [None, Some("ab")] {
                let expected: Vec<String> = known(std::slice::from_ref(entry), &machine, ek)
                    .map(|entry| entry.entry_id.clone())
                    .into_iter()
                    .collect();
                matched += expected.len();
                assert_eq!(found(&store, "p", &machine, ek).await, expected, "{entry:?} {ek:?}");
            }
            let id = entry.entry_id.as_str();
            let remove = store.transact("remove", id, |tx, id| Box::pin(remove(tx, "p", id)));
            remove.await.unwrap();
        }
        assert!(matched > 30, "{matched}");
    })
    .await;
}

#[tokio::test]
async fn an_entry_without_an_identifier_is_never_written() {
    on_both_migrated(async |store| {
        pools(&store).await;
        let nothing = InventoryEntry {
            entry_id: "e".into(),
            identifiers: Identifiers::default(),
            updated_at: Timestamp::from_millis(0),
            updated_by: "ann".into(),
        };
        let put = store.transact("put", &nothing, |tx, entry| Box::pin(put(tx, "p", entry)));
        assert!(put.await.is_err());
    })
    .await;
}
