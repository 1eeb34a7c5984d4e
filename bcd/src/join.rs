//! The join: one request, written down before it is first sent, and sent again unchanged until the join ends.
//!
//! A join that waits for a person goes on with the token that it began with, since that is the one whose use its request
//! holds: the token is kept beside the state until then, so that one that is exchanged every day asks nobody again. It is
//! let go where the relay takes it no more, and where a person joins with another one (`bcd join`).

use crate::{
    failure::{Exit, Failure},
    node::Node,
    proof,
    state::{Joining, State, TOKEN, Waiting},
};
use shared::{
    api::node::{Agent, JOIN, JoinAnswer, JoinInput, Kubernetes},
    bounded::{Name, TenantId},
    hardware::Identity,
    id::JoinTokenId,
    secret::Secret,
    terminal::shown,
    token::JoinToken,
};
use std::{fs::File, io::Read as _, time::Duration};

/// The longest name of an operating system, in bytes.
const MAX_OS_BYTES: usize = 128;

/// One attempt. When it answers, the machine is enrolled and that is written down. Answers what it was said to be.
///
/// # Errors
/// Deferred ([`Exit::Waiting`]), refused, or not reached. A final refusal is written down.
pub async fn attempt(node: &mut Node, identity: Identity) -> Result<Identity, Failure> {
    let token = token(node)?;
    node.make_key().await?;
    let offer = proof::offer(node).await?;
    let joining = prepare(node, &token.id).await?;
    let identity = as_waiting(&node.stored.state, identity);
    let mut input = JoinInput {
        csr: joining.csr.clone(),
        identity,
        agent: agent(),
        kubernetes: node.settings.node_name.clone().map(|node_name| Kubernetes { node_name }),
        tpm: offer.as_ref().map(|offer| offer.tpm.clone()),
        proof: None,
    };
    for _ in 0..=proof::MAX_CHALLENGES {
        let challenge = match node.client.call(&JOIN, &input, Some(&token.bearer())).await {
            Ok(JoinAnswer::Issued(issued)) => return node.admit(issued).map(|()| input.identity),
            Ok(JoinAnswer::Deferred(deferred)) => {
                let retry_after = Duration::from_secs(deferred.retry_after_seconds.into());
                let waiting = Waiting::new(joining, input.identity, deferred, node.now());
                let failure = wait(node, &token, waiting)?;
                return Err(Failure { retry_after: Some(retry_after), ..failure });
            }
            Ok(JoinAnswer::Challenge(challenge)) => challenge,
            Err(error) => {
                let failure = Failure::of_call(&error, false);
                node.finish(&failure)?;
                if failure.exit == Exit::Token {
                    stop_waiting(node)?;
                }
                return Err(failure);
            }
        };
        let offer = offer.as_ref().ok_or_else(proof::nothing_offered)?;
        input.proof = Some(offer.prove(challenge).await?);
    }
    Err(proof::without_end())
}

/// What is known of a waiting join, and what to do about it. The command is for pasting into a shell: ids that are not of
/// the form that every relay gives are not put into it.
#[must_use]
pub fn describe(waiting: &Waiting) -> String {
    let id = &waiting.join_request_id;
    let reasons = shown(&waiting.reasons.join(", "));
    let command = format!("relay join-requests approve {id}");
    let place = match (waiting.tenant_id.parse::<TenantId>(), waiting.pool_id.parse::<Name>()) {
        (Ok(tenant), Ok(pool)) => format!(" --tenant {tenant} --pool {pool}"),
        _ => "; its tenant and pool are not shown: what the relay says of them is no id".to_owned(),
    };
    format!("join request {id} waits for a person ({reasons}); to approve it: {command}{place}")
}

/// Ends a join that waits, if another token is given now: what a person wants who joins anew.
///
/// # Errors
/// It can't be written.
pub fn begin_anew(node: &mut Node) -> Result<(), Failure> {
    let given = node.tokens.read().map(|token| token.id).ok();
    match &node.stored.state {
        State::Waiting(waiting) if given.is_some_and(|id| id != waiting.joining.token_id) => {
            node.save(State::New)
        }
        _ => Ok(()),
    }
}

/// The token to join with.
fn token(node: &Node) -> Result<JoinToken, Failure> {
    let State::Waiting(waiting) = &node.stored.state else { return Ok(node.tokens.read()?) };
    let kept = node.dir.read(TOKEN)?.and_then(|bytes| String::from_utf8(bytes).ok()).map(Secret::new);
    let kept = kept.and_then(|text| JoinToken::parse(text.expose()).ok());
    match kept.filter(|token| token.id == waiting.joining.token_id) {
        Some(token) => Ok(token),
        None => Ok(node.tokens.read()?),
    }
}

/// The GPUs and network interfaces of a join that waits stay those that its request shows: a driver may be loaded by now and
/// show others, which is no reason to ask a person once more.
fn as_waiting(state: &State, identity: Identity) -> Identity {
    match state {
        State::Waiting(waiting) => {
            Identity { gpu_uuids: waiting.gpu_uuids.clone(), macs: waiting.macs.clone(), ..identity }
        }
        _ => identity,
    }
}

/// The relay takes the token no more: the next attempt is made with the one that is given then.
fn stop_waiting(node: &mut Node) -> Result<(), Failure> {
    match &node.stored.state {
        State::Waiting(waiting) => node.save(State::Joining(waiting.joining.clone())),
        _ => Ok(()),
    }
}

/// The request to send: the one that is under way with this token, else a fresh one that is kept first.
async fn prepare(node: &mut Node, token_id: &JoinTokenId) -> Result<Joining, Failure> {
    if let Some(joining) = under_way(&node.stored.state, token_id) {
        return Ok(joining.clone());
    }
    let joining = Joining { csr: proof::request(node).await?, token_id: token_id.clone() };
    node.save(State::Joining(joining.clone()))?;
    // A certificate that the relay no longer takes must not stand beside the token.
    node.client.present_none().map_err(|error| Failure::of_call(&error, false))?;
    Ok(joining)
}

/// The request of a join that has not ended, if it goes with this token.
fn under_way<'a>(state: &'a State, token_id: &JoinTokenId) -> Option<&'a Joining> {
    let joining = match state {
        State::Joining(joining) => joining,
        State::Waiting(waiting) => &waiting.joining,
        State::New | State::Enrolled(_) | State::Final(_) => return None,
    };
    (joining.token_id == *token_id).then_some(joining)
}

fn wait(node: &mut Node, token: &JoinToken, waiting: Waiting) -> Result<Failure, Failure> {
    if !matches!(node.stored.state, State::Waiting(_)) {
        node.dir.write(TOKEN, token.bearer().expose().as_bytes(), 0o600)?;
    }
    let message = describe(&waiting);
    node.save(State::Waiting(waiting))?;
    Ok(Failure::new(Exit::Waiting, message))
}

fn agent() -> Agent {
    Agent {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        os: os_name().unwrap_or_else(|| std::env::consts::OS.to_owned()),
        arch: std::env::consts::ARCH.to_owned(),
    }
}

/// PRETTY_NAME of `/etc/os-release`.
fn os_name() -> Option<String> {
    let mut text = String::new();
    File::open("/etc/os-release").ok()?.take(64 * 1024).read_to_string(&mut text).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    let mut name = line.trim_matches(['"', '\'']).to_owned();
    while name.len() > MAX_OS_BYTES {
        name.pop();
    }
    Some(name)
}

#[cfg(test)]
mod tests;
