//! Each behaviour that the design names for tenants, tokens, logins and tasks has a test that says so, by its number.

use crate::tree::Tree;
use std::collections::BTreeSet;

/// How many there are.
const BEHAVIOURS: u32 = 103;

/// How a test's comment begins that says which it shows.
const MARKS: [&str; 2] = ["/// Behaviour ", "/// Behaviours "];

/// Those that no test names, and those that there are not.
pub(crate) fn behaviours(tree: &Tree) -> Vec<String> {
    let mut shown = BTreeSet::new();
    let mut findings = Vec::new();
    for file in tree.rust() {
        for line in file.text.lines().map(str::trim_start) {
            let Some(said) = MARKS.iter().find_map(|mark| line.strip_prefix(mark)) else { continue };
            for number in numbers(said) {
                if !(1..=BEHAVIOURS).contains(&number) {
                    findings.push(format!("{}: there is no behaviour {number}", file.path));
                }
                shown.insert(number);
            }
        }
    }
    let missing = (1..=BEHAVIOURS).filter(|number| !shown.contains(number));
    findings.extend(missing.map(|number| format!("no test says `/// Behaviour {number}`")));
    findings
}

/// The numbers at the beginning: `1`, `1, 2`, `1 and 2`.
fn numbers(said: &str) -> Vec<u32> {
    let list = said.split(['.', ':', ';']).next().unwrap_or_default().replace(" and ", ", ");
    let number = |word: &str| word.split(' ').next()?.trim_end_matches(',').parse().ok();
    list.split(", ").map_while(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_test_names_is_found() {
        let all: Vec<String> = (1..=BEHAVIOURS).map(|number| number.to_string()).collect();
        let (some, last) = all.split_at(all.len() - 2);
        let whole =
            format!("/// Behaviours {}.\n    /// Behaviours {}: both.", some.join(", "), last.join(" and "));
        assert_eq!(behaviours(&Tree::sample(&[("relay/src/x.rs", &whole)])), Vec::<String>::new());
        let without = whole.replace(" 2,", "").replace("103", "104");
        let found = behaviours(&Tree::sample(&[("relay/src/x.rs", &without)]));
        assert_eq!(found.len(), 3, "{found:?}");
    }

    #[test]
    fn a_list_ends_where_words_begin() {
        assert_eq!(numbers("11 and 13 with a provider"), [11, 13]);
        assert_eq!(numbers("60 and 97, and the end of a login."), [60, 97]);
        assert_eq!(numbers("101: as a power command is."), [101]);
    }
}
