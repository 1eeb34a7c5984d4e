//! Reading JSON schemas: references followed, what the reference page, the CLI's flags and its tables need. Pure.

use super::validate::Schemas;
use serde_json::{Map, Value};
use shared::api::SchemaOf;

/// What schemas of this module are kept under.
const DEFINITIONS: &str = "/$defs";

/// The schema of one type, with all that it refers to.
pub struct TypeSchema {
    root: Value,
    definitions: Map<String, Value>,
}

/// A schema somewhere in a [`TypeSchema`].
#[derive(Clone, Copy)]
pub struct Node<'a> {
    /// What stands at the place, perhaps a reference.
    here: &'a Value,
    definitions: &'a Map<String, Value>,
}

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// An object with named members.
    Object,
    /// An object by name, of equal values.
    Map,
    /// A list.
    List,
    /// A text that nobody else may see.
    Secret,
    /// A point in time.
    Time,
    /// Any other text.
    Text,
    /// An integer.
    Integer,
    /// Yes or no.
    Boolean,
    /// One of several schemas, or anything else.
    Other,
}

/// A member of an object.
#[derive(Clone, Copy)]
pub struct Member<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its schema.
    pub node: Node<'a>,
    /// Whether it must be there.
    pub required: bool,
}

impl TypeSchema {
    /// The schema of a method's input or output.
    #[must_use]
    pub fn of(schema: SchemaOf) -> Self {
        let mut schemas = Schemas::new(DEFINITIONS);
        let root = schemas.add(schema);
        Self { root, definitions: schemas.definitions() }
    }

    /// Where it begins.
    #[must_use]
    pub fn root(&self) -> Node<'_> {
        Node { here: &self.root, definitions: &self.definitions }
    }
}

impl<'a> Node<'a> {
    /// A keyword, from where the schema stands or from what it refers to.
    #[must_use]
    pub fn keyword(self, name: &str) -> Option<&'a Value> {
        self.here.get(name).or_else(|| self.target()?.get(name))
    }

    /// What the value is.
    #[must_use]
    pub fn shape(self) -> Shape {
        if self.keyword("x-secret").is_some() {
            return Shape::Secret;
        }
        match self.keyword("type").and_then(Value::as_str) {
            Some("object") if self.keyword("properties").is_some() => Shape::Object,
            Some("object") if self.keyword("additionalProperties").is_some_and(Value::is_object) => {
                Shape::Map
            }
            Some("object") => Shape::Object,
            Some("array") => Shape::List,
            Some("string") if self.keyword("format").is_some_and(|format| format == "date-time") => {
                Shape::Time
            }
            Some("string") => Shape::Text,
            Some("integer") => Shape::Integer,
            Some("boolean") => Shape::Boolean,
            _ => Shape::Other,
        }
    }

    /// The members of an object, in the order of the type; those that stand here before those of what it refers to.
    #[must_use]
    pub fn members(self) -> Vec<Member<'a>> {
        let parts = [Some(self.here), self.target()];
        parts.into_iter().flatten().flat_map(|part| self.members_of(part)).collect()
    }

    fn members_of(self, part: &'a Value) -> Vec<Member<'a>> {
        let Some(Value::Object(properties)) = part.get("properties") else { return Vec::new() };
        let required = part.get("required").and_then(Value::as_array);
        let is_required = |name: &str| required.is_some_and(|names| names.iter().any(|one| one == name));
        let member = |(name, here): (&'a String, &'a Value)| Member {
            name,
            node: Node { here, definitions: self.definitions },
            required: is_required(name),
        };
        properties.iter().map(member).collect()
    }

    /// The name of the type that it refers to, if it does.
    #[must_use]
    pub fn type_name(self) -> Option<&'a str> {
        self.here.get("$ref")?.as_str()?.rsplit('/').next()
    }

    /// The member at a path of dots.
    #[must_use]
    pub fn at(self, path: &str) -> Option<Node<'a>> {
        path.split('.').try_fold(self, |node, name| {
            node.members().into_iter().find(|member| member.name == name).map(|member| member.node)
        })
    }

    /// What a list, or a map, holds.
    #[must_use]
    pub fn items(self) -> Option<Node<'a>> {
        let here = self.keyword("items").or_else(|| self.keyword("additionalProperties"))?;
        here.is_object().then_some(Node { here, definitions: self.definitions })
    }

    /// The alternatives of a value that may have one of several shapes.
    #[must_use]
    pub fn alternatives(self) -> Vec<Node<'a>> {
        let found = self.keyword("oneOf").or_else(|| self.keyword("anyOf")).and_then(Value::as_array);
        let node = |here| Node { here, definitions: self.definitions };
        found.map_or_else(Vec::new, |all| all.iter().map(node).collect())
    }

    /// The words that a text must be one of; empty if there is no such rule.
    #[must_use]
    pub fn choices(self) -> Vec<&'a str> {
        let words = self.keyword("enum").and_then(Value::as_array);
        words.map_or_else(Vec::new, |words| words.iter().filter_map(Value::as_str).collect())
    }

    /// What it is for, in one line.
    #[must_use]
    pub fn description(self) -> String {
        let text = self.keyword("description").and_then(Value::as_str).unwrap_or_default();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn target(self) -> Option<&'a Value> {
        self.definitions.get(self.type_name()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::api::{join_tokens, node, nodes, secrets};

    #[test]
    fn members_are_found_through_references() {
        let schema = TypeSchema::of(join_tokens::CREATE.method.input);
        let root = schema.root();
        assert_eq!(root.shape(), Shape::Object);
        let expect = root.at("expect").unwrap();
        assert_eq!(expect.shape(), Shape::Object);
        assert!(expect.description().starts_with("Pins the token"), "the member's words, not the type's");
        assert_eq!(root.at("expect.mac").unwrap().shape(), Shape::Text);
        assert_eq!(root.at("hosted").unwrap().choices(), ["kubernetes"]);
        assert_eq!(root.at("maxUses").unwrap().shape(), Shape::Integer);
        let required: Vec<&str> = root.members().iter().filter(|m| m.required).map(|m| m.name).collect();
        assert_eq!(required, ["tenantId", "poolId", "ttlSeconds", "idempotencyKey"]);
        assert!(root.at("expect.colour").is_none());
    }

    #[test]
    fn alternatives_show_their_tag_and_their_type() {
        let schema = TypeSchema::of(node::JOIN.method.output);
        let alternatives = schema.root().alternatives();
        let names =
            |node: &Node<'_>| node.members().iter().map(|member| member.name.to_owned()).collect::<Vec<_>>();
        assert!(names(&alternatives[0]).starts_with(&["status".into(), "nodeId".into()]));
        assert!(names(&alternatives[1]).starts_with(&["status".into(), "challengeId".into()]));
        assert!(names(&alternatives[2]).starts_with(&["status".into(), "joinRequestId".into()]));
    }

    #[test]
    fn secrets_times_and_lists_are_told_apart() {
        let put = TypeSchema::of(secrets::PUT.method.input);
        assert_eq!(put.root().at("value").unwrap().shape(), Shape::Secret);
        let list = TypeSchema::of(nodes::LIST.method.output);
        let nodes = list.root().at("nodes").unwrap();
        assert_eq!(nodes.shape(), Shape::List);
        let node = nodes.items().unwrap();
        assert_eq!(node.at("createdAt").unwrap().shape(), Shape::Time);
        assert_eq!(node.at("certificate.serial").unwrap().shape(), Shape::Text);
    }
}
