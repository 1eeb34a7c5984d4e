//! Limits on every surface: a walk over all routes, so that a new one is found if nothing bounds it.

use super::*;
use crate::{
    api::tests::{Desk, root},
    auth::{bootstrap::PairOfFiles, tokens::Purpose},
    ca::{PeerCertificate, Profile},
    config,
    store::testing::on_sqlite,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::Request as HttpRequest;
use serde_json::{Value, json};
use shared::{
    api::tokens::{Labels, Rights, TokenType},
    id::{NodeId, PoolUid, SigningKeyId},
    time::Timestamp,
};
use std::{cell::Cell, num::NonZeroU32};
use tower::ServiceExt as _;

/// Calls a minute of everything.
const FEW: u32 = 3;

/// A relay's routes, without connections.
struct Edge {
    desk: Desk,
    app: Arc<App>,
    addresses: Cell<u8>,
}

/// What came back.
#[derive(Debug)]
struct Told {
    status: u16,
    retry_after: Option<String>,
}

impl Told {
    fn waits(&self, what: &str) {
        assert_eq!(self.status, 429, "{what}: {self:?}");
        let seconds = self.retry_after.as_ref().and_then(|text| text.parse::<u32>().ok());
        assert!(seconds.is_some_and(|seconds| (1..=61).contains(&seconds)), "{what}: {self:?}");
    }
}

impl Edge {
    async fn new(store: crate::store::Store) -> Self {
        let few = NonZeroU32::new(FEW).unwrap();
        let limits = config::Limits {
            per_token_per_minute: few,
            per_ip_per_minute: few,
            health_per_minute: few,
            join_per_ip_per_minute: NonZeroU32::MAX,
            join_in_flight: NonZeroU32::MAX,
        };
        store.migrate().await.unwrap();
        let desk = Desk::limited(store, &limits).await;
        let app = Arc::new(App {
            relay: desk.relay.clone(),
            registry: crate::api::registry().unwrap(),
            url: "https://relay.test".to_owned(),
            crls: crls::Crls::default(),
            refusals: record::Refusals::default(),
            denials: Denials::default(),
            proxies: proxy::Trusted::default(),
        });
        Self { desk, app, addresses: Cell::new(0) }
    }

    /// An address that nobody had before.
    fn address(&self) -> IpAddr {
        let next = self.addresses.get().checked_add(1).unwrap();
        self.addresses.set(next);
        [192, 0, 2, next].into()
    }

    async fn ask(&self, request: &Asked<'_>, remote: IpAddr) -> Told {
        let mut builder = HttpRequest::builder().method(request.verb).uri(request.path);
        if request.json {
            builder = builder.header(CONTENT_TYPE, "application/json");
        }
        if let Some(bearer) = request.bearer {
            builder = builder.header(AUTHORIZATION, format!("Bearer {bearer}"));
        }
        let peer = request.peer.clone();
        let arrival = Arrival { remote, peer, request_id: "req-1".into() };
        let whole = builder.extension(arrival).body(Body::from("{}")).unwrap();
        let response = router(&self.app).oneshot(whole).await.unwrap();
        let header =
            |name: &str| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        Told { status: response.status().as_u16(), retry_after: header("retry-after") }
    }

    /// Asks the same until it is bounded, which it must be at this very call.
    async fn bounded(&self, request: &Asked<'_>, what: &str) {
        let remote = self.address();
        for _ in 0..FEW {
            let told = self.ask(request, remote).await;
            assert_ne!(told.status, 429, "{what}: {told:?}");
        }
        self.ask(request, remote).await.waits(what);
        let told = self.ask(request, self.address()).await;
        assert_ne!(told.status, 429, "{what}, from another address: {told:?}");
    }
}

#[derive(Clone, Default)]
struct Asked<'a> {
    verb: &'static str,
    path: &'a str,
    json: bool,
    bearer: Option<&'a str>,
    peer: Option<Arc<PeerCertificate>>,
}

fn post_to(path: &str) -> Asked<'_> {
    Asked { verb: "POST", path, json: true, ..Asked::default() }
}

/// The paths of documents, as the router has them.
fn documents() -> Vec<String> {
    let routes = include_str!("mod.rs").split(".route(\"").skip(1);
    let paths: Vec<String> = routes
        .filter_map(|rest| rest.split_once('"'))
        .map(|(path, _)| path.replace("{issuer}", "node.crl"))
        .collect();
    assert!(paths.len() >= 7, "{paths:?}");
    paths
}

/// A constant: who refuses it has the relay killed.
const LIVEZ: &str = "/livez";

#[tokio::test]
async fn strangers_do_not_make_the_relay_look_dead_to_whoever_shares_their_address() {
    on_sqlite(async |store| {
        let edge = Edge::new(store).await;
        let remote = edge.address();
        for _ in 0..FEW {
            edge.ask(&Asked { verb: "GET", path: "/readyz", ..Asked::default() }, remote).await;
        }
        edge.ask(&Asked { verb: "GET", path: "/readyz", ..Asked::default() }, remote).await.waits("/readyz");
        for _ in 0..3 * FEW {
            let told = edge.ask(&Asked { verb: "GET", path: LIVEZ, ..Asked::default() }, remote).await;
            assert_eq!(told.status, 200, "{told:?}");
        }
    })
    .await;
}

/// Behaviours 65, 66.
#[tokio::test]
async fn no_route_answers_a_stranger_without_end() {
    on_sqlite(async |store| {
        let edge = Edge::new(store).await;
        for path in documents().into_iter().filter(|path| path != LIVEZ) {
            let get = Asked { verb: "GET", path: &path, ..Asked::default() };
            edge.bounded(&get, &path).await;
        }
        for (verb, path, json) in [
            ("GET", "/api/nothing", false),
            ("POST", "/api/nothing", true),
            ("GET", "/api/compute/pools/list", false),
            ("DELETE", "/livez", false),
            ("POST", "/api/compute/pools/list", false),
        ] {
            edge.bounded(&Asked { verb, path, json, ..Asked::default() }, path).await;
        }
        edge.addresses.set(100);
        // Every method, the node plane too; one address, so that it is one bucket.
        let (remote, mut asked) = (edge.address(), 0);
        for method in edge.app.registry.methods() {
            let told = edge.ask(&post_to(&method.path()), remote).await;
            if asked < FEW {
                assert_eq!(told.status, 401, "{}", method.name);
            } else {
                told.waits(method.name);
            }
            asked += 1;
            let path = method.path();
            let wrong = Asked { bearer: Some("bcjt_x.y"), ..post_to(&path) };
            if asked > FEW {
                edge.ask(&wrong, remote).await.waits(method.name);
            }
        }
        assert!(asked > 70, "{asked}");
    })
    .await;
}

/// Behaviours 63, 64.
#[tokio::test]
async fn no_method_serves_one_credential_without_end_and_another_of_its_owner_is_apart() {
    on_sqlite(async |store| {
        let edge = Edge::new(store).await;
        let folder = tempfile::tempdir().unwrap();
        let bearer = async || {
            let pair = PairOfFiles::new(edge.desk.relay.clone(), folder.path().to_owned());
            pair.keep().await.unwrap();
            std::fs::read_to_string(folder.path().join("admin_editor_token")).unwrap()
        };
        let (one, two) = (bearer().await, bearer().await);
        let path = "/api/iam/self/whoAmI";
        for _ in 0..FEW {
            let told =
                edge.ask(&Asked { bearer: Some(&one), ..post_to(path) }, [192, 0, 2, 200].into()).await;
            assert_eq!(told.status, 200);
        }
        for method in edge.app.registry.methods().filter(|method| method.for_operators()) {
            let path = method.path();
            // By whichever address.
            let told = edge.ask(&Asked { bearer: Some(&one), ..post_to(&path) }, edge.address()).await;
            told.waits(method.name);
        }
        let told = edge.ask(&Asked { bearer: Some(&two), ..post_to(path) }, [192, 0, 2, 200].into()).await;
        assert_eq!(told.status, 200);
    })
    .await;
}

#[tokio::test]
async fn machines_are_bounded_each_by_itself() {
    on_sqlite(async |store| {
        let edge = Edge::new(store).await;
        let minted = json!({"tenantId": "provider", "poolId": "default", "ttlSeconds": 600});
        let minted = edge.desk.good(&root(), "compute.joinTokens.create", minted).await;
        let join = Asked { bearer: minted["token"].as_str(), ..post_to("/api/node/join") };
        for _ in 0..FEW {
            assert_eq!(edge.ask(&join, edge.address()).await.status, 400);
        }
        edge.ask(&join, edge.address()).await.waits("a join token");
        for path in ["/api/node/heartbeat", "/api/node/secrets"] {
            let node = Asked { peer: Some(Arc::new(peer(path.len()))), ..post_to(path) };
            for _ in 0..FEW {
                assert_eq!(edge.ask(&node, edge.address()).await.status, 401);
            }
            edge.ask(&node, edge.address()).await.waits(path);
            let other = Asked { peer: Some(Arc::new(peer(path.len() + 100))), ..post_to(path) };
            assert_eq!(edge.ask(&other, edge.address()).await.status, 401);
        }
        // Its own figure is another one, which a test of the buckets holds.
        let renewing = Asked { peer: Some(Arc::new(peer(1))), ..post_to("/api/node/renew") };
        for _ in 0..30 {
            assert_ne!(edge.ask(&renewing, [198, 51, 100, 1].into()).await.status, 200);
        }
        edge.ask(&renewing, edge.address()).await.waits("renewals");
    })
    .await;
}

fn peer(number: usize) -> PeerCertificate {
    PeerCertificate {
        serial: format!("{number:032x}"),
        kind: Profile::Node,
        pool: PoolUid::derive(&[1; 32]),
        node: NodeId::derive(&[u8::try_from(number).unwrap(); 32]),
        not_before: Timestamp::from_seconds(0),
        not_after: Timestamp::MAX,
        key_digest: [0; 32],
        issuer: "x".to_owned(),
    }
}

#[tokio::test]
async fn a_token_of_a_key_that_is_not_known_pays_before_the_store_is_asked() {
    on_sqlite(async |store| {
        let edge = Edge::new(store).await;
        let bearer = |number: u8| {
            let header: Value =
                json!({"alg": "ES256", "typ": "JWT", "kid": SigningKeyId::derive(&[number; 32])});
            format!("{}.e30.AA", URL_SAFE_NO_PAD.encode(header.to_string()))
        };
        let remote = edge.address();
        for number in 0..3 {
            let text = bearer(number);
            let told =
                edge.ask(&Asked { bearer: Some(&text), ..post_to("/api/iam/self/whoAmI") }, remote).await;
            assert_eq!(told.status, 401, "it pays once");
        }
        // A store that does not answer would be told as 503.
        edge.desk.relay.store.close().await;
        let text = bearer(9);
        let again = Asked { bearer: Some(&text), ..post_to("/api/iam/self/whoAmI") };
        edge.ask(&again, remote).await.waits("an unknown key");
        assert_eq!(
            edge.ask(&again, edge.address()).await.status,
            503,
            "with an allowance, the store is asked"
        );
    })
    .await;
}

/// A token that counts when its request begins, and not any more when its body has come.
#[tokio::test]
async fn who_holds_a_body_back_holds_no_right_with_it() {
    on_sqlite(async |store| {
        let edge = Edge::new(store).await;
        let relay = &edge.desk.relay;
        let minted = relay.store.transact("test", relay, |tx, relay| {
            Box::pin(async move {
                let purpose = Purpose {
                    token_type: TokenType::User,
                    subject: "ann",
                    tenant_id: "ann",
                    admin_role: None,
                    rights: Rights::default(),
                    description: "",
                    labels: Labels::new(),
                    created_by: "ann",
                    lifetime_seconds: 600,
                    ends_at: None,
                    login_at: None,
                    predecessor: None,
                };
                tokens::issue(tx, relay, &purpose, relay.clock.now()).await
            })
        });
        let (token, bearer) = minted.await.unwrap();
        let ask = async |held: bool| {
            let (send, body) = tokio::sync::mpsc::channel::<Result<Bytes, std::io::Error>>(1);
            let body = futures_util::stream::unfold(body, async |mut body| {
                body.recv().await.map(|chunk| (chunk, body))
            });
            let arrival = Arrival { remote: edge.address(), peer: None, request_id: "req-1".into() };
            let whole = HttpRequest::builder()
                .method("POST")
                .uri("/api/iam/self/whoAmI")
                .header(CONTENT_TYPE, "application/json")
                .header(AUTHORIZATION, format!("Bearer {}", bearer.expose()))
                .extension(arrival)
                .body(Body::from_stream(body))
                .unwrap();
            let answer = tokio::spawn(router(&edge.app).oneshot(whole));
            tokio::time::sleep(FRESH * 3).await;
            if held {
                let ended = relay.store.transact("test", &token.id, |tx, id| {
                    Box::pin(crate::store::credentials::revoke(tx, id, Timestamp::from_seconds(1)))
                });
                let ended: Result<(), crate::store::StoreError> = ended.await;
                ended.unwrap();
            }
            send.send(Ok(Bytes::from_static(b"{}"))).await.unwrap();
            drop(send);
            answer.await.unwrap().unwrap().status().as_u16()
        };
        assert_eq!(ask(false).await, 200);
        assert_eq!(ask(true).await, 401);
    })
    .await;
}

/// A refresh gives no new bucket.
#[tokio::test]
async fn refreshed_tokens_share_a_bucket() {
    on_sqlite(async |store| {
        let edge = Edge::new(store).await;
        let first = edge.desk.login("ann").await;
        let next = edge.desk.done(&first, "iam.tokens.refresh", json!({})).await;
        let next = next["secret"].as_str().unwrap();
        for bearer in [&first, &first, next] {
            let asked = Asked { bearer: Some(bearer), ..post_to("/api/iam/self/whoAmI") };
            assert_eq!(edge.ask(&asked, edge.address()).await.status, 200);
        }
        let asked = Asked { bearer: Some(next), ..post_to("/api/iam/self/whoAmI") };
        edge.ask(&asked, edge.address()).await.waits("the fourth of the chain");
    })
    .await;
}

/// That a refreshed token is in use can't be noted while the store takes no change, which is no reason to refuse a read.
#[tokio::test]
async fn a_refreshed_token_reads_while_the_store_takes_no_change() {
    on_sqlite(async |store| {
        let edge = Edge::new(store.clone()).await;
        let first = edge.desk.login("ann").await;
        let next = edge.desk.done(&first, "iam.tokens.refresh", json!({})).await;
        let next = next["secret"].as_str().unwrap();
        let run = async |sql: &'static str| {
            let run = store.transact("test", sql, |tx, sql| Box::pin(tx.execute(sql, &[])));
            let run: Result<u64, crate::store::StoreError> = run.await;
            run
        };
        run("PRAGMA query_only = ON").await.unwrap();
        assert!(run("UPDATE tenants SET display_name = 'x'").await.is_err());
        let status = async |bearer: &str| {
            let asked = Asked { bearer: Some(bearer), ..post_to("/api/iam/self/whoAmI") };
            edge.ask(&asked, edge.address()).await.status
        };
        assert_eq!((status(next).await, status(&first).await), (200, 200));
    })
    .await;
}

#[tokio::test]
async fn a_stream_that_is_refused_is_recorded() {
    on_sqlite(async |store| {
        let edge = Edge::new(store).await;
        let relay = &edge.desk.relay;
        let minted = relay.store.transact("test", relay, |tx, relay| {
            Box::pin(async move {
                let purpose = Purpose {
                    token_type: TokenType::User,
                    subject: "ann",
                    tenant_id: "ann",
                    admin_role: None,
                    rights: Rights::default(),
                    description: "",
                    labels: Labels::new(),
                    created_by: "ann",
                    lifetime_seconds: 600,
                    ends_at: None,
                    login_at: None,
                    predecessor: None,
                };
                Ok::<_, Fault>(tokens::issue(tx, relay, &purpose, relay.clock.now()).await?.1)
            })
        });
        let bearer = minted.await.unwrap();
        let path = "/api/compute/events/stream?tenantId=provider";
        let stream = Asked { verb: "GET", path, bearer: Some(bearer.expose()), ..Asked::default() };
        assert_eq!(edge.ask(&stream, edge.address()).await.status, 404);
        let kept = relay.store.read("test", (), |tx, ()| {
            Box::pin(tx.fetch_one("SELECT subject, tenant_id, action, resource, code FROM audit", &[]))
        });
        let kept = kept.await.unwrap();
        let text =
            ["subject", "tenant_id", "action", "resource", "code"].map(|column| kept.text(column).unwrap());
        assert_eq!(text, ["ann", "ann", "compute:events:read", "tenantId=provider", "NOT_FOUND"]);
    })
    .await;
}
