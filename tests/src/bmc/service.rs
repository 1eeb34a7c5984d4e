//! What is to be read of a fake BMC, path by path below `/redfish/v1/`.

use super::{
    answers::{collection, link, put},
    host::Boot,
    machine::Machine,
    persona::{Insert, Media, Mode},
};
use serde_json::{Value, json};

/// Its user, and that user's password.
pub const USER: &str = "root";
/// See [`USER`].
pub const PASSWORD: &str = "calvin-17-hunter2";

const ROLES: [&str; 3] = ["Administrator", "Operator", "ReadOnly"];

impl Machine {
    /// The methods that a path takes; `None` where there is nothing.
    pub(super) fn allows(&self, below: &str) -> Option<&'static str> {
        let parts: Vec<&str> = below.split('/').collect();
        let is_system = |id: &str| id == self.persona.system;
        match parts.as_slice() {
            ["SessionService", "Sessions"] | ["AccountService", "Accounts"] => Some("GET, HEAD, POST"),
            ["SessionService", "Sessions", _] => Some("GET, HEAD, DELETE"),
            ["AccountService", "Accounts", id] => self.keys.account(id).map(|_| "GET, HEAD, PATCH, DELETE"),
            [.., "Actions", _] => Some("POST"),
            ["Systems", id] if is_system(id) && self.persona.settings => Some("GET, HEAD"),
            ["Systems", id] if is_system(id) => Some("GET, HEAD, PATCH"),
            ["Systems", _, "Settings"] if self.persona.settings => Some("GET, HEAD, PATCH"),
            [.., "VirtualMedia", _] if self.persona.insert == Insert::Patch => Some("GET, HEAD, PATCH"),
            _ => Some("GET, HEAD"),
        }
    }

    pub(super) fn root(&self) -> Value {
        let mut root = json!({
            "@odata.id": "/redfish/v1/", "@odata.type": "#ServiceRoot.v1_5_0.ServiceRoot", "Id": "RootService",
            "Name": "Root Service", "RedfishVersion": "1.6.0", "UUID": "92384634-2938-2342-8820-489239905423",
            "Systems": link(self.ills.systems.unwrap_or("/redfish/v1/Systems")),
            "Managers": link("/redfish/v1/Managers"),
            "AccountService": link("/redfish/v1/AccountService"),
            "SessionService": link("/redfish/v1/SessionService"),
            "Tasks": link("/redfish/v1/TaskService"),
            "Links": {"Sessions": link("/redfish/v1/SessionService/Sessions")},
            "ProtocolFeaturesSupported": {},
        });
        if let Some(vendor) = self.persona.vendor {
            put(&mut root, "Vendor", vendor.into());
        }
        root
    }

    /// What is at a path.
    pub(super) fn document(&mut self, below: &str) -> Option<Value> {
        let parts: Vec<&str> = below.split('/').collect();
        let (system, manager) = (self.persona.system, self.persona.manager);
        match parts.as_slice() {
            ["Systems"] => {
                let all = self.persona.second_system.into_iter().chain([system]);
                Some(collection("ComputerSystem", all.map(|id| format!("/redfish/v1/Systems/{id}"))))
            }
            ["Systems", id] if self.persona.second_system == Some(id) => Some(
                json!({"Id": id, "Name": "Baseboard", "PowerState": "On", "UUID": self.persona.uuid, "SystemType": "Physical"}),
            ),
            ["Systems", id, rest @ ..] if *id == system => {
                self.of_system(rest, &format!("/redfish/v1/Systems/{system}"))
            }
            ["Managers"] => Some(collection("Manager", [format!("/redfish/v1/Managers/{manager}")])),
            ["Managers", id] if *id == manager => Some(self.manager()),
            ["Managers", id, "VirtualMedia", rest @ ..] if *id == manager => {
                self.media(rest, &format!("/redfish/v1/Managers/{manager}"), Media::Manager)
            }
            ["SessionService", rest @ ..] => self.of_sessions(rest),
            ["AccountService", rest @ ..] => self.of_accounts(rest),
            ["TaskService"] => Some(json!({"Id": "TaskService", "Name": "Tasks", "ServiceEnabled": true})),
            _ => None,
        }
    }

    fn of_system(&mut self, rest: &[&str], base: &str) -> Option<Value> {
        let numbered = |kind: &str, path: &str, ids: &[&str]| {
            collection(kind, ids.iter().map(|id| format!("{base}/{path}/{id}")))
        };
        match rest {
            [] => Some(self.system(base)),
            ["Settings"] => self
                .host
                .pending
                .clone()
                .map(|boot| json!({"Id": "Settings", "Name": "To be", "Boot": self.boot(&boot)})),
            ["ResetActionInfo"] if self.persona.action_info => Some(json!({
                "Id": "ResetActionInfo", "Name": "Reset", "Parameters": [
                    {"Name": "ResetType", "Required": true, "AllowableValues": self.persona.resets},
                ],
            })),
            ["EthernetInterfaces"] => Some(numbered("EthernetInterface", "EthernetInterfaces", &["1", "2"])),
            ["EthernetInterfaces", "1"] => {
                Some(json!({"Id": "1", "Name": "NIC 1", "PermanentMACAddress": "00:16:3E:00:00:17"}))
            }
            ["EthernetInterfaces", "2"] => {
                Some(json!({"Id": "2", "Name": "NIC 2", "MACAddress": "00:16:3e:00:00:18"}))
            }
            ["Storage"] => Some(numbered("Storage", "Storage", &["0", "1"])),
            // A controller without a drive, and one with.
            ["Storage", "1"] => Some(json!({"Id": "1", "Name": "Empty", "Drives": []})),
            ["Storage", "0"] => Some(
                json!({"Id": "0", "Name": "Disks", "Drives": [link(&format!("{base}/Storage/0/Drives/0"))]}),
            ),
            ["Storage", "0", "Drives", "0"] => Some(json!({
                "Id": "0", "Name": "Disk", "Model": "SAMSUNG MZQL21T9HCJR-00A07", "CapacityBytes": 1_920_383_410_176_u64,
            })),
            ["Processors"] => Some(numbered("Processor", "Processors", &["CPU1", "CPU2", "GPU1"])),
            ["Processors", id @ ("CPU1" | "CPU2")] => Some(
                json!({"Id": id, "Name": id, "ProcessorType": "CPU", "Model": "AMD EPYC 9654 96-Core Processor"}),
            ),
            ["Processors", "GPU1"] => {
                Some(json!({"Id": "GPU1", "Name": "GPU", "ProcessorType": "GPU", "Model": "H100 80GB HBM3"}))
            }
            ["VirtualMedia", rest @ ..] => self.media(rest, base, Media::System),
            _ => None,
        }
    }

    fn system(&mut self, base: &str) -> Value {
        self.host.look();
        let model = if self.ills.echoes { PASSWORD } else { "Model 17" };
        let mut system = json!({
            "@odata.id": base, "@odata.type": "#ComputerSystem.v1_13_0.ComputerSystem", "Id": self.persona.system,
            "Name": "System", "SystemType": "Physical", "Manufacturer": "Maker", "Model": model,
            "SerialNumber": self.ills.serial.unwrap_or(self.persona.serial), "SKU": self.persona.sku,
            "UUID": self.ills.uuid.unwrap_or(self.persona.uuid), "BiosVersion": "2.4.8",
            "PowerState": if self.host.is_on { "On" } else { "Off" },
            "ProcessorSummary": {"Count": 2, "Model": "AMD EPYC 9654 96-Core Processor"},
            "MemorySummary": {"TotalSystemMemoryGiB": 1536},
            "Boot": self.boot(&self.host.boot),
            "EthernetInterfaces": link(&format!("{base}/EthernetInterfaces")),
            "Storage": link(&format!("{base}/Storage")),
            "Links": {"ManagedBy": [link(&format!("/redfish/v1/Managers/{}", self.persona.manager))]},
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
        if self.persona.name != "generic" {
            put(&mut system, "Processors", link(&format!("{base}/Processors")));
        }
        if self.persona.media == Media::System {
            put(&mut system, "VirtualMedia", link(&format!("{base}/VirtualMedia")));
        }
        if self.persona.settings {
            let settings = json!({"SettingsObject": link(&format!("{base}/Settings"))});
            put(&mut system, "@Redfish.Settings", settings);
        }
        system
    }

    fn boot(&self, boot: &Boot) -> Value {
        let mut said = json!({
            "BootSourceOverrideEnabled": boot.enabled, "BootSourceOverrideTarget": boot.target,
            "BootSourceOverrideTarget@Redfish.AllowableValues": ["None", "Pxe", self.persona.cd, "Hdd", "BiosSetup"],
        });
        if self.persona.mode != Mode::Optional {
            put(&mut said, "BootSourceOverrideMode", json!(boot.mode));
        }
        said
    }

    fn manager(&self) -> Value {
        let base = format!("/redfish/v1/Managers/{}", self.persona.manager);
        let mut manager = json!({
            "@odata.id": base, "@odata.type": "#Manager.v1_10_0.Manager", "Id": self.persona.manager, "Name": "Manager",
            "FirmwareVersion": "7.10.30.00", "ManagerType": "BMC",
        });
        if self.persona.media == Media::Manager {
            put(&mut manager, "VirtualMedia", link(&format!("{base}/VirtualMedia")));
        }
        manager
    }

    fn media(&mut self, rest: &[&str], base: &str, here: Media) -> Option<Value> {
        if self.persona.media != here {
            return None;
        }
        match rest {
            [] => {
                let slots = self.persona.slots.iter().map(|(id, _)| format!("{base}/VirtualMedia/{id}"));
                Some(collection("VirtualMedia", slots))
            }
            [id] => self.slot(id, base),
            _ => None,
        }
    }

    fn slot(&mut self, id: &str, base: &str) -> Option<Value> {
        self.host.look_at_media();
        let (at, (_, kinds)) = self.persona.slots.iter().enumerate().find(|(_, (slot, _))| *slot == id)?;
        let image =
            self.host.inserted.as_ref().filter(|(slot, _)| *slot == at).map(|(_, image)| image.clone());
        let action = |name: &str| {
            let target = format!("{base}/VirtualMedia/{id}/Actions/VirtualMedia.{name}");
            json!({"target": self.ills.media_target.unwrap_or(&target)})
        };
        let mut slot = json!({
            "@odata.type": "#VirtualMedia.v1_3_0.VirtualMedia", "Id": id, "Name": "Media", "MediaTypes": kinds,
            "Inserted": image.is_some(), "Image": image,
        });
        if self.persona.insert != Insert::Patch {
            let mut actions = json!({"#VirtualMedia.InsertMedia": action("InsertMedia")});
            if image.is_some() || !self.persona.eject_comes_late {
                put(&mut actions, "#VirtualMedia.EjectMedia", action("EjectMedia"));
            }
            put(&mut slot, "Actions", actions);
        }
        Some(slot)
    }

    fn of_sessions(&self, rest: &[&str]) -> Option<Value> {
        let sessions = "/redfish/v1/SessionService/Sessions";
        match rest {
            [] => Some(json!({
                "@odata.type": "#SessionService.v1_1_8.SessionService", "Id": "SessionService", "Name": "Sessions",
                "ServiceEnabled": true, "SessionTimeout": 1800, "Sessions": link(sessions),
            })),
            ["Sessions"] => {
                Some(collection("Session", self.keys.session_ids().map(|id| format!("{sessions}/{id}"))))
            }
            ["Sessions", id] => self.keys.session(id),
            _ => None,
        }
    }

    fn of_accounts(&self, rest: &[&str]) -> Option<Value> {
        let base = "/redfish/v1/AccountService";
        match rest {
            [] => Some(json!({
                "@odata.type": "#AccountService.v1_10_0.AccountService", "Id": "AccountService", "Name": "Accounts",
                "MinPasswordLength": 8, "MaxPasswordLength": 20,
                "Accounts": link(&format!("{base}/Accounts")), "Roles": link(&format!("{base}/Roles")),
            })),
            ["Accounts"] => {
                let ids = self.keys.accounts.iter().map(|account| format!("{base}/Accounts/{}", account.id));
                Some(collection("ManagerAccount", ids))
            }
            ["Accounts", id] => self.account_document(id),
            ["Roles"] => Some(collection("Role", ROLES.map(|id| format!("{base}/Roles/{id}")))),
            ["Roles", id] if ROLES.contains(id) => Some(json!({
                "@odata.type": "#Role.v1_3_1.Role", "Id": id, "Name": id, "RoleId": id, "IsPredefined": true,
                "AssignedPrivileges": privileges(id),
            })),
            _ => None,
        }
    }
}

fn privileges(role: &str) -> &'static [&'static str] {
    match role {
        "Administrator" => {
            &["Login", "ConfigureManager", "ConfigureUsers", "ConfigureComponents", "ConfigureSelf"]
        }
        "Operator" => &["Login", "ConfigureComponents", "ConfigureSelf"],
        _ => &["Login", "ConfigureSelf"],
    }
}
