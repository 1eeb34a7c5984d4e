//! What a fake BMC is asked to do: actions, and changes.

use super::{
    answers::{Answer, empty},
    machine::Machine,
    persona::{Disable, Insert, Mode},
};
use http::request::Parts;
use serde_json::Value;

const UNKNOWN_VALUE: &str = "Base.1.8.PropertyValueNotInList";

impl Machine {
    /// Runs an action, or makes something.
    pub(super) fn act(&mut self, below: &str, parts: &Parts, body: &[u8], input: &Value) -> Answer {
        match below {
            "SessionService/Sessions" => return self.begin_session(parts, body),
            "AccountService/Accounts" => return self.add_account(body, input),
            _ => {}
        }
        self.note("POST", below, body);
        match below.rsplit('/').next().unwrap_or_default() {
            "ComputerSystem.Reset" => self.reset(body, input),
            "VirtualMedia.InsertMedia" if self.persona.insert != Insert::Patch => {
                let slot = below.split('/').nth_back(2).unwrap_or_default().to_owned();
                self.insert(&slot, body, input)
            }
            "VirtualMedia.EjectMedia" if self.persona.insert != Insert::Patch => {
                if self.persona.eject_comes_late && self.host.inserted.is_none() {
                    return self.refuse(404, "Base.1.8.ResourceMissingAtURI", body);
                }
                self.host.insert(None, self.ills.looks);
                let done = self.as_task(empty());
                self.truly(done, body)
            }
            _ => self.refuse(404, "Base.1.8.ResourceMissingAtURI", body),
        }
    }

    fn reset(&mut self, body: &[u8], input: &Value) -> Answer {
        let kind = input.get("ResetType").and_then(Value::as_str).unwrap_or_default().to_owned();
        let members = input.as_object().map_or(0, serde_json::Map::len);
        if members != 1 || !self.persona.resets.contains(&kind.as_str()) {
            return self.refuse(400, "Base.1.8.ActionParameterValueNotInList", body);
        }
        if self.ills.conflicts > 0 {
            self.ills.conflicts -= 1;
            return self.refuse(409, "Base.1.8.ResourceInUse", body);
        }
        let to =
            matches!(kind.as_str(), "On" | "ForceOn" | "PowerCycle" | "ForceRestart" | "GracefulRestart");
        let same = to == self.host.is_on && matches!(kind.as_str(), "On" | "ForceOff" | "GracefulShutdown");
        // What is off can't be started again.
        let restart = matches!(kind.as_str(), "PowerCycle" | "ForceRestart" | "GracefulRestart");
        let impossible = same || (restart && !self.host.is_on);
        let ignored = self.ills.ignores.contains(&kind.as_str())
            || (kind == "GracefulShutdown" && self.ills.hangs_at_shutdown);
        if let Some(status) = self.persona.refuses_same_state.filter(|_| impossible && !ignored) {
            return self.refuse(status, "Base.1.8.ResourceInUse", body);
        }
        if !ignored && !same {
            self.host.switch(to, self.ills.looks);
        }
        self.etag += 1;
        if self.ills.lies_about_reset { self.refuse(400, "Base.1.8.GeneralError", body) } else { empty() }
    }

    fn insert(&mut self, slot: &str, body: &[u8], input: &Value) -> Answer {
        let Some(image) = input.get("Image").and_then(Value::as_str) else {
            return self.refuse(400, "Base.1.8.ActionParameterMissing", body);
        };
        let members = input.as_object().map_or(0, serde_json::Map::len);
        if self.persona.insert == Insert::ImageAlone && members != 1 {
            return self.refuse(400, "Base.1.8.ActionParameterUnknown", body);
        }
        if self.ills.insert_errors > 0 {
            self.ills.insert_errors -= 1;
            return self.refuse(500, "Base.1.8.InternalError", body);
        }
        let Some(at) = self.persona.slots.iter().position(|(id, _)| *id == slot) else {
            return self.refuse(404, "Base.1.8.ResourceMissingAtURI", body);
        };
        if self.host.inserted.is_some() {
            return self.refuse(409, "Base.1.8.ResourceInUse", body);
        }
        if !self.ills.tasks_fail {
            self.host.insert(Some((at, image.to_owned())), self.ills.looks);
        }
        self.etag += 1;
        let done = self.as_task(empty());
        self.truly(done, body)
    }

    /// Changes something.
    pub(super) fn change(&mut self, below: &str, body: &[u8], input: &Value) -> Answer {
        if below.starts_with("AccountService/") {
            return self.change_account(below, body, input);
        }
        self.note("PATCH", below, body);
        if self.ills.starting > 0 {
            self.ills.starting -= 1;
            return self.refuse(400, "iLO.2.14.UnableToModifyDuringSystemPOST", body);
        }
        match below.rsplit('/').next().unwrap_or_default().to_owned() {
            slot if below.contains("/VirtualMedia/") => self.change_slot(&slot, body, input),
            place => match input.get("Boot") {
                Some(boot) => self.change_boot(place == "Settings", body, boot),
                None => self.refuse(400, "Base.1.8.PropertyUnknown", body),
            },
        }
    }

    fn change_slot(&mut self, slot: &str, body: &[u8], input: &Value) -> Answer {
        if input.get("Image").is_some_and(Value::is_null) {
            self.host.insert(None, self.ills.looks);
            self.etag += 1;
            return self.truly(empty(), body);
        }
        self.insert(slot, body, input)
    }

    fn change_boot(&mut self, apart: bool, body: &[u8], boot: &Value) -> Answer {
        let text = |name: &str| boot.get(name).and_then(Value::as_str);
        let (enabled, target) = (text("BootSourceOverrideEnabled"), text("BootSourceOverrideTarget"));
        let mode = text("BootSourceOverrideMode");
        match (self.persona.mode, mode) {
            (Mode::Required, None) => return self.refuse(400, "Base.1.8.PropertyMissing", body),
            (Mode::Refused, Some(_)) => return self.refuse(400, "Base.1.8.PropertyNotWritable", body),
            _ => {}
        }
        let is_known = |name: Option<&str>, known: &[&str]| name.is_none_or(|name| known.contains(&name));
        if !is_known(enabled, &["Disabled", "Once", "Continuous"])
            || !is_known(target, &["None", "Pxe", self.persona.cd, "Hdd", "BiosSetup"])
        {
            return self.refuse(400, UNKNOWN_VALUE, body);
        }
        let none = target == Some("None");
        match (self.persona.disable, enabled) {
            (Disable::Alone, _) if none => return self.refuse(400, UNKNOWN_VALUE, body),
            (Disable::WithTarget, Some("Disabled")) if !none => return self.refuse(400, UNKNOWN_VALUE, body),
            _ => {}
        }
        if !self.ills.forgets_boot {
            let once = self.persona.once;
            let to = match self.host.pending.as_mut().filter(|_| apart) {
                Some(pending) => pending,
                None => &mut self.host.boot,
            };
            let enabled = enabled.map(|enabled| if enabled == "Once" { once } else { enabled });
            enabled.unwrap_or(&to.enabled.clone()).clone_into(&mut to.enabled);
            target.unwrap_or(&to.target.clone()).clone_into(&mut to.target);
            mode.unwrap_or(&to.mode.clone()).clone_into(&mut to.mode);
        }
        self.etag += 1;
        let done = self.as_task(empty());
        self.truly(done, body)
    }

    /// What is said of what was done: a refusal, where it lies.
    pub(super) fn truly(&self, done: Answer, body: &[u8]) -> Answer {
        if self.ills.lies_about_changes { self.refuse(400, "Base.1.8.GeneralError", body) } else { done }
    }
}
