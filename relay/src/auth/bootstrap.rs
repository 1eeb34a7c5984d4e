//! The bootstrap credentials: an admin EDITOR and an admin VIEWER in files of mode 0600, for emergencies and
//! automation. They work whatever else is down, and whoever reads the files is platform admin.
//!
//! A relay writes a pair of its own at every start and every 8 hours; each lives 16 hours, so there is no gap. These hours are
//! the wall clock's, by which credentials are judged: whatever it is put to, and after a suspension, the files have a valid
//! pair at the next look. In a Kubernetes cluster there may be one more, which all relays of the store share (`secret`). The
//! files are written there too: commands inside of the pod find their credential by them, and who gets at them has the master
//! key as well.

pub mod secret;

use super::{
    Principal,
    tokens::{self, Purpose},
};
use crate::{access::FileError, context::Context, fault::Fault, files, store::Tx};
use shared::{
    access::Use,
    api::{
        access::AdminRole,
        tokens::{Labels, Rights, TokenType},
    },
    secret::Secret,
    time::Timestamp,
};
use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

/// After how many seconds a new pair is written.
const RENEW_SECONDS: u32 = 8 * 3600;
/// How long a credential of a pair lives, in seconds.
pub const LIFETIME_SECONDS: i64 = 16 * 3600;

/// The two credentials: file or key of the Secret, subject, role.
const PAIR: [(&str, &str, AdminRole); 2] = [
    ("admin_editor_token", "bootstrap-admin-editor", AdminRole::Editor),
    ("admin_viewer_token", "bootstrap-admin-viewer", AdminRole::Viewer),
];

/// The admin role that a subject has by being one of the pair; no user can have such an id.
#[must_use]
pub fn role_of(subject: &str) -> Option<AdminRole> {
    PAIR.iter().find(|(_, known, _)| *known == subject).map(|(_, _, role)| *role)
}

/// Who makes what is made by this token: its owner. For one of the pair, which is nobody's, that is the provider tenant.
#[must_use]
pub fn maker(principal: &Principal) -> &str {
    match role_of(&principal.subject) {
        Some(_) => &principal.created_by,
        None => &principal.subject,
    }
}

/// The pair in the files of one relay.
pub struct PairOfFiles {
    relay: Arc<Context>,
    directory: PathBuf,
    /// When this process issued it, if it has.
    issued: Mutex<Option<Timestamp>>,
}

impl PairOfFiles {
    /// None yet: the first look writes it, whatever is in `directory`, which is made with mode 0700.
    #[must_use]
    pub fn new(relay: Arc<Context>, directory: PathBuf) -> Self {
        Self { relay, directory, issued: Mutex::default() }
    }

    /// Writes a new pair if one is due.
    ///
    /// # Errors
    /// The store's, or the files can't be written; then it is still due.
    pub async fn keep(&self) -> Result<(), Fault> {
        let now = self.relay.clock.now();
        if !is_due(*self.issued.lock().unwrap_or_else(PoisonError::into_inner), now) {
            return Ok(());
        }
        let relay = &*self.relay;
        let making = FileError::of("making", &self.directory, Use::Folder);
        files::directory(&self.directory)
            .map_err(making)
            .map_err(Fault::internal("making the bootstrap directory"))?;
        let made = relay.store.transact("bootstrap", relay, |tx, relay| Box::pin(mint(tx, relay)));
        for (file, secret) in made.await? {
            let path = self.directory.join(file);
            files::write(&path, secret.expose().as_bytes(), files::SECRET)
                .map_err(FileError::of("writing", &path, Use::Keep))
                .map_err(Fault::internal("writing a bootstrap credential"))?;
        }
        *self.issued.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
        Ok(())
    }
}

/// Whether a pair issued then is to be replaced: also one of the future, which is not valid yet by a clock that was put back.
fn is_due(issued: Option<Timestamp>, now: Timestamp) -> bool {
    issued.is_none_or(|issued| now < issued || issued.plus_seconds(RENEW_SECONDS.into()) <= now)
}

/// Makes a pair: each credential and the name of its place.
async fn mint(tx: &mut Tx<'_>, relay: &Context) -> Result<Vec<(&'static str, Secret)>, Fault> {
    let mut pair = Vec::new();
    for (place, subject, role) in PAIR {
        let purpose = Purpose {
            token_type: TokenType::User,
            subject,
            tenant_id: &relay.provider_tenant,
            admin_role: Some(role),
            rights: Rights { admin_role: Some(role), ..Rights::default() },
            description: "bootstrap admin credential",
            labels: Labels::new(),
            created_by: &relay.provider_tenant,
            lifetime_seconds: LIFETIME_SECONDS,
            ends_at: None,
            login_at: None,
            predecessor: None,
        };
        let (_, secret) = tokens::issue(tx, relay, &purpose, relay.clock.now()).await?;
        pair.push((place, secret));
    }
    Ok(pair)
}
