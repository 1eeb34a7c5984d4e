//! The verbs on a machine that is there.

use super::{Verb, moved};
use crate::{
    api::pools::DecidedBy,
    call::Call,
    fault::Fault,
    metal::{
        facts::{Machine, Options},
        machine::With,
        settle::sealed_user_data,
    },
    outside::Target,
    store::{Tx, pools, sites},
};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use shared::{
    api::{
        access::Action,
        metal::{
            DeployMetal, InspectMetal, MetalDone, MetalVerb, MoveMetal, RescueMetal, RetireMetal, SwitchPower,
        },
    },
    bounded::Int,
    hex,
    problem::Problem,
};

/// The longest user data, in bytes (64 KiB).
const MAX_USER_DATA_BYTES: usize = 64 << 10;
/// How long somebody is let in unless told otherwise, in seconds.
const RESCUE_SECONDS: i64 = 3_600;

/// compute/metal/power.
///
/// # Errors
/// NOT_FOUND, PERMISSION_DENIED; CONFLICT for another version; INVALID_STATE.
pub async fn power(call: Call, input: SwitchPower) -> Result<MetalDone, Fault> {
    let store = &call.relay.store;
    store
        .transact(call.method, (&call, &input), |tx, (call, input)| {
            Box::pin(async move {
                let verb = Verb {
                    place: (&input.tenant_id, &input.pool_id, &input.node_id),
                    action: Action::MetalPower,
                    by: DecidedBy::EitherOwner,
                    verb: MetalVerb::Power,
                    with: With::Nothing,
                    version: input.expected_version,
                    key: &input.idempotency_key,
                    content: json!([input.node_id, input.target]),
                };
                moved(tx, call, &verb, |_, machine| {
                    machine.wanted_power = Some(input.target);
                    machine.last_error = None;
                    machine.begin(None);
                    Ok(())
                })
                .await
            })
        })
        .await
}

/// compute/metal/inspect.
///
/// # Errors
/// As [`power`].
pub async fn inspect(call: Call, input: InspectMetal) -> Result<MetalDone, Fault> {
    let store = &call.relay.store;
    store
        .transact(call.method, (&call, &input), |tx, (call, input)| {
            Box::pin(async move {
                let in_band = input.in_band == Some(true);
                let verb = Verb {
                    place: (&input.tenant_id, &input.pool_id, &input.node_id),
                    action: Action::MetalInspect,
                    by: DecidedBy::EitherOwner,
                    verb: MetalVerb::Inspect,
                    with: With::Nothing,
                    version: input.expected_version,
                    key: &input.idempotency_key,
                    content: json!([input.node_id, in_band]),
                };
                moved(tx, call, &verb, |_, machine| {
                    machine.options = if in_band { Options::InBand } else { Options::Nothing };
                    Ok(())
                })
                .await
            })
        })
        .await
}

/// compute/metal/abort.
///
/// # Errors
/// As [`power`].
pub async fn abort(call: Call, input: MoveMetal) -> Result<MetalDone, Fault> {
    simple(call, input, Action::MetalAbort, (MetalVerb::Abort, DecidedBy::EitherOwner)).await
}

/// compute/metal/commission.
///
/// # Errors
/// As [`power`].
pub async fn commission(call: Call, input: MoveMetal) -> Result<MetalDone, Fault> {
    simple(call, input, Action::MetalCommission, (MetalVerb::Commission, DecidedBy::EitherOwner)).await
}

/// compute/metal/release.
///
/// # Errors
/// As [`power`].
pub async fn release(call: Call, input: MoveMetal) -> Result<MetalDone, Fault> {
    simple(call, input, Action::MetalRelease, (MetalVerb::Release, DecidedBy::PoolTenant)).await
}

/// compute/metal/deploy.
///
/// # Errors
/// As [`power`]; INVALID_INPUT for an image that may not be fetched, or too much user data.
pub async fn deploy(call: Call, input: DeployMetal) -> Result<MetalDone, Fault> {
    let too_long = |data: &&shared::secret::Secret| data.expose().len() > MAX_USER_DATA_BYTES;
    if input.user_data.as_ref().filter(too_long).is_some() {
        let rule = format!("must be at most {MAX_USER_DATA_BYTES} bytes");
        return Err(Problem::invalid_field("userData", rule).into());
    }
    let store = &call.relay.store;
    store.transact(call.method, (&call, &input), |tx, (call, input)| Box::pin(give(tx, call, input))).await
}

async fn give(tx: &mut Tx<'_>, call: &Call, input: &DeployMetal) -> Result<MetalDone, Fault> {
    may_come_from(tx, call, input).await?;
    let rebuild = input.rebuild == Some(true);
    let options = Options::Deploy {
        image: input.image.clone(),
        disk: input.disk.clone(),
        wipe: input.wipe == Some(true),
        hosted: input.hosted,
    };
    // The same request has the same user data; of that only a digest is kept.
    let data = input.user_data.as_ref().map(|data| hex::encode(&Sha256::digest(data.expose())));
    let verb = Verb {
        place: (&input.tenant_id, &input.pool_id, &input.node_id),
        action: Action::MetalDeploy,
        by: DecidedBy::PoolTenant,
        verb: MetalVerb::Deploy,
        with: if rebuild { With::Rebuild } else { With::Nothing },
        version: input.expected_version,
        key: &input.idempotency_key,
        content: json!([input.node_id, options, data, rebuild]),
    };
    moved(tx, call, &verb, |call, machine| {
        machine.options = options.clone();
        machine.tainted = true;
        machine.install_token = None;
        let sealed = input.user_data.as_ref();
        let sealed = sealed.map(|data| sealed_user_data(&call.relay, &machine.node_id, data));
        machine.sealed_user_data = sealed.transpose()?;
        Ok(())
    })
    .await
}

/// That the image may be fetched from where it is; of a name that is seen again before it is.
async fn may_come_from(tx: &mut Tx<'_>, call: &Call, input: &DeployMetal) -> Result<(), Fault> {
    let target = input.image.url.as_str().parse::<Target>();
    let target = target.map_err(|rule| Problem::invalid_field("image.url", rule.to_string()))?;
    let pool = pools::load(tx, input.pool_id.as_str()).await?;
    let site = match pool {
        Some(pool) => sites::find(tx, &pool.site_id).await?,
        None => None,
    };
    let networks = site.map(|site| site.bmc_networks).unwrap_or_default();
    let listed: Vec<_> = networks.iter().filter_map(|network| network.0.parse().ok()).collect();
    if call.relay.outside.may_name_in(&target, &listed) {
        return Ok(());
    }
    let rule = "must lead to the public Internet: not to this relay's machine, nor into private networks, unless the site lists \
                them in bmcNetworks";
    Err(Problem::invalid_field("image.url", rule).into())
}

/// compute/metal/rescue.
///
/// # Errors
/// As [`power`]; INVALID_INPUT without a key.
pub async fn rescue(call: Call, input: RescueMetal) -> Result<MetalDone, Fault> {
    let exit = input.exit == Some(true);
    let options = match (&input.ssh_public_key, exit) {
        (_, true) => Options::Nothing,
        (Some(key), false) => Options::Rescue {
            ssh_public_key: key.as_str().to_owned(),
            ttl_seconds: input.ttl_seconds.map_or(RESCUE_SECONDS, Int::get),
        },
        (None, false) => {
            return Err(Problem::invalid_field("sshPublicKey", "is required, unless exit is set").into());
        }
    };
    let store = &call.relay.store;
    store
        .transact(call.method, (&call, &input, &options), |tx, (call, input, options)| {
            Box::pin(async move {
                let verb = Verb {
                    place: (&input.tenant_id, &input.pool_id, &input.node_id),
                    action: Action::MetalRescue,
                    by: DecidedBy::PoolTenant,
                    verb: MetalVerb::Rescue,
                    with: if input.exit == Some(true) { With::Exit } else { With::Nothing },
                    version: input.expected_version,
                    key: &input.idempotency_key,
                    content: json!([input.node_id, options]),
                };
                moved(tx, call, &verb, |_, machine| {
                    machine.options = (*options).clone();
                    Ok(())
                })
                .await
            })
        })
        .await
}

/// compute/metal/retire.
///
/// # Errors
/// As [`power`].
pub async fn retire(call: Call, input: RetireMetal) -> Result<MetalDone, Fault> {
    let store = &call.relay.store;
    store
        .transact(call.method, (&call, &input), |tx, (call, input)| {
            Box::pin(async move {
                let verb = Verb {
                    place: (&input.tenant_id, &input.pool_id, &input.node_id),
                    action: Action::MetalRetire,
                    by: DecidedBy::EitherOwner,
                    verb: MetalVerb::Retire,
                    with: With::Nothing,
                    version: input.expected_version,
                    key: &input.idempotency_key,
                    content: json!([input.node_id, input.force]),
                };
                moved(tx, call, &verb, |_, machine| {
                    machine.forced = input.force == Some(true);
                    Ok(())
                })
                .await
            })
        })
        .await
}

/// A verb that takes nothing more.
async fn simple(
    call: Call,
    input: MoveMetal,
    action: Action,
    (verb, by): (MetalVerb, DecidedBy),
) -> Result<MetalDone, Fault> {
    let store = &call.relay.store;
    store
        .transact(call.method, (&call, &input), |tx, (call, input)| {
            Box::pin(async move {
                let verb = Verb {
                    place: (&input.tenant_id, &input.pool_id, &input.node_id),
                    action,
                    by,
                    verb,
                    with: With::Nothing,
                    version: input.expected_version,
                    key: &input.idempotency_key,
                    content: json!([input.node_id]),
                };
                moved(tx, call, &verb, |_, _: &mut Machine| Ok(())).await
            })
        })
        .await
}
