//! The OpenAPI 3.1 document of the API, from the method table. Schemas are JSON Schema 2020-12 as the types give
//! them. Nothing here is written by hand but what is no method: health, trust bundles, this document.

use super::validate::Schemas;
use serde_json::{Map, Value, json};
use shared::{
    api::{Access, Kind, Method, Phase},
    problem::{Code, Reason},
};

/// Where the document keeps its schemas.
const SCHEMAS: &str = "/components/schemas";
/// The name of the schema of problems.
const PROBLEM: &str = "Problem";

/// Something that is served beside the methods.
pub(super) struct Plain {
    /// Its path.
    pub(super) path: &'static str,
    /// One line for people.
    pub(super) summary: &'static str,
    /// The media type of its answer.
    pub(super) media_type: &'static str,
}

/// What is served by GET to anyone.
pub(super) const PLAIN: &[Plain] = &[
    Plain { path: "/api/openapi.json", summary: "This document.", media_type: "application/json" },
    Plain {
        path: "/api/trust-bundle",
        summary: "The CA certificates that verify the relay and platform nodes, and where their CRLs are.",
        media_type: "application/json",
    },
    Plain {
        path: "/api/trust-bundle/tenant",
        summary: "The CA certificates that verify nodes of tenants, and where their CRLs are.",
        media_type: "application/json",
    },
    Plain {
        path: "/api/version",
        summary: "The relay's version and the phases that it serves.",
        media_type: "application/json",
    },
    Plain {
        path: "/crl/{issuer}.crl",
        summary: "The revocation list of an issuing CA, DER.",
        media_type: "application/pkix-crl",
    },
    Plain { path: "/livez", summary: "Whether the relay runs.", media_type: "text/plain" },
    Plain {
        path: "/readyz",
        summary: "Whether the relay can serve: its store answers.",
        media_type: "text/plain",
    },
];

/// The document of these methods.
#[must_use]
pub fn openapi<'a>(methods: impl IntoIterator<Item = &'a Method>) -> Value {
    let mut schemas = Schemas::new(SCHEMAS);
    let mut paths = Map::new();
    for method in methods {
        paths.insert(method.path(), json!({"post": operation(method, &mut schemas)}));
    }
    for plain in PLAIN {
        paths.insert(plain.path.to_owned(), json!({"get": plain_operation(plain)}));
    }
    let mut definitions = schemas.definitions();
    definitions.insert(PROBLEM.to_owned(), problem());
    definitions.sort_keys();
    json!({
        "openapi": "3.1.0",
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "info": {
            "title": "relay",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "Admits machines to pools and names them by certificates.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            "x-phases": Phase::ALL.map(Phase::as_str),
        },
        "paths": paths,
        "components": {"schemas": definitions, "securitySchemes": security_schemes()},
    })
}

fn operation(method: &Method, schemas: &mut Schemas) -> Value {
    let (module, group, _) = method.parts();
    let tag = if group.is_empty() { module.to_owned() } else { format!("{module}/{group}") };
    json!({
        "operationId": method.name,
        "tags": [tag],
        "summary": method.summary,
        "x-kind": method.kind,
        "x-authorization": method.access.describe(),
        "x-phase": method.phase,
        "x-status": method.status,
        "security": security(method.access),
        "requestBody": {
            "required": true,
            "content": {"application/json": {"schema": schemas.add(method.input)}},
        },
        "responses": {
            "200": {
                "description": if method.kind == Kind::Read { "What was asked for." } else { "It is done." },
                "content": {"application/json": {"schema": schemas.add(method.output)}},
            },
            "default": refusal(),
        },
    })
}

fn plain_operation(plain: &Plain) -> Value {
    let parameters: Vec<Value> = plain
        .path
        .split(['{', '}'])
        .skip(1)
        .step_by(2)
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
        .collect();
    json!({
        "tags": ["plain"],
        "summary": plain.summary,
        "security": [],
        "parameters": parameters,
        "responses": {
            "200": {"description": "The answer.", "content": {plain.media_type: {}}},
            "default": refusal(),
        },
    })
}

fn refusal() -> Value {
    let schema = json!({"$ref": format!("#{SCHEMAS}/{PROBLEM}")});
    json!({
        "description": "A problem (RFC 9457).",
        "headers": {"x-request-id": {"schema": {"type": "string"}}},
        "content": {"application/problem+json": {"schema": schema}},
    })
}

fn security(access: Access) -> Value {
    match access {
        Access::JoinToken => json!([{"joinToken": []}]),
        Access::RenewingNode | Access::Node | Access::PlatformNode | Access::Agent => {
            json!([{"nodeCertificate": []}])
        }
        Access::Any | Access::Own(_) | Access::May(..) => {
            json!([{"bearer": []}, {"session": [], "csrf": []}])
        }
    }
}

fn security_schemes() -> Value {
    json!({
        "bearer": {"type": "http", "scheme": "bearer", "description": "A credential of a person or service."},
        "session": {
            "type": "apiKey", "in": "cookie", "name": "__Host-relay-session",
            "description": "The token of a browser's login. It counts only beside csrf, and without a header Authorization.",
        },
        "csrf": {
            "type": "apiKey", "in": "header", "name": "X-CSRF-Token",
            "description": "The value of the cookie __Host-relay-csrf, which a page of the relay alone can read.",
        },
        "joinToken": {"type": "http", "scheme": "bearer", "description": "A join token, bcjt_…"},
        "nodeCertificate": {"type": "mutualTLS", "description": "The certificate that the machine was issued."},
    })
}

fn problem() -> Value {
    let codes = Code::ALL.map(Code::as_str);
    json!({
        "type": "object",
        "description": "What was refused, by which rule, and the remedy.",
        "properties": {
            "type": {"type": "string", "description": "about:blank: the code is all there is to know."},
            "title": {"type": "string", "description": "The kind, for people."},
            "status": {"type": "integer", "description": "The HTTP status."},
            "detail": {"type": "string", "description": "This occurrence, for people."},
            "code": {"type": "string", "enum": codes, "description": "The kind, for programs."},
            "reason": {
                "type": "string",
                "enum": Reason::ALL,
                "description": "Why a machine's call was refused; told only where its secret or key matched.",
            },
            "errors": {
                "type": "array",
                "description": "Every bad field.",
                "items": {
                    "type": "object",
                    "properties": {
                        "field": {"type": "string", "description": "Its path, members joined by dots."},
                        "message": {"type": "string", "description": "What it must be."},
                    },
                    "required": ["field", "message"],
                },
            },
            "requestId": {"type": "string", "description": "As in the x-request-id header."},
            "retryAfterSeconds": {"type": "integer", "description": "As in the Retry-After header."},
            "state": {"type": "string", "description": "The state that forbids the move, of a machine."},
            "allowedVerbs": {
                "type": "array", "items": {"type": "string"}, "description": "The verbs that this state allows.",
            },
        },
        "required": ["type", "title", "status", "detail", "code"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::{api::join_tokens, problem::Problem};

    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(members) => {
                if let Some(Value::String(to)) = members.get("$ref") {
                    found.push(to.clone());
                }
                members.values().for_each(|member| references(member, found));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let document = openapi(super::super::registry().unwrap().methods());
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 50, "{}", found.len());
        for to in found {
            assert!(document.pointer(to.trim_start_matches('#')).is_some(), "{to}");
        }
    }

    #[test]
    fn a_method_shows_its_row() {
        let document = openapi([&join_tokens::CREATE.method]);
        let create = &document["paths"]["/api/compute/joinTokens/create"]["post"];
        assert_eq!(create["operationId"], "compute.joinTokens.create");
        assert_eq!(create["x-authorization"], "compute:join-tokens:create @ compute-pool");
        assert_eq!(create["x-kind"], "mutation");
        assert_eq!(create["security"], json!([{"bearer": []}, {"session": [], "csrf": []}]));
        let input = &document["components"]["schemas"]["CreateJoinToken"];
        assert_eq!(input["additionalProperties"], false);
        assert_eq!(input["properties"]["ttlSeconds"]["maximum"], 86_400);
    }

    #[test]
    fn the_schema_of_problems_is_that_of_the_type() {
        let full = Problem { request_id: Some("r".into()), ..Problem::refused(Reason::BadCsr, "x") }
            .retry_after(1)
            .with_errors(Problem::invalid_field("f", "m").errors)
            .in_state("enrolled", vec!["inspect".into()]);
        let written = serde_json::to_value(full).unwrap();
        let names = |value: &Value| {
            let mut names: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
            names.sort();
            names
        };
        let schema = problem();
        assert_eq!(names(&written), names(&schema["properties"]));
        assert!(jsonschema::is_valid(&schema, &written));
    }
}
