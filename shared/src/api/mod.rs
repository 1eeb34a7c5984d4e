//! The method table: one constant per method says what it is; `relay` binds each to what it does.
//!
//! Routing, validation, authorization, OpenAPI, the reference page, the operator CLI and the tests that walk
//! every method all come from these rows. A group has a file: its rows first, then its types.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use std::marker::PhantomData;

pub mod access;
pub mod audit;
pub mod components;
pub mod endorsement_authorities;
pub mod endorsement_keys;
pub mod events;
pub mod inventory;
pub mod invites;
pub mod join_requests;
pub mod join_tokens;
pub mod members;
pub mod metal;
pub mod node;
pub mod nodes;
pub mod pools;
pub mod projects;
pub mod roles;
pub mod secrets;
pub mod sites;
pub mod steps;
pub mod subject;
pub mod tasks;
pub mod tenants;
pub mod tokens;
pub mod users;
pub mod webhooks;
pub mod whoami;

use access::{Action, Scope};

/// Whether a method changes anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// Changes nothing.
    Read,
    /// Changes something, in one transaction.
    Mutation,
}

/// The release that a method came with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Phase {
    /// The first release.
    #[serde(rename = "v0.1")]
    V0_1,
    /// Access: members, tokens, components, tasks.
    #[serde(rename = "v0.2")]
    V0_2,
    /// Metal: machines that are enrolled by their BMC.
    #[serde(rename = "v0.3")]
    V0_3,
}

impl Phase {
    /// Every phase that this release serves.
    pub const ALL: [Self; 3] = [Self::V0_1, Self::V0_2, Self::V0_3];

    /// As the wire says it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V0_1 => "v0.1",
            Self::V0_2 => "v0.2",
            Self::V0_3 => "v0.3",
        }
    }
}

/// Whether this release serves a method or only knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Status {
    /// It works.
    Served,
    /// It is listed and answers INVALID_STATE.
    Registered,
}

/// Who may call a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The bearer of a join token.
    JoinToken,
    /// A machine with any certificate of ours, also one that expired within its pool's grace.
    RenewingNode,
    /// A machine with a valid `node` or `node-tenant` certificate.
    Node,
    /// A machine with a valid `node` certificate.
    PlatformNode,
    /// The agent in a metal machine, with its `agent` certificate.
    Agent,
    /// Every valid credential of a person or service.
    Any,
    /// Whoever may do this to what is their own: every user, and an API token that holds the action.
    Own(Action),
    /// Whoever may do this on the resource that the input names.
    May(Action, Scope),
}

impl Access {
    /// `action @ resource`, or the caller's kind where no action is asked for.
    #[must_use]
    pub fn describe(self) -> String {
        match self {
            Self::JoinToken => "join token".to_owned(),
            Self::RenewingNode => "node certificate (also expired, within the grace)".to_owned(),
            Self::Node => "node certificate".to_owned(),
            Self::PlatformNode => "`node` certificate".to_owned(),
            Self::Agent => "`agent` certificate".to_owned(),
            Self::Any => "any credential".to_owned(),
            Self::Own(action) => format!("{} @ self", action.as_str()),
            Self::May(action, scope) => format!("{} @ {}", action.as_str(), scope.as_str()),
        }
    }
}

/// A function that adds a type's schema to a document.
pub type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// A row of the table, without its types.
#[derive(Clone, Copy)]
pub struct Method {
    /// `module.group.method`, or `node.method` on the node plane.
    pub name: &'static str,
    /// Whether it changes anything.
    pub kind: Kind,
    /// Who may call it.
    pub access: Access,
    /// The release that it came with.
    pub phase: Phase,
    /// Whether this release serves it.
    pub status: Status,
    /// One line for people.
    pub summary: &'static str,
    /// The input's schema.
    pub input: SchemaOf,
    /// The output's schema.
    pub output: SchemaOf,
}

impl Method {
    /// The path it is served at.
    #[must_use]
    pub fn path(&self) -> String {
        format!("/api/{}", self.name.replace('.', "/"))
    }

    /// Its module, group (empty on the node plane) and own name.
    #[must_use]
    pub fn parts(&self) -> (&'static str, &'static str, &'static str) {
        let (module, rest) = self.name.split_once('.').unwrap_or(("", self.name));
        let (group, own) = rest.split_once('.').unwrap_or(("", rest));
        (module, group, own)
    }

    /// Whether people and services call it, by the operator CLI (machines call the others).
    #[must_use]
    pub fn for_operators(&self) -> bool {
        matches!(self.access, Access::Any | Access::Own(_) | Access::May(..))
    }
}

/// A row with its types: only a handler from `I` to `O` can be bound to it.
pub struct Op<I, O> {
    /// The row.
    pub method: Method,
    types: PhantomData<fn(I) -> O>,
}

impl<I, O> Clone for Op<I, O> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<I, O> Copy for Op<I, O> {}

impl<I: JsonSchema, O: JsonSchema> Op<I, O> {
    /// A row that changes something.
    #[must_use]
    pub const fn mutation(name: &'static str, access: Access, phase: Phase, summary: &'static str) -> Self {
        Self::new(name, Kind::Mutation, access, phase, summary)
    }

    /// A row that changes nothing.
    #[must_use]
    pub const fn read(name: &'static str, access: Access, phase: Phase, summary: &'static str) -> Self {
        Self::new(name, Kind::Read, access, phase, summary)
    }

    const fn new(
        name: &'static str,
        kind: Kind,
        access: Access,
        phase: Phase,
        summary: &'static str,
    ) -> Self {
        let method = Method {
            name,
            kind,
            access,
            phase,
            status: Status::Served,
            summary,
            input: SchemaGenerator::subschema_for::<I>,
            output: SchemaGenerator::subschema_for::<O>,
        };
        Self { method, types: PhantomData }
    }
}

/// Lists take at most this many things a page, and this many unless told otherwise.
pub type PageLimit = crate::bounded::Int<1, 200>;

/// What a list takes where its input has no limit.
pub const DEFAULT_PAGE_LIMIT: i64 = 100;
