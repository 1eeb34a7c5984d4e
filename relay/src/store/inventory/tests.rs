//! Entries are found by their anchor, in their own pool, whatever else the machine has.

use super::*;
use crate::{
    join::attest::discovery::lookups,
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
        store.read("candidates", (pool, values), |tx, (pool, values)| Box::pin(candidates(tx, pool, values)));
    found.await.unwrap().into_iter().map(|entry| entry.entry_id).collect()
}

fn serial(text: &str) -> Identifiers {
    Identifiers { serial: Some(text.into()), ..Identifiers::default() }
}

#[tokio::test]
async fn a_machine_finds_the_entries_anchored_in_what_it_has() {
    on_both_migrated(async |store| {
        pools(&store).await;
        let mac = |last: usize| format!("02:00:00:00:00:{last:02x}");
        let of_mac = |last| Identifiers { mac: Some(mac(last)), ..Identifiers::default() };
        let with_ek = Identifiers { ek_sha256: Some("ab".into()), ..serial("SN-1") };
        write(&store, "p", "by-ek", with_ek).await;
        write(&store, "p", "by-serial", Identifiers { mac: Some(mac(99)), ..serial("SN-1") }).await;
        for last in [0, 40, 63, 64] {
            write(&store, "p", &format!("by-mac-{last}"), of_mac(last)).await;
        }
        write(&store, "q", "elsewhere", serial("SN-1")).await;
        let machine = Machine::judge(&Identity {
            serial: Some("SN-1".into()),
            macs: (0..64).map(mac).collect(),
            ..Identity::default()
        });
        let all = ["by-mac-0", "by-serial", "by-mac-40", "by-mac-63"];
        assert_eq!(found(&store, "p", &machine, None).await, all, "as many statements as it takes");
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
async fn entries_that_share_an_anchor_are_found_up_to_a_bound() {
    on_both_migrated(async |store| {
        pools(&store).await;
        for at in 0..=MAX_CANDIDATES {
            write(&store, "p", &format!("e{at:03}"), serial("SN-1")).await;
        }
        let machine = Machine::judge(&Identity { serial: Some("SN-1".into()), ..Identity::default() });
        let found = found(&store, "p", &machine, None).await;
        assert_eq!((found.len(), found[0].as_str(), found[63].as_str()), (64, "e000", "e063"));
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
