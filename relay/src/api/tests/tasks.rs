//! Stories over tasks and components as admins see them.

use super::*;
use crate::{
    fault::Fault,
    store::{components, tasks as rows},
    tasks::{Asked, Kind, Manner, Queue, enqueue},
};
use shared::{api::access::InfraRole, id::TaskId};

static QUEUE: Queue = Queue { name: "errands", at_a_time: 1 };
static RETRIED: Kind = Kind { name: "errand.run", queue: &QUEUE, manner: Manner::Retried, lease_seconds: 60 };
static ONCE: Kind = Kind {
    name: "errand.once",
    queue: &QUEUE,
    manner: Manner::Once { within_seconds: 60 },
    lease_seconds: 60,
};

async fn asked(desk: &Desk, kind: &'static Kind) -> TaskId {
    let relay = desk.relay.clone();
    let made = desk.relay.store.transact("ask", (relay, kind), |tx, (relay, kind)| {
        Box::pin(async move {
            let id = enqueue(tx, &relay.random, &Asked::now(kind, &json!({"secretId": "hush"}))).await?;
            Ok::<_, Fault>(id.unwrap())
        })
    });
    made.await.unwrap()
}

async fn archive(desk: &Desk, id: &TaskId) {
    let archived: Result<(), Fault> = desk
        .relay
        .store
        .transact("archive", id, |tx, id| {
            Box::pin(async move {
                let now = tx.database_time().await?;
                Ok(rows::archive(tx, id, "it broke", now).await?)
            })
        })
        .await;
    archived.unwrap();
}

/// A task that was given up.
pub(super) async fn archived(desk: &Desk) -> TaskId {
    let id = asked(desk, &RETRIED).await;
    archive(desk, &id).await;
    id
}

/// Behaviours 100, 102: what is asked for has an id, and by that it is shown.
#[tokio::test]
async fn admins_see_what_there_is_to_do_and_bring_back_what_was_given_up() {
    at_a_desk(async |desk| {
        let (waits, given_up) = (asked(&desk, &RETRIED).await, archived(&desk).await);
        let shown = desk.good(&auditor(), "admin.tasks.get", json!({"taskId": given_up})).await;
        let task = &shown["task"];
        for (field, value) in [
            ("id", json!(given_up)),
            ("queue", json!("errands")),
            ("type", json!("errand.run")),
            ("state", json!("archived")),
            ("attempts", json!(0)),
            ("lastError", json!("it broke")),
        ] {
            assert_eq!(task[field], value, "{field}");
        }
        assert!(task["createdAt"].is_string() && task["endedAt"].is_string() && task.get("dueAt").is_none());
        assert!(!shown.to_string().contains("hush"), "what it is done with is not shown");
        let ids = async |filter: Value| {
            let list = desk.good(&auditor(), "admin.tasks.list", filter).await;
            let tasks = list["tasks"].as_array().unwrap().iter();
            tasks.map(|task| task["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(ids(json!({"state": "archived"})).await, [given_up.as_str()]);
        assert_eq!(ids(json!({"queue": "errands", "state": "pending"})).await, [waits.as_str()]);
        assert_eq!(ids(json!({"queue": "other"})).await, Vec::<String>::new());
        let all = desk.pages(&auditor(), "admin.tasks.list", json!({"limit": 1}), ("tasks", "id")).await;
        assert_eq!(all.len(), 2);
        let back = ids(json!({"limit": 1, "newestFirst": true})).await;
        assert_eq!(back, [all[1].as_str()]);
        let rest = ids(json!({"cursor": back[0], "newestFirst": true})).await;
        assert_eq!(rest, [all[0].as_str()]);
        let back = ids(json!({"state": "archived", "newestFirst": true})).await;
        assert_eq!(back, [given_up.as_str()]);
        let counts = desk.good(&auditor(), "admin.tasks.queues", json!({})).await;
        let counted =
            |at: usize| (counts["queues"][at]["state"].clone(), counts["queues"][at]["count"].clone());
        assert_eq!(counted(0), (json!("archived"), json!(1)));
        assert_eq!(counted(1), (json!("pending"), json!(1)));

        let back = desk.good(&root(), "admin.tasks.retry", json!({"taskId": given_up})).await;
        assert_eq!(back["task"]["state"], "pending");
        let of = async |who: &Principal, method: &str, id: &TaskId| {
            desk.code(who, method, json!({"taskId": id})).await
        };
        assert_eq!(of(&root(), "admin.tasks.retry", &given_up).await, Some(Code::InvalidState), "it waits");
        assert_eq!(of(&root(), "admin.tasks.delete", &waits).await, None);
        assert_eq!(of(&root(), "admin.tasks.get", &waits).await, Some(Code::NotFound));
    })
    .await;
}

#[tokio::test]
async fn what_is_tried_once_is_not_brought_back_and_what_is_being_done_not_deleted() {
    at_a_desk(async |desk| {
        let once = asked(&desk, &ONCE).await;
        archive(&desk, &once).await;
        let refused = desk.ask(&root(), "admin.tasks.retry", json!({"taskId": once})).await.unwrap_err();
        assert_eq!(refused.code, Code::InvalidState);
        assert!(refused.detail.contains("once only"), "{}", refused.detail);
        let active = asked(&desk, &RETRIED).await;
        let set = "UPDATE tasks SET state = 'active' WHERE state = 'pending'";
        let done: Result<u64, Fault> = desk
            .relay
            .store
            .transact("claim", (), |tx, ()| Box::pin(async move { Ok(tx.execute(set, &[]).await?) }))
            .await;
        assert_eq!(done.unwrap(), 1);
        let refused = desk.ask(&root(), "admin.tasks.delete", json!({"taskId": active})).await.unwrap_err();
        assert!(refused.detail.contains("admin/tasks/get"), "{}", refused.detail);
        // What comes again, and waits with an error: when it was last done is known also after somebody hastened it.
        let recurring = asked(&desk, &RETRIED).await;
        let set = "UPDATE tasks SET state = 'retry', ended_at = 1000 WHERE state = 'pending'";
        let done: Result<u64, Fault> = desk
            .relay
            .store
            .transact("fail", (), |tx, ()| Box::pin(async move { Ok(tx.execute(set, &[]).await?) }))
            .await;
        assert_eq!(done.unwrap(), 1);
        let hastened = desk.good(&root(), "admin.tasks.retry", json!({"taskId": recurring})).await;
        assert_eq!(hastened["task"]["endedAt"], "1970-01-01T00:00:01.000Z", "{hastened}");
        for method in ["admin.tasks.delete", "admin.tasks.retry"] {
            let code = desk.code(&root(), method, json!({"taskId": active})).await;
            assert_eq!(code, Some(Code::InvalidState), "{method}");
        }
    })
    .await;
}

#[tokio::test]
async fn viewers_read_tasks_and_editors_change_them_and_nobody_else_sees_any() {
    at_a_desk(async |desk| {
        let id = archived(&desk).await;
        let denied = Some(Code::PermissionDenied);
        for (who, reads, changes) in [
            (root(), None, None),
            (auditor(), None, denied),
            (member("provider", TenantRole::Owner), denied, denied),
            (member("acme", TenantRole::Owner), denied, denied),
            (worker("svc", InfraRole::Editor), denied, denied),
            (stranger(), denied, denied),
        ] {
            let of = json!({"taskId": id});
            for (method, body) in [("list", json!({})), ("queues", json!({})), ("get", of.clone())] {
                let code = desk.code(&who, &format!("admin.tasks.{method}"), body).await;
                assert_eq!(code, reads, "{method} by {}", who.subject);
            }
            let code = desk.code(&who, "admin.tasks.retry", of.clone()).await;
            assert_eq!(code, changes, "{}", who.subject);
            if changes.is_some() {
                assert_eq!(desk.code(&who, "admin.tasks.delete", of).await, changes, "{}", who.subject);
            }
        }
    })
    .await;
}

fn worker(subject: &str, role: InfraRole) -> Principal {
    who(subject, subject, vec![Grant::Infra { site_id: "default".to_owned(), role }])
}

fn ping(of: &str, identifier: &str) -> Value {
    json!({"type": of, "identifier": identifier, "version": "1.2", "startedAt": "2026-01-02T03:00:00Z",
        "intervalSeconds": 30})
}

/// How many pings are in the audit.
async fn recorded(desk: &Desk) -> usize {
    let list = desk.good(&root(), "admin.audit.list", json!({"limit": 200})).await;
    let records = list["records"].as_array().unwrap().iter();
    records.filter(|record| record["method"] == "infra.components.ping").count()
}

/// Behaviours 93, 94, 95.
#[tokio::test]
async fn a_component_is_one_row_with_the_token_it_used() {
    at_a_desk(async |desk| {
        desk.good(&root(), "admin.users.create", json!({"userId": "svc"})).await;
        let token = json!({"subject": "svc", "description": "d", "expiresInSeconds": 600,
            "permissions": [{"subject": "self", "actions": ["iam:tokens:read"]}]});
        let made = desk.good(&root(), "admin.tokens.create", token).await;
        let mut svc = worker("svc", InfraRole::Editor);
        svc.token_id = made["token"]["id"].as_str().unwrap().parse().unwrap();
        let first = desk.good(&svc, "infra.components.ping", ping("site-worker", "w-1")).await;
        desk.clock.advance(std::time::Duration::from_secs(30));
        let mut again = ping("site-worker", "w-1");
        again["version"] = json!("1.3");
        desk.good(&svc, "infra.components.ping", again).await;
        desk.good(&svc, "infra.components.ping", ping("provisioner", "p-1")).await;
        assert_eq!(recorded(&desk).await, 2, "the second ping of w-1 is no news");
        let list = desk.good(&auditor(), "admin.components.list", json!({"type": "site-worker"})).await;
        let all = list["components"].as_array().unwrap();
        assert_eq!(all.len(), 1, "{list}");
        let one = &all[0];
        assert_eq!(one["version"], "1.3");
        assert_eq!(one["startedAt"], "2026-01-02T03:00:00.000Z");
        assert_eq!(one["tokenId"], made["token"]["id"]);
        assert_eq!(one["tokenExpiresAt"], made["token"]["expiresAt"]);
        assert_eq!(one["createdAt"], first["component"]["createdAt"]);
        assert_ne!(one["pingedAt"], first["component"]["pingedAt"]);
        let page = desk.good(&auditor(), "admin.components.list", json!({"limit": 1})).await;
        assert_eq!(page["cursor"], "provisioner/p-1");
        let next = json!({"limit": 1, "cursor": page["cursor"]});
        let page = desk.good(&auditor(), "admin.components.list", next).await;
        assert_eq!((&page["components"][0]["type"], page.get("cursor")), (&json!("site-worker"), None));
        let of = json!({"type": "site-worker", "identifier": "w-1"});
        assert_eq!(
            desk.code(&auditor(), "admin.components.delete", of.clone()).await,
            Some(Code::PermissionDenied)
        );
        desk.good(&worker("svc", InfraRole::Editor), "infra.components.ping", ping("site-worker", "w-1"))
            .await;
        assert_eq!(recorded(&desk).await, 3, "another token is");
        desk.good(&root(), "admin.components.delete", of.clone()).await;
        assert_eq!(desk.code(&root(), "admin.components.get", of).await, Some(Code::NotFound));
    })
    .await;
}

#[tokio::test]
async fn nobody_speaks_for_another_component_or_for_the_relay() {
    at_a_desk(async |desk| {
        let (one, other) = (worker("one", InfraRole::Editor), worker("other", InfraRole::Editor));
        desk.good(&one, "infra.components.ping", ping("site-worker", "w-1")).await;
        for (who, of, code) in [
            (&other, "site-worker", Code::Conflict),
            (&other, "relay", Code::Conflict),
            (&root(), "relay-tasks", Code::Conflict),
            (&worker("one", InfraRole::Viewer), "site-worker", Code::PermissionDenied),
            (&member("acme", TenantRole::Owner), "site-worker", Code::PermissionDenied),
        ] {
            let said = desk.code(who, "infra.components.ping", ping(of, "w-1")).await;
            assert_eq!(said, Some(code), "{} as {of}", who.subject);
        }
        let racers: Vec<Principal> =
            (0..8).map(|number| worker(&format!("racer-{number}"), InfraRole::Editor)).collect();
        let first = racers.iter().map(|who| desk.code(who, "infra.components.ping", ping("racer", "r-1")));
        let codes = futures_util::future::join_all(first).await;
        assert_eq!(codes.iter().filter(|code| code.is_none()).count(), 1, "{codes:?}");
        assert_eq!(codes.iter().filter(|code| **code == Some(Code::Conflict)).count(), 7, "{codes:?}");
        // What is silent for a day is anybody's.
        let day = desk.clock.now().plus_seconds(1);
        let gone: Result<u64, Fault> = desk
            .relay
            .store
            .transact("forget", day, |tx, day| {
                Box::pin(async move { Ok(components::forget(tx, *day, 10).await?) })
            })
            .await;
        assert_eq!(gone.unwrap(), 2);
        desk.good(&other, "infra.components.ping", ping("site-worker", "w-1")).await;
    })
    .await;
}
