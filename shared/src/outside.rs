//! Which addresses are outside: on the public Internet, and not the own machine. Pure: of the network these are only the types.
//!
//! What is none is refused whatever form it comes in: an IPv6 address that carries an IPv4 one (mapped, 6to4, NAT64) is judged
//! by that, and of IPv6 only global unicast is outside at all. The tables are those of RFC 6890 and its registries.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

const fn v4(a: u8, b: u8, c: u8, d: u8, bits: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), bits)
}

const fn v6(first: u16, second: u16, third: u16, bits: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(first, second, third, 0, 0, 0, 0, 0), bits)
}

/// Of IPv4: all that is not outside.
const NOT_OUTSIDE_V4: &[Ipv4Net] = &[
    // This network, and nobody's address.
    v4(0, 0, 0, 0, 8),
    // Private (RFC 1918).
    v4(10, 0, 0, 0, 8),
    v4(172, 16, 0, 0, 12),
    v4(192, 168, 0, 0, 16),
    // Behind a carrier's NAT (RFC 6598); some clouds have their metadata here.
    v4(100, 64, 0, 0, 10),
    // Loopback.
    v4(127, 0, 0, 0, 8),
    // Link-local: most clouds have their metadata here.
    v4(169, 254, 0, 0, 16),
    // Azure's own service to its machines, on an address that looks public.
    v4(168, 63, 129, 16, 32),
    // Protocol assignments, relays of 6to4.
    v4(192, 0, 0, 0, 24),
    v4(192, 88, 99, 0, 24),
    // Documentation and benchmarks.
    v4(192, 0, 2, 0, 24),
    v4(198, 18, 0, 0, 15),
    v4(198, 51, 100, 0, 24),
    v4(203, 0, 113, 0, 24),
    // Multicast, reserved, broadcast.
    v4(224, 0, 0, 0, 4),
    v4(240, 0, 0, 0, 4),
];

/// Of IPv6: what is outside, if it is not below. Loopback, unspecified, IPv4-compatible, unique local (fc00::/7), link-local,
/// site-local and multicast addresses are not in it.
const GLOBAL_UNICAST: Ipv6Net = v6(0x2000, 0, 0, 3);
/// Of global unicast: what is not outside: protocol assignments (Teredo, benchmarks, ORCHID), documentation.
const NOT_OUTSIDE_V6: &[Ipv6Net] = &[v6(0x2001, 0, 0, 23), v6(0x2001, 0xdb8, 0, 32), v6(0x3fff, 0, 0, 20)];
/// IPv4 in IPv6: 6to4 (RFC 3056), and the translators' prefix (NAT64, RFC 6052).
const SIX_TO_FOUR: Ipv6Net = v6(0x2002, 0, 0, 16);
const NAT64: Ipv6Net = v6(0x64, 0xff9b, 0, 96);

/// Whether one may connect to this address: an admin has listed it, or it is outside and none of the machine's `own`.
#[must_use]
pub fn is_allowed(address: IpAddr, listed: &[IpNet], own: &[IpAddr]) -> bool {
    let address = address.to_canonical();
    listed.iter().any(|network| network.contains(&address))
        || (is_outside(address) && !own.iter().any(|own| own.to_canonical() == address))
}

/// Whether an address is outside.
fn is_outside(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => !NOT_OUTSIDE_V4.iter().any(|network| network.contains(&address)),
        IpAddr::V6(address) => match carried(address) {
            Some(carried) => is_outside(carried.into()),
            None => {
                GLOBAL_UNICAST.contains(&address)
                    && !NOT_OUTSIDE_V6.iter().any(|network| network.contains(&address))
            }
        },
    }
}

/// The IPv4 address that an IPv6 one leads to.
fn carried(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [_, _, a, b, c, d, ..] = address.octets();
    let [.., e, f, g, h] = address.octets();
    match address {
        _ if SIX_TO_FOUR.contains(&address) => Some(Ipv4Addr::new(a, b, c, d)),
        _ if NAT64.contains(&address) => Some(Ipv4Addr::new(e, f, g, h)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outside(text: &str) -> bool {
        is_allowed(text.parse().unwrap(), &[], &[])
    }

    #[test]
    fn the_public_internet_is_outside() {
        for good in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "168.63.129.15",
            "192.0.1.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00:1450:4001::1",
            "::ffff:1.1.1.1",
            "2002:101:101::1",
            "64:ff9b::1.1.1.1",
        ] {
            assert!(outside(good), "{good}");
        }
    }

    #[test]
    fn every_other_class_of_addresses_is_not() {
        for bad in [
            "0.0.0.0",
            "0.1.2.3",
            "127.0.0.1",
            "127.255.255.254",
            "10.0.0.1",
            "10.255.255.255",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "100.100.100.200",
            "100.127.255.255",
            "168.63.129.16",
            "192.0.0.192",
            "192.0.2.1",
            "192.88.99.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::1.1.1.1",
            "fe80::1",
            "fec0::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "2001::1",
            "2001:2::1",
            "2001:10::1",
            "2001:db8::1",
            "3fff::1",
            "4000::1",
            "100::1",
            "5f00::1",
            "64:ff9b:1::1.1.1.1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:0.0.0.0",
            "2002:7f00:1::",
            "2002:a00:1::1",
            "2002:a9fe:a9fe::",
            "64:ff9b::127.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b::169.254.169.254",
        ] {
            assert!(!outside(bad), "{bad}");
        }
    }

    #[test]
    fn an_own_address_is_refused_and_a_listed_one_is_not() {
        let own = ["1.1.1.1".parse().unwrap(), "2606:4700::1".parse().unwrap()];
        let listed: Vec<IpNet> = vec!["10.1.0.0/16".parse().unwrap(), "2606:4700::1/128".parse().unwrap()];
        for (address, allowed) in [
            ("1.1.1.1", false),
            ("::ffff:1.1.1.1", false),
            ("1.1.1.2", true),
            ("10.1.2.3", true),
            ("::ffff:10.1.2.3", true),
            ("10.2.0.1", false),
            // A translator is another way there than the listed one.
            ("64:ff9b::10.1.2.3", false),
            ("2606:4700::1", true),
        ] {
            assert_eq!(is_allowed(address.parse().unwrap(), &listed, &own), allowed, "{address}");
        }
    }
}
