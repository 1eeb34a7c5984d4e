//! Text from outside on its way to a terminal or a journal: what a relay answers, what a machine claims to be, what
//! a certificate names. Nothing of it may steer a terminal instead of being shown, or be read in another order than it
//! is written. Everything that bcd and relay print goes through here.

use std::fmt::Write as _;

/// A text on one line.
#[must_use]
pub fn shown(text: &str) -> String {
    text.chars().map(|c| if steers(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// A text on one line, of at most that many characters: what is longer ends with an ellipsis.
#[must_use]
pub fn shown_within(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => shown(text),
        Some((end, _)) => shown(text.get(..end).unwrap_or_default()) + "…",
    }
}

/// A text on the lines that it has.
#[must_use]
pub fn shown_lines(text: &str) -> String {
    text.chars().map(|c| if steers(c) && c != '\n' { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// JSON text that says the same, with `\u` escapes for what steers a terminal or what YAML does not print. Outside of
/// strings JSON has only ASCII, so what is replaced always stands in one.
#[must_use]
pub fn harmless_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if steers(c) && c != '\n' {
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out
}

/// Whether the character does something to a terminal instead of being shown: controls, direction marks, separators.
#[must_use]
pub fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{61c}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{fffe}'
            | '\u{ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    const BAD: &str = "\u{1b}[31m\u{9b}2J\u{7f}\u{202e}x\u{2066}\u{61c}\u{2028}\u{feff}\u{0}é";

    #[test]
    fn harmless_json_says_the_same() {
        let written = harmless_json(&serde_json::json!(BAD).to_string());
        assert!(!written.chars().any(steers), "{written:?}");
        assert_eq!(serde_json::from_str::<String>(&written).unwrap(), BAD);
    }

    #[test]
    fn what_is_too_long_is_cut_between_characters() {
        for (text, most, expected) in
            [("aé\u{1b}", 3, "aé\u{fffd}"), ("aéb", 2, "aé…"), ("", 0, ""), ("a", 0, "…")]
        {
            assert_eq!(shown_within(text, most), expected, "{text} {most}");
        }
    }

    #[test]
    fn nothing_that_is_shown_steers() {
        assert!(!shown(BAD).chars().any(steers) && shown(BAD).ends_with('é'));
        assert_eq!(shown("a\u{1b}[2Jé\nb"), "a\u{fffd}[2Jé\u{fffd}b");
        assert_eq!(shown_lines("a\r\nb\u{202e}"), "a\u{fffd}\nb\u{fffd}");
    }
}
