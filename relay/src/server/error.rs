//! Why the relay can't serve, and how it ends by that: the one place that tells what passes from what stays.

use crate::{
    access::{FileError, is_lasting},
    ca::CaError,
    claim::ClaimError,
    cli::Exit,
    config::NoTrustDomain,
    first_start::{LostUrl, OtherThanKept},
    seal::{MasterKeyError, SealError},
    store::StoreError,
};
use shared::access::Use;
use std::{error::Error, io, net::SocketAddr, path::Path};

/// Why the relay can't serve. Each says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A file of the data directory.
    #[error(transparent)]
    File(#[from] FileError),
    /// The data directory.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// The address is taken, or not this machine's.
    #[error("listen on {address}: {}", listening(source))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// Anything that says itself what to do.
    #[error("{operation}")]
    Start {
        /// What was being done.
        operation: &'static str,
        /// Why not.
        source: Box<dyn Error + Send + Sync>,
    },
}

impl ServeError {
    pub(super) fn start<E: Into<Box<dyn Error + Send + Sync>>>(
        operation: &'static str,
    ) -> impl FnOnce(E) -> Self {
        move |source| Self::Start { operation, source: source.into() }
    }

    pub(super) fn file(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let error = FileError::of(operation, path, Use::Keep);
        move |source| Self::File(error(source))
    }

    /// How `relay serve` ends by it: [`Exit::Refused`] where another start comes to the same until a person has changed
    /// something, so that the unit leaves it down; else [`Exit::TryAgain`]. What nobody has judged may pass.
    #[must_use]
    pub fn exit(&self) -> Exit {
        if self.is_settled() { Exit::Refused } else { Exit::TryAgain }
    }

    fn is_settled(&self) -> bool {
        match self {
            Self::File(error) | Self::Claim(ClaimError::File(error)) => error.is_lasting(),
            Self::Claim(ClaimError::Locked(_)) => false,
            // An address may come with its network, and another program may end.
            Self::Listen { source, .. } => source.kind() == io::ErrorKind::PermissionDenied,
            Self::Start { source, .. } => {
                let first: &(dyn Error + 'static) = source.as_ref();
                std::iter::successors(Some(first), |&error| error.source()).any(settles)
            }
        }
    }
}

/// Whether this error, somewhere in a chain, means that no start mends it.
fn settles(error: &(dyn Error + 'static)) -> bool {
    if let Some(error) = error.downcast_ref::<StoreError>() {
        return match error {
            StoreError::NewerSchema { .. }
            | StoreError::Url(_)
            | StoreError::Corrupt { .. }
            | StoreError::File(_) => true,
            // Also what a database refuses: one that is being set up or fails over refuses much.
            StoreError::Busy(_)
            | StoreError::Serialization(_)
            | StoreError::Race
            | StoreError::BatchLost
            | StoreError::Unique(_)
            | StoreError::Full(_)
            | StoreError::Unreachable(_)
            | StoreError::OutcomeUnknown(_)
            | StoreError::Other(_) => false,
        };
    }
    if let Some(error) = error.downcast_ref::<MasterKeyError>() {
        return match error {
            MasterKeyError::Read { source, .. } | MasterKeyError::Create { source, .. } => is_lasting(source),
            MasterKeyError::Absent { .. } | MasterKeyError::Mode { .. } | MasterKeyError::Form { .. } => true,
        };
    }
    if let Some(error) = error.downcast_ref::<FileError>() {
        return error.is_lasting();
    }
    if let Some(error) = error.downcast_ref::<CaError>() {
        // A clock that is wrong at boot is set later.
        return !matches!(error, CaError::NotValidNow { .. } | CaError::Provider { .. });
    }
    error.is::<SealError>()
        || error.is::<OtherThanKept>()
        || error.is::<NoTrustDomain>()
        || error.is::<LostUrl>()
}

/// What to do about an address that can't be listened on.
fn listening(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::AddrInUse => "is another program listening there?",
        io::ErrorKind::AddrNotAvailable => {
            "this machine has no such address; listen on one that it has, or on 0.0.0.0 or [::] with a url (listen and url in relay.toml, or --listen and --url)"
        }
        io::ErrorKind::PermissionDenied => {
            "a port below 1024 needs CAP_NET_BIND_SERVICE, which relay.service takes away; take another port, or see \"A port below 1024\" in operators.md (/usr/share/doc/relay)"
        }
        _ => "is the address one of this machine's?",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        fault::Fault,
        first_start::{same_trust_domain, same_url},
        store,
    };
    use shared::time::Timestamp;
    use std::path::PathBuf;
    use std::sync::Arc;

    const UNIT: &str = include_str!("../../../systemd/relay.service");

    fn store_fault() -> store::Fault {
        store::Fault::new("x")
    }

    fn start<E: Into<Box<dyn Error + Send + Sync>>>(error: E) -> ServeError {
        ServeError::start("starting")(error)
    }

    /// As the flows of the first start wrap it.
    fn wrapped<E: Into<Box<dyn Error + Send + Sync>>>(error: E) -> ServeError {
        start(Fault::internal("working")(error))
    }

    fn unwritable() -> StoreError {
        let error = FileError::of("opening", Path::new("/d/relay.db"), Use::Keep);
        StoreError::File(Arc::new(error(io(io::ErrorKind::ReadOnlyFilesystem))))
    }

    fn io(kind: io::ErrorKind) -> io::Error {
        kind.into()
    }

    fn key(kind: io::ErrorKind) -> ServeError {
        wrapped(MasterKeyError::Read { path: "/k".into(), source: io(kind) })
    }

    fn listen(kind: io::ErrorKind) -> ServeError {
        ServeError::Listen { address: ([127, 0, 0, 1], 1).into(), source: io(kind) }
    }

    #[test]
    fn what_no_start_mends_ends_with_1_and_the_rest_with_75() {
        use io::ErrorKind as K;
        let claimed =
            |kind| ClaimError::from(FileError::of("making", Path::new("/d"), Use::Folder)(io(kind))).into();
        let (path, place, id) = (|| PathBuf::from("/d"), || "p".to_owned(), || "ca".to_owned());
        let newer = || StoreError::NewerSchema { found: 9, known: 6 };
        let corrupt = StoreError::Corrupt { column: "c".to_owned(), problem: "x".to_owned() };
        let other = same_trust_domain(Some(&"a.example".parse().unwrap()), &"b.example".parse().unwrap())
            .unwrap_err();
        let now = Timestamp::from_seconds(0);
        let not_now = CaError::NotValidNow { id: id(), not_before: now, not_after: now, now };
        let table = [
            (start(newer()), 1),
            (start(Fault::Store(newer())), 1),
            (start(StoreError::Url("x".to_owned())), 1),
            (start(corrupt), 1),
            (start(unwritable()), 1),
            (wrapped(FileError::of("making", &path(), Use::Folder)(io(K::PermissionDenied))), 1),
            (wrapped(FileError::of("writing", &path(), Use::Keep)(io(K::StorageFull))), 75),
            (wrapped(same_url(None, Some("https://r.example".to_owned())).unwrap_err()), 1),
            (start(StoreError::Unreachable(store_fault())), 75),
            (start(Fault::Store(StoreError::Unreachable(store_fault()))), 75),
            (start(StoreError::Full(store_fault())), 75),
            (start(StoreError::Busy(store_fault())), 75),
            (start(StoreError::Other(store_fault())), 75),
            (wrapped(MasterKeyError::Absent { path: path(), credential: None }), 1),
            (key(K::NotFound), 1),
            (key(K::PermissionDenied), 1),
            (key(K::Interrupted), 75),
            (wrapped(MasterKeyError::Create { path: path(), source: io(K::StorageFull) }), 75),
            (wrapped(MasterKeyError::Mode { path: path(), mode: 0o644 }), 1),
            (wrapped(MasterKeyError::Form { path: path() }), 1),
            (wrapped(SealError::UnknownKey { place: place(), key_id: id() }), 1),
            (wrapped(SealError::Altered { place: place() }), 1),
            (wrapped(other), 1),
            (wrapped(NoTrustDomain::Unspecified("0.0.0.0".to_owned())), 1),
            (
                wrapped(NoTrustDomain::from("tenant.example".parse::<crate::ca::TrustDomain>().unwrap_err())),
                1,
            ),
            (start(CaError::Record { id: id(), rule: "x" }), 1),
            (start(CaError::Seal(SealError::Altered { place: place() })), 1),
            (start(not_now), 75),
            (start("something that nobody has judged"), 75),
            (ClaimError::Locked(path()).into(), 75),
            (listen(K::AddrInUse), 75),
            (listen(K::AddrNotAvailable), 75),
            (listen(K::PermissionDenied), 1),
            (ServeError::file("writing", &path())(io(K::StorageFull)), 75),
            (claimed(K::PermissionDenied), 1),
            (claimed(K::ReadOnlyFilesystem), 1),
        ];
        for (error, number) in table {
            assert_eq!(error.exit().number(), number, "{error:?}");
        }
    }

    #[test]
    fn the_unit_leaves_it_down_where_no_start_mends_it() {
        let listed = UNIT.lines().find_map(|line| line.strip_prefix("RestartPreventExitStatus=")).unwrap();
        let numbers: Vec<u8> = listed.split(' ').map(|number| number.parse().unwrap()).collect();
        let (ours, systemds): (Vec<u8>, Vec<u8>) = numbers.iter().partition(|number| **number < 200);
        assert_eq!(ours, [Exit::Refused.number(), Exit::Usage.number()]);
        assert!(systemds.contains(&217), "systemd's own, where there are no user namespaces");
    }
}
