//! Lower-case hexadecimal: how digests are stored and shown.

use std::fmt::Write as _;

/// Two digits a byte, lower case.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a String can't fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Exactly `N` bytes, from digits of either case; `None` for anything else.
#[must_use]
pub fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != N * 2 {
        return None;
    }
    let mut bytes = [0u8; N];
    for (slot, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *slot = pair.iter().try_fold(0u8, |sum, digit| {
            let value = char::from(*digit).to_digit(16)?;
            Some((sum << 4) | u8::try_from(value).ok()?)
        })?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_and_other_texts_do_not() {
        assert_eq!(encode(&[0, 0xab, 0xff]), "00abff");
        assert_eq!(decode::<3>("00ABff"), Some([0, 0xab, 0xff]));
        for bad in ["", "00abf", "00abff0", "00abfg", "+0abff", "é0abf"] {
            assert_eq!(decode::<3>(bad), None, "{bad:?}");
        }
    }
}
