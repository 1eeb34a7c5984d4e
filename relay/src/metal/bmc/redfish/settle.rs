//! What comes of a request that a service has taken. Its word for it counts for nothing: it is followed as far as the service tells,
//! and then what it was to change is read, a few times. Whoever waits longer than that is the reconciler.

use super::{
    super::error::{BmcError, Reason},
    answer::{Document, message_id},
    http::Line,
    path::Path,
};
use http::{Method, StatusCode};
use serde_json::Value;
use std::time::Duration;
use tokio::time::sleep;

/// How often is looked at a task, and at what was to change.
const MAX_LOOKS: usize = 10;
/// How long is waited between looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl Line {
    /// Follows a task to its end, or as long as is looked. One that is gone has come to its end.
    ///
    /// # Errors
    /// [`BmcError`], also where the task has failed.
    pub(super) async fn followed(&self, task: Option<Path>) -> Result<(), BmcError> {
        let Some(task) = task else { return Ok(()) };
        for _ in 0..MAX_LOOKS {
            let answer = self.exchange(Method::GET, &task, None, None).await?;
            if matches!(answer.status, StatusCode::NOT_FOUND | StatusCode::GONE) {
                return Ok(());
            }
            answer.accepted(&self.redact)?;
            let said = answer.json().unwrap_or_default();
            match said.get("TaskState").and_then(Value::as_str) {
                Some("Exception" | "Killed" | "Cancelled") => {
                    return Err(BmcError { message_id: self.message(&said), ..Reason::Refused.into() });
                }
                Some("Completed") => return Ok(()),
                None if answer.status != StatusCode::ACCEPTED => return Ok(()),
                _ => sleep(LOOK_EVERY).await,
            }
        }
        Ok(())
    }

    /// Reads what is at a path until it is so.
    ///
    /// # Errors
    /// [`BmcError`]; [`Reason::Unsettled`] if it did not become so.
    pub(super) async fn until(&self, path: &Path, is: impl Fn(&Document) -> bool) -> Result<(), BmcError> {
        for look in 0..MAX_LOOKS {
            if look > 0 {
                sleep(LOOK_EVERY).await;
            }
            if self.get_if_there(path).await?.is_some_and(|now| is(&now)) {
                return Ok(());
            }
        }
        Err(Reason::Unsettled.into())
    }

    /// Whether what was refused is so all the same.
    pub(super) async fn is_so(&self, path: &Path, is: impl Fn(&Document) -> bool) -> bool {
        self.get(path).await.is_ok_and(|now| is(&now))
    }

    /// The id of the first message of a task.
    fn message(&self, task: &Value) -> Option<String> {
        let first = task.get("Messages")?.as_array()?.first()?;
        message_id(first.get("MessageId")?.as_str()?, &self.redact)
    }
}
