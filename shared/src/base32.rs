//! Crockford's base32 in lower case (0-9, a-z without i, l, o, u): the alphabet of ids and secrets.
//!
//! Only the canonical form parses: upper case, look-alikes and stray bits in the last character are
//! refused, so that one value has exactly one spelling.

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// The characters that `bytes` bytes take: 16 bytes are 26 characters, 32 bytes are 52.
#[must_use]
pub const fn encoded_len(bytes: usize) -> usize {
    (bytes * 8).div_ceil(5)
}

/// Writes `bytes` in base32, the most significant bit first, padded with zero bits at the end.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(encoded_len(bytes.len()));
    let (mut window, mut bits) = (0u32, 0u32);
    for byte in bytes {
        window = (window << 8) | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            text.push(letter(window >> bits));
        }
        window &= (1 << bits) - 1;
    }
    if bits > 0 {
        text.push(letter(window << (5 - bits)));
    }
    text
}

/// Writes a number in 26 characters, right-aligned as a ULID is (the first character holds three bits).
#[must_use]
pub fn encode_u128(value: u128) -> String {
    (0..26).rev().map(|place| letter(u32::try_from((value >> (5 * place)) & 31).unwrap_or(0))).collect()
}

/// Reads exactly `N` bytes; `None` if the text is not the one canonical spelling of `N` bytes.
#[must_use]
pub fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != encoded_len(N) {
        return None;
    }
    let mut bytes = [0u8; N];
    let mut out = bytes.iter_mut();
    let (mut window, mut bits) = (0u32, 0u32);
    for character in text.bytes() {
        let value = ALPHABET.iter().position(|letter| *letter == character)?;
        window = (window << 5) | u32::try_from(value).ok()?;
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            *out.next()? = u8::try_from(window >> bits).ok()?;
            window &= (1 << bits) - 1;
        }
    }
    (window == 0).then_some(bytes)
}

/// Reads a number as [`encode_u128`] writes it, of at most 12 characters; `None` if one is not of the alphabet.
#[must_use]
pub fn decode_number(text: &str) -> Option<u64> {
    if text.len() > 12 {
        return None;
    }
    text.bytes().try_fold(0u64, |sum, character| {
        let value = ALPHABET.iter().position(|letter| *letter == character)?;
        Some((sum << 5) | u64::try_from(value).ok()?)
    })
}

/// Whether every character belongs to the alphabet.
#[must_use]
pub fn is_base32(text: &str) -> bool {
    text.bytes().all(|character| ALPHABET.contains(&character))
}

fn letter(value: u32) -> char {
    ALPHABET.get((value & 31) as usize).copied().map_or('0', char::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_comes_back() {
        assert_eq!(encode(&[0xff; 5]), "zzzzzzzz");
        assert_eq!(encode(&[0; 16]), "0".repeat(26));
        for seed in 0..=255u8 {
            let bytes: [u8; 32] =
                std::array::from_fn(|i| seed.wrapping_mul(31).wrapping_add(u8::try_from(i).unwrap() * 7));
            let text = encode(&bytes);
            assert_eq!(text.len(), 52);
            assert!(is_base32(&text));
            assert_eq!(decode::<32>(&text), Some(bytes));
        }
    }

    #[test]
    fn only_the_canonical_spelling_parses() {
        let text = encode(&[7; 32]);
        assert_eq!(decode::<32>(&text.to_uppercase()), None);
        assert_eq!(decode::<32>(&format!("{text}0")), None);
        assert_eq!(decode::<32>(&text[..51]), None);
        // 52 characters hold 260 bits: the last four must be zero.
        let stray = format!("{}{}", &text[..51], 'z');
        assert_eq!(decode::<32>(&stray), None);
        assert_eq!(decode::<32>(&"é".repeat(26)), None);
    }
}
