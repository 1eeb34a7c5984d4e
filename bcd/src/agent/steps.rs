//! One step, done: which part of the agent does it, on which thread, and what is reported.

use super::{
    burn_in, disks, erase,
    fault::{Fault, StepFault, fault, label},
    fetch, hardware,
    image::{self, Image},
    place, rescue,
    target::Target,
    work::Work,
};
use crate::identity::{Places, Report};
use shared::{
    api::steps::{DiskHint, ImageFormat, ImageReport, StepResult, Work as Order},
    hex,
};
use std::{path::Path, sync::Arc, time::Duration};

/// What outlives a step.
#[derive(Default)]
pub(crate) struct Kept {
    /// A rescue that is open.
    pub(crate) rescue: Option<rescue::Open>,
    /// The kernel's name for the disk that was written.
    written: Option<String>,
}

/// Does a step from its beginning. `now` is the time since boot.
///
/// # Errors
/// Whatever the step fails at.
pub(crate) async fn run(
    order: Order,
    work: Arc<Work>,
    kept: &mut Kept,
    now: Duration,
) -> Result<StepResult, Fault> {
    match order {
        Order::Hardware => {
            off_thread(|| {
                let identity = Report::gather(&Places::default());
                Ok(StepResult {
                    hardware: Some(hardware::look(&identity, Path::new("/"))),
                    ..StepResult::default()
                })
            })
            .await
        }
        Order::Wipe => off_thread(move || of_disks(erase::wipe_metadata(&found()?, &work)?)).await,
        Order::Erase => off_thread(move || of_disks(erase::erase(&found()?, &work)?)).await,
        Order::Write { url, sha256, format, disk, networks, roots } => {
            let source = fetch::Source { url, networks, roots };
            let report = write(source, (sha256, format), disk.unwrap_or_default(), work).await?;
            kept.written = Some(report.disk.as_str().to_owned());
            Ok(StepResult { image: Some(report), ..StepResult::default() })
        }
        Order::Credential { relay, ca_pin, token, user_data } => {
            let user_data = user_data.map(shared::secret::Reveal::into_secret);
            let files = place::credential((&relay, &ca_pin), token.into_secret(), user_data);
            let written = kept.written.clone();
            off_thread(move || {
                let mut disks = found()?;
                disks.retain(|disk| written.as_ref().is_none_or(|name| *name == disk.name));
                let (partition, system) = place::place(&disks, &files)?;
                tracing::info!(partition = %partition.display(), system, "the credential is in its place");
                Ok(StepResult::default())
            })
            .await
        }
        Order::Rescue { ssh_public_key, ttl_seconds } => {
            if let Some(before) = kept.rescue.take() {
                before.close().await;
            }
            let ttl = Duration::from_secs(u64::try_from(ttl_seconds).unwrap_or(0));
            let (open, report) = rescue::open(&ssh_public_key, ttl, now).await?;
            kept.rescue = Some(open);
            Ok(StepResult { rescue: Some(report), ..StepResult::default() })
        }
        Order::BurnIn => {
            let ran = burn_in::run(Path::new(burn_in::FOLDER), burn_in::LIMIT).await?;
            tracing::info!(programs = ran.join(" "), "the machine was tried out");
            Ok(StepResult::default())
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "it ends what may fail")]
fn of_disks(disks: Vec<shared::api::steps::DiskReport>) -> Result<StepResult, Fault> {
    Ok(StepResult { disks, ..StepResult::default() })
}

/// The machine's disks. A machine without any is broken, or lacks a driver.
fn found() -> Result<Vec<disks::Disk>, Fault> {
    let disks = disks::all(Path::new(disks::SYSFS));
    match disks.is_empty() {
        true => {
            Err(fault(StepFault::NoDisk, "the machine shows no disk: is there a driver for its controller?"))
        }
        false => Ok(disks),
    }
}

async fn write(
    source: fetch::Source,
    (sha256, format): (String, ImageFormat),
    hint: DiskHint,
    work: Arc<Work>,
) -> Result<ImageReport, Fault> {
    let download = fetch::begin(&source).await?;
    off_thread(move || {
        let disks = found()?;
        // Unpacked, it may need more; that is judged as it is written.
        let disk = disks::choose(&disks, &hint, download.length.unwrap_or(0))?;
        tracing::info!(disk = disk.describe(), url = source.url, "writing an image");
        let target = Target::open(&disk.device)?;
        let image = Image { source: download.stream, length: download.length, sha256, format };
        let written = image::write(image, &target, &work)?;
        let odd = || fault(StepFault::Disk, "the image has a length that no image has");
        Ok(ImageReport {
            disk: label(&disk.name),
            bytes: disks::bytes(written.bytes).ok_or_else(odd)?,
            sha256: hex::encode(&written.sha256).parse().map_err(|_| odd())?,
        })
    })
    .await
}

async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    let ended = tokio::task::spawn_blocking(work).await;
    ended.map_err(|error| fault(StepFault::Program, format!("the step's thread ended early: {error}")))?
}
