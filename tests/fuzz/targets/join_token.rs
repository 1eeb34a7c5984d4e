//! The join token as its bearer writes it: only the canonical form parses, and it parses to what was minted.
#![no_main]

use libfuzzer_sys::fuzz_target;
use shared::{
    id::JoinTokenId,
    token::{JoinToken, MAX_LENGTH},
};

fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data) {
        any_text(text);
    }
    if let (Some(id), Some(secret)) =
        (data.first_chunk::<32>(), data.get(32..).and_then(|rest| rest.first_chunk()))
    {
        a_minted_token(id, secret, data.get(64..).unwrap_or_default());
    }
});

/// What parses is the one spelling of what it says.
fn any_text(text: &str) {
    if let Ok(token) = JoinToken::parse(text) {
        assert_eq!(token.bearer().expose(), text);
        assert!(text.len() <= MAX_LENGTH);
    }
}

/// A minted token comes back; with one byte changed it is refused or it is another token.
fn a_minted_token(id: &[u8; 32], secret: &[u8; 32], change: &[u8]) {
    let (token, digest) = JoinToken::mint(JoinTokenId::derive(id), secret);
    let text = token.bearer();
    let parsed = JoinToken::parse(text.expose()).unwrap_or_else(|error| panic!("a minted token {error}"));
    assert!(parsed.id == token.id && digest.matches(&parsed.secret));

    let [at, byte, ..] = change else { return };
    let mut changed = text.expose().as_bytes().to_vec();
    let at = usize::from(*at) % changed.len();
    if changed[at] == *byte {
        return;
    }
    changed[at] = *byte;
    if let Ok(other) =
        std::str::from_utf8(&changed).map_err(drop).and_then(|text| JoinToken::parse(text).map_err(drop))
    {
        assert!(other.id != token.id || !digest.matches(&other.secret));
    }
}
