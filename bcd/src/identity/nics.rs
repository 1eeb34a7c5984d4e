//! Permanent hardware addresses of the machine's own Ethernet interfaces.
//!
//! What is plugged together in software (bridges, bonds, VLANs, tunnels, veth) or lent by a hypervisor's host (SR-IOV
//! functions) says nothing of the machine and is left out. Nothing is changed, and nothing here can fail a join.

use super::{ethtool, read_text};
use nix::net::if_::if_nametoindex;
use shared::hardware::{MAX_LISTED, canonical_mac};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Where Linux shows them.
pub const SYSFS: &str = "/sys/class/net";
/// The most interfaces that are looked at; hosts of containers have thousands of virtual ones.
const MAX_INTERFACES: usize = 16_384;
/// ARPHRD_ETHER of if_arp.h.
const ETHERNET: &str = "1";
/// NET_ADDR_PERM of netdevice.h: the current address is the permanent one.
const PERMANENT: &str = "0";
/// What only a virtual interface's directory has.
const VIRTUAL: [&str; 5] = ["bridge", "bonding", "tun_flags", "device/physfn", "dsa"];

/// The addresses, and how good they are as evidence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Macs {
    /// Lower case with colons, sorted, no repeats.
    pub addresses: Vec<String>,
    /// Whether they are only locally administered ones, which anybody can set and hypervisors repeat.
    pub weak: bool,
}

/// Looks through a folder like `/sys/class/net`; `None` is that folder itself.
#[must_use]
pub fn macs(folder: Option<&Path>) -> Macs {
    let root = folder.unwrap_or(Path::new(SYSFS));
    let Ok(entries) = fs::read_dir(root) else { return Macs::default() };
    let mut all: Vec<String> = entries
        .take(MAX_INTERFACES)
        .flatten()
        .map(|entry| entry.path())
        .filter(|interface| is_hardware(interface))
        .filter_map(|interface| permanent(&interface, folder.is_none()))
        .filter_map(|mac| canonical_mac(&mac))
        .collect();
    all.sort();
    all.dedup();
    choose(all)
}

/// Locally administered addresses count only where there is no other.
fn choose(all: Vec<String>) -> Macs {
    let (local, universal): (Vec<_>, Vec<_>) = all.into_iter().partition(|mac| is_local(mac));
    let weak = universal.is_empty() && !local.is_empty();
    let mut addresses = if weak { local } else { universal };
    addresses.truncate(MAX_LISTED);
    Macs { addresses, weak }
}

fn is_hardware(interface: &Path) -> bool {
    interface.join("device").exists()
        && read_text(&interface.join("type")).as_deref() == Some(ETHERNET)
        && !VIRTUAL.iter().any(|mark| interface.join(mark).exists())
}

/// By ethtool; else as the bond noted it when it took the interface; else the current one, if sysfs calls it permanent.
fn permanent(interface: &Path, is_own_sysfs: bool) -> Option<String> {
    by_ethtool(interface, is_own_sysfs)
        .or_else(|| read_text(&interface.join("bonding_slave/perm_hwaddr")))
        .or_else(|| {
            let assigned = read_text(&interface.join("addr_assign_type"))?;
            (assigned == PERMANENT).then(|| read_text(&interface.join("address")))?
        })
}

/// The ioctl goes by name, in this process's network namespace. A folder that was given may show another one (a test's,
/// a host's): there it only counts if the interface of that name is the same one.
fn by_ethtool(interface: &Path, is_own_sysfs: bool) -> Option<String> {
    let name = interface.file_name()?.to_str()?;
    if !is_own_sysfs && !is_same(interface, name) {
        return None;
    }
    let address = ethtool::permanent_address(name).ok()??;
    Some(address.map(|byte| format!("{byte:02x}")).join(":"))
}

fn is_same(interface: &Path, name: &str) -> bool {
    let own: PathBuf = Path::new(SYSFS).join(name);
    let index = if_nametoindex(name).ok().map(|index| index.to_string());
    let address = read_text(&own.join("address"));
    index.is_some()
        && index == read_text(&interface.join("ifindex"))
        && address.is_some()
        && address == read_text(&interface.join("address"))
}

/// The second lowest bit of the first byte (IEEE 802).
fn is_local(mac: &str) -> bool {
    mac.get(..2).and_then(|byte| u8::from_str_radix(byte, 16).ok()).is_some_and(|byte| byte & 2 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Sysfs(tempfile::TempDir);
    impl Sysfs {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }
        /// An interface with these files; a name that ends in a slash is a folder.
        fn with(self, name: &str, files: &[(&str, &str)]) -> Self {
            let folder = self.0.path().join(name);
            fs::create_dir(&folder).unwrap();
            for (file, text) in files {
                if let Some(folder_name) = file.strip_suffix('/') {
                    fs::create_dir_all(folder.join(folder_name)).unwrap();
                } else {
                    fs::create_dir_all(folder.join(file).parent().unwrap()).unwrap();
                    fs::write(folder.join(file), format!("{text}\n")).unwrap();
                }
            }
            self
        }
        fn macs(&self) -> Macs {
            macs(Some(self.0.path()))
        }
    }

    const A: &str = "52:54:00:12:34:56";
    const B: &str = "00:1a:2b:3c:4d:5e";

    fn nic(mac: &str) -> Vec<(&'static str, String)> {
        vec![
            ("device/", String::new()),
            ("type", "1".into()),
            ("addr_assign_type", "0".into()),
            ("address", mac.to_uppercase()),
        ]
    }

    fn files<'a>(list: &'a [(&'a str, String)], more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        list.iter().map(|(name, text)| (*name, text.as_str())).chain(more.iter().copied()).collect()
    }

    #[test]
    fn only_hardware_counts() {
        let real = nic(B);
        let sysfs = Sysfs::new()
            .with("lo", &[("type", "772"), ("address", "00:00:00:00:00:00"), ("addr_assign_type", "0")])
            .with("enp1s0", &files(&real, &[]))
            .with("veth0", &[("type", "1"), ("address", "00:1a:2b:00:00:01"), ("addr_assign_type", "0")])
            .with("br0", &files(&nic("00:1a:2b:00:00:02"), &[("bridge/", "")]))
            .with("bond0", &files(&nic("00:1a:2b:00:00:03"), &[("bonding/", "")]))
            .with("enp1s0v0", &files(&nic("00:1a:2b:00:00:04"), &[("device/physfn/", "")]))
            .with("ib0", &[("device/", ""), ("type", "32"), ("address", "80:00"), ("addr_assign_type", "0")]);
        assert_eq!(sysfs.macs(), Macs { addresses: vec![B.into()], weak: false });
    }

    #[test]
    fn a_bond_slave_gives_its_own_address_and_a_set_one_counts_for_nothing() {
        let slave = nic("00:1a:2b:ff:ff:ff");
        let set =
            [("device/", ""), ("type", "1"), ("addr_assign_type", "3"), ("address", "00:1a:2b:00:00:09")];
        let sysfs = Sysfs::new()
            .with("enp1s0", &files(&slave, &[("bonding_slave/perm_hwaddr", B)]))
            .with("enp2s0", &set);
        assert_eq!(sysfs.macs().addresses, [B]);
    }

    #[test]
    fn a_local_address_counts_only_alone() {
        let (local, universal) = (nic(A), nic(B));
        let alone = Sysfs::new().with("ens3", &files(&local, &[]));
        assert_eq!(alone.macs(), Macs { addresses: vec![A.into()], weak: true });
        let both = Sysfs::new().with("ens3", &files(&local, &[])).with("ens4", &files(&universal, &[]));
        assert_eq!(both.macs(), Macs { addresses: vec![B.into()], weak: false });
    }

    #[test]
    fn no_folder_and_odd_files_are_no_error() {
        assert_eq!(macs(Some(Path::new("/nonexistent"))), Macs::default());
        let sysfs = Sysfs::new().with(
            "eth0",
            &[("device/", ""), ("type", "1"), ("addr_assign_type", "0"), ("address", "not a mac")],
        );
        assert_eq!(sysfs.macs(), Macs::default());
    }

    #[test]
    fn the_ioctl_answers_for_an_interface_and_refuses_what_is_none() {
        // The loopback has no permanent address; every network namespace has a loopback.
        assert_eq!(ethtool::permanent_address("lo").unwrap_or(None), None);
        assert!(ethtool::permanent_address("no-such-interface-at-all").is_err());
        assert!(ethtool::permanent_address("nope0").is_err());
    }
}
