//! `relay login --device`: shows a code that a person confirms on any device, and waits for it.

use super::{
    call::{CallError, Relay},
    login::Failure,
    terminal,
};
use crate::auth::login::{
    device::{Begun, Told},
    s256,
};
use serde_json::json;
use shared::{
    api::tokens::TokenCreated,
    problem::{Code, Problem},
    secret::Secret,
    terminal::shown,
};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Where a login begins.
const BEGIN: &str = "/auth/device";
/// Where its token is.
const TOKEN: &str = "/auth/device/token";
/// The longest that is waited for a person, whatever the relay says.
const LONGEST: Duration = Duration::from_secs(1800);
/// The longest that is waited between two questions.
const LONGEST_INTERVAL: Duration = Duration::from_secs(120);
/// How long after a question that nobody answered the next one comes.
const AFTER_SILENCE: Duration = Duration::from_secs(10);

/// Whether the relay's provider offers it.
pub(super) async fn is_offered(relay: &Relay) -> bool {
    let asked = relay.call(BEGIN, &json!({})).await;
    matches!(asked, Err(CallError::Problem(problem)) if problem.code == Code::InvalidInput)
}

/// Logs in.
///
/// # Errors
/// The relay or the person refused, or nobody confirmed it in time.
pub(super) async fn log_in(relay: &Relay, verifier: &Secret) -> Result<TokenCreated, Failure> {
    let answer = relay.call(BEGIN, &json!({"challenge": s256(verifier.expose())})).await?;
    let begun: Begun = serde_json::from_value(answer).map_err(|_| Failure::NoToken)?;
    say(&begun);
    let seconds = |seconds: i64| Duration::from_secs(u64::try_from(seconds).unwrap_or(1).max(1));
    let end = Instant::now() + seconds(begun.expires_in_seconds).min(LONGEST);
    let mut wait = seconds(begun.interval_seconds);
    let handle = begun.handle.into_secret();
    let input = json!({"handle": handle.expose(), "verifier": verifier.expose()});
    loop {
        let next = Instant::now() + wait.min(LONGEST_INTERVAL);
        if next >= end {
            return Err(Failure::Unconfirmed);
        }
        sleep_until(next).await;
        wait = match relay.call(TOKEN, &input).await {
            Ok(answer) => match serde_json::from_value(answer).map_err(|_| Failure::NoToken)? {
                Told::Pending { retry_after_seconds } => seconds(retry_after_seconds),
                Told::Issued { token, secret } => {
                    return Ok(TokenCreated { token: *token, secret: Some(secret) });
                }
            },
            Err(CallError::Problem(problem)) if passes(&problem) => {
                seconds(i64::from(problem.retry_after_seconds.unwrap_or(1)))
            }
            Err(CallError::Transport { .. }) => AFTER_SILENCE,
            Err(error) => return Err(error.into()),
        };
    }
}

/// Whether asking again later may do.
fn passes(problem: &Problem) -> bool {
    matches!(problem.code, Code::ResourceExhausted | Code::Unavailable)
}

fn say(begun: &Begun) {
    let (uri, code) = (shown(&begun.verification_uri), shown(&begun.user_code));
    terminal::say(&format_args!("go to\n  {uri}\non any device, and enter the code\n  {code}"));
    if let Some(complete) = &begun.verification_uri_complete {
        terminal::say(&format_args!("or open\n  {}\nand see that it shows this code", shown(complete)));
    }
}
