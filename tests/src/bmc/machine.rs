//! The fake BMC's machine, and what is answered of it.

use super::{
    BMC_PASSWORD, BMC_USER, Etags, Media, Persona,
    answers::{collection, empty, found, put},
    ills::{Asked, Ills, Stall},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{
    HeaderValue, Response, StatusCode,
    header::{AUTHORIZATION, ETAG, IF_MATCH, LOCATION},
    request::Parts,
};
use serde_json::{Value, json};

pub(super) enum Answered {
    Now(Response<Vec<u8>>),
    Never,
    Endless,
}

pub(super) struct Machine {
    persona: &'static Persona,
    pub(super) ills: Ills,
    pub(super) is_on: bool,
    /// What it becomes, and after how many looks.
    becomes: Option<(bool, u32)>,
    boot_enabled: &'static str,
    boot_target: String,
    /// What it started from, each time: the URL of its media, or `disk`.
    pub(super) started: Vec<String>,
    inserted: Option<(usize, String)>,
    etag: u32,
    pub(super) stall: Option<Stall>,
    pub(super) stalled: bool,
    pub(super) asked: Vec<Asked>,
    pub(super) logins: (usize, usize),
}

impl Machine {
    pub(super) fn new(persona: &'static Persona) -> Self {
        Self {
            persona,
            ills: Ills::default(),
            is_on: false,
            becomes: None,
            boot_enabled: "Disabled",
            boot_target: "None".to_owned(),
            started: Vec::new(),
            stall: None,
            stalled: false,
            inserted: None,
            etag: 1,
            asked: Vec::new(),
            logins: (0, 0),
        }
    }

    pub(super) fn answer(&mut self, parts: &Parts, body: &[u8]) -> Answered {
        if self.ills.silent {
            return Answered::Never;
        }
        if self.ills.endless {
            return Answered::Endless;
        }
        if let Some(stall) = self.stall.filter(|_| self.is_counted(parts)) {
            self.stall = (stall.after > 0).then(|| Stall { after: stall.after - 1, ..stall });
            if stall.after == 0 {
                self.stalled = true;
                if stall.done {
                    drop(self.now(parts, body));
                }
                return Answered::Never;
            }
        }
        Answered::Now(self.now(parts, body))
    }

    fn is_counted(&self, parts: &Parts) -> bool {
        self.stall.is_some_and(|stall| stall.reads_too || parts.method != "GET")
    }

    fn now(&mut self, parts: &Parts, body: &[u8]) -> Response<Vec<u8>> {
        if let Some(to) = &self.ills.redirects {
            let mut moved = Response::new(Vec::new());
            *moved.status_mut() = StatusCode::TEMPORARY_REDIRECT;
            moved.headers_mut().extend(HeaderValue::from_str(to).ok().map(|to| (LOCATION, to)));
            return moved;
        }
        if self.ills.busy > 0 {
            self.ills.busy -= 1;
            return self.refusal(503, "Base.1.8.ServiceTemporarilyUnavailable", body);
        }
        if self.ills.garbage {
            return Response::new(b"<html>not what you think</html>".to_vec());
        }
        let path = parts.uri.path().trim_end_matches('/').to_owned();
        if path == "/redfish/v1" && parts.method == "GET" {
            return self.root();
        }
        if let Some(refused) = self.refused(parts) {
            return refused;
        }
        let Some(below) = path.strip_prefix("/redfish/v1/") else {
            return self.refusal(404, "Base.1.8.ResourceMissingAtURI", body);
        };
        match parts.method.as_str() {
            "GET" => self.read(below),
            "POST" => self.act(below, body),
            "PATCH" => self.change(below, parts, body),
            _ => self.refusal(405, "Base.1.8.OperationNotAllowed", body),
        }
    }

    fn refused(&mut self, parts: &Parts) -> Option<Response<Vec<u8>>> {
        let right = format!("Basic {}", STANDARD.encode(format!("{BMC_USER}:{BMC_PASSWORD}")));
        let shown = parts.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        if shown != Some(&right) || self.ills.unauthorized {
            self.logins.1 += 1;
            return Some(self.refusal(401, "Base.1.8.NoValidSession", b""));
        }
        self.logins.0 += 1;
        let change = self.ills.password_change;
        change.then(|| self.refusal(403, "Base.1.8.PasswordChangeRequired", b""))
    }

    fn root(&self) -> Response<Vec<u8>> {
        let mut root = json!({
            "@odata.id": "/redfish/v1/", "@odata.type": "#ServiceRoot.v1_5_0.ServiceRoot", "Id": "RootService",
            "Name": "Root Service", "RedfishVersion": "1.6.0",
            "Systems": {"@odata.id": self.ills.systems.unwrap_or("/redfish/v1/Systems")},
            "Managers": {"@odata.id": "/redfish/v1/Managers"},
        });
        if let (Some(vendor), Some(root)) = (self.persona.vendor, root.as_object_mut()) {
            root.insert("Vendor".to_owned(), vendor.into());
        }
        found(&root)
    }

    fn read(&mut self, below: &str) -> Response<Vec<u8>> {
        let (system, manager) = (self.persona.system, self.persona.manager);
        let of_system = below.strip_prefix("Systems/").and_then(|rest| rest.strip_prefix(system));
        let of_manager = below.strip_prefix("Managers/").and_then(|rest| rest.strip_prefix(manager));
        match (below, of_system, of_manager) {
            ("Systems", ..) => {
                let all = self.persona.second_system.into_iter().chain([system]);
                found(&collection(all.map(|id| format!("/redfish/v1/Systems/{id}"))))
            }
            ("Managers", ..) => found(&collection([format!("/redfish/v1/Managers/{manager}")])),
            (_, Some(""), _) => self.system(),
            (_, Some("/ResetActionInfo"), _) if self.persona.action_info => found(&json!({
                "Id": "ResetActionInfo", "Parameters": [
                    {"Name": "ResetType", "Required": true, "AllowableValues": self.persona.resets},
                ],
            })),
            (_, Some(rest), _) => self.part(rest, &format!("/redfish/v1/Systems/{system}")),
            (_, _, Some("")) => found(&self.manager()),
            (_, _, Some(rest)) => self.part(rest, &format!("/redfish/v1/Managers/{manager}")),
            (below, ..) if self.persona.second_system.is_some_and(|id| below == format!("Systems/{id}")) => {
                found(
                    &json!({"Id": "second", "Name": "Baseboard", "PowerState": "On", "UUID": self.persona.uuid}),
                )
            }
            _ => self.refusal(404, "Base.1.8.ResourceMissingAtURI", b""),
        }
    }

    /// What is below the system or the manager.
    fn part(&mut self, rest: &str, base: &str) -> Response<Vec<u8>> {
        let of_media = rest.strip_prefix("/VirtualMedia");
        let here = if base.contains("/Systems/") { Media::System } else { Media::Manager };
        match (rest, of_media) {
            ("/EthernetInterfaces", _) => {
                found(&collection(["1", "2"].map(|id| format!("{base}/EthernetInterfaces/{id}"))))
            }
            ("/EthernetInterfaces/1", _) => {
                found(&json!({"Id": "1", "PermanentMACAddress": "00:16:3E:00:00:17"}))
            }
            ("/EthernetInterfaces/2", _) => found(&json!({"Id": "2", "MACAddress": "00:16:3e:00:00:18"})),
            ("/Storage", _) => found(&collection([format!("{base}/Storage/1")])),
            ("/Storage/1", _) => {
                found(&json!({"Id": "1", "Drives": [{"@odata.id": format!("{base}/Storage/1/Drives/0")}]}))
            }
            ("/Storage/1/Drives/0", _) => found(
                &json!({"Id": "0", "Model": "SAMSUNG MZQL21T9HCJR-00A07", "CapacityBytes": 1_920_383_410_176_u64}),
            ),
            (_, Some("")) if self.persona.media == here => {
                let slots = self.persona.slots.iter().map(|(id, _)| format!("{base}/VirtualMedia/{id}"));
                found(&collection(slots.collect::<Vec<_>>()))
            }
            (_, Some(id)) if self.persona.media == here => self.slot(id.trim_start_matches('/'), base),
            _ => self.refusal(404, "Base.1.8.ResourceMissingAtURI", b""),
        }
    }

    fn system(&mut self) -> Response<Vec<u8>> {
        if let Some((to, looks)) = self.becomes {
            self.becomes = (looks > 1).then(|| (to, looks - 1));
            if self.becomes.is_none() {
                self.turn(to);
            }
        }
        let base = format!("/redfish/v1/Systems/{}", self.persona.system);
        let mut system = json!({
            "@odata.id": base, "Id": self.persona.system, "Name": "System", "SystemType": "Physical",
            "Manufacturer": "Maker", "Model": "Model 17", "SerialNumber": self.ills.serial.unwrap_or(self.persona.serial),
            "SKU": self.persona.sku, "UUID": self.ills.uuid.unwrap_or(self.persona.uuid), "BiosVersion": "2.4.8",
            "PowerState": if self.is_on { "On" } else { "Off" },
            "ProcessorSummary": {"Count": 2, "Model": "AMD EPYC 9654 96-Core Processor"},
            "MemorySummary": {"TotalSystemMemoryGiB": 1536},
            "Boot": {"BootSourceOverrideEnabled": self.boot_enabled, "BootSourceOverrideTarget": self.boot_target},
            "EthernetInterfaces": {"@odata.id": format!("{base}/EthernetInterfaces")},
            "Storage": {"@odata.id": format!("{base}/Storage")},
            "Links": {"ManagedBy": [{"@odata.id": format!("/redfish/v1/Managers/{}", self.persona.manager)}]},
        });
        let target = format!("{base}/Actions/ComputerSystem.Reset");
        let mut reset = json!({"target": self.ills.reset_target.unwrap_or(&target)});
        let (name, says) = match self.persona.action_info {
            true => ("@Redfish.ActionInfo", json!(format!("{base}/ResetActionInfo"))),
            false => ("ResetType@Redfish.AllowableValues", json!(self.persona.resets)),
        };
        put(&mut reset, name, says);
        if !self.ills.no_reset {
            put(&mut system, "Actions", json!({"#ComputerSystem.Reset": reset}));
        }
        if self.persona.media == Media::System {
            put(&mut system, "VirtualMedia", json!({"@odata.id": format!("{base}/VirtualMedia")}));
        }
        let mut answer = found(&system);
        let etag = match self.persona.etags {
            Etags::None => return answer,
            Etags::Strict => format!("\"{}\"", self.etag),
            Etags::WeakStripped => format!("W/\"{}\"", self.etag),
            Etags::Empty => String::new(),
        };
        answer.headers_mut().extend(HeaderValue::from_str(&etag).ok().map(|etag| (ETAG, etag)));
        answer
    }

    fn manager(&self) -> Value {
        let base = format!("/redfish/v1/Managers/{}", self.persona.manager);
        let mut manager = json!({"@odata.id": base, "Id": self.persona.manager, "FirmwareVersion": "7.10.30.00", "ManagerType": "BMC"});
        if self.persona.media == Media::Manager {
            put(&mut manager, "VirtualMedia", json!({"@odata.id": format!("{base}/VirtualMedia")}));
        }
        manager
    }

    fn slot(&mut self, id: &str, base: &str) -> Response<Vec<u8>> {
        let Some(at) = self.persona.slots.iter().position(|(slot, _)| *slot == id) else {
            return self.refusal(404, "Base.1.8.ResourceMissingAtURI", b"");
        };
        let image = self.inserted.as_ref().filter(|(slot, _)| *slot == at).map(|(_, image)| image.clone());
        let kinds = self.persona.slots.get(at).map(|(_, kinds)| *kinds).unwrap_or_default();
        let action =
            |name: &str| json!({"target": format!("{base}/VirtualMedia/{id}/Actions/VirtualMedia.{name}")});
        let mut actions = json!({"#VirtualMedia.InsertMedia": action("InsertMedia")});
        if image.is_some() || !self.persona.eject_comes_late {
            put(&mut actions, "#VirtualMedia.EjectMedia", action("EjectMedia"));
        }
        found(&json!({
            "@odata.id": format!("{base}/VirtualMedia/{id}"), "Id": id, "MediaTypes": kinds, "Inserted": image.is_some(),
            "Image": image, "Actions": actions,
        }))
    }

    fn act(&mut self, below: &str, body: &[u8]) -> Response<Vec<u8>> {
        let last = below.rsplit('/').next().unwrap_or_default().to_owned();
        self.asked
            .push(Asked { what: format!("POST {last}"), body: String::from_utf8_lossy(body).into_owned() });
        let input: Value = serde_json::from_slice(body).unwrap_or_default();
        match last.as_str() {
            "ComputerSystem.Reset" => self.reset(&input, body),
            "VirtualMedia.EjectMedia" => {
                self.inserted = None;
                empty()
            }
            "VirtualMedia.InsertMedia" => {
                let Some(image) = input.get("Image").and_then(Value::as_str) else {
                    return self.refusal(400, "Base.1.8.ActionParameterMissing", body);
                };
                let slot = below.split('/').nth_back(2).unwrap_or_default();
                let at = self.persona.slots.iter().position(|(id, _)| *id == slot);
                self.inserted = at.map(|at| (at, image.to_owned()));
                empty()
            }
            _ => self.refusal(404, "Base.1.8.ResourceMissingAtURI", body),
        }
    }

    /// On, from its media where it was told so once, or off.
    fn turn(&mut self, on: bool) {
        self.is_on = on;
        if !on {
            return;
        }
        let once = self.boot_enabled == "Once" && self.boot_target == "Cd";
        let media = self.inserted.as_ref().filter(|_| once).map(|(_, image)| image.clone());
        self.started.push(media.unwrap_or_else(|| "disk".to_owned()));
        if self.boot_enabled == "Once" {
            self.boot_enabled = "Disabled";
        }
    }

    fn reset(&mut self, input: &Value, body: &[u8]) -> Response<Vec<u8>> {
        let kind = input.get("ResetType").and_then(Value::as_str).unwrap_or_default().to_owned();
        let members = input.as_object().map_or(0, serde_json::Map::len);
        if members != 1 || !self.persona.resets.contains(&kind.as_str()) {
            return self.refusal(400, "Base.1.8.ActionParameterValueNotInList", body);
        }
        let to =
            matches!(kind.as_str(), "On" | "ForceOn" | "PowerCycle" | "ForceRestart" | "GracefulRestart");
        let same = to == self.is_on && matches!(kind.as_str(), "On" | "ForceOff" | "GracefulShutdown");
        if same && self.persona.refuses_same_state {
            return self.refusal(409, "Base.1.8.ResourceInUse", body);
        }
        let ignored = self.ills.ignores.contains(&kind.as_str())
            || (kind == "GracefulShutdown" && self.ills.hangs_at_shutdown);
        if !ignored {
            match self.ills.looks {
                0 => self.turn(to),
                looks => self.becomes = Some((to, looks)),
            }
        }
        self.etag += 1;
        if self.ills.lies_about_reset { self.refusal(400, "Base.1.8.GeneralError", body) } else { empty() }
    }

    fn change(&mut self, below: &str, parts: &Parts, body: &[u8]) -> Response<Vec<u8>> {
        let shown = parts.headers.get(IF_MATCH).and_then(|value| value.to_str().ok());
        let right = format!("\"{}\"", self.etag);
        let status = match (self.persona.etags, shown) {
            (Etags::None, _) | (Etags::Empty, None | Some("*")) => None,
            (Etags::Strict | Etags::WeakStripped, None) => Some(428),
            (Etags::Strict | Etags::WeakStripped, Some(shown)) if shown == right => None,
            _ => Some(412),
        };
        if let Some(status) = status {
            return self.refusal(status, "Base.1.8.PreconditionFailed", body);
        }
        let last = below.rsplit('/').next().unwrap_or_default();
        self.asked
            .push(Asked { what: format!("PATCH {last}"), body: String::from_utf8_lossy(body).into_owned() });
        let input: Value = serde_json::from_slice(body).unwrap_or_default();
        if let Some(enabled) = input.pointer("/Boot/BootSourceOverrideEnabled").and_then(Value::as_str) {
            self.boot_enabled = ["Disabled", "Once", "Continuous"]
                .into_iter()
                .find(|it| *it == enabled)
                .unwrap_or("Disabled");
        }
        if let Some(target) = input.pointer("/Boot/BootSourceOverrideTarget").and_then(Value::as_str) {
            target.clone_into(&mut self.boot_target);
        }
        if input.get("Inserted") == Some(&Value::Bool(false)) {
            self.inserted = None;
        }
        self.etag += 1;
        empty()
    }

    /// A refusal in the form of DSP0266, which echoes what was sent where it is so ill.
    fn refusal(&self, status: u16, id: &str, body: &[u8]) -> Response<Vec<u8>> {
        let echo = if self.ills.echoes {
            format!("{} {BMC_PASSWORD}", String::from_utf8_lossy(body))
        } else {
            String::new()
        };
        let info = json!([{"MessageId": id, "Message": echo, "MessageArgs": [echo], "Severity": "Critical"}]);
        let mut refusal =
            found(&json!({"error": {"code": id, "message": echo, "@Message.ExtendedInfo": info}}));
        *refusal.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        refusal
    }
}
