//! Fills a store with nodes that never joined, by the relay's own statements: what is measured afterwards is a relay on
//! a store of that size.

use super::{LoadError, progress::Progress};
use relay::{
    clock::Clock,
    facts::{Identity, IdentityKind},
    fault::Fault,
    first_start::DEFAULT,
    first_start::PROVIDER,
    random::Random,
    store::{
        Store, Tx,
        certificates::{self, CertificateRow, JoinPlace, JoinRow},
        identities,
        nodes::{self, Joined, NewNode},
    },
};
use shared::{
    api::node::Trust, hardware, hex, id::JoinTokenId, id::NodeId, time::Timestamp, token::JoinToken,
};
use std::sync::atomic::Ordering;

/// Nodes of one transaction.
const BATCH: usize = 500;
/// As long as a real certificate and a real chain in PEM, so that the file has its real size.
const PEM_BYTES: usize = 900;
/// The life of the certificates, in seconds.
const LIFE_SECONDS: i64 = 86_400;

/// What all filled nodes share.
struct Filling {
    token: JoinTokenId,
    random: Random,
    now: Timestamp,
    pem: String,
}

/// Writes `count` nodes with identities, certificates and joins, as if a token had admitted them. No relay may run on
/// the store.
pub(super) async fn fill(url: &str, token: &str, count: usize) -> Result<(), LoadError> {
    let fail = LoadError::prepare("filling the store");
    let store = Store::open(url).await.map_err(LoadError::prepare("opening the store"))?;
    let token = JoinToken::parse(token).map_err(LoadError::prepare("reading a join token"))?.id;
    let filling =
        Filling { token, random: Random::system(), now: Clock::system().now(), pem: "x".repeat(PEM_BYTES) };
    let (progress, mut filled) = (Progress::start("nodes", count), Ok(()));
    for from in (0..count).step_by(BATCH) {
        let context = (&filling, from..count.min(from + BATCH));
        filled = store
            .transact("load.fill", context, |tx, (filling, numbers)| {
                Box::pin(async move {
                    for number in numbers.clone() {
                        node(tx, filling, number).await?;
                    }
                    Ok::<_, Fault>(())
                })
            })
            .await;
        if filled.is_err() {
            break;
        }
        progress.counter().store(from + BATCH, Ordering::Relaxed);
    }
    store.close().await;
    filled.map_err(fail)
}

async fn node(tx: &mut Tx<'_>, filling: &Filling, number: usize) -> Result<(), Fault> {
    let Filling { token, random, now, pem } = filling;
    let id = NodeId::draw(*now, random.bytes());
    let serial = hex::encode(&random.bytes::<16>());
    let (key_sha256, csr_sha256) = (hex::encode(&random.bytes::<32>()), hex::encode(&random.bytes::<32>()));
    let uuid = format!("5a5a4544-0042-4a10-8054-{number:012x}");
    let identity = hardware::Identity {
        product_uuid: Some(uuid.clone()),
        serial: Some(format!("FILL-{number:08}")),
        ..hardware::Identity::default()
    };
    let joined = Joined {
        id: &id,
        trust: Trust::Platform,
        hosted: None,
        identity: &identity,
        ek_sha256: None,
        ek_manufacturer: None,
        ek_vouched: false,
        token,
        remote_address: "127.0.0.1",
        kubernetes_node_name: None,
        agent_version: "0.1.0",
        at: *now,
    };
    let new = NewNode {
        pool_id: DEFAULT,
        tenant_id: PROVIDER,
        site_id: DEFAULT,
        key_sha256: &key_sha256,
        serial: &serial,
    };
    nodes::insert(tx, new, &joined).await?;
    for (kind, value) in [(IdentityKind::Key, &key_sha256), (IdentityKind::ProductUuid, &uuid)] {
        identities::hold(tx, DEFAULT, &Identity { kind, value: value.clone() }, &id).await?;
    }
    let certificate = CertificateRow {
        serial: serial.clone(),
        node: id.clone(),
        generation: 1,
        issuer: "filled".to_owned(),
        certificate: pem.clone(),
        chain: pem.clone(),
        csr_sha256: csr_sha256.clone(),
        key_sha256,
        trust: Trust::Platform,
        not_before: *now,
        not_after: now.plus_seconds(LIFE_SECONDS),
    };
    certificates::insert(tx, &certificate).await?;
    let row = JoinRow { node: id, serial, generation: 1 };
    let place = JoinPlace { remote_address: "127.0.0.1", at: *now };
    Ok(certificates::insert_join(tx, token, &csr_sha256, &row, place).await?)
}
