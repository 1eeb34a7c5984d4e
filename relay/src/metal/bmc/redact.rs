//! Keeps a BMC's password out of what the BMC says: some put it into what they answer. Pure.

use shared::secret::Secret;

/// The shortest password that is looked for within a text, in bytes: a shorter one is in many, and is looked for as the whole.
const MIN_WITHIN_BYTES: usize = 4;

/// Knows a password, as it is and as JSON writes it.
#[derive(Clone)]
pub(super) struct Redact {
    password: Secret,
    escaped: Secret,
}

impl Redact {
    pub(super) fn new(password: Secret) -> Self {
        let quoted = Secret::new(serde_json::Value::from(password.expose()).to_string());
        let inner = quoted.expose().get(1..quoted.expose().len().saturating_sub(1)).unwrap_or_default();
        Self { escaped: Secret::new(inner.to_owned()), password }
    }

    /// Whether the password is in a text, in any case of its letters.
    pub(super) fn is_in(&self, text: &str) -> bool {
        let lower = Secret::new(text.to_lowercase());
        [&self.password, &self.escaped].into_iter().any(|form| {
            let form = Secret::new(form.expose().to_lowercase());
            match form.expose() {
                "" => false,
                short if short.len() < MIN_WITHIN_BYTES => lower.expose() == short,
                long => lower.expose().contains(long),
            }
        })
    }

    /// A text that does not have the password in it.
    pub(super) fn text(&self, text: Option<String>) -> Option<String> {
        text.filter(|text| !self.is_in(text))
    }

    /// The texts that do not have the password in them.
    pub(super) fn texts(&self, texts: Vec<String>) -> Vec<String> {
        texts.into_iter().filter(|text| !self.is_in(text)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_found_in_each_form() {
        let redact = |password: &str| Redact::new(Secret::new(password.to_owned()));
        let quoted = redact("ca\"lvin\\17");
        for text in ["it is ca\"lvin\\17.", "{\"a\":\"ca\\\"lvin\\\\17\"}", "CA\"LVIN\\17"] {
            assert!(quoted.is_in(text), "{text}");
        }
        assert!(!quoted.is_in("calvin17"));
        // A short one would make everything unreadable.
        assert!(redact("17").is_in("17") && !redact("17").is_in("Model 17"));
        assert!(!redact("").is_in("") && !redact("").is_in("Model"));
        assert_eq!(redact("hunter2").text(Some("Model hunter2".into())), None);
        assert_eq!(redact("hunter2").texts(vec!["hunter2".into(), "x".into()]), ["x"]);
    }
}
