//! The permanent hardware address of a network interface, by the one ioctl that tells it.
//!
//! The only file of the workspace with unsafe code: ethtool's request has no safe wrapper. It reads, and changes nothing.
#![expect(unsafe_code, reason = "SIOCETHTOOL takes a pointer inside ifreq, and nix has no wrapper for it")]

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use std::{io, os::fd::AsRawFd as _};

/// ethtool.h: "Get permanent hardware address".
const ETHTOOL_GPERMADDR: u32 = 0x20;
/// ethtool.h: MAX_ADDR_LEN of the kernel.
const MAX_ADDRESS_BYTES: usize = 32;
/// sockios.h.
const SIOCETHTOOL: libc::c_ulong = 0x8946;

/// struct ethtool_perm_addr with room for the longest address.
#[repr(C)]
struct PermanentAddress {
    command: u32,
    size: u32,
    data: [u8; MAX_ADDRESS_BYTES],
}

/// The permanent address of an Ethernet interface of this network namespace; `None` if its driver keeps none.
///
/// # Errors
/// There is no such interface, or its driver doesn't answer.
pub(super) fn permanent_address(interface: &str) -> io::Result<Option<[u8; 6]>> {
    let mut answer = PermanentAddress {
        command: ETHTOOL_GPERMADDR,
        size: u32::try_from(MAX_ADDRESS_BYTES).unwrap_or(0),
        data: [0; MAX_ADDRESS_BYTES],
    };
    let mut name = [0; libc::IFNAMSIZ];
    if interface.len() >= name.len() || interface.bytes().any(|byte| byte == 0) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in name.iter_mut().zip(interface.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    let any = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    let mut request = libc::ifreq {
        ifr_name: name,
        ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_data: (&raw mut answer).cast() },
    };
    // SAFETY: the name ends in a zero byte; ifru_data points to a PermanentAddress that outlives the call, laid out as
    // the kernel's struct ethtool_perm_addr, and `size` states its room, beyond which the kernel doesn't write.
    let result = unsafe { libc::ioctl(any.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let [a, b, c, d, e, f, ..] = answer.data;
    let address = [a, b, c, d, e, f];
    Ok((answer.size == 6 && address != [0; 6]).then_some(address))
}
