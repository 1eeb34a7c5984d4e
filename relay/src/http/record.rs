//! The record of calls in the log: every change by an operator and every refusal that is final, each with its request
//! id, so that the id that a person was shown leads to a line. Never a body, a detail, a credential or a name of a
//! caller who did not prove it. Of a change's input only the names of what it is about ([`Named`]) are read.
//!
//! What is told to wait (429, 503) is no news, and faults of ours are logged where they become a problem.

use super::proxy::ProxyError;
use crate::{
    audit::{self, named::Named},
    call::Caller,
    fault::chain,
};
use serde::{Deserialize, de::IgnoredAny};
use shared::{
    api::{Kind, Method},
    problem::{Code, Problem},
    time::Timestamp,
};
use std::{
    net::IpAddr,
    sync::{Mutex, PoisonError},
};

/// The most refusals that are logged in a minute: strangers can cause them. Those beyond are counted.
const MAX_REFUSALS_PER_MINUTE: u32 = 600;

/// Bounds the lines of refusals.
#[derive(Debug, Default)]
pub struct Refusals(Mutex<Window>);

#[derive(Debug, Default)]
struct Window {
    minute: i64,
    count: u32,
}

/// What became of a line.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    /// Whether it is logged.
    logged: bool,
    /// How many of an earlier minute were not.
    left_out: u32,
}

impl Refusals {
    fn place(&self, now: Timestamp) -> Place {
        let minute = now.seconds().div_euclid(60);
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let left_out = if window.minute == minute {
            0
        } else {
            let before = std::mem::replace(&mut *window, Window { minute, count: 0 });
            before.count.saturating_sub(MAX_REFUSALS_PER_MINUTE)
        };
        window.count = window.count.saturating_add(1);
        Place { logged: window.count <= MAX_REFUSALS_PER_MINUTE, left_out }
    }

    /// Logs that a trusted proxy's connection was refused: whoever runs both must see it. One that does so with every
    /// connection is as bounded as all refusals.
    pub(super) fn proxy(&self, proxy: IpAddr, error: &ProxyError, now: Timestamp) {
        if self.place(now).logged {
            tracing::warn!(%proxy, error = chain(error), "a trusted proxy's connection was ended");
        }
    }

    /// Records a refusal, if it is final.
    pub(super) fn refused(&self, method: &str, request_id: &str, problem: &Problem, now: Timestamp) {
        if !is_final(problem) {
            return;
        }
        let Place { logged, left_out } = self.place(now);
        if left_out > 0 {
            tracing::info!(left_out, "refusals beyond {MAX_REFUSALS_PER_MINUTE} a minute were not logged");
        }
        if logged {
            let reason = problem.reason.map(reason_word);
            tracing::info!(method, request_id, code = problem.code.as_str(), reason, "refused");
        }
    }
}

/// What the relay named: the members of an answer that hold a thing whose id was drawn.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Drawn {
    join_token: Option<Made>,
    endorsement_authority: Option<Made>,
    invite: Option<Made>,
    token: Option<Made>,
}

/// A thing, or what has the same name and is none: the text of a join token.
#[derive(Deserialize)]
#[serde(untagged)]
enum Made {
    Thing { id: String },
    Other(IgnoredAny),
}

/// Records a change that somebody made by an API credential. `input` and `answer` are its bodies.
pub(super) fn changed(method: &Method, request_id: &str, caller: &Caller, input: &[u8], answer: &[u8]) {
    if let (Kind::Mutation, Caller::Credential(principal)) = (method.kind, caller)
        && !audit::is_sign_of_life(method)
    {
        let (method, resource) = (method.name, resource(input, answer));
        tracing::info!(method, resource, request_id, actor = principal.subject, "changed");
    }
}

/// What a call was about, as `tenantId=acme poolId=default nodeId=nd_…`; names have no spaces.
fn resource(input: &[u8], answer: &[u8]) -> String {
    let drawn: Drawn = serde_json::from_slice(answer).unwrap_or_default();
    let mut words = Named::read(input).words();
    words.extend(
        [drawn.join_token, drawn.endorsement_authority, drawn.invite, drawn.token]
            .into_iter()
            .flatten()
            .filter_map(|made| if let Made::Thing { id } = made { Some(format!("id={id}")) } else { None }),
    );
    words.join(" ")
}

fn reason_word(reason: shared::problem::Reason) -> String {
    serde_json::to_value(reason).ok().and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Whether trying the same again is of no use.
fn is_final(problem: &Problem) -> bool {
    !matches!(problem.code, Code::ResourceExhausted | Code::Unavailable | Code::Internal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::registry::Registry;
    use std::collections::BTreeSet;

    #[test]
    fn what_waits_or_is_logged_elsewhere_is_no_refusal() {
        let finals = Code::ALL.into_iter().filter(|code| is_final(&Problem::new(*code, "x"))).count();
        assert_eq!(finals, Code::ALL.len() - 3);
        assert_eq!(reason_word(shared::problem::Reason::TokenExhausted), "tokenExhausted");
    }

    #[test]
    fn every_name_in_a_changes_input_is_told() {
        let registry = crate::api::registry().unwrap();
        let mut told = 0;
        for method in
            registry.methods().filter(|method| method.kind == Kind::Mutation && method.for_operators())
        {
            let schema = Registry::input_schema(method);
            let name = schema["root"]["$ref"].as_str().unwrap().rsplit('/').next().unwrap();
            let none = serde_json::Map::new();
            let members = schema["$defs"][name]["properties"].as_object().unwrap_or(&none);
            let input: serde_json::Map<_, _> =
                members.keys().map(|word| (word.clone(), format!("x-{word}").into())).collect();
            let found = resource(serde_json::Value::from(input).to_string().as_bytes(), b"{}");
            let found: BTreeSet<&str> = found.split(' ').filter(|word| !word.is_empty()).collect();
            let is_name = |word: &&String| {
                word.ends_with("Id")
                    || ["name", "ekSha256", "subject", "type", "identifier"].contains(&word.as_str())
            };
            let expected: Vec<String> =
                members.keys().filter(is_name).map(|word| format!("{word}=x-{word}")).collect();
            assert_eq!(found, expected.iter().map(String::as_str).collect(), "{}", method.name);
            told += 1;
        }
        assert!(told > 15, "{told}");
    }

    #[test]
    fn an_id_that_was_drawn_is_told_and_no_secret() {
        let input = br#"{"tenantId":"acme","poolId":"gpu-a","value":"hush","name":"key"}"#;
        let answer = br#"{"joinToken":{"id":"jt_1","poolId":"x"},"token":"bcjt_1.hush"}"#;
        assert_eq!(resource(input, answer), "tenantId=acme poolId=gpu-a name=key id=jt_1");
        assert_eq!(resource(b"[", b"x"), "");
    }

    #[test]
    fn a_flood_is_cut_and_counted() {
        let (refusals, now) = (Refusals::default(), Timestamp::from_seconds(600));
        let logged = (0..700).filter(|_| refusals.place(now).logged).count();
        assert_eq!(logged, 600);
        assert_eq!(refusals.place(now.plus_seconds(60)), Place { logged: true, left_out: 100 });
        assert_eq!(refusals.place(now.plus_seconds(119)), Place { logged: true, left_out: 0 });
        assert_eq!(refusals.place(now.plus_seconds(180)), Place { logged: true, left_out: 0 });
    }
}
