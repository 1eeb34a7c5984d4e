//! `--template`: an answer by a text in which `{nodeId}` stands for that field. Pure.

use crate::api::schema::{Node, Shape};
use serde_json::Value;
use shared::terminal::shown;
use std::str::FromStr;

/// A text with fields in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    /// Members, from the outermost.
    Field(Vec<String>),
}

/// The text is no template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "each {{ must be followed by a field, as {{nodeId}} or {{certificate.expiresAt}}; {{{{ and }}}} stand for braces"
)]
pub(super) struct InvalidTemplate;

impl FromStr for Template {
    type Err = InvalidTemplate;
    fn from_str(text: &str) -> Result<Self, InvalidTemplate> {
        let (mut parts, mut plain, mut rest) = (Vec::new(), String::new(), text);
        while let Some(at) = rest.find(['{', '}']) {
            let (before, brace) = rest.split_at(at);
            plain.push_str(before);
            if let Some(after) = brace.strip_prefix("{{").or_else(|| brace.strip_prefix("}}")) {
                plain.extend(brace.chars().next());
                rest = after;
                continue;
            }
            let (field, after) =
                brace.strip_prefix('{').and_then(|inner| inner.split_once('}')).ok_or(InvalidTemplate)?;
            parts.push(Part::Text(std::mem::take(&mut plain)));
            parts.push(Part::Field(members(field).ok_or(InvalidTemplate)?));
            rest = after;
        }
        plain.push_str(rest);
        parts.push(Part::Text(plain));
        Ok(Self(parts))
    }
}

fn members(field: &str) -> Option<Vec<String>> {
    let is_name = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    field.split('.').all(is_name).then(|| field.split('.').map(str::to_owned).collect())
}

/// A field of a template that an answer does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("--template names {{{field}}}, which there is not{near}")]
pub(super) struct UnknownField {
    field: String,
    near: String,
}

impl Template {
    /// That all its fields are in what it is to show.
    ///
    /// # Errors
    /// The first that is not, and what there is beside it.
    pub(super) fn check(&self, schema: Node<'_>) -> Result<(), UnknownField> {
        let fields = self.0.iter().filter_map(|part| match part {
            Part::Field(path) => Some(path),
            Part::Text(_) => None,
        });
        for path in fields {
            let mut node = schema;
            for name in path {
                let members = node.members();
                match members.iter().find(|member| member.name == name) {
                    Some(member) => node = member.node,
                    // What stands there goes by names of others, or has one of several forms.
                    None if matches!(node.shape(), Shape::Map | Shape::Other) => break,
                    None if node.shape() == Shape::Object && members.is_empty() => break,
                    None => {
                        let names: Vec<&str> = members.iter().map(|member| member.name).collect();
                        let near = if names.is_empty() {
                            String::new()
                        } else {
                            format!("; there are {}", names.join(", "))
                        };
                        return Err(UnknownField { field: path.join("."), near });
                    }
                }
            }
        }
        Ok(())
    }

    /// One line for each thing of a list, or for the answer itself.
    #[must_use]
    pub(super) fn render(&self, list: Option<&[Value]>, answer: &Value) -> String {
        let things = list.unwrap_or(std::slice::from_ref(answer));
        things.iter().map(|thing| self.line(thing) + "\n").collect()
    }

    fn line(&self, thing: &Value) -> String {
        let text = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Field(path) => match path.iter().try_fold(thing, |value, name| value.get(name)) {
                None | Some(Value::Null) => String::new(),
                Some(Value::String(text)) => shown(text),
                Some(other) => shown(&other.to_string()),
            },
        };
        self.0.iter().map(text).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::schema::TypeSchema;
    use serde_json::json;
    use shared::api::tokens;

    #[test]
    fn fields_stand_in_the_text() {
        let template: Template = "{a.b}/{c} {{x}} {none}.".parse().unwrap();
        let thing = json!({"a": {"b": "1\u{1b}"}, "c": [2, true]});
        let line = template.render(None, &thing);
        assert!(
            line.starts_with('1') && line.ends_with("/[2,true] {x} .\n") && !line.contains('\u{1b}'),
            "{line}"
        );
        let list = [json!({"a": 1}), json!({"a": 2})];
        assert_eq!("{a}".parse::<Template>().unwrap().render(Some(&list), &thing), "1\n2\n");
        assert_eq!("{a}".parse::<Template>().unwrap().render(Some(&[]), &thing), "");
    }

    #[test]
    fn a_field_that_there_is_not_is_refused_by_its_name() {
        let schema = TypeSchema::of(tokens::LIST.method.output);
        let items = schema.root().at("tokens").unwrap().items().unwrap();
        let check = |text: &str| text.parse::<Template>().unwrap().check(items);
        for good in ["x", "{id}", "{labels.team} {expiresAt}", "{tenantRoles}"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        let said = check("{id} {expiry}").unwrap_err().to_string();
        assert!(check("{id.x}").is_err());
        assert!(said.contains("{expiry}") && said.contains("expiresAt"), "{said}");
    }

    #[test]
    fn an_odd_brace_is_no_template() {
        for bad in ["{", "}", "{}", "{a", "a}", "{a b}", "{a..b}", "{{a}", "{.a}"] {
            assert_eq!(bad.parse::<Template>(), Err(InvalidTemplate), "{bad}");
        }
    }
}
