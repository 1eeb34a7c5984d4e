//! compute/nodes: the table of moves, what each does to identities and bans, and who may make them.

use super::*;
use crate::{
    facts::{Identity, IdentityKind},
    join::identity::identities_of,
    store::{
        identifiers::{self, Holder},
        identities,
        nodes::{Joined, NewNode, insert},
    },
};
use Code::{Conflict, InvalidState, NotFound, PermissionDenied};
use TenantRole::{Editor, Owner, Viewer};
use shared::{
    api::node::Trust,
    hardware::{self, Machine},
    id::{JoinTokenId, NodeId},
};

pub(super) const UUID: &str = "4c4c4544-0043-3010-8052-b4c04f4e3132";

/// A machine's node in gpu-a, as a join would have written it: what another node holds is in dispute, and not its own.
pub(crate) async fn admit(desk: &Desk, seed: u8, uuid: &str) -> NodeId {
    let id = NodeId::derive(&[seed; 32]);
    let claim = hardware::Identity {
        product_uuid: Some(uuid.to_owned()),
        serial: Some(format!("SN-{seed}-x")),
        ..hardware::Identity::default()
    };
    let key = shared::hex::encode(&[seed; 32]);
    let work = (id.clone(), claim, key, desk.clock.now());
    let written = desk.relay.store.transact("admit", work, |tx, (id, claim, key, now)| {
        Box::pin(async move {
            let new = NewNode {
                pool_id: "gpu-a",
                tenant_id: "acme",
                site_id: "default",
                key_sha256: key,
                serial: "01",
            };
            let joined = Joined {
                id,
                trust: Trust::Platform,
                hosted: None,
                identity: claim,
                ek_sha256: None,
                ek_manufacturer: None,
                ek_vouched: false,
                token: &JoinTokenId::derive(&[1; 32]),
                remote_address: "192.0.2.7",
                kubernetes_node_name: None,
                agent_version: "0.1.0",
                at: *now,
            };
            insert(tx, new, &joined).await?;
            let machine = Machine::judge(claim);
            for identity in identities_of(&machine, key, None) {
                identities::hold(tx, "default", &identity, id).await?;
            }
            identifiers::note(tx, Holder { tenant_id: "acme", id: id.as_str() }, &machine, None).await?;
            Ok::<_, crate::store::StoreError>(())
        })
    });
    written.await.unwrap();
    id
}

/// Kinds of identity that the node holds, and kinds that its ban covers.
async fn holds(desk: &Desk, id: &NodeId) -> (Vec<String>, Vec<String>) {
    let kinds = async |sql: &'static str| {
        let rows = desk.relay.store.read("kinds", id, |tx, id| {
            Box::pin(async move { tx.fetch_all(sql, &[id.as_str().into()]).await })
        });
        rows.await.unwrap().iter().map(|row| row.text("kind").unwrap()).collect::<Vec<_>>()
    };
    (
        kinds("SELECT kind FROM identities WHERE node_id = $1 ORDER BY kind LIMIT 9").await,
        kinds("SELECT kind FROM bans WHERE node_id = $1 ORDER BY kind LIMIT 9").await,
    )
}

fn named(id: &NodeId) -> Value {
    json!({"tenantId": "acme", "poolId": "gpu-a", "nodeId": id})
}

#[tokio::test]
async fn every_move_from_every_state() {
    at_a_desk(async |desk| {
        let moves =
            |states: &[&str]| states.iter().map(|name| format!("compute.nodes.{name}")).collect::<Vec<_>>();
        // The moves before; the move; the state after, or the refusal; whether there is an event; whether an identity
        // is held and whether a ban covers something.
        for (seed, (before, last, after, told, held, covered)) in (10u8..).zip([
            (&[][..], "ban", Ok("banned"), true, false, true),
            (&[], "unban", Ok("live"), false, true, false),
            (&[], "release", Ok("released"), true, false, false),
            (&["ban"], "ban", Ok("banned"), false, false, true),
            (&["ban"], "unban", Ok("live"), true, true, false),
            // A ban outlasts the node and ends by unban alone.
            (&["ban"], "release", Ok("released"), true, false, true),
            (&["ban", "release"], "unban", Ok("released"), true, false, false),
            (&["ban", "release", "unban"], "unban", Err(InvalidState), false, false, false),
            (&["release"], "ban", Err(InvalidState), false, false, false),
            (&["release"], "unban", Err(InvalidState), false, false, false),
            (&["release"], "release", Ok("released"), false, false, false),
            (&["ban", "unban"], "ban", Ok("banned"), true, false, true),
        ]) {
            let id = admit(&desk, seed, &format!("4c4c4544-0043-3010-8052-b4c04f4e31{seed}")).await;
            for name in moves(before) {
                desk.good(&root(), &name, named(&id)).await;
            }
            let about =
                async || desk.events().await.iter().filter(|(_, subject)| *subject == id.as_str()).count();
            let events = about().await;
            let result = desk.ask(&root(), &format!("compute.nodes.{last}"), named(&id)).await;
            let result = result.map(|answer| answer["node"]["state"].as_str().unwrap().to_owned());
            let what = format!("{before:?} {last}");
            if let Err(problem) = &result {
                assert!(problem.detail.contains("released"), "{problem}");
            }
            assert_eq!(result.as_deref().map_err(|problem| problem.code), after, "{what}");
            assert_eq!(about().await - events, usize::from(told), "{what}");
            let (identities, bans) = holds(&desk, &id).await;
            assert_eq!(identities, if held { vec!["key", "productUuid"] } else { vec![] }, "{what}");
            assert_eq!(bans, if covered { vec!["key"] } else { vec![] }, "{what}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_ban_covers_the_key_and_what_is_named_and_usable() {
    at_a_desk(async |desk| {
        let id = admit(&desk, 1, UUID).await;
        let ban = |reason: Option<&str>, identifiers: Value| {
            let mut ban = named(&id);
            ban["reason"] = json!(reason);
            ban["identifiers"] = identifiers;
            ban
        };
        let first = desk.good(&root(), "compute.nodes.ban", ban(Some("stolen"), json!(null))).await;
        assert_eq!(first["node"]["banReason"], "stolen");
        assert_eq!(
            desk.last_event().await,
            json!({"poolId": "gpu-a", "reason": "stolen", "covers": ["key"]})
        );
        // More is covered when it is named, once; the reason stays.
        let wider = ban(None, json!(["productUuid", "serial"]));
        let second = desk.good(&root(), "compute.nodes.ban", wider.clone()).await;
        assert_eq!(second["node"]["banReason"], "stolen");
        let third = desk.good(&root(), "compute.nodes.ban", ban(Some("sold"), json!(null))).await;
        assert_eq!(third["node"]["banReason"], "sold", "what is said last is not lost");
        desk.good(&root(), "compute.nodes.ban", ban(Some("stolen"), json!(null))).await;
        assert_eq!(holds(&desk, &id).await.1, ["key", "productUuid", "serial"]);
        desk.good(&root(), "compute.nodes.ban", wider).await;
        assert_eq!(desk.events().await.len(), 4, "one for each that said something new");
        desk.good(&root(), "compute.nodes.unban", named(&id)).await;
        assert_eq!(holds(&desk, &id).await, (vec!["key".into(), "productUuid".into()], vec![]));
        let live = desk.good(&root(), "compute.nodes.get", named(&id)).await;
        assert_eq!(live["node"].get("banReason"), None);
        // A vendor's default is nobody's: it is not covered.
        let other = admit(&desk, 2, "00000000-0000-0000-0000-000000000000").await;
        let mut everything = named(&other);
        everything["identifiers"] = json!(["productUuid", "serial"]);
        desk.good(&root(), "compute.nodes.ban", everything).await;
        assert_eq!(holds(&desk, &other).await.1, ["key", "serial"]);
    })
    .await;
}

#[tokio::test]
async fn an_unban_gives_back_what_was_held_and_no_more() {
    at_a_desk(async |desk| {
        let incumbent = admit(&desk, 1, UUID).await;
        let disputed = admit(&desk, 2, UUID).await;
        assert_eq!(holds(&desk, &disputed).await.0, ["key"]);
        for _ in 0..2 {
            desk.good(&root(), "compute.nodes.ban", named(&disputed)).await;
            assert_eq!(holds(&desk, &disputed).await, (vec![], vec!["key".into()]));
            let back = desk.good(&root(), "compute.nodes.unban", named(&disputed)).await;
            assert_eq!(back["node"]["state"], "live");
            assert_eq!(holds(&desk, &disputed).await, (vec!["key".into()], vec![]));
        }
        assert_eq!(holds(&desk, &incumbent).await.0, ["key", "productUuid"]);
    })
    .await;
}

#[tokio::test]
async fn an_unban_conflicts_with_who_took_the_identity() {
    at_a_desk(async |desk| {
        let first = admit(&desk, 1, UUID).await;
        desk.good(&root(), "compute.nodes.ban", named(&first)).await;
        let second = admit(&desk, 2, UUID).await;
        let before = (desk.events().await, holds(&desk, &first).await);
        assert_eq!(desk.code(&root(), "compute.nodes.unban", named(&first)).await, Some(Conflict));
        assert_eq!((desk.events().await, holds(&desk, &first).await), before, "nothing of it is kept");
        let still = desk.good(&root(), "compute.nodes.get", named(&first)).await;
        assert_eq!(still["node"]["state"], "banned");
        desk.good(&root(), "compute.nodes.release", named(&second)).await;
        desk.good(&root(), "compute.nodes.unban", named(&first)).await;
        assert_eq!(holds(&desk, &first).await.0, ["key", "productUuid"]);
    })
    .await;
}

#[tokio::test]
async fn moves_at_once_have_one_outcome() {
    at_a_desk(async |desk| {
        let id = admit(&desk, 1, UUID).await;
        let root = root();
        let bans = (0..6).map(|_| desk.good(&root, "compute.nodes.ban", named(&id)));
        futures_util::future::join_all(bans.collect::<Vec<_>>()).await;
        assert_eq!(desk.events().await.len(), 1);
        let ends = (0..6).map(|at| {
            let name = if at % 2 == 0 { "compute.nodes.unban" } else { "compute.nodes.release" };
            desk.ask(&root, name, named(&id))
        });
        futures_util::future::join_all(ends.collect::<Vec<_>>()).await;
        let state = desk.good(&root, "compute.nodes.get", named(&id)).await["node"]["state"].clone();
        assert_eq!((state, holds(&desk, &id).await), (json!("released"), (vec![], vec![])));
    })
    .await;
}

#[tokio::test]
async fn who_sees_bans_and_releases() {
    at_a_desk(async |desk| {
        let id = admit(&desk, 1, UUID).await;
        for (caller, see, release, ban) in [
            (auditor(), None, Some(PermissionDenied), Some(PermissionDenied)),
            (member("acme", Viewer), None, Some(PermissionDenied), Some(PermissionDenied)),
            (member("provider", Owner), None, Some(PermissionDenied), Some(PermissionDenied)),
            (project_member("ml", ProjectRole::Viewer), None, Some(PermissionDenied), Some(PermissionDenied)),
            (project_member("web", ProjectRole::Owner), Some(NotFound), Some(NotFound), Some(NotFound)),
            (member("other", Owner), Some(NotFound), Some(NotFound), Some(NotFound)),
            (project_member("ml", ProjectRole::Owner), None, None, None),
            (member("acme", Owner), None, None, None),
            (root(), None, None, None),
            (member("acme", Editor), None, None, Some(PermissionDenied)),
        ] {
            let name = &caller.subject;
            let pool = json!({"tenantId": "acme", "poolId": "gpu-a"});
            assert_eq!(desk.code(&caller, "compute.nodes.list", pool).await, see, "{name}");
            assert_eq!(desk.code(&caller, "compute.nodes.get", named(&id)).await, see, "{name}");
            assert_eq!(desk.code(&caller, "compute.nodes.ban", named(&id)).await, ban, "{name}");
            assert_eq!(desk.code(&caller, "compute.nodes.unban", named(&id)).await, ban, "{name}");
            if release.is_some() {
                assert_eq!(desk.code(&caller, "compute.nodes.release", named(&id)).await, release, "{name}");
            }
        }
        desk.good(&member("acme", Editor), "compute.nodes.release", named(&id)).await;
        let mut elsewhere = named(&id);
        elsewhere["poolId"] = json!("own");
        elsewhere["tenantId"] = json!("provider");
        for method in ["get", "ban", "unban", "release"] {
            let code = desk.code(&root(), &format!("compute.nodes.{method}"), elsewhere.clone()).await;
            assert_eq!(code, Some(NotFound), "{method}");
        }
    })
    .await;
}

#[tokio::test]
async fn nodes_page_and_released_ones_are_left_out() {
    at_a_desk(async |desk| {
        let mut ids = Vec::new();
        for seed in 1..=4 {
            ids.push(
                admit(&desk, seed, &format!("4c4c4544-0043-3010-8052-b4c04f4e310{seed}")).await.to_string(),
            );
        }
        let released = NodeId::derive(&[2; 32]);
        desk.good(&root(), "compute.nodes.release", named(&released)).await;
        desk.good(&root(), "compute.nodes.ban", named(&NodeId::derive(&[3; 32]))).await;
        ids.sort();
        for limit in [1, 2, 3, 4, 200] {
            let mut list =
                json!({"tenantId": "acme", "poolId": "gpu-a", "limit": limit, "includeReleased": true});
            assert_eq!(
                desk.pages(&root(), "compute.nodes.list", list.clone(), ("nodes", "nodeId")).await,
                ids
            );
            list["includeReleased"] = json!(false);
            let rest: Vec<&String> = ids.iter().filter(|id| id.as_str() != released.as_str()).collect();
            let listed = desk.pages(&root(), "compute.nodes.list", list, ("nodes", "nodeId")).await;
            assert_eq!(listed.iter().collect::<Vec<_>>(), rest);
        }
        // A pool with a banned node is not deleted; with released ones alone it is.
        let pool = json!({"tenantId": "acme", "poolId": "gpu-a"});
        assert_eq!(desk.code(&root(), "compute.pools.delete", pool.clone()).await, Some(InvalidState));
        for id in ids {
            desk.good(
                &root(),
                "compute.nodes.release",
                json!({"tenantId": "acme", "poolId": "gpu-a", "nodeId": id}),
            )
            .await;
        }
        desk.good(&root(), "compute.pools.delete", pool).await;
    })
    .await;
}

#[tokio::test]
async fn a_node_is_shown_with_its_placeholders() {
    at_a_desk(async |desk| {
        let id = admit(&desk, 5, "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF").await;
        assert_eq!(holds(&desk, &id).await.0, ["key", "serial"]);
        let node = desk.good(&root(), "compute.nodes.get", named(&id)).await["node"].clone();
        assert_eq!(node["placeholders"], json!(["productUuid"]));
        assert_eq!(
            (&node["trust"], &node["state"], &node["generation"]),
            (&json!("platform"), &json!("live"), &json!(1))
        );
        assert_eq!(node.get("certificate"), None, "none is stored");
        let held = Identity { kind: IdentityKind::Serial, value: "SN-5-x".to_owned() };
        let claim: hardware::Identity = serde_json::from_value(node["identity"].clone()).unwrap();
        assert!(identities_of(&Machine::judge(&claim), "k", None).contains(&held));
    })
    .await;
}
