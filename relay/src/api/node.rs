//! The node plane: thin handlers over the join flows.

use crate::{
    ca::CaState,
    call::Call,
    fault::Fault,
    join::{
        renew,
        signs::{self, Seen},
        standing, submit, trust,
    },
    seal::Place,
    store::{nodes::Heartbeat, pools, secrets},
};
use serde_json::json;
use shared::{
    api::node::{
        HeartbeatAnswer, HeartbeatInput, JoinAnswer, JoinInput, RenewInput, SecretsAnswer, SecretsInput,
        Trust,
    },
    hardware::Machine,
    problem::{Code, Problem},
    secret::Secret,
};
use std::collections::BTreeMap;

/// node/join.
///
/// # Errors
/// See [`submit::submit`].
pub async fn join(call: Call, input: JoinInput) -> Result<JoinAnswer, Fault> {
    let joined = submit::submit(&call, &input).await;
    let outcome = outcome(&joined);
    call.relay.metrics.joined(&outcome);
    let node = match &joined {
        Ok(JoinAnswer::Issued(issued)) => Some(tracing::field::display(issued.node_id.clone())),
        Ok(JoinAnswer::Challenge(_) | JoinAnswer::Deferred(_)) | Err(_) => None,
    };
    let (token, remote, request_id) = (call.join_token()?, call.remote, &call.request_id);
    tracing::info!(%token, node, %remote, request_id, outcome, "a machine asked to join");
    joined
}

/// What a join came to, in one word for the metrics: `issued`, `challenge`, `deferred`, a reason or a code.
fn outcome(joined: &Result<JoinAnswer, Fault>) -> String {
    match joined {
        Ok(JoinAnswer::Issued(_)) => "issued".to_owned(),
        Ok(JoinAnswer::Challenge(_)) => "challenge".to_owned(),
        Ok(JoinAnswer::Deferred(_)) => "deferred".to_owned(),
        Err(Fault::Problem(problem)) => match problem.reason {
            Some(reason) => json!(reason).as_str().unwrap_or_default().to_owned(),
            None => problem.code.as_str().to_owned(),
        },
        Err(Fault::Store(_)) => Code::Unavailable.as_str().to_owned(),
        Err(Fault::Internal { .. }) => Code::Internal.as_str().to_owned(),
    }
}

/// node/renew.
///
/// # Errors
/// See [`renew::renew`].
pub async fn renew(call: Call, input: RenewInput) -> Result<JoinAnswer, Fault> {
    renew::renew(&call, &input).await
}

/// node/heartbeat: judged now, written down within a second with those of others; another boot or identity at once.
///
/// # Errors
/// See [`standing::require`].
pub async fn heartbeat(call: Call, input: HeartbeatInput) -> Result<HeartbeatAnswer, Fault> {
    let node = standing::require(&call).await?;
    let machine = input.identity.map(|claim| Machine::judge(&claim));
    signs::note(&call, &node, Seen { boot_id: input.boot_id, machine }).await?;
    let beat = Heartbeat { node: node.id, at: call.now, agent_version: input.agent_version };
    call.relay.heartbeats.note(beat);
    // A certificate of a CA that was rotated out is exchanged early.
    let ca = call.relay.ca.load();
    let issuer = &call.peer()?.issuer;
    let renew = !ca.issuers().any(|record| record.id == *issuer && record.state == CaState::Active);
    Ok(HeartbeatAnswer { server_time: call.now, renew, message: None })
}

/// node/secrets: the pool's platform secrets, for machines that the platform trusts now.
///
/// # Errors
/// PERMISSION_DENIED for a `node-tenant` certificate, or where trust has fallen since the certificate was issued.
pub async fn secrets(call: Call, _: SecretsInput) -> Result<SecretsAnswer, Fault> {
    let node = standing::require(&call).await?;
    let certificate = trust::profile(Trust::Platform) == call.peer()?.kind;
    let (trusted, sealed) = call
        .relay
        .store
        .read("node.secrets", node, |tx, node| {
            Box::pin(async move {
                let pool = pools::load(tx, &node.pool_id).await?.ok_or_else(standing::released)?;
                let trust = trust::fallen(node.trust, trust::evaluate(&pool, node.hosted));
                Ok::<_, Fault>((trust == Trust::Platform, secrets::sealed(tx, &node.pool_id).await?))
            })
        })
        .await?;
    if !(certificate && trusted) {
        let detail =
            "Platform secrets are for machines with a `node` certificate that the platform trusts now.";
        return Err(Problem::new(Code::PermissionDenied, detail).into());
    }
    let mut opened = BTreeMap::new();
    for secret in sealed {
        let place = Place { table: secrets::TABLE, row: &secret.row, column: secrets::COLUMN };
        let plain =
            call.relay.keys.open(place, &secret.sealed).map_err(Fault::internal("opening a secret"))?;
        let text = String::from_utf8(plain.to_vec())
            .map_err(|_| Fault::internal("reading a secret")("not UTF-8"))?;
        opened.insert(secret.name, Secret::new(text).reveal());
    }
    Ok(SecretsAnswer { secrets: opened })
}
