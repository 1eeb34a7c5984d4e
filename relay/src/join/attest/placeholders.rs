//! The attestor of identifiers: vendors' defaults, and machines that say nothing of themselves.

use super::Verdict;
use shared::{
    api::{join_requests::DeferReason, pools::PlaceholderPolicy},
    hardware::{Claim, Machine},
};

/// Defers a machine whose product UUID or serial is a placeholder, or that has neither of them and no proven endorsement
/// key. Where the policy is `allowUnique`, one usable identifier is enough.
#[must_use]
pub fn judge(policy: PlaceholderPolicy, machine: &Machine, proven_ek: bool) -> Verdict {
    let claims = [&machine.product_uuid, &machine.serial];
    let usable = proven_ek || claims.iter().any(|claim| claim.usable().is_some());
    let placeholder = claims.iter().any(|claim| matches!(claim, Claim::Placeholder(_)));
    let good = usable && (!placeholder || policy == PlaceholderPolicy::AllowUnique);
    if good { Verdict::Admit } else { Verdict::defer(DeferReason::PlaceholderIdentifiers) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use PlaceholderPolicy::{AllowUnique, Defer};

    #[test]
    fn one_usable_identifier_is_enough_unless_a_placeholder_stands_beside_it() {
        let (good, bad, none) = (Claim::Usable("x".into()), Claim::Placeholder("None".into()), Claim::Absent);
        for (uuid, serial, ek, defer, allow_unique) in [
            (&good, &good, false, true, true),
            (&good, &none, false, true, true),
            (&none, &good, false, true, true),
            (&good, &bad, false, false, true),
            (&bad, &good, false, false, true),
            (&bad, &bad, false, false, false),
            (&bad, &none, false, false, false),
            (&none, &none, false, false, false),
            (&none, &none, true, true, true),
            (&bad, &none, true, false, true),
            (&bad, &bad, true, false, true),
            (&good, &bad, true, false, true),
        ] {
            let machine =
                Machine { product_uuid: uuid.clone(), serial: serial.clone(), ..Machine::default() };
            for (policy, admits) in [(Defer, defer), (AllowUnique, allow_unique)] {
                let verdict = judge(policy, &machine, ek);
                assert_eq!(verdict == Verdict::Admit, admits, "{policy:?} {uuid:?} {serial:?} {ek}");
            }
        }
    }
}
