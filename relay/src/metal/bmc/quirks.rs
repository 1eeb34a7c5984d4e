//! What services of some makers want otherwise than most. Pure.
//!
//! A quirk only says what is tried first, or how much is asked at once: each request has its other forms behind it, so a row that is
//! wrong, or one that is missing, costs an exchange and no machine.

/// What is done otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Quirks {
    /// One exchange, one connection: the service stops answering on those that are kept.
    pub(super) closes: bool,
    /// A boot source is set together with its mode; elsewhere the mode is tried last.
    pub(super) mode_first: bool,
    /// An image is inserted by its URL alone: other parameters are refused.
    pub(super) image_alone: bool,
    /// What a boot source is to be is written to the settings object first.
    pub(super) settings_first: bool,
}

/// What is done where no row says otherwise.
const MOST: Quirks = Quirks { closes: true, mode_first: true, image_alone: false, settings_first: false };

/// By what a service calls itself, in small letters: the first row whose word is in it holds.
const ROWS: &[(&str, Quirks)] = &[
    ("dell", Quirks { closes: false, ..MOST }),
    ("idrac", Quirks { closes: false, ..MOST }),
    // The mode can't be written where it is one of the firmware's own settings.
    ("hpe", Quirks { closes: false, mode_first: false, image_alone: true, ..MOST }),
    ("hewlett", Quirks { closes: false, mode_first: false, image_alone: true, ..MOST }),
    // A mode that is left out is set back to the default.
    ("supermicro", Quirks { image_alone: true, ..MOST }),
    ("lenovo", Quirks { closes: false, ..MOST }),
    ("nvidia", Quirks { closes: false, ..MOST }),
    ("openbmc", Quirks { closes: false, ..MOST }),
    ("ami", Quirks { settings_first: true, ..MOST }),
    ("american megatrends", Quirks { settings_first: true, ..MOST }),
];

impl Quirks {
    /// Of the service that says this of itself: its maker, its product, in the order of how well they are known.
    pub(super) fn of(said: &[Option<&str>]) -> Self {
        let said = said.iter().flatten().map(|word| word.to_ascii_lowercase());
        let found = said.into_iter().find_map(|word| ROWS.iter().find(|(of, _)| names(&word, of)));
        found.map_or(MOST, |(_, quirks)| *quirks)
    }
}

/// Whether a maker's word begins a word of the text.
fn names(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let before = text.get(..at).and_then(|before| before.chars().next_back());
        before.is_none_or(|before| !before.is_ascii_alphanumeric())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_has_the_quirks_of_its_maker() {
        assert_eq!(Quirks::of(&[]), MOST);
        assert_eq!(Quirks::of(&[None, Some("Somebody")]), MOST);
        assert!(!Quirks::of(&[Some("HPE"), Some("ProLiant DL380 Gen11")]).mode_first);
        assert!(!Quirks::of(&[Some("Hewlett Packard Enterprise")]).mode_first);
        assert!(Quirks::of(&[None, Some("AMI Redfish Server")]).settings_first);
        assert!(!Quirks::of(&[Some("Miami")]).settings_first, "only where a word begins so");
        assert!(!Quirks::of(&[None, Some("Integrated iDRAC")]).closes);
    }

    #[test]
    fn each_row_says_something_and_is_reached() {
        for (at, (word, quirks)) in ROWS.iter().enumerate() {
            assert_ne!(*quirks, MOST, "{word}");
            assert_eq!(*word, word.to_ascii_lowercase());
            assert_eq!(ROWS.iter().position(|(other, _)| names(word, other)), Some(at), "{word}");
        }
    }
}
