//! What a fake BMC does with each request: how it misbehaves first, then who asks, then what is asked.

use super::{
    answers::{Answer, empty, found, put, refusal, with_header, with_status, with_type},
    host::Host,
    ills::{Asked, Ills, Stall},
    keys::Keys,
    persona::{Etags, Persona},
    service,
};
use http::{
    Response,
    header::{ALLOW, CACHE_CONTROL, ETAG, IF_MATCH, LINK, LOCATION},
    request::Parts,
};
use serde_json::{Value, json};

/// How many requests it is busy for after it has started anew.
const STARTING_REQUESTS: u32 = 3;

pub(super) enum Answered {
    Now(Answer),
    Never,
    Endless,
    Big,
    Slow,
}

/// What goes on by itself.
pub(super) struct Task {
    pub(super) looks: u32,
    pub(super) fails: bool,
}

pub(super) struct Machine {
    pub(super) persona: &'static Persona,
    pub(super) ills: Ills,
    pub(super) host: Host,
    pub(super) keys: Keys,
    pub(super) tasks: Vec<Task>,
    pub(super) etag: u32,
    pub(super) stall: Option<Stall>,
    pub(super) stalled: bool,
    pub(super) asked: Vec<Asked>,
}

impl Machine {
    pub(super) fn new(persona: &'static Persona) -> Self {
        Self {
            persona,
            ills: Ills::default(),
            host: Host::new(persona),
            keys: Keys::new(persona),
            tasks: Vec::new(),
            etag: 1,
            stall: None,
            stalled: false,
            asked: Vec::new(),
        }
    }

    pub(super) fn answer(&mut self, parts: &Parts, body: &[u8]) -> Answered {
        match &self.ills {
            ills if ills.silent => return Answered::Never,
            ills if ills.endless => return Answered::Endless,
            ills if ills.big => return Answered::Big,
            ills if ills.slow => return Answered::Slow,
            _ => {}
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
        let answer = self.now(parts, body);
        let answer = with_header(answer, http::HeaderName::from_static("odata-version"), "4.0");
        Answered::Now(with_header(answer, CACHE_CONTROL, "no-cache"))
    }

    fn is_counted(&self, parts: &Parts) -> bool {
        self.stall.is_some_and(|stall| stall.reads_too || parts.method != "GET")
    }

    fn now(&mut self, parts: &Parts, body: &[u8]) -> Answer {
        if let Some(ill) = self.ill(body) {
            return ill;
        }
        let versions = parts.headers.get("odata-version").and_then(|value| value.to_str().ok());
        if versions.is_some_and(|version| version != "4.0") {
            return self.refuse(412, "Base.1.8.PreconditionFailed", body);
        }
        let path = parts.uri.path();
        if let Some(public) = public(path).filter(|_| parts.method == "GET" || parts.method == "HEAD") {
            return public;
        }
        let path = path.trim_end_matches('/');
        if path == "/redfish/v1" {
            let answer = match parts.method.as_str() {
                "GET" | "HEAD" => self.described(&self.root()),
                _ => self.refuse(405, "Base.1.8.OperationNotAllowed", body),
            };
            return with_header(answer, ALLOW, "GET, HEAD");
        }
        let sessions = "/redfish/v1/SessionService/Sessions";
        if parts.method == "POST" && (path == sessions || path == format!("{sessions}/Members")) {
            return self.begin_session(parts, body);
        }
        if let Some(refused) = self.unknown(parts) {
            return refused;
        }
        match path.strip_prefix("/redfish/v1/") {
            Some(below) => self.below(below, parts, body),
            None => self.refuse(404, "Base.1.8.ResourceMissingAtURI", body),
        }
    }

    /// How it misbehaves, whatever it is asked.
    fn ill(&mut self, body: &[u8]) -> Option<Answer> {
        if let Some(to) = &self.ills.redirects {
            return Some(with_header(with_status(Response::new(Vec::new()), 307), LOCATION, to));
        }
        if let Some(left) = self.ills.restarts_after {
            self.ills.restarts_after = left.checked_sub(1);
            if left == 0 {
                self.keys.forget_sessions();
                self.ills.busy = STARTING_REQUESTS;
            }
        }
        if self.ills.busy > 0 {
            self.ills.busy -= 1;
            return Some(self.refuse(503, "Base.1.8.ServiceTemporarilyUnavailable", body));
        }
        self.ills.garbage.then(|| Response::new(b"<html>not what you think</html>".to_vec()))
    }

    fn below(&mut self, below: &str, parts: &Parts, body: &[u8]) -> Answer {
        let away = self.persona.away_while_off.filter(|_| !self.host.is_on);
        if [away, self.ills.away].into_iter().flatten().any(|away| below.ends_with(away)) {
            return self.refuse(503, "Base.1.8.ResourceInStandby", body);
        }
        let Some(allowed) = self.allows(below) else {
            return self.refuse(404, "Base.1.8.ResourceMissingAtURI", body);
        };
        let method = parts.method.as_str();
        if !allowed.split(", ").any(|allowed| allowed == method) {
            return with_header(self.refuse(405, "Base.1.8.OperationNotAllowed", body), ALLOW, allowed);
        }
        let answer = match method {
            "GET" | "HEAD" => self.read(below),
            "DELETE" => self.remove(below),
            _ => match serde_json::from_slice::<Value>(body) {
                Ok(input) if input.is_object() => self.write(below, parts, body, &input),
                _ => self.refuse(400, "Base.1.8.MalformedJSON", body),
            },
        };
        with_header(answer, ALLOW, allowed)
    }

    fn write(&mut self, below: &str, parts: &Parts, body: &[u8], input: &Value) -> Answer {
        if parts.method == "POST" {
            return self.act(below, parts, body, input);
        }
        match self.unmatched(parts) {
            Some(status) => self.refuse(status, "Base.1.8.PreconditionFailed", body),
            None => self.change(below, body, input),
        }
    }

    /// The status that a change is refused with, because it does not name what it changes as the service wants it.
    fn unmatched(&self, parts: &Parts) -> Option<u16> {
        let shown = parts.headers.get(IF_MATCH).and_then(|value| value.to_str().ok());
        let right = format!("\"{}\"", self.etag);
        match (self.persona.etags, shown) {
            (Etags::None, _) | (Etags::Empty, None | Some("*")) => None,
            (Etags::Strict | Etags::WeakStripped, None) => Some(428),
            (Etags::Strict | Etags::WeakStripped, Some(shown)) if shown == right => None,
            _ => Some(412),
        }
    }

    fn read(&mut self, below: &str) -> Answer {
        if let Some(monitor) = self.monitor(below) {
            return monitor;
        }
        match self.document(below) {
            Some(mut document) => {
                if document.get("@odata.id").is_none() {
                    put(&mut document, "@odata.id", json!(format!("/redfish/v1/{below}")));
                }
                self.described(&document)
            }
            None => self.refuse(404, "Base.1.8.ResourceMissingAtURI", b""),
        }
    }

    pub(super) fn described(&self, document: &Value) -> Answer {
        let answer = with_header(found(document), LINK, "</redfish/v1/JsonSchemas>; rel=describedby");
        match self.persona.etags {
            Etags::None => answer,
            Etags::Strict => with_header(answer, ETAG, &format!("\"{}\"", self.etag)),
            Etags::WeakStripped => with_header(answer, ETAG, &format!("W/\"{}\"", self.etag)),
            Etags::Empty => with_header(answer, ETAG, ""),
        }
    }

    /// A task of what was done, or is to be done; a session and a task are named with the host where the service does so.
    pub(super) fn as_task(&mut self, done: Answer) -> Answer {
        if !self.persona.tasks || !done.status().is_success() {
            return done;
        }
        let id = self.tasks.len();
        self.tasks.push(Task { looks: self.ills.looks, fails: self.ills.tasks_fail });
        let place = format!("/redfish/v1/TaskService/Tasks/{id}");
        let task = json!({"@odata.id": place, "Id": id.to_string(), "Name": "Task", "TaskState": "Running"});
        with_header(with_status(found(&task), 202), LOCATION, self.ills.location.unwrap_or(&place))
    }

    /// What is said of a task. It ends after so many looks, and is gone then where it vanishes.
    fn monitor(&mut self, below: &str) -> Option<Answer> {
        let id: usize = below.strip_prefix("TaskService/Tasks/")?.parse().ok()?;
        let vanishes = self.ills.tasks_vanish;
        let task = self.tasks.get_mut(id)?;
        let (state, code) = match (task.looks, task.fails) {
            (0, _) if vanishes => return Some(self.refuse(404, "Base.1.8.ResourceMissingAtURI", b"")),
            (0, true) => ("Exception", 200),
            (0, false) => ("Completed", 200),
            _ => ("Running", 202),
        };
        task.looks = task.looks.saturating_sub(1);
        let messages = json!([{"MessageId": "Base.1.8.InternalError", "Message": "It failed."}]);
        let said = json!({
            "@odata.id": format!("/redfish/v1/{below}"), "@odata.type": "#Task.v1_4_3.Task", "Id": id.to_string(),
            "Name": "Task", "TaskState": state, "Messages": if state == "Exception" { messages } else { json!([]) },
        });
        Some(with_status(found(&said), code))
    }

    fn remove(&mut self, below: &str) -> Answer {
        if self.keys.remove(below) { empty() } else { self.refuse(404, "Base.1.8.ResourceMissingAtURI", b"") }
    }

    /// A refusal, which echoes what was sent where it is so ill.
    pub(super) fn refuse(&self, status: u16, id: &str, body: &[u8]) -> Answer {
        let echo = match self.ills.echoes {
            true => format!("{} {}", String::from_utf8_lossy(body), service::PASSWORD),
            false => String::new(),
        };
        refusal(status, id, &echo)
    }

    /// Notes what was asked.
    pub(super) fn note(&mut self, method: &str, below: &str, body: &[u8]) {
        let last = below.rsplit('/').next().unwrap_or_default();
        let body = String::from_utf8_lossy(body).into_owned();
        self.asked.push(Asked { what: format!("{method} {last}"), body });
    }
}

/// What everybody may read.
fn public(path: &str) -> Option<Answer> {
    match path {
        "/redfish" | "/redfish/" => Some(found(&json!({"v1": "/redfish/v1/"}))),
        "/redfish/v1/odata" => {
            let systems = json!({"name": "Systems", "kind": "Singleton", "url": "/redfish/v1/Systems"});
            let service = json!({"name": "Service", "kind": "Singleton", "url": "/redfish/v1/"});
            Some(found(&json!({"@odata.context": "/redfish/v1/$metadata", "value": [service, systems]})))
        }
        "/redfish/v1/$metadata" => {
            let text = concat!(
                "<?xml version=\"1.0\"?><edmx:Edmx xmlns:edmx=\"http://docs.oasis-open.org/odata/ns/edmx\" Version=\"4.0\">",
                "<edmx:DataServices><Schema xmlns=\"http://docs.oasis-open.org/odata/ns/edm\" Namespace=\"Service\">",
                "<EntityContainer Name=\"Service\" Extends=\"ServiceRoot.v1_5_0.ServiceContainer\"/>",
                "</Schema></edmx:DataServices></edmx:Edmx>",
            );
            Some(with_type(text.as_bytes().to_vec(), "application/xml"))
        }
        _ => None,
    }
}
