//! Who a fake BMC lets in: its accounts and its sessions.

use super::{
    answers::{Answer, empty, found, link, put, refusal, with_header, with_status},
    machine::Machine,
    persona::{Auth, Persona},
    service::{PASSWORD, USER},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{
    HeaderName,
    header::{AUTHORIZATION, HOST, LOCATION, WWW_AUTHENTICATE},
    request::Parts,
};
use serde_json::{Value, json};

const TOKEN: HeaderName = HeaderName::from_static("x-auth-token");
/// The longest and the shortest password that an account takes, in bytes.
const PASSWORD_BYTES: std::ops::RangeInclusive<usize> = 8..=20;

pub(super) struct Account {
    pub(super) id: usize,
    pub(super) user: String,
    pub(super) password: String,
    pub(super) role: String,
    pub(super) enabled: bool,
}

struct Session {
    id: usize,
    token: String,
    user: String,
}

pub(super) struct Keys {
    auth: Auth,
    max_sessions: usize,
    pub(super) accounts: Vec<Account>,
    /// A password that was taken, and that it does not go by: whose, and which.
    offered: Option<(usize, String)>,
    sessions: Vec<Session>,
    /// How many sessions were begun.
    pub(super) begun: usize,
    /// How many requests came with the right credentials, and with wrong ones.
    pub(super) logins: (usize, usize),
}

impl Keys {
    pub(super) fn new(persona: &Persona) -> Self {
        let root = Account {
            id: 1,
            user: USER.to_owned(),
            password: PASSWORD.to_owned(),
            role: "Administrator".to_owned(),
            enabled: true,
        };
        Self {
            auth: persona.auth,
            max_sessions: persona.max_sessions,
            accounts: vec![root],
            offered: None,
            sessions: Vec::new(),
            begun: 0,
            logins: (0, 0),
        }
    }

    pub(super) fn open_sessions(&self) -> usize {
        self.sessions.len()
    }

    pub(super) fn forget_sessions(&mut self) {
        self.sessions.clear();
    }

    pub(super) fn session_ids(&self) -> impl Iterator<Item = usize> {
        self.sessions.iter().map(|session| session.id)
    }

    pub(super) fn session(&self, id: &str) -> Option<Value> {
        let session = self.sessions.iter().find(|session| session.id.to_string() == id)?;
        Some(json!({
            "@odata.type": "#Session.v1_3_0.Session", "Id": id, "Name": "Session", "UserName": session.user,
            "Password": null,
        }))
    }

    /// Goes by the password that was taken last.
    pub(super) fn take_offered(&mut self) {
        let Some((id, password)) = self.offered.take() else { return };
        if let Some(account) = self.accounts.iter_mut().find(|account| account.id == id) {
            account.password = password;
        }
    }

    pub(super) fn account(&self, id: &str) -> Option<&Account> {
        self.accounts.iter().find(|account| account.id.to_string() == id)
    }

    /// Removes a session or an account.
    pub(super) fn remove(&mut self, below: &str) -> bool {
        let id = below.rsplit('/').next().unwrap_or_default();
        let before = self.sessions.len() + self.accounts.len();
        match below.starts_with("SessionService/") {
            true => self.sessions.retain(|session| session.id.to_string() != id),
            false => self.accounts.retain(|account| account.id == 1 || account.id.to_string() != id),
        }
        self.sessions.len() + self.accounts.len() < before
    }

    fn is_right(&self, user: &str, password: &str) -> bool {
        let right = |it: &Account| it.enabled && it.user == user && it.password == password;
        self.accounts.iter().any(right)
    }

    /// The user of a `Basic` header, if it is right.
    fn basic(&self, shown: &str) -> Option<String> {
        let decoded = STANDARD.decode(shown.strip_prefix("Basic ")?).ok()?;
        let pair = String::from_utf8(decoded).ok()?;
        let (user, password) = pair.split_once(':')?;
        self.is_right(user, password).then(|| user.to_owned())
    }
}

impl Machine {
    /// The refusal of somebody who shows nothing that lets in.
    pub(super) fn unknown(&mut self, parts: &Parts) -> Option<Answer> {
        let text = |name: HeaderName| parts.headers.get(name).and_then(|value| value.to_str().ok());
        let by_session = text(TOKEN).map(|token| {
            self.keys
                .sessions
                .iter()
                .find(|session| session.token == token)
                .map(|session| session.user.clone())
        });
        let by_basic = text(AUTHORIZATION).filter(|_| self.keys.auth == Auth::Both);
        let by_basic = by_basic.map(|shown| self.keys.basic(shown));
        let judged = by_session.clone().or_else(|| by_basic.clone());
        let user = judged.clone().flatten().filter(|_| !self.ills.unauthorized);
        if let Some(user) = user {
            self.keys.logins.0 += 1;
            return self.held_back(&user, parts);
        }
        // Credentials that are not even looked at are no wrong ones.
        if judged.is_some() && by_session.is_none() {
            self.keys.logins.1 += 1;
        }
        let refused = self.refuse(401, "Base.1.8.NoValidSession", b"");
        match self.keys.auth {
            Auth::Both => Some(with_header(refused, WWW_AUTHENTICATE, "Basic realm=\"Redfish\"")),
            Auth::Sessions => Some(with_header(refused, WWW_AUTHENTICATE, "X-Auth-Token")),
        }
    }

    /// What is refused to somebody who is known.
    fn held_back(&self, user: &str, parts: &Parts) -> Option<Answer> {
        // Whoever must change the password may still leave (DSP0266).
        let leaves = parts.method == "DELETE" && parts.uri.path().starts_with("/redfish/v1/SessionService/");
        if self.ills.password_change && !leaves {
            return Some(self.refuse(403, "Base.1.8.PasswordChangeRequired", b""));
        }
        let account = self.keys.accounts.iter().find(|account| account.user == user)?;
        let own = format!("/redfish/v1/AccountService/Accounts/{}", account.id);
        let reads = parts.method == "GET" || parts.method == "HEAD";
        let may = account.role == "Administrator"
            || (reads && !parts.uri.path().starts_with("/redfish/v1/AccountService/Accounts/"))
            || parts.uri.path() == own;
        (!may).then(|| self.refuse(403, "Base.1.8.InsufficientPrivilege", b""))
    }

    pub(super) fn begin_session(&mut self, parts: &Parts, body: &[u8]) -> Answer {
        let input: Value = serde_json::from_slice(body).unwrap_or_default();
        let text = |name: &str| input.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (user, password) = (text("UserName"), text("Password"));
        if user.is_empty() || password.is_empty() {
            return self.refuse(400, "Base.1.8.PropertyMissing", body);
        }
        if !self.keys.is_right(&user, &password) || self.ills.unauthorized {
            self.keys.logins.1 += 1;
            return self.refuse(401, "Base.1.8.ResourceAtUriUnauthorized", body);
        }
        if self.ills.sessions_full || self.keys.sessions.len() >= self.keys.max_sessions {
            return self.refuse(503, "Base.1.8.SessionLimitExceeded", body);
        }
        self.keys.begun += 1;
        let id = self.keys.begun;
        let token = format!("token-{id}-{}", "x".repeat(24));
        self.keys.sessions.push(Session { id, token: token.clone(), user });
        let place = format!("/redfish/v1/SessionService/Sessions/{id}");
        let host = parts.headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        let location =
            if self.persona.whole_locations { format!("https://{host}{place}") } else { place.clone() };
        let mut said = self.keys.session(&id.to_string()).unwrap_or_default();
        put(&mut said, "@odata.id", json!(place));
        if self.ills.password_change {
            let info = json!([{"MessageId": "Base.1.8.PasswordChangeRequired"}]);
            put(&mut said, "@Message.ExtendedInfo", info);
        }
        let answer = with_header(with_status(found(&said), 201), TOKEN, &token);
        with_header(answer, LOCATION, self.ills.location.unwrap_or(&location))
    }

    /// Makes an account.
    pub(super) fn add_account(&mut self, body: &[u8], input: &Value) -> Answer {
        let text = |name: &str| input.get(name).and_then(Value::as_str).map(str::to_owned);
        let (Some(user), Some(password), Some(role)) = (text("UserName"), text("Password"), text("RoleId"))
        else {
            return self.refuse(400, "Base.1.8.PropertyMissing", body);
        };
        let taken = self.keys.accounts.iter().any(|account| account.user == user);
        if taken || !PASSWORD_BYTES.contains(&password.len()) {
            return self.refuse(400, "Base.1.8.PropertyValueIncorrect", body);
        }
        let id = self.keys.accounts.iter().map(|account| account.id).max().unwrap_or_default() + 1;
        self.keys.accounts.push(Account { id, user, password, role, enabled: true });
        let place = format!("/redfish/v1/AccountService/Accounts/{id}");
        let mut said = self.account_document(&id.to_string()).unwrap_or_default();
        put(&mut said, "@odata.id", json!(place));
        with_header(with_status(self.described(&said), 201), LOCATION, &place)
    }

    /// Changes an account.
    pub(super) fn change_account(&mut self, below: &str, body: &[u8], input: &Value) -> Answer {
        let id = below.rsplit('/').next().unwrap_or_default();
        let text = |name: &str| input.get(name).and_then(Value::as_str).map(str::to_owned);
        let password = text("Password");
        let is_taken =
            |password: &String| PASSWORD_BYTES.contains(&password.len()) && !self.ills.refuses_password;
        if password.as_ref().is_some_and(|password| !is_taken(password)) {
            return self.refuse(400, "Base.1.8.PropertyValueFormatError", body);
        }
        let known = ["Password", "RoleId", "Enabled", "Locked", "UserName"];
        let names = || input.as_object().into_iter().flat_map(serde_json::Map::keys);
        // OData's own are no properties (DSP0266, PATCH).
        if names().all(|name| name.contains('@')) {
            return self.refuse(400, "Base.1.8.NoOperation", body);
        }
        let strange = names().find(|name| !name.contains('@') && !known.contains(&name.as_str()));
        let Some(account) = self.keys.accounts.iter_mut().find(|it| it.id.to_string() == id) else {
            return self.refuse(404, "Base.1.8.ResourceMissingAtURI", body);
        };
        if let Some(strange) = strange {
            return refusal(400, "Base.1.8.PropertyUnknown", &format!("The property {strange} is unknown."));
        }
        match password {
            Some(password) if self.ills.forgets_password => self.keys.offered = Some((account.id, password)),
            Some(password) => account.password = password,
            None => {}
        }
        account.role = text("RoleId").unwrap_or_else(|| account.role.clone());
        account.enabled = input.get("Enabled").and_then(Value::as_bool).unwrap_or(account.enabled);
        self.etag += 1;
        self.truly(empty(), body)
    }

    pub(super) fn account_document(&self, id: &str) -> Option<Value> {
        let account = self.keys.account(id)?;
        Some(json!({
            "@odata.type": "#ManagerAccount.v1_8_0.ManagerAccount", "Id": id, "Name": "Account", "UserName": account.user,
            "Password": null, "RoleId": account.role, "Enabled": account.enabled, "Locked": false,
            "AccountTypes": ["Redfish"],
            "Links": {"Role": link(&format!("/redfish/v1/AccountService/Roles/{}", account.role))},
        }))
    }
}
