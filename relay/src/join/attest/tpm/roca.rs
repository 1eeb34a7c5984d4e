//! ROCA (CVE-2017-15361): RSA keys of an Infineon library whose private half follows from the public one.
//!
//! Their primes are k·M + (65537^a mod M), M being a product of small primes, so that the modulus is a power of
//! 65537 modulo each of these (Nemec et al., "The Return of Coppersmith's Attack", 2017, section 3). Any other
//! key passes as one by a chance of about 1 in 150 million.

/// Odd primes that divide M whatever the key's size.
const PRIMES: [u32; 38] = [
    3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101, 103,
    107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167,
];

/// Whether a modulus, big-endian, has the fingerprint.
pub(super) fn has_fingerprint(modulus: &[u8]) -> bool {
    PRIMES.iter().all(|prime| is_power_of_65537(remainder(modulus, *prime), *prime))
}

fn remainder(number: &[u8], prime: u32) -> u32 {
    number.iter().fold(0, |rest, byte| (rest * 256 + u32::from(*byte)) % prime)
}

fn is_power_of_65537(number: u32, prime: u32) -> bool {
    let powers = std::iter::successors(Some(1), |power| Some(power * (65537 % prime) % prime));
    // The powers repeat after at most `prime` steps.
    powers.take(prime as usize).any(|power| power == number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{join::attest::tpm::testing::EK_RSA, random::Random};

    /// Made as the library made them: two primes of 1024 bits over the first 126 primes.
    const WEAK: &[u8] = include_bytes!("../../../../testdata/tpm/roca-2048.modulus");

    #[test]
    fn a_weak_modulus_is_found_and_others_are_not() {
        assert!(has_fingerprint(WEAK));
        assert!(!has_fingerprint(&EK_RSA[EK_RSA.len() - 256..]));
        let random = Random::seeded(5);
        for _ in 0..2_000 {
            assert!(!has_fingerprint(&random.bytes::<256>()));
        }
        for at in 0..WEAK.len() {
            let mut other = WEAK.to_vec();
            other[at] ^= 2;
            assert!(!has_fingerprint(&other), "{at}");
        }
    }

    #[test]
    fn remainders_and_powers_are_right() {
        assert_eq!(remainder(&[1, 0, 1], 167), 65537 % 167);
        assert_eq!(remainder(&[], 3), 0);
        // 65537 is 2 modulo 17, and 2⁸ is 1 again.
        let powers: Vec<u32> = (0..17).filter(|number| is_power_of_65537(*number, 17)).collect();
        assert_eq!(powers, [1, 2, 4, 8, 9, 13, 15, 16]);
    }
}
