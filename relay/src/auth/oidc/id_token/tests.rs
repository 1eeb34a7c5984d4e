//! ID tokens of every algorithm, at every edge.

use super::*;
use aws_lc_rs::{
    rsa::{KeyPair, KeySize},
    signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
        EcdsaSigningAlgorithm, KeyPair as _,
    },
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::EncodingKey;
use serde_json::json;

const NOW: i64 = 1_780_000_000;

fn expected() -> Expected<'static> {
    Expected {
        issuer: "https://id.example",
        client_id: "relay",
        nonce: Nonce::Always("n"),
        begun_at: Timestamp::from_seconds(NOW - 30),
        now: Timestamp::from_seconds(NOW),
        key: LoginKey::Sub,
    }
}

fn claims(more: &Value) -> Value {
    let mut claims = json!({
        "iss": "https://id.example", "sub": "alice", "aud": "relay", "iat": NOW, "exp": NOW + 300, "nonce": "n",
    });
    claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    claims
}

fn curve(algorithm: &'static EcdsaSigningAlgorithm, name: &str, kid: &str) -> (EncodingKey, Value) {
    let pair = EcdsaKeyPair::generate(algorithm).unwrap();
    let (document, point) = (pair.to_pkcs8v1().unwrap(), pair.public_key().as_ref().to_vec());
    let (x, y) = point[1..].split_at(point.len() / 2);
    let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
    let jwk = json!({"kty": "EC", "crv": name, "kid": kid, "x": x, "y": y});
    (EncodingKey::from_ec_der(document.as_ref()), jwk)
}

fn rsa(kid: &str) -> (EncodingKey, Value) {
    use aws_lc_rs::encoding::{AsDer as _, Pkcs8V1Der};
    let pair = KeyPair::generate(KeySize::Rsa2048).unwrap();
    let document: Pkcs8V1Der<'_> = pair.as_der().unwrap();
    let number = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let public = pair.public_key();
    let (n, e) = (public.modulus(), public.exponent());
    let jwk = json!({
        "kty": "RSA", "use": "sig", "kid": kid,
        "n": number(n.big_endian_without_leading_zero()), "e": number(e.big_endian_without_leading_zero()),
    });
    // Within PKCS#8 the key is PKCS#1, which the library wants: behind a header of 26 bytes, at this size.
    let inner = document.as_ref().get(26..).unwrap();
    (EncodingKey::from_rsa_der(inner), jwk)
}

fn sign(algorithm: Algorithm, kid: Option<&str>, key: &EncodingKey, claims: &Value) -> String {
    let header = Header { kid: kid.map(str::to_owned), ..Header::new(algorithm) };
    jsonwebtoken::encode(&header, claims, key).unwrap()
}

fn keys(jwks: &[Value]) -> Keys {
    Keys::parse(json!({"keys": jwks}).to_string().as_bytes()).unwrap()
}

#[test]
fn every_algorithm_of_the_list_counts_with_a_key_of_its_kind_and_no_other() {
    let (r, r_jwk) = rsa("r");
    let (p256, p256_jwk) = curve(&ECDSA_P256_SHA256_FIXED_SIGNING, "P-256", "p256");
    let (p384, p384_jwk) = curve(&ECDSA_P384_SHA384_FIXED_SIGNING, "P-384", "p384");
    let all = keys(&[r_jwk.clone(), p256_jwk.clone(), p384_jwk]);
    for (algorithm, kid, key) in [
        (Algorithm::RS256, "r", &r),
        (Algorithm::RS384, "r", &r),
        (Algorithm::RS512, "r", &r),
        (Algorithm::PS256, "r", &r),
        (Algorithm::ES256, "p256", &p256),
        (Algorithm::ES384, "p384", &p384),
    ] {
        let token = sign(algorithm, Some(kid), key, &claims(&json!({})));
        assert_eq!(judge(&token, &all, &expected()).unwrap().subject, "alice", "{algorithm:?}");
        // Its key under another's id.
        let other = if kid == "r" { "p256" } else { "r" };
        let token = sign(algorithm, Some(other), key, &claims(&json!({})));
        assert_eq!(judge(&token, &all, &expected()), Err(IdTokenError::UnknownKey), "{algorithm:?}");
    }
    for algorithm in [Algorithm::PS384, Algorithm::PS512] {
        let token = sign(algorithm, Some("r"), &r, &claims(&json!({})));
        assert_eq!(judge(&token, &all, &expected()), Err(IdTokenError::Algorithm));
    }
    // A token without a key's id needs that one key alone fits; a key for another use or algorithm does not.
    let token = sign(Algorithm::ES256, None, &p256, &claims(&json!({})));
    assert!(judge(&token, &all, &expected()).is_ok());
    let twin = curve(&ECDSA_P256_SHA256_FIXED_SIGNING, "P-256", "twin").1;
    assert_eq!(judge(&token, &keys(&[p256_jwk.clone(), twin]), &expected()), Err(IdTokenError::UnknownKey));
    for (member, value) in [("use", "enc"), ("alg", "ES384")] {
        let mut jwk = p256_jwk.clone();
        jwk[member] = value.into();
        assert_eq!(judge(&token, &keys(&[jwk]), &expected()), Err(IdTokenError::UnknownKey), "{member}");
    }
}

#[test]
fn times_hold_at_their_edges() {
    let (key, jwk) = curve(&ECDSA_P256_SHA256_FIXED_SIGNING, "P-256", "k");
    let all = keys(&[jwk]);
    let judged = |more: &Value| {
        let token = sign(Algorithm::ES256, Some("k"), &key, &claims(more));
        judge(&token, &all, &expected()).map(|_| ())
    };
    for (more, outcome) in [
        (json!({"exp": NOW - 59}), Ok(())),
        (json!({"exp": NOW - 60}), Err(IdTokenError::Expired)),
        (json!({"iat": NOW + 60}), Ok(())),
        (json!({"iat": NOW + 61}), Err(IdTokenError::IssuedAt)),
        (json!({"iat": NOW - 90}), Ok(())),
        (json!({"iat": NOW - 91}), Err(IdTokenError::IssuedAt)),
        (json!({"nbf": NOW + 61}), Err(IdTokenError::IssuedAt)),
        (json!({"iat": 0.5 + 1_780_000_000.0}), Ok(())),
        (json!({"aud": ["relay"]}), Ok(())),
        (json!({"aud": ["other", "relay"], "azp": "relay"}), Ok(())),
        (json!({"aud": ["other"], "azp": "relay"}), Err(IdTokenError::Audience)),
        (json!({"aud": []}), Err(IdTokenError::Audience)),
        (json!({"iss": "https://id.example/"}), Err(IdTokenError::Issuer)),
        (json!({"sub": "a\nb"}), Err(IdTokenError::Subject)),
        (json!({"exp": "soon"}), Err(IdTokenError::Malformed)),
        (json!({"aud": 7}), Err(IdTokenError::Malformed)),
    ] {
        assert_eq!(judged(&more), outcome, "{more}");
    }
}

#[test]
fn a_name_is_the_one_that_the_person_prefers_where_it_can_be_shown() {
    let (key, jwk) = curve(&ECDSA_P256_SHA256_FIXED_SIGNING, "P-256", "k");
    let all = keys(&[jwk]);
    for (name, shown) in [
        (json!("Alice A."), "Alice A."),
        (json!("x\ny"), "alice"),
        (json!(""), "alice"),
        (json!(7), "alice"),
        (Value::Null, "alice"),
    ] {
        let token = sign(Algorithm::ES256, Some("k"), &key, &claims(&json!({"preferred_username": name})));
        assert_eq!(judge(&token, &all, &expected()).unwrap().display_name, shown, "{name}");
    }
}

#[test]
fn a_token_of_the_direct_way_may_leave_the_nonce_out_and_names_no_other() {
    let (key, jwk) = curve(&ECDSA_P256_SHA256_FIXED_SIGNING, "P-256", "k");
    let keys = keys(&[jwk]);
    let with = |nonce: Value| sign(Algorithm::ES256, Some("k"), &key, &claims(&json!({"nonce": nonce})));
    let direct = Expected { nonce: Nonce::IfNamed("n"), ..expected() };
    for (nonce, always, if_named) in [
        (json!("n"), true, true),
        (Value::Null, false, true),
        (json!(""), false, false),
        (json!("m"), false, false),
    ] {
        let token = with(nonce.clone());
        assert_eq!(judge(&token, &keys, &expected()).is_ok(), always, "{nonce}");
        assert_eq!(judge(&token, &keys, &direct).is_ok(), if_named, "{nonce}");
    }
}
