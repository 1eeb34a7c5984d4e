//! The account that lets us in: its password is changed where the service keeps it.

use super::{
    super::{
        error::{BmcError, Reason},
        redact::Redact,
    },
    MAX_MEMBERS, Redfish,
    path::Path,
};
use serde_json::{Value, json};
use shared::secret::Secret;

impl Redfish {
    /// Gives an account another password. Whether it holds is seen by who logs in with it.
    pub(in crate::metal::bmc) async fn set_password(
        &self,
        username: &str,
        password: &Secret,
    ) -> Result<(), BmcError> {
        let service = Path::linked(self.root.body.get("AccountService")).ok_or(Reason::Unsupported)?;
        let service = self.line.get(&service).await?;
        let accounts = Path::linked(service.body.get("Accounts")).ok_or(Reason::Unsupported)?;
        let accounts = self.line.get(&accounts).await?;
        for path in Path::list(accounts.body.get("Members"), MAX_MEMBERS) {
            let Some(account) = self.line.get_if_there(&path).await? else { continue };
            if account.body.get("UserName").and_then(Value::as_str) == Some(username) {
                let changed = self.line.patch(&account, &json!({"Password": password.expose()})).await;
                let done = match changed {
                    Ok(task) => self.line.followed(task).await,
                    Err(error) => Err(error),
                };
                return done.map_err(|error| without(error, password));
            }
        }
        Err(Reason::Unsupported.into())
    }
}

/// The error without what a service says of it, if the new password is in that: the line knows only the one that let us in.
fn without(error: BmcError, password: &Secret) -> BmcError {
    let message_id = Redact::new(password.clone()).text(error.message_id);
    BmcError { message_id, ..error }
}
