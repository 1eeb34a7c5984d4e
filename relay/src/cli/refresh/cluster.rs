//! Refreshing an API token that lies in a Secret of the cluster that this runs in.
//!
//! The successor is written only if the Secret is still the one that was read: of several who do this at once one writes,
//! and the others take what it wrote. A successor that was not written is known to nobody, and ends when the one in the
//! Secret is first used. Until then the token of before counts, so that nothing is lost whoever dies where.

use super::{Failure, prove, successor};
use crate::{
    auth::jwt::Said,
    cli::{World, call::Relay, exit::Exit, operate, target::Target},
    config::{ClusterSecret, SERVICE_ACCOUNT},
    kubernetes::Cluster,
};
use clap::{Arg, ArgMatches, ValueHint};
use shared::secret::Secret;
use std::path::Path;

/// The Secret's name.
pub(super) const SECRET: &str = "secret";
const KEY: &str = "key";
const ACCOUNT: &str = "service-account-dir";
/// The longest key of a Secret, in bytes.
const MAX_KEY_BYTES: usize = 253;
/// How often the Secret may be another by the time it is written.
const TRIES: usize = 3;

/// What says which Secret.
pub(super) fn arguments() -> [Arg; 3] {
    [
        Arg::new(SECRET)
            .long(SECRET)
            .value_name("NAME")
            .help("The Secret that holds the token, in the namespace of the pod that this runs in"),
        Arg::new(KEY)
            .long(KEY)
            .value_name("KEY")
            .requires(SECRET)
            .default_value("token")
            .help("The Secret's key that holds the token; others are left alone"),
        Arg::new(ACCOUNT)
            .long(ACCOUNT)
            .value_name("DIR")
            .value_hint(ValueHint::DirPath)
            .requires(SECRET)
            .default_value(SERVICE_ACCOUNT)
            .help("The folder with the pod's service account: token, ca.crt and namespace"),
    ]
}

/// What the token in a Secret was, and is.
pub(super) async fn refresh(
    name: &str,
    flags: &ArgMatches,
    world: &World<'_>,
) -> Result<(Said, Said), Failure> {
    let text = |id: &str| flags.get_one::<String>(id).map(String::as_str).unwrap_or_default();
    let key = text(KEY);
    if !is_key(key) {
        let rule = "must be the key of a Secret: letters, digits, -, _ and ., at most 253";
        return Err(Failure::Argument(format!("--{KEY} {rule}")));
    }
    let place = ClusterSecret::read(name, world.env, Path::new(text(ACCOUNT)))
        .map_err(|rule| Failure::Argument(format!("--{SECRET} {rule}")))?;
    let (url, ca_pem) = Target::address(&operate::said(flags, world)?)?;
    let (relay, cluster) = (Relay::anonymous(&url, ca_pem.as_deref())?, Cluster::open(&place)?);
    let of = |token: &Secret| {
        Said::of(token.expose()).ok_or_else(|| Failure::NoJwtInSecret(name.to_owned(), key.to_owned()))
    };
    let mut tries = 0;
    loop {
        tries += 1;
        let found = cluster.read(name, key).await?;
        let token = Secret::new(found.text.expose().trim().to_owned());
        let before = of(&token)?;
        if !before.is_due(world.clock.now()) {
            prove(&relay, &token).await?;
            return Ok((of(&token)?, before));
        }
        let fresh = match successor(&relay, &token).await {
            // Whoever was first has used the one that it wrote: that one is in the Secret.
            Err(failure) if failure.exit() == Exit::Unauthenticated && tries < TRIES => {
                if cluster.read(name, key).await?.text.expose().trim() == token.expose() {
                    return Err(failure);
                }
                continue;
            }
            fresh => fresh?,
        };
        match cluster.exchange(name, key, &fresh, &found).await {
            Err(error) if error.is_conflict() && tries < TRIES => {}
            written => return written.map_err(Failure::from).and_then(|()| Ok((before, of(&fresh)?))),
        }
    }
}

fn is_key(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=MAX_KEY_BYTES).contains(&text.len()) && text.bytes().all(allowed)
}
