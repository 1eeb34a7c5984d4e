//! The attestor of join tokens: whether the machine is the one that its token is pinned to.

use super::{Verdict, endorsement};
use shared::{
    api::join_tokens::Expect,
    hardware::{Machine, canonical_gpu_uuid, canonical_mac, canonical_uuid},
    problem::{FieldError, Problem, Reason},
};

/// Judges whether the machine is the one that the token is pinned to: every member must match. Refuses with
/// `identityMismatch`, with expected and seen of each member that does not, or `tpmRequired` where an endorsement key is
/// pinned and none was proved.
#[must_use]
pub fn judge(expect: Option<&Expect>, machine: &Machine, proven_ek: Option<&str>) -> Verdict {
    expect.map_or(Ok(()), |expect| matches(expect, machine, proven_ek)).into()
}

fn matches(expect: &Expect, machine: &Machine, proven_ek: Option<&str>) -> Result<(), Problem> {
    let errors: Vec<FieldError> = [
        expect.product_uuid.as_ref().and_then(|pin| product_uuid(pin.as_str(), expect, machine)),
        expect.serial.as_ref().and_then(|pin| {
            let seen = machine.serial.usable();
            mismatch("expect.serial", pin.as_str(), seen, seen == Some(pin.as_str()))
        }),
        expect
            .mac
            .as_ref()
            .and_then(|pin| any_of("expect.mac", pin.as_str(), canonical_mac(pin.as_str()), &machine.macs)),
        expect.gpu_uuid.as_ref().and_then(|pin| {
            any_of("expect.gpuUuid", pin.as_str(), canonical_gpu_uuid(pin.as_str()), &machine.gpu_uuids)
        }),
        proven_ek.zip(expect.ek_sha256.as_ref()).and_then(|(seen, pin)| {
            mismatch("expect.ekSha256", pin.as_str(), Some(seen), seen == pin.as_str())
        }),
    ]
    .into_iter()
    .flatten()
    .collect();
    if !errors.is_empty() {
        let detail = "The machine is not the one that the token is pinned to; mint a token for what is seen, or use this one on the right machine.";
        return Err(Problem::refused(Reason::IdentityMismatch, detail).with_errors(errors));
    }
    if expect.ek_sha256.is_some() && proven_ek.is_none() {
        return Err(endorsement::required("The token, which is pinned to an endorsement key,"));
    }
    Ok(())
}

/// A UUID in the other byte order (SMBIOS before 2.6, many BMCs) is the pinned one where another identifier is pinned too,
/// which is judged by itself.
fn product_uuid(pin: &str, expect: &Expect, machine: &Machine) -> Option<FieldError> {
    let seen = machine.product_uuid.usable();
    let wanted = canonical_uuid(pin);
    let swapped = wanted.as_deref().is_some_and(|wanted| machine.product_uuid.is_swapped(wanted));
    let second = expect.serial.is_some()
        || expect.mac.is_some()
        || expect.gpu_uuid.is_some()
        || expect.ek_sha256.is_some();
    let matches = seen.is_some() && wanted.as_deref() == seen || swapped && second;
    let mut error = mismatch("expect.productUuid", pin, seen, matches)?;
    if swapped {
        error.message.push_str(
            ", the same UUID in the other byte order: pin it as seen, or pin the serial number beside it",
        );
    }
    Some(error)
}

fn mismatch(field: &str, expected: &str, seen: Option<&str>, matches: bool) -> Option<FieldError> {
    let seen = seen.unwrap_or("no value that tells machines apart");
    (!matches)
        .then(|| FieldError { field: field.to_owned(), message: format!("expected {expected}, seen {seen}") })
}

fn any_of(field: &str, expected: &str, wanted: Option<String>, seen: &[String]) -> Option<FieldError> {
    let matches = wanted.is_some_and(|wanted| seen.contains(&wanted));
    let shown = (!seen.is_empty()).then(|| seen.join(", "));
    mismatch(field, expected, shown.as_deref(), matches)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::hardware::Identity;

    fn machine() -> Machine {
        Machine::judge(&Identity {
            product_uuid: Some("00112233-4455-6677-8899-AABBCCDDEEFF".into()),
            serial: Some("SN-1".into()),
            macs: vec!["00:1a:2b:3c:4d:5e".into()],
            gpu_uuids: vec!["GPU-00112233-4455-6677-8899-aabbccddeeff".into()],
            ..Identity::default()
        })
    }

    fn judged(expect: &str, machine: &Machine) -> Result<(), Vec<String>> {
        let expect: Expect = serde_json::from_str(expect).unwrap();
        matches(&expect, machine, None)
            .map_err(|problem| problem.errors.into_iter().map(|error| error.field).collect())
    }

    #[test]
    fn values_fold_where_the_field_is_case_less() {
        for expect in [
            r#"{"productUuid":"00112233445566778899aabbccddeeff"}"#,
            r#"{"productUuid":"00112233-4455-6677-8899-AABBCCDDEEFF"}"#,
            r#"{"mac":"00:1A:2B:3C:4D:5E"}"#,
            r#"{"gpuUuid":"GPU-00112233445566778899AABBCCDDEEFF","serial":"SN-1"}"#,
        ] {
            assert_eq!(judged(expect, &machine()), Ok(()), "{expect}");
        }
        assert_eq!(judged(r#"{"serial":"sn-1"}"#, &machine()), Err(vec!["expect.serial".to_owned()]));
    }

    #[test]
    fn every_member_must_match_and_each_that_does_not_is_named_with_both_values() {
        let expect = r#"{"productUuid":"ffffeeee-4455-6677-8899-aabbccddeeff","serial":"SN-1","mac":"00:00:00:00:00:01"}"#;
        assert_eq!(
            judged(expect, &machine()),
            Err(vec!["expect.productUuid".to_owned(), "expect.mac".to_owned()])
        );
        let expect: Expect = serde_json::from_str(r#"{"serial":"SN-2"}"#).unwrap();
        assert_eq!(
            matches(&expect, &machine(), None).unwrap_err().errors[0].message,
            "expected SN-2, seen SN-1"
        );
    }

    #[test]
    fn a_pin_on_an_absent_value_does_not_match() {
        let nothing = Machine::judge(&Identity::default());
        for member in [
            r#"{"productUuid":"00112233"}"#,
            r#"{"serial":"x"}"#,
            r#"{"mac":"00:1a:2b:3c:4d:5e"}"#,
            r#"{"gpuUuid":"GPU-00112233"}"#,
        ] {
            assert!(judged(member, &nothing).is_err_and(|fields| fields.len() == 1), "{member}");
        }
    }

    #[test]
    fn the_other_byte_order_is_the_same_machine_with_a_second_identifier() {
        let swapped = r#""productUuid":"33221100-5544-7766-8899-aabbccddeeff""#;
        assert_eq!(judged(&format!("{{{swapped},\"serial\":\"SN-1\"}}"), &machine()), Ok(()));
        let alone: Expect = serde_json::from_str(&format!("{{{swapped}}}")).unwrap();
        let refused = matches(&alone, &machine(), None).unwrap_err();
        assert!(refused.errors[0].message.contains("other byte order"), "{:?}", refused.errors);
        let wrong = judged(&format!("{{{swapped},\"serial\":\"SN-2\"}}"), &machine());
        assert_eq!(wrong, Err(vec!["expect.serial".to_owned()]));
    }

    #[test]
    fn a_pinned_endorsement_key_must_be_proved() {
        let pin = "a".repeat(64);
        let expect: Expect = serde_json::from_str(&format!(r#"{{"ekSha256":"{pin}"}}"#)).unwrap();
        let reason = |proven: Option<&str>| judge(Some(&expect), &machine(), proven).reasons().err();
        assert_eq!(reason(Some(&pin)), None);
        assert_eq!(reason(None).and_then(|problem| problem.reason), Some(Reason::TpmRequired));
        let other = reason(Some(&"b".repeat(64))).unwrap();
        assert_eq!(other.reason, Some(Reason::IdentityMismatch));
        assert_eq!(other.errors[0].field, "expect.ekSha256");
        assert_eq!(judge(None, &machine(), None), Verdict::Admit);
    }
}
