//! The agent in a metal machine: bcd, in the small image that the machine's BMC boots. It joins by the token in that image,
//! for a certificate of its own that makes no node, asks the relay what to do, does one step at a time, and reports.
//!
//! Nothing of it is kept: its state is in memory, and goes with the machine's power. Whatever the relay says is done to this
//! machine only, and a step that is wanted no more is given up. It ends when its certificate counts no more: then the
//! machine was started anew, or the workflow is over that started the agent.

mod burn_in;
mod disks;
mod erase;
mod fault;
mod fetch;
mod hardware;
mod image;
mod place;
mod qcow2;
mod rescue;
mod steps;
mod target;
mod work;

use crate::{
    backoff::Backoff,
    config::{
        Settings,
        fragment::{Fragment, Value},
        merge::Merged,
    },
    failure::{Exit, Failure},
    files,
    host::{Host, fraction},
    identity::Report,
    join,
    node::Node,
    renew,
    token::Sources,
};
use nix::{
    sys::time::TimeSpec,
    time::{ClockId, clock_settime},
};
use shared::{
    api::steps::{POLL, PollStep, REPORT, ReportStep},
    boot::{Boot, REGION_BYTES},
    problem::Code,
};
use std::{path::Path, sync::Arc, time::Duration};
use steps::Kept;
use work::Work;

/// Where the agent keeps its state: in memory.
const STATE: &str = "/run/bcd-agent/state";
/// How often progress is reported.
const REPORT_EVERY: Duration = Duration::from_secs(5);
/// The longest wait between two polls that a relay may ask for.
const MAX_POLL: Duration = Duration::from_secs(60);

/// What the image says, which the relay wrote into it.
///
/// # Errors
/// There is no such file, or the relay has written nothing into it.
pub fn read_boot(path: &Path) -> Result<Boot, Failure> {
    let unusable = |why: &dyn std::fmt::Display| {
        Failure::new(
            Exit::Usage,
            format!("what the relay wrote into the image ({}) is not usable: {why}", path.display()),
        )
    };
    let region = files::read(path, 2 * REGION_BYTES as u64).map_err(|error| unusable(&error))?;
    Boot::parse(&region).map_err(|error| unusable(&error))
}

/// The settings of an agent: what the image says, and nothing else.
///
/// # Errors
/// The image names no relay that bcd could recognise.
pub fn settings(boot: &Boot) -> Result<Settings, Failure> {
    let text = |text: &str| Value::Text(text.to_owned());
    let fragment = Fragment::from_flags(vec![
        ("relay", text(&boot.relay)),
        ("ca_pins", Value::List(boot.ca_pins.clone())),
        ("state_dir", text(STATE)),
    ]);
    Settings::parse(&Merged::of(vec![fragment])).map_err(|error| Failure::new(Exit::Usage, error))
}

/// A clock that is behind the moment in which the image was served is wrong, and is put there: many machines have no battery.
pub fn set_clock(boot: &Boot, host: &dyn Host) {
    if host.wall() >= boot.at {
        return;
    }
    let since_1970 = u64::try_from(boot.at.millis()).map(Duration::from_millis).unwrap_or_default();
    match clock_settime(ClockId::CLOCK_REALTIME, TimeSpec::from_duration(since_1970)) {
        Ok(()) => tracing::warn!(to = %boot.at, "the clock was behind the relay's, and is set"),
        Err(error) => tracing::warn!(%error, "the clock is behind the relay's, and can't be set"),
    }
}

/// Joins, then does what the relay says, until it counts no more.
///
/// # Errors
/// The join is refused for good, or the certificate counts no more: it always ends so.
pub async fn run(settings: Settings, boot: Boot, host: Arc<dyn Host>) -> Result<Exit, Failure> {
    let tokens = Sources { input: Some(boot.token), ..Sources::default() };
    let mut agent = Agent { node: Node::open(settings, tokens, host)?, kept: Kept::default() };
    agent.join().await?;
    tracing::info!("joined; waiting for steps");
    let ended = agent.serve().await;
    if let Some(rescue) = agent.kept.rescue.take() {
        rescue.close().await;
    }
    Err(ended)
}

struct Agent {
    node: Node,
    kept: Kept,
}

impl Agent {
    /// Joins, however often that takes.
    async fn join(&mut self) -> Result<(), Failure> {
        let mut backoff = Backoff::default();
        while self.node.enrolled().is_none() {
            let identity = Report::gather(&self.node.settings.places).to_claim();
            let Err(failure) = join::attempt(&mut self.node, identity).await else { break };
            if failure.is_final() || failure.exit == Exit::Token {
                return Err(failure);
            }
            self.wait(&mut backoff, &failure).await;
        }
        Ok(())
    }

    /// Asks, does, reports.
    async fn serve(&mut self) -> Failure {
        let mut backoff = Backoff::default();
        loop {
            self.end_rescue().await;
            match self.turn().await {
                Ok(wait) => {
                    backoff.succeed();
                    tokio::time::sleep(wait).await;
                }
                Err(failure) if is_over(&failure) => {
                    let why = "the relay takes this agent no more: the machine is started anew, or done with";
                    return Failure::new(Exit::Released, why);
                }
                Err(failure) => self.wait(&mut backoff, &failure).await,
            }
        }
    }

    /// One poll, and the step that it gives. Answers how long to wait before the next.
    async fn turn(&mut self) -> Result<Duration, Failure> {
        renew_if_due(&mut self.node).await?;
        let polled = self.node.client.call(&POLL, &PollStep {}, None).await;
        let polled = polled.map_err(|error| Failure::of_call(&error, false))?;
        let wait =
            Duration::from_secs(polled.retry_after_seconds.into()).clamp(Duration::from_secs(1), MAX_POLL);
        let Some(step) = polled.step else { return Ok(wait) };
        let kind = step.work.as_str();
        tracing::info!(step_id = %step.step_id, kind, "a step begins");
        let work = Arc::new(Work::default());
        let now = self.node.host.boot();
        let mut report = ReportStep { step_id: step.step_id, progress: None, result: None, error: None };
        let ended = {
            let doing = steps::run(step.work, Arc::clone(&work), &mut self.kept, now);
            tokio::pin!(doing);
            loop {
                tokio::select! {
                    done = &mut doing => break done,
                    () = tokio::time::sleep(REPORT_EVERY) => {
                        report.progress = work.progress();
                        tell(&mut self.node, &report, &work).await;
                    }
                }
            }
        };
        report.progress = None;
        match ended {
            Ok(result) => {
                tracing::info!(kind, "the step is done");
                report.result = Some(result);
            }
            Err(error) => {
                tracing::error!(kind, code = error.code.as_str(), %error, "the step failed");
                report.error = Some(error.report());
            }
        }
        self.deliver(&report).await?;
        Ok(Duration::from_secs(1))
    }

    /// Reports an outcome, however often that takes: the step would be done once more otherwise.
    async fn deliver(&mut self, report: &ReportStep) -> Result<(), Failure> {
        let mut backoff = Backoff::default();
        loop {
            renew_if_due(&mut self.node).await?;
            match self.node.client.call(&REPORT, report, None).await {
                Ok(_) => return Ok(()),
                Err(error) => {
                    let failure = Failure::of_call(&error, false);
                    if is_over(&failure) || failure.code == Some(Code::InvalidInput) {
                        return Err(failure);
                    }
                    self.wait(&mut backoff, &failure).await;
                }
            }
        }
    }

    async fn end_rescue(&mut self) {
        let now = self.node.host.boot();
        if self.kept.rescue.as_ref().is_some_and(|rescue| rescue.until <= now)
            && let Some(over) = self.kept.rescue.take()
        {
            over.close().await;
        }
    }

    async fn wait(&self, backoff: &mut Backoff, failure: &Failure) {
        let pause = backoff.fail(fraction(&*self.node.host), failure.retry_after).min(MAX_POLL);
        tracing::warn!(again_in_seconds = pause.as_secs(), "{failure}");
        tokio::time::sleep(pause).await;
    }
}

/// Whether the relay has said that this agent counts no more.
fn is_over(failure: &Failure) -> bool {
    failure.is_final() || failure.code == Some(Code::Unauthenticated)
}

/// Says how far a step is. What goes wrong is tried again at the next time; a step that is wanted no more is given up.
async fn tell(node: &mut Node, report: &ReportStep, work: &Work) {
    if let Err(failure) = renew_if_due(node).await {
        tracing::warn!("{failure}");
    }
    match node.client.call(&REPORT, report, None).await {
        Ok(answer) if !answer.goes_on => {
            tracing::warn!("the step is wanted no more");
            work.give_up();
        }
        Ok(_) => {}
        Err(error) => {
            let failure = Failure::of_call(&error, false);
            if is_over(&failure) {
                work.give_up();
            }
            tracing::warn!("{failure}");
        }
    }
}

/// A certificate that is in the second half of its life is exchanged, with the same key.
async fn renew_if_due(node: &mut Node) -> Result<(), Failure> {
    let now = node.now();
    if node.enrolled().is_none_or(|enrolled| now < renew::due(enrolled)) {
        return Ok(());
    }
    renew::attempt(node).await
}
