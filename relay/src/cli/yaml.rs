//! JSON values as YAML, for people to read and programs to read back. Only this much of YAML is written: block
//! mappings and lists, plain words that no version of YAML takes for something else, and everything else in double
//! quotes. Machines name themselves, so nothing that moves a terminal's cursor goes out as it came.

use serde_json::Value;
use shared::terminal::harmless_json;
use std::fmt::Write as _;

/// Words that some version of YAML takes for a boolean or nothing.
const NOT_PLAIN: &[&str] = &["true", "false", "yes", "no", "on", "off", "y", "n", "null", "nan", "inf"];

/// The value as a YAML document.
#[must_use]
pub(super) fn to_yaml(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(members) if !members.is_empty() => mapping(&mut out, members, 0),
        Value::Array(items) if !items.is_empty() => list(&mut out, items, 0),
        scalar => {
            out.push_str(&inline(scalar));
            out.push('\n');
        }
    }
    out
}

fn mapping(out: &mut String, members: &serde_json::Map<String, Value>, indent: usize) {
    for (at, (name, value)) in members.iter().enumerate() {
        // The first member of a list's item stands behind the dash.
        if at > 0 || !out.ends_with("- ") {
            out.push_str(&" ".repeat(indent));
        }
        out.push_str(&text(name));
        out.push(':');
        match value {
            Value::Object(inner) if !inner.is_empty() => {
                out.push('\n');
                mapping(out, inner, indent + 2);
            }
            Value::Array(items) if !items.is_empty() => {
                out.push('\n');
                list(out, items, indent + 2);
            }
            scalar => {
                let _ = writeln!(out, " {}", inline(scalar));
            }
        }
    }
}

fn list(out: &mut String, items: &[Value], indent: usize) {
    for item in items {
        let _ = write!(out, "{}- ", " ".repeat(indent));
        match item {
            Value::Object(members) if !members.is_empty() => mapping(out, members, indent + 2),
            // A list in a list: JSON is YAML too.
            other => {
                out.push_str(&inline(other));
                out.push('\n');
            }
        }
    }
}

fn inline(value: &Value) -> String {
    match value {
        Value::String(string) => text(string),
        Value::Object(_) | Value::Array(_) => harmless_json(&value.to_string()),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

fn text(string: &str) -> String {
    if is_plain(string) { string.to_owned() } else { harmless_json(&Value::from(string).to_string()) }
}

/// Letters first, then letters, digits and what never ends a plain scalar.
fn is_plain(string: &str) -> bool {
    let starts = string.bytes().next().is_some_and(|first| first.is_ascii_alphabetic());
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./@+".contains(&byte);
    starts && string.bytes().all(allowed) && !NOT_PLAIN.iter().any(|word| word.eq_ignore_ascii_case(string))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use shared::terminal::steers;

    #[test]
    fn blocks_lists_and_scalars() {
        let value = json!({
            "node": {
                "nodeId": "nd_0abc", "generation": 2, "banned": false, "note": null,
                "macs": ["00:1a", "eth0"], "none": [], "empty": {},
                "tokens": [{"id": "jt_1", "uses": {"now": 1}}, {"id": "jt_2", "tags": ["a", ["b", 1]]}],
            },
            "createdAt": "2026-01-02T03:04:05.678Z",
        });
        let expected = concat!(
            "node:\n  nodeId: nd_0abc\n  generation: 2\n  banned: false\n  note: null\n",
            "  macs:\n    - \"00:1a\"\n    - eth0\n  none: []\n  empty: {}\n",
            "  tokens:\n    - id: jt_1\n      uses:\n        now: 1\n",
            "    - id: jt_2\n      tags:\n        - a\n        - [\"b\",1]\n",
            "createdAt: \"2026-01-02T03:04:05.678Z\"\n",
        );
        assert_eq!(to_yaml(&value), expected);
        assert_eq!(to_yaml(&json!({})), "{}\n");
        assert_eq!(to_yaml(&json!([{"a": 1, "b": 2}, "x"])), "- a: 1\n  b: 2\n- x\n");
    }

    #[test]
    fn what_could_be_something_else_is_quoted() {
        for text in [
            "",
            " a",
            "a ",
            "true",
            "No",
            "y",
            "NULL",
            "~",
            "1",
            "1.5",
            "0x1f",
            "-",
            "- a",
            "a: b",
            "a #b",
            "#a",
            "'a'",
            "\"a\"",
            "a\nb",
            "\ttab",
            ".inf",
            "2026-01-02",
            "12:30:45",
            "é",
            "&a",
            "*a",
            "!a",
            "|",
            ">",
            "%a",
            "@a",
            "`a",
            "{a}",
            "[a]",
            "a,b",
            "?",
            "=",
            "<<",
        ] {
            let written = to_yaml(&json!({"k": text}));
            let quoted = written.strip_prefix("k: ").unwrap().trim_end();
            assert_eq!(serde_json::from_str::<String>(quoted).unwrap(), text, "{written}");
        }
        for text in ["a", "default", "nd_0abc", "compute:pools"] {
            let quoted = text.contains(':');
            assert_eq!(
                to_yaml(&json!(text)),
                if quoted { format!("\"{text}\"\n") } else { format!("{text}\n") }
            );
        }
    }

    #[test]
    fn nothing_steers_a_terminal() {
        let bad = "\u{1b}[31m\u{9b}2J\u{7f}\u{202e}x\u{2028}\u{feff}\u{0}";
        let written = to_yaml(&json!({bad: [bad, {"a": bad}, [bad]]}));
        assert!(!written.chars().any(|c| steers(c) && c != '\n'), "{written:?}");
    }
}
