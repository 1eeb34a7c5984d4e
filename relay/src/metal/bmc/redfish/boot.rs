//! The boot source of a machine. Services differ in what they want with it, so it is tried in each form; some apply what they refuse,
//! and some keep what is to be apart from what is (`@Redfish.Settings`), so both are read.

use super::{
    super::error::{BmcError, Reason},
    Redfish,
    answer::Document,
    path::Path,
    text, words,
};
use serde_json::{Value, json};

const ENABLED: &str = "BootSourceOverrideEnabled";
const TARGET: &str = "BootSourceOverrideTarget";
const MODE: &str = "BootSourceOverrideMode";
/// What a CD is called, the usual name first.
const CDS: &[&str] = &["Cd", "UsbCd"];

impl Redfish {
    pub(in crate::metal::bmc) async fn boot_media_once(&self) -> Result<(), BmcError> {
        let target = self.cd()?;
        let is = |document: &Document| is_from(document, target);
        // What stands apart may be what the machine has started from before: it is written again.
        if is(&self.system) {
            return Ok(());
        }
        let once = if self.allows(ENABLED, "Once") { "Once" } else { "Continuous" };
        let bare = json!({ENABLED: once, TARGET: target});
        let moded = json!({ENABLED: once, TARGET: target, MODE: "UEFI"});
        let forms = if self.line.quirks.mode_first { [moded, bare] } else { [bare, moded] };
        self.set_boot(self.places(), &forms, is).await
    }

    /// Lets the machine start from where it does by itself.
    pub(super) async fn clear_boot(&self) -> Result<(), BmcError> {
        let forms = [
            json!({ENABLED: "Disabled"}),
            json!({ENABLED: "Disabled", TARGET: "None"}),
            json!({ENABLED: "Disabled", MODE: "UEFI"}),
            json!({TARGET: "None"}),
            // Some can only be told another source.
            json!({ENABLED: "Continuous", TARGET: "Hdd", MODE: "UEFI"}),
            json!({ENABLED: "Continuous", TARGET: "Hdd"}),
        ];
        if let Some(pending) = self.pending().await?
            && !is_by_itself(&pending)
        {
            self.set_boot(vec![pending.path], &forms, is_by_itself).await?;
        }
        if is_by_itself(&self.system) {
            return Ok(());
        }
        self.set_boot(self.places(), &forms, is_by_itself).await
    }

    /// Writes a boot source in each form, to each place, until one is taken and is then so.
    async fn set_boot(
        &self,
        places: Vec<Path>,
        forms: &[Value],
        is: impl Fn(&Document) -> bool,
    ) -> Result<(), BmcError> {
        let mut last = BmcError::from(Reason::Unsupported);
        for path in places {
            let Some(place) = self.line.get_if_there(&path).await? else { continue };
            for form in forms {
                let set = self.line.patch(&place, &json!({"Boot": form})).await;
                match self.settled(set, &path, &is).await {
                    // Another form may be taken, or another place.
                    Err(error) if error.reason == Reason::Refused && !is_own_fault(&error) => {
                        // That a form was taken, and nothing came of it, says more than that others are refused.
                        if last.reason != Reason::Unsettled {
                            last = error;
                        }
                    }
                    // It was taken, and may stand apart until the machine starts; else another form may do more.
                    Err(error) if error.reason == Reason::Unsettled => {
                        if self.pending().await?.is_some_and(|it| is(&it)) {
                            return Ok(());
                        }
                        last = error;
                    }
                    settled => return settled,
                }
            }
        }
        Err(last)
    }

    /// Where a boot source is written, in this order.
    fn places(&self) -> Vec<Path> {
        let mut places = vec![self.system.path.clone()];
        places.extend(self.settings());
        if self.line.quirks.settings_first {
            places.reverse();
        }
        places
    }

    /// What the system is to be, where that stands apart and says something of its boot source.
    async fn pending(&self) -> Result<Option<Document>, BmcError> {
        let Some(path) = self.settings() else { return Ok(None) };
        let pending = self.line.get_if_there(&path).await?;
        Ok(pending.filter(|pending| text(boot(pending), ENABLED).is_some()))
    }

    fn settings(&self) -> Option<Path> {
        let settings = self.system.body.get("@Redfish.Settings")?;
        Path::linked(settings.get("SettingsObject"))
    }

    /// The name of a CD that the service allows.
    fn cd(&self) -> Result<&'static str, BmcError> {
        let found = CDS.iter().find(|name| self.allows(TARGET, name));
        found.copied().ok_or_else(|| Reason::Unsupported.into())
    }

    /// Whether a value is allowed: where nothing is said of that, it is.
    fn allows(&self, name: &str, value: &str) -> bool {
        let allowed = words(boot(&self.system).get(format!("{name}@Redfish.AllowableValues")));
        allowed.is_empty() || allowed.iter().any(|allowed| allowed == value)
    }
}

fn is_own_fault(error: &BmcError) -> bool {
    error.status.is_some_and(|status| status >= 500)
}

fn boot(of: &Document) -> &Value {
    of.body.get("Boot").unwrap_or(&Value::Null)
}

/// Whether a machine starts from there: some read back for ever what they were told for once, and some nothing of how long.
fn is_from(of: &Document, target: &str) -> bool {
    let enabled = text(boot(of), ENABLED).is_none_or(|enabled| enabled == "Once" || enabled == "Continuous");
    enabled && text(boot(of), TARGET).as_deref() == Some(target)
}

/// Whether a machine starts from where it does by itself, or from its disk; one that says nothing of it does.
fn is_by_itself(of: &Document) -> bool {
    let is = |name: &str, value: &str| text(boot(of), name).is_none_or(|is| is == value);
    is(ENABLED, "Disabled") || is(TARGET, "None") || is(TARGET, "Hdd")
}
