//! A small scanner of Rust source: enough to tell code from comments and literals, and to read paths.
//! It is no parser; what it cannot read it leaves out, it never guesses.

/// The source with comments and the insides of literals blanked; lines and byte positions stay.
pub(crate) fn code(text: &str) -> String {
    blank(text, true)
}

/// The source with only its comments blanked.
pub(crate) fn without_comments(text: &str) -> String {
    blank(text, false)
}

/// What is built into the product: up to the inline test module. `text` is [`code`] or begins like it.
pub(crate) fn production(code: &str) -> &str {
    let mut from = 0;
    while let Some(found) = code.get(from..).and_then(|rest| rest.find("#[cfg(test)]")) {
        let at = from + found;
        let after = code.get(at + "#[cfg(test)]".len()..).unwrap_or_default().trim_start();
        let head = after.split(['{', ';']).next().unwrap_or_default();
        if head.starts_with("mod ") && after.get(head.len()..).is_some_and(|rest| rest.starts_with('{')) {
            return code.get(..at).unwrap_or_default();
        }
        from = at + 1;
    }
    code
}

fn blank(text: &str, literals: bool) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    while let Some(rest) = bytes.get(out.len()..).filter(|rest| !rest.is_empty()) {
        let before = out.last().copied().unwrap_or(b' ');
        let (length, kind) = token(rest, is_word(before));
        for (index, byte) in rest.iter().take(length).enumerate() {
            let edge = index == 0 || index + 1 == length;
            let keep = match kind {
                Kind::Code => true,
                Kind::Comment => false,
                Kind::Literal => !literals || edge,
            };
            out.push(if keep || *byte == b'\n' { *byte } else { b' ' });
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[derive(Clone, Copy)]
enum Kind {
    Code,
    Comment,
    Literal,
}

/// The length of what begins here. `in_word`: the byte before belongs to a name, so no literal prefix begins.
fn token(rest: &[u8], in_word: bool) -> (usize, Kind) {
    if rest.starts_with(b"//") {
        return (find(rest, b"\n").unwrap_or(rest.len()), Kind::Comment);
    }
    if rest.starts_with(b"/*") {
        return (block_comment(rest), Kind::Comment);
    }
    if let Some(length) = raw_string(rest).filter(|_| !in_word) {
        return (length, Kind::Literal);
    }
    match rest.first() {
        Some(b'"') => (quoted(rest, b'"'), Kind::Literal),
        Some(b'\'') if is_character(rest) => (quoted(rest, b'\''), Kind::Literal),
        _ => (1, Kind::Code),
    }
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(tail) = rest.get(at..).filter(|tail| !tail.is_empty()) {
        if tail.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if tail.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// `r"…"`, `r#"…"#`, `br"…"`, `cr"…"`.
fn raw_string(rest: &[u8]) -> Option<usize> {
    let prefix = usize::from(matches!(rest.first(), Some(b'b' | b'c')));
    let tail = rest.get(prefix..)?.strip_prefix(b"r")?;
    let hashes = tail.iter().take_while(|byte| **byte == b'#').count();
    let body = tail.get(hashes..)?.strip_prefix(b"\"")?;
    let mut close = vec![b'"'];
    close.resize(1 + hashes, b'#');
    let opened = prefix + 1 + hashes + 1;
    Some(find(body, &close).map_or(rest.len(), |end| opened + end + close.len()))
}

fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while let Some(byte) = rest.get(at) {
        match byte {
            b'\\' => at += 2,
            byte if *byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// A character literal, not a lifetime.
fn is_character(rest: &[u8]) -> bool {
    match rest.get(1) {
        Some(b'\\') => true,
        Some(byte) if byte.is_ascii() => rest.get(2) == Some(&b'\''),
        Some(_) => true,
        None => false,
    }
}

fn find(hay: &[u8], needle: &[u8]) -> Option<usize> {
    hay.windows(needle.len()).position(|window| window == needle)
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Every path that begins with this word (`crate`, `super`, `relay`), groups taken apart:
/// `use crate::a::{b, c::d};` gives `a::b` and `a::c::d`.
pub(crate) fn paths(code: &str, word: &str) -> Vec<String> {
    let mut found = Vec::new();
    for at in words(code, word) {
        let rest = code.get(at + word.len()..).unwrap_or_default();
        if let Some(rest) = rest.strip_prefix("::") {
            path_tree(rest, "", &mut found);
        }
    }
    found
}

/// Where the word stands as a whole name that begins a path.
pub(crate) fn words(code: &str, word: &str) -> Vec<usize> {
    let begins = |at: usize| {
        let before = code.get(..at).unwrap_or_default();
        !before.ends_with("::") && !before.ends_with('$') && !before.bytes().last().is_some_and(is_word)
    };
    let ends = |at: usize| !code.as_bytes().get(at + word.len()).copied().is_some_and(is_word);
    code.match_indices(word).map(|(at, _)| at).filter(|at| begins(*at) && ends(*at)).collect()
}

/// Reads one path or group after a `::`; answers what follows it.
fn path_tree<'a>(text: &'a str, prefix: &str, found: &mut Vec<String>) -> &'a str {
    let mut text = text.trim_start();
    if let Some(group) = text.strip_prefix('{') {
        text = group.trim_start();
        while !text.is_empty() && !text.starts_with('}') {
            let before = text.len();
            text = path_tree(text, prefix, found).trim_start();
            text = text.strip_prefix(',').unwrap_or(text).trim_start();
            if text.len() == before {
                return text;
            }
        }
        return text.strip_prefix('}').unwrap_or(text);
    }
    let length = text.bytes().take_while(|byte| is_word(*byte) || *byte == b'*').count();
    let (name, rest) = text.split_at(length);
    let path = match (prefix, name) {
        (prefix, "self" | "*" | "") => prefix.to_owned(),
        ("", name) => name.to_owned(),
        (prefix, name) => format!("{prefix}::{name}"),
    };
    match rest.strip_prefix("::") {
        Some(rest) => path_tree(rest, &path, found),
        None => {
            found.push(path);
            rest.trim_start().strip_prefix("as ").map_or(rest, |alias| {
                alias.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_')
            })
        }
    }
}

#[test]
fn comments_and_literals_are_no_code() {
    let text = "a // b\n/* c /* d */ e */ f \"g\\\"h\" r#\"i\"j\"# 'k' '\\'' &'l m b\"n\" // ü\nfor\"o\"";
    let seen = code(text);
    assert_eq!(seen.len(), text.len());
    for kept in ["a ", " f ", "&'l m b\"", "for\""] {
        assert!(seen.contains(kept), "{kept} in {seen}");
    }
    for gone in ['c', 'd', 'e', 'g', 'h', 'i', 'j', 'k', 'n'] {
        assert!(!seen.contains(gone), "{gone} in {seen}");
    }
    assert!(without_comments(text).contains("g\\\"h") && !without_comments(text).contains('d'));
}

#[test]
fn groups_are_taken_apart() {
    let text = "use crate::{a::{self, b}, c as d, e::*}; fn x() { crate::f::G::new(); $crate::no::no; my_crate::no() }";
    assert_eq!(paths(text, "crate"), ["a", "a::b", "c", "e", "f::G::new"]);
}

#[test]
fn only_an_inline_test_module_ends_the_product() {
    assert_eq!(production("a\n#[cfg(test)]\nmod tests;\nb"), "a\n#[cfg(test)]\nmod tests;\nb");
    assert_eq!(production("a\n#[cfg(test)]\nmod tests {\n b }"), "a\n");
}
