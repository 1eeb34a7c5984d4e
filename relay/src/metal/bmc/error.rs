//! Why a BMC did not do what it was asked: a closed set of reasons, each with what it means and whether it may pass.

use shared::api::metal::LastError;

/// Why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is a row of REASONS, which says what it means")]
pub enum Reason {
    AddressRefused,
    NotResolved,
    Unreachable,
    Timeout,
    Tls,
    PinChanged,
    TlsUnsaid,
    CredentialsMissing,
    Unauthorized,
    PasswordChangeRequired,
    Busy,
    Refused,
    TooLarge,
    Malformed,
    NoSystem,
    NoVirtualMedia,
    Unsupported,
    Unsettled,
    ToolMissing,
}

/// A row: the reason, its word on the wire, whether another try may help without anybody doing anything, what it means and what
/// to do.
type Row = (Reason, &'static str, bool, &'static str);

/// Every reason, in order of the enum.
#[rustfmt::skip]
pub const REASONS: &[Row] = &[
    (Reason::AddressRefused, "addressRefused", false, "the BMC's address is in none of the site's bmcNetworks (loopback, link-local and the relay's own addresses must be listed singly); correct bmc.address, or let an admin list its network"),
    (Reason::NotResolved, "notResolved", true, "the BMC's name has no address; correct bmc.address, or the name server"),
    (Reason::Unreachable, "unreachable", true, "no connection to the BMC came about, or it broke; is it on, and does a firewall let the relay through?"),
    (Reason::Timeout, "timeout", true, "the BMC took too long"),
    (Reason::Tls, "tls", false, "the BMC's certificate is not one that it may show; give its pin by bmc.tlsPinSha256, its CA by bmc.tlsCa, or see what answers there"),
    (Reason::PinChanged, "pinChanged", false, "the BMC shows another key than its pin; if it got a new certificate, give the new pin by setCredentials, else somebody is in between"),
    (Reason::TlsUnsaid, "tlsUnsaid", false, "the BMC has another address, and nobody has said how its certificate is judged there; say it by setCredentials"),
    (Reason::CredentialsMissing, "credentialsMissing", false, "the relay has no credentials of the BMC; give them by setCredentials"),
    (Reason::Unauthorized, "unauthorized", false, "the BMC refuses the credentials; one more try follows after 15 minutes, since BMCs that start say so too; then only setCredentials helps"),
    (Reason::PasswordChangeRequired, "passwordChangeRequired", false, "the BMC wants another password first; change it there, and give it by setCredentials"),
    (Reason::Busy, "busy", true, "the BMC has no room for another caller, or starts"),
    (Reason::Refused, "refused", true, "the BMC refused"),
    (Reason::TooLarge, "tooLarge", false, "the BMC's answer is over 4 MiB; does a BMC answer there?"),
    (Reason::Malformed, "malformed", true, "the BMC's answer can't be read, or leads elsewhere; does a BMC answer there?"),
    (Reason::NoSystem, "noSystem", false, "the BMC has no computer system that can be reset"),
    (Reason::NoVirtualMedia, "noVirtualMedia", false, "the BMC takes no image of a CD, so no agent can be started in the machine; network boot is not built"),
    (Reason::Unsupported, "unsupported", false, "the BMC can't do this"),
    (Reason::Unsettled, "unsettled", true, "the BMC took the request, and nothing has come of it so far"),
    (Reason::ToolMissing, "toolMissing", false, "the relay's machine has no ipmitool; install it, or use Redfish"),
];

impl Reason {
    fn row(self) -> &'static Row {
        let found = REASONS.iter().find(|(reason, ..)| *reason == self);
        found.unwrap_or(&(Self::Malformed, "malformed", true, "the BMC's answer can't be read"))
    }

    /// As the wire says it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.row().1
    }
}

/// Why a BMC did not do what it was asked. Nothing else of its answer is in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}{}", reason.as_str(), status_words(*status), message_words(message_id.as_deref()))]
pub struct BmcError {
    /// Why.
    pub reason: Reason,
    /// Its HTTP status.
    pub status: Option<u16>,
    /// The `MessageId` of its first message: at most 128 bytes of letters, digits and dots.
    pub message_id: Option<String>,
}

impl BmcError {
    /// Whether another try may help without anybody doing anything.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        self.reason.row().2
    }

    /// As people are told it.
    #[must_use]
    pub fn told(&self) -> LastError {
        LastError {
            code: self.reason.as_str().to_owned(),
            message: self.reason.row().3.to_owned(),
            bmc_status: self.status,
            bmc_message_id: self.message_id.clone(),
        }
    }
}

impl From<Reason> for BmcError {
    fn from(reason: Reason) -> Self {
        Self { reason, status: None, message_id: None }
    }
}

fn status_words(status: Option<u16>) -> String {
    status.map(|status| format!(" (status {status})")).unwrap_or_default()
}

fn message_words(id: Option<&str>) -> String {
    id.map(|id| format!(" ({id})")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_row_and_its_word() {
        for (at, (reason, word, _, text)) in REASONS.iter().enumerate() {
            assert_eq!(*reason as usize, at, "{word}");
            assert_eq!(reason.as_str(), *word);
            assert_eq!(REASONS.iter().filter(|(_, other, ..)| other == word).count(), 1, "{word}");
            assert!(!text.ends_with('.'), "{word}");
        }
        assert_eq!(REASONS.len(), Reason::ToolMissing as usize + 1);
        let error =
            BmcError { status: Some(400), message_id: Some("Base.1.8.X".into()), ..Reason::Refused.into() };
        assert_eq!(error.to_string(), "refused (status 400) (Base.1.8.X)");
    }
}
