//! The table `metal`. A machine is read whole, changed, and written whole, where it is still the one that
//! was read: by its version, and by the fence of the worker that has it. So whoever was late writes nothing.

use super::{Row, StoreError, Tx, tasks};
use crate::metal::facts::{Boot, Machine, Reach};
use serde_json::json;
use shared::{
    api::{
        metal::{LastError, MachineIdentity, MetalState, NodeCertificate, PowerTarget, WaitingFor},
        node::Trust,
        nodes::NodeState,
    },
    id::{JoinTokenId, MetalStepId, NodeId, TaskId},
    time::Timestamp,
};
use std::str::FromStr;

const FIND: &str = "SELECT m.node_id, m.pool_id, m.tenant_id, m.site_id, m.state, m.began_from, m.task_id, m.step, m.attempt, \
    m.deadline, m.waiting_for, m.intent, m.last_error, m.skipped, m.aborted, m.forced, m.wanted_power, m.address, m.protocol, \
    m.cipher_suite, m.tls, m.sealed_credentials, m.refusals, m.retry_at, m.expect_serial, m.vendor, m.firmware, m.virtual_media, \
    m.identity, m.hardware, m.power_state, m.options, m.sealed_user_data, m.tainted, m.sealed_boot, m.boot_path_sha256, m.boot_token, \
    m.agent_key, m.install_token, m.agent_step, m.rotates, m.sealed_candidate, m.fence, m.version, m.created_at, m.updated_at, c.serial, c.not_after, \
    c.trust AS certificate_trust, CASE WHEN n.token_id = m.install_token THEN n.state ELSE '' END AS joined, s.progress \
    FROM metal m JOIN nodes n ON n.id = m.node_id LEFT JOIN certificates c ON c.serial = n.current_serial AND n.state = 'live' \
    LEFT JOIN metal_steps s ON s.id = m.agent_step \
    WHERE m.node_id = $1";
const LOCK: &str = "SELECT version FROM metal WHERE node_id = $1";
const PAGE: &str = "SELECT m.node_id, m.pool_id, m.tenant_id, m.site_id, m.state, m.began_from, m.task_id, m.step, m.attempt, \
    m.deadline, m.waiting_for, m.intent, m.last_error, m.skipped, m.aborted, m.forced, m.wanted_power, m.address, m.protocol, \
    m.cipher_suite, m.tls, m.sealed_credentials, m.refusals, m.retry_at, m.expect_serial, m.vendor, m.firmware, m.virtual_media, \
    m.identity, m.hardware, m.power_state, m.options, m.sealed_user_data, m.tainted, m.sealed_boot, m.boot_path_sha256, m.boot_token, \
    m.agent_key, m.install_token, m.agent_step, m.rotates, m.sealed_candidate, m.fence, m.version, m.created_at, m.updated_at, c.serial, c.not_after, \
    c.trust AS certificate_trust, CASE WHEN n.token_id = m.install_token THEN n.state ELSE '' END AS joined, s.progress \
    FROM metal m JOIN nodes n ON n.id = m.node_id LEFT JOIN certificates c ON c.serial = n.current_serial AND n.state = 'live' \
    LEFT JOIN metal_steps s ON s.id = m.agent_step \
    WHERE m.pool_id = $1 AND m.node_id > $2 AND ($3 = 1 OR m.state <> 'retired') ORDER BY m.node_id LIMIT $4";
const AT_BMC: &str =
    "SELECT node_id, tenant_id FROM metal WHERE site_id = $1 AND address = $2 AND state <> 'retired'";
const INSERT: &str = "INSERT INTO metal (node_id, pool_id, tenant_id, site_id, state, began_from, task_id, step, attempt, deadline, \
    waiting_for, intent, last_error, skipped, aborted, forced, wanted_power, address, protocol, cipher_suite, tls, \
    sealed_credentials, refusals, retry_at, expect_serial, vendor, firmware, virtual_media, identity, hardware, power_state, \
    updated_at, fence, version, options, sealed_user_data, tainted, sealed_boot, boot_path_sha256, boot_token, agent_key, \
    install_token, agent_step, rotates, sealed_candidate, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, \
    $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41, $42, $43, $44, $45, $32)";
const SAVE: &str = "UPDATE metal SET pool_id = $2, tenant_id = $3, site_id = $4, state = $5, began_from = $6, task_id = $7, step = $8, \
    attempt = $9, deadline = $10, waiting_for = $11, intent = $12, last_error = $13, skipped = $14, aborted = $15, forced = $16, \
    wanted_power = $17, address = $18, protocol = $19, cipher_suite = $20, tls = $21, sealed_credentials = $22, refusals = $23, \
    retry_at = $24, expect_serial = $25, vendor = $26, firmware = $27, virtual_media = $28, identity = $29, hardware = $30, \
    power_state = $31, updated_at = $32, options = $35, sealed_user_data = $36, tainted = $37, sealed_boot = $38, \
    boot_path_sha256 = $39, boot_token = $40, agent_key = $41, install_token = $42, agent_step = $43, rotates = $44, sealed_candidate = $45, \
    version = version + 1 WHERE node_id = $1 AND fence = $33 AND version = $34";
const TAKE: &str = "UPDATE metal SET fence = fence + 1 WHERE node_id = $1";
const IDLE: &str = "SELECT node_id FROM metal WHERE (wanted_power IS NOT NULL OR rotates = 1 OR state IN ('enrolling', 'inspecting', \
    'commissioning', 'deploying', 'rescuing', 'unrescuing', 'releasing', 'retiring')) \
    AND NOT EXISTS (SELECT 1 FROM tasks WHERE task_key = metal.node_id AND due_at IS NOT NULL) ORDER BY node_id LIMIT $1";
const UNSETTLED: &str = "SELECT node_id FROM metal WHERE node_id > $1 AND (wanted_power IS NOT NULL OR rotates = 1 OR state IN ('available', \
    'enrolling', 'inspecting', 'commissioning', 'deploying', 'rescuing', 'unrescuing', 'releasing', 'retiring')) \
    ORDER BY node_id LIMIT $2";
const TAINT_ALL: &str = "UPDATE metal SET tainted = 1 WHERE state <> 'retired'";
const COUNT: &str = "SELECT state, COUNT(*) AS count FROM metal GROUP BY state";
const TAINTED_AND_RETIRED: &str =
    "SELECT identity FROM metal WHERE site_id = $1 AND state = 'retired' AND tainted = 1";
const AT_BOOT: &str = "SELECT node_id FROM metal WHERE boot_path_sha256 = $1";
const NUDGE: &str = "UPDATE metal SET version = version + 1 WHERE node_id = $1";
const AGENT_JOINED: &str = "UPDATE metal SET agent_key = $3, identity = $4, version = version + 1 \
    WHERE node_id = $1 AND boot_token = $2";

const AGENT_CONTESTED: &str = "UPDATE metal SET agent_key = NULL, aborted = 1, last_error = $2, version = version + 1 \
    WHERE node_id = $1";

pub(super) const STATEMENTS: &[&str] = &[
    FIND,
    LOCK,
    PAGE,
    AT_BMC,
    INSERT,
    SAVE,
    TAKE,
    IDLE,
    UNSETTLED,
    TAINT_ALL,
    COUNT,
    TAINTED_AND_RETIRED,
    AT_BOOT,
    NUDGE,
    AGENT_JOINED,
    AGENT_CONTESTED,
];

/// The table and the column of sealed credentials.
pub const TABLE: &str = "metal";
/// See [`TABLE`].
pub const COLUMN: &str = "sealed_credentials";
/// The column of those that a rotation has given to a BMC.
pub const CANDIDATE_COLUMN: &str = "sealed_candidate";

/// The machine as it is now, not locked.
///
/// # Errors
/// The store's.
pub async fn find(tx: &mut Tx<'_>, id: &NodeId) -> Result<Option<Machine>, StoreError> {
    tx.fetch_optional(FIND, &[id.as_str().into()]).await?.map(|row| machine(&row)).transpose()
}

/// The machine, locked until the transaction ends.
///
/// # Errors
/// The store's.
pub async fn lock(tx: &mut Tx<'_>, id: &NodeId) -> Result<Option<Machine>, StoreError> {
    // PostgreSQL locks no row of the outer side of a join.
    match tx.lock_optional(LOCK, &[id.as_str().into()]).await? {
        Some(_) => find(tx, id).await,
        None => Ok(None),
    }
}

/// The machine, taken by a worker: whoever had it before writes nothing any more.
///
/// # Errors
/// The store's.
pub async fn take(tx: &mut Tx<'_>, id: &NodeId) -> Result<Option<Machine>, StoreError> {
    tx.execute(TAKE, &[id.as_str().into()]).await?;
    find(tx, id).await
}

/// At most `limit` of a pool's machines behind `after`, in order of id.
///
/// # Errors
/// The store's.
pub async fn page(
    tx: &mut Tx<'_>,
    pool_id: &str,
    retired_too: bool,
    after: &str,
    limit: i64,
) -> Result<Vec<Machine>, StoreError> {
    let args = [pool_id.into(), after.into(), i64::from(retired_too).into(), limit.into()];
    tx.fetch_all(PAGE, &args).await?.iter().map(machine).collect()
}

/// The machine, and its tenant, that has the BMC at this address of a site.
///
/// # Errors
/// The store's.
pub async fn at_bmc(
    tx: &mut Tx<'_>,
    site_id: &str,
    address: &str,
) -> Result<Option<(NodeId, String)>, StoreError> {
    let row = tx.fetch_optional(AT_BMC, &[site_id.into(), address.into()]).await?;
    row.map(|row| Ok((row.parsed("node_id")?, row.text("tenant_id")?))).transpose()
}

/// Writes a new machine.
///
/// # Errors
/// The store's; [`StoreError::Unique`] if another machine has its BMC.
pub async fn insert(tx: &mut Tx<'_>, machine: &Machine) -> Result<(), StoreError> {
    write(tx, INSERT, machine, machine.updated_at).await.map(drop)
}

/// Writes a machine where it is still the one that was read; raises its version there and in `machine`. `false` if it is another
/// by now.
///
/// # Errors
/// The store's; [`StoreError::Unique`] if another machine has its BMC.
pub async fn save(tx: &mut Tx<'_>, machine: &mut Machine, now: Timestamp) -> Result<bool, StoreError> {
    let saved = write(tx, SAVE, machine, now).await? == 1;
    if saved {
        machine.version = machine.version.saturating_add(1);
        machine.updated_at = now;
    }
    Ok(saved)
}

/// At most `limit` machines that there is something to do with, and no task that does it.
///
/// # Errors
/// The store's.
pub async fn idle(tx: &mut Tx<'_>, limit: i64) -> Result<Vec<NodeId>, StoreError> {
    tx.fetch_all(IDLE, &[limit.into()]).await?.iter().map(|row| row.parsed("node_id")).collect()
}

/// At most `limit` machines behind `after`, in order of id, that are at work, are to be switched, get another password, or are available.
///
/// # Errors
/// The store's.
pub async fn unsettled(tx: &mut Tx<'_>, after: &str, limit: i64) -> Result<Vec<NodeId>, StoreError> {
    let rows = tx.fetch_all(UNSETTLED, &[after.into(), limit.into()]).await?;
    rows.iter().map(|row| row.parsed("node_id")).collect()
}

/// Writes that somebody's data may be on the disks of every machine that is not retired.
///
/// # Errors
/// The store's.
pub async fn taint_all(tx: &mut Tx<'_>) -> Result<(), StoreError> {
    tx.execute(TAINT_ALL, &[]).await.map(drop)
}

/// How many machines are in each state; states without any are left out.
///
/// # Errors
/// The store's.
pub async fn count_by_state(tx: &mut Tx<'_>) -> Result<Vec<(MetalState, i64)>, StoreError> {
    let rows = tx.fetch_all(COUNT, &[]).await?;
    rows.iter().map(|row| Ok((row.word("state")?, row.integer("count")?))).collect()
}

/// What the machines of a site are that were retired with somebody's data on their disks.
///
/// # Errors
/// The store's.
pub async fn tainted_and_retired(tx: &mut Tx<'_>, site_id: &str) -> Result<Vec<MachineIdentity>, StoreError> {
    let rows = tx.fetch_all(TAINTED_AND_RETIRED, &[site_id.into()]).await?;
    rows.iter().map(|row| row.json("identity")).collect()
}

/// The machine whose agent is started by the image at this path.
///
/// # Errors
/// The store's.
pub async fn at_boot(tx: &mut Tx<'_>, path_sha256: &str) -> Result<Option<NodeId>, StoreError> {
    let row = tx.fetch_optional(AT_BOOT, &[path_sha256.into()]).await?;
    row.map(|row| row.parsed("node_id")).transpose()
}

/// Wakes whoever works on a machine, as there is news of it; a worker that is at it sees another version, and looks again.
///
/// # Errors
/// The store's.
pub async fn nudge(tx: &mut Tx<'_>, id: &NodeId) -> Result<(), StoreError> {
    tx.execute(NUDGE, &[id.as_str().into()]).await?;
    let now = tx.database_time().await?;
    tasks::wake(tx, id.as_str(), now).await
}

/// Writes that the agent of a machine, which is locked, joined with this key by the token of its start. Whoever works on the
/// machine meanwhile sees another version, and looks again.
///
/// # Errors
/// The store's; [`StoreError::Race`] if the token is of another start by now.
pub async fn agent_joined(tx: &mut Tx<'_>, machine: &Machine, key_sha256: &str) -> Result<(), StoreError> {
    let Some(boot) = &machine.boot else { return Err(StoreError::Race) };
    let identity = json!(machine.identity).to_string();
    let row = [
        machine.node_id.as_str().into(),
        boot.token.as_str().into(),
        key_sha256.into(),
        identity.as_str().into(),
    ];
    if tx.execute(AGENT_JOINED, &row).await? == 1 { Ok(()) } else { Err(StoreError::Race) }
}

/// Writes that a machine, which is locked, has no agent any more and that its workflow is to end, and why; wakes whoever works on it.
///
/// # Errors
/// The store's.
pub async fn agent_contested(tx: &mut Tx<'_>, id: &NodeId, why: &LastError) -> Result<(), StoreError> {
    let why = json!(why).to_string();
    tx.execute(AGENT_CONTESTED, &[id.as_str().into(), why.as_str().into()]).await?;
    nudge(tx, id).await
}

async fn write(
    tx: &mut Tx<'_>,
    sql: &'static str,
    machine: &Machine,
    now: Timestamp,
) -> Result<u64, StoreError> {
    let text = |value: serde_json::Value| value.to_string();
    let (intent, last_error) = (machine.intent.map(|it| text(json!(it))), &machine.last_error);
    let last_error = last_error.as_ref().map(|it| text(json!(it)));
    let hardware = machine.hardware.as_ref().map(|it| text(json!(it)));
    let (skipped, tls) = (text(json!(machine.skipped)), text(json!(machine.reach.tls)));
    let (identity, options) = (text(json!(machine.identity)), text(json!(machine.options)));
    let boot = machine.boot.as_ref();
    let row = [
        machine.node_id.as_str().into(),
        (&machine.pool_id).into(),
        (&machine.tenant_id).into(),
        (&machine.site_id).into(),
        machine.state.as_str().into(),
        machine.began_from.as_str().into(),
        machine.task_id.as_ref().map(TaskId::as_str).into(),
        (&machine.step).into(),
        machine.attempt.into(),
        machine.deadline.into(),
        machine.waiting_for.map(WaitingFor::as_str).into(),
        (&intent).into(),
        (&last_error).into(),
        (&skipped).into(),
        machine.aborted.into(),
        machine.forced.into(),
        machine.wanted_power.map(PowerTarget::as_str).into(),
        (&machine.reach.address).into(),
        machine.reach.protocol.as_str().into(),
        machine.reach.cipher_suite.into(),
        (&tls).into(),
        (&machine.sealed_credentials).into(),
        machine.refusals.into(),
        machine.retry_at.into(),
        (&machine.expect_serial).into(),
        (&machine.vendor).into(),
        (&machine.firmware).into(),
        machine.virtual_media.into(),
        (&identity).into(),
        (&hardware).into(),
        machine.power_state.as_str().into(),
        now.into(),
        machine.fence.into(),
        machine.version.into(),
        options.as_str().into(),
        (&machine.sealed_user_data).into(),
        machine.tainted.into(),
        boot.map(|boot| boot.sealed.as_str()).into(),
        boot.map(|boot| boot.path_sha256.as_str()).into(),
        boot.map(|boot| boot.token.as_str()).into(),
        (&machine.agent_key).into(),
        machine.install_token.as_ref().map(JoinTokenId::as_str).into(),
        machine.agent_step.as_ref().map(MetalStepId::as_str).into(),
        machine.rotates.into(),
        (&machine.sealed_candidate).into(),
    ];
    tx.execute(sql, &row).await
}

fn machine(row: &Row) -> Result<Machine, StoreError> {
    Ok(Machine {
        node_id: row.parsed("node_id")?,
        pool_id: row.text("pool_id")?,
        tenant_id: row.text("tenant_id")?,
        site_id: row.text("site_id")?,
        state: row.word("state")?,
        began_from: row.word("began_from")?,
        task_id: maybe_id(row, "task_id")?,
        step: row.maybe_text("step")?,
        attempt: row.integer("attempt")?,
        deadline: row.maybe_time("deadline")?,
        waiting_for: row.maybe_word("waiting_for")?,
        intent: row.maybe_json("intent")?,
        last_error: row.maybe_json("last_error")?,
        skipped: row.json("skipped")?,
        aborted: row.flag("aborted")?,
        forced: row.flag("forced")?,
        wanted_power: row.maybe_word("wanted_power")?,
        reach: Reach {
            address: row.text("address")?,
            protocol: row.word("protocol")?,
            cipher_suite: row.integer("cipher_suite")?,
            tls: row.json("tls")?,
        },
        sealed_credentials: row.maybe_text("sealed_credentials")?,
        rotates: row.flag("rotates")?,
        sealed_candidate: row.maybe_text("sealed_candidate")?,
        refusals: row.integer("refusals")?,
        retry_at: row.maybe_time("retry_at")?,
        expect_serial: row.maybe_text("expect_serial")?,
        vendor: row.maybe_text("vendor")?,
        firmware: row.maybe_text("firmware")?,
        virtual_media: row.flag("virtual_media")?,
        identity: row.json("identity")?,
        hardware: row.maybe_json("hardware")?,
        power_state: row.word("power_state")?,
        certificate: certificate(row)?,
        options: row.json("options")?,
        sealed_user_data: row.maybe_text("sealed_user_data")?,
        tainted: row.flag("tainted")?,
        boot: boot(row)?,
        agent_key: row.maybe_text("agent_key")?,
        install_token: maybe_id(row, "install_token")?,
        has_joined: row.text("joined")? == NodeState::Live.as_str(),
        agent_step: maybe_id(row, "agent_step")?,
        progress: row.maybe_json("progress")?,
        fence: row.integer("fence")?,
        version: row.integer("version")?,
        created_at: row.time("created_at")?,
        updated_at: row.time("updated_at")?,
    })
}

fn certificate(row: &Row) -> Result<Option<NodeCertificate>, StoreError> {
    let Some(serial) = row.maybe_text("serial")? else { return Ok(None) };
    let trust: Trust = row.word("certificate_trust")?;
    Ok(Some(NodeCertificate { serial, expires_at: row.time("not_after")?, trust }))
}

fn boot(row: &Row) -> Result<Option<Boot>, StoreError> {
    let Some(sealed) = row.maybe_text("sealed_boot")? else { return Ok(None) };
    Ok(Some(Boot { sealed, path_sha256: row.text("boot_path_sha256")?, token: row.parsed("boot_token")? }))
}

pub(super) fn maybe_id<T: FromStr>(row: &Row, column: &str) -> Result<Option<T>, StoreError> {
    if row.maybe_text(column)?.is_none() { Ok(None) } else { row.parsed(column).map(Some) }
}
