//! The known words that a wrong one may stand for: so that a refusal names a few of many. Pure. It repeats nothing of
//! what was said.

/// How many are named.
const MOST: usize = 3;

/// The known words that share most with what was said, the nearest first; none, where none shares a part with it.
#[must_use]
pub fn nearest<'a>(said: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let said: Vec<String> = parts(said).take(16).collect();
    let mut found: Vec<(usize, &str)> = known
        .into_iter()
        .map(|word| (parts(word).filter(|part| said.contains(part)).count(), word))
        .filter(|(shared, _)| *shared > 0)
        .collect();
    // Stable: of those that share as much, in the order of the table.
    found.sort_by_key(|(shared, _)| std::cmp::Reverse(*shared));
    found.into_iter().take(MOST).map(|(_, word)| word).collect()
}

/// `compute:join-tokens:create` is compute, join, token, create; so is `compute.joinToken.create`.
fn parts(word: &str) -> impl Iterator<Item = String> {
    let mut apart = String::new();
    for letter in word.chars().take(128) {
        if letter.is_ascii_uppercase() {
            apart.push(' ');
        }
        apart.push(letter.to_ascii_lowercase());
    }
    let parts: Vec<String> = apart
        .split(|letter: char| !letter.is_ascii_alphanumeric())
        .filter(|part| !part.is_empty())
        .map(|part| part.strip_suffix('s').unwrap_or(part).to_owned())
        .collect();
    parts.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_word_has_its_neighbours_and_a_foreign_one_has_none() {
        let known = || {
            ["compute:pools:read", "compute:join-tokens:read", "compute:join-tokens:create", "iam:self:read"]
        };
        for said in ["compute:join-token:create", "compute.joinTokens.create", "join-tokens:create"] {
            assert_eq!(nearest(said, known())[0], "compute:join-tokens:create", "{said}");
        }
        assert_eq!(nearest("compute:join-token:create", known()).len(), MOST, "not the foreign one");
        for said in ["", "::", "frobnicate", &"é".repeat(1000)] {
            assert!(nearest(said, known()).is_empty(), "{said}");
        }
    }
}
