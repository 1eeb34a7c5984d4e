//! What is in the machine, as its own kernel says. It reports and judges nothing; what is missing is left out.

use super::{
    disks::{self, text},
    fault::label,
};
use crate::identity::Report;
use shared::{
    api::steps::{HardwareReport, MAX_DISKS},
    bounded::Int,
};
use std::{collections::BTreeMap, fs, path::Path};

/// Looks at the machine. `root` is `/`, but in tests.
pub(crate) fn look(identity: &Report, root: &Path) -> HardwareReport {
    let cpuinfo = fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default();
    let disks = disks::all(&root.join("sys/block"));
    let firmware = text(&root.join("sys/class/dmi/id/bios_version"));
    HardwareReport {
        identity: identity.to_claim(),
        processors: processors(&cpuinfo).iter().map(|text| label(text)).collect(),
        memory_mib: memory_mib(&fs::read_to_string(root.join("proc/meminfo")).unwrap_or_default()),
        disks: disks.iter().take(MAX_DISKS).map(|disk| label(&disk.summary())).collect(),
        accelerators: Vec::new(),
        firmware: firmware.map(|text| label(&text)),
    }
}

/// Packages by their name, each as `2 × AMD EPYC 9654`.
fn processors(cpuinfo: &str) -> Vec<String> {
    let mut packages: BTreeMap<&str, std::collections::BTreeSet<&str>> = BTreeMap::new();
    for thread in cpuinfo.split("\n\n") {
        if let Some(name) = field(thread, "model name").next() {
            let package = field(thread, "physical id").next().unwrap_or("0");
            packages.entry(name).or_default().insert(package);
        }
    }
    packages.iter().map(|(name, packages)| format!("{} × {name}", packages.len())).collect()
}

/// The values of a member of `/proc/cpuinfo`, one for each thread.
fn field<'a>(cpuinfo: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    cpuinfo.lines().filter_map(move |line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

fn memory_mib(meminfo: &str) -> Option<Int<0, 1_000_000_000>> {
    let kib = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB"))?;
    (kib.trim().parse::<i64>().ok()? / 1024).try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_as_its_kernel_says_it() {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [
            (
                "proc/cpuinfo",
                "processor\t: 0\nmodel name\t: AMD EPYC 9654\nphysical id\t: 0\n\nprocessor\t: 1\nmodel name\t: AMD EPYC 9654\nphysical id\t: 1\n",
            ),
            ("proc/meminfo", "MemTotal:       16318480 kB\nMemFree: 1 kB\n"),
            ("sys/class/dmi/id/bios_vendor", "EDK II\n"),
            ("sys/class/dmi/id/bios_version", "2022.11\n"),
            ("sys/block/vda/size", "2048\n"),
        ] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let report = look(&Report::default(), root.path());
        assert_eq!(report.processors[0].as_str(), "2 × AMD EPYC 9654");
        assert_eq!(report.memory_mib.map(i64::from), Some(15936));
        assert_eq!(report.firmware.unwrap().as_str(), "2022.11");
        assert_eq!(report.disks[0].as_str(), "vda, 1 MiB");
        let nothing = look(&Report::default(), &root.path().join("none"));
        assert!(nothing.processors.is_empty() && nothing.disks.is_empty() && nothing.memory_mib.is_none());
    }
}
