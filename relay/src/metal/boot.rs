//! A start of the agent: one image by one unguessable path, with one join token in it, for one machine. All of it is written down
//! before the image is inserted, so that whoever goes on after a crash inserts the same one.
//!
//! Path and token are sealed in the machine's row, which has the path's digest to be found by. The token lives as long as the agent
//! may take to call, is for this machine's agent and for nothing else, and is revoked where the start comes to nothing. Once the
//! agent has joined, the path leads nowhere ([`found`]).

use super::{
    ends::{self, Halt, On, save_last, with},
    facts::{Boot, Machine},
    tokens::{self, Purpose},
};
use crate::{
    context::Context,
    fault::Fault,
    seal::{KeyRing, Place},
    store::{Tx, metal, token_views},
};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use shared::{base32, hex, id::NodeId, secret::Secret, time::Timestamp};
use zeroize::Zeroizing;

/// How long the agent may take to call, in seconds; its token lives as long.
pub const TOKEN_SECONDS: i64 = 1_800;
/// The column that a start is sealed to.
const COLUMN: &str = "sealed_boot";

/// What is sealed of a start.
#[derive(Serialize, Deserialize)]
struct Sealed {
    path: String,
    token: String,
}

/// An image to serve.
pub struct Image {
    /// The machine that it is for.
    pub node: NodeId,
    /// The join token to write into it.
    pub token: Secret,
}

/// The image at a path, as long as its agent has not joined; `None` for any other path.
///
/// # Errors
/// The store's; what is sealed can't be opened.
pub async fn found(tx: &mut Tx<'_>, keys: &KeyRing, path: &str) -> Result<Option<Image>, Fault> {
    let Some(node) = metal::at_boot(tx, &digest(path)).await? else { return Ok(None) };
    let Some(machine) = metal::find(tx, &node).await? else { return Ok(None) };
    match &machine.boot {
        Some(boot) if machine.agent_key.is_none() => {
            let token = Secret::new(open(keys, &machine, boot)?.token);
            Ok(Some(Image { node, token }))
        }
        _ => Ok(None),
    }
}

/// Where the BMC gets the image of the start that is under way; `None` if this relay serves none.
///
/// # Errors
/// What is sealed can't be opened.
pub(super) fn url(relay: &Context, machine: &Machine) -> Result<Option<String>, Fault> {
    let (Some(base), Some(boot)) = (&relay.boot_url, &machine.boot) else { return Ok(None) };
    Ok(Some(format!("{base}/boot/{}/agent.iso", open(&relay.keys, machine, boot)?.path)))
}

/// Writes down another start. The agent of an earlier one is none of this machine's any more.
///
/// # Errors
/// The store's.
pub(super) async fn prepared(relay: &Context, machine: Machine) -> Result<On, Fault> {
    let now = relay.clock.now();
    let path = base32::encode(&relay.random.bytes::<32>());
    let store = &relay.store;
    let made = store.transact("metal.boot", (relay, &machine, &path), |tx, (relay, machine, path)| {
        Box::pin(async move {
            let mut machine = (*machine).clone();
            let (id, token) =
                tokens::mint(tx, relay, &machine, (Purpose::Agent, TOKEN_SECONDS, None), now).await?;
            let sealed = Sealed { path: (*path).clone(), token: token.expose().to_owned() };
            let sealed = seal(relay, &machine, &sealed)?;
            machine.boot = Some(Boot { sealed, path_sha256: digest(path), token: id });
            machine.agent_key = None;
            save_last(tx, &mut machine, now).await?;
            Ok::<_, Halt>(machine)
        })
    });
    with(ends::kept(made.await)?)
}

/// Ends a start, whose agent has joined or does not count any more.
///
/// # Errors
/// The store's.
pub(super) async fn ended(tx: &mut Tx<'_>, machine: &mut Machine, now: Timestamp) -> Result<(), Fault> {
    if let Some(boot) = machine.boot.take() {
        token_views::revoke(tx, &boot.token, now).await?;
    }
    Ok(())
}

fn digest(path: &str) -> String {
    hex::encode(&Sha256::digest(path))
}

fn seal(relay: &Context, machine: &Machine, sealed: &Sealed) -> Result<String, Fault> {
    let plain = serde_json::to_vec(sealed).map(Zeroizing::new);
    let plain = plain.map_err(Fault::internal("sealing a start of an agent"))?;
    let sealed = relay.keys.seal(place(machine), &plain, &relay.random);
    sealed.map_err(Fault::internal("sealing a start of an agent"))
}

fn open(keys: &KeyRing, machine: &Machine, boot: &Boot) -> Result<Sealed, Fault> {
    let opened = keys.open(place(machine), &boot.sealed);
    let opened = opened.map_err(Fault::internal("opening a start of an agent"))?;
    serde_json::from_slice(&opened).map_err(Fault::internal("opening a start of an agent"))
}

fn place(machine: &Machine) -> Place<'_> {
    Place { table: metal::TABLE, row: machine.node_id.as_str(), column: COLUMN }
}
