//! What processes and the machine have used, from /proc (proc(5)).

use std::{fs, process, time::Duration};

/// Ticks of a second in /proc: USER_HZ, 100 on all that we build for.
const TICKS_PER_SECOND: u32 = 100;

/// CPU time until now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    /// The relay's.
    pub(super) relay: Duration,
    /// This process's.
    pub(super) client: Duration,
    /// All that the machine spent on anything.
    pub(super) machine: Duration,
}

/// Memory of a process, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Memory {
    /// All that is resident.
    pub(super) resident: u64,
    /// What of it is no file's: heap and stacks.
    pub(super) anonymous: u64,
}

impl Usage {
    /// Reads it. What can't be read is zero.
    pub(super) fn now(relay: u32) -> Self {
        Self { relay: of_process(relay), client: of_process(process::id()), machine: of_machine() }
    }

    /// What was used since.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            relay: self.relay.saturating_sub(before.relay),
            client: self.client.saturating_sub(before.client),
            machine: self.machine.saturating_sub(before.machine),
        }
    }
}

impl Memory {
    /// Reads it. What can't be read is zero.
    pub(super) fn of(process: u32) -> Self {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        Self { resident: kilobytes(&status, "VmRSS:"), anonymous: kilobytes(&status, "RssAnon:") }
    }
}

fn kilobytes(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.split_whitespace().next().and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) * 1024
}

fn of_process(process: u32) -> Duration {
    process_time(&fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default())
}

/// utime and stime, the 14th and 15th field; the 2nd is a name that may hold anything but ends with the last `)`.
fn process_time(stat: &str) -> Duration {
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    ticks(fields.skip(11).take(2))
}

fn of_machine() -> Duration {
    machine_time(&fs::read_to_string("/proc/stat").unwrap_or_default())
}

/// Everything of the first line but idle and iowait, the 4th and 5th number. Guests are counted in user.
fn machine_time(stat: &str) -> Duration {
    let line = stat.lines().next().and_then(|line| line.strip_prefix("cpu ")).unwrap_or_default();
    let busy = line.split_whitespace().take(8).enumerate().filter(|(at, _)| !matches!(at, 3 | 4));
    ticks(busy.map(|(_, number)| number))
}

fn ticks<'a>(numbers: impl Iterator<Item = &'a str>) -> Duration {
    let sum: u64 = numbers.filter_map(|number| number.parse::<u64>().ok()).sum();
    Duration::from_secs(sum) / TICKS_PER_SECOND
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_is_read_as_it_is_written() {
        let stat = "77 (a) b) S 1 77 77 0 -1 4194560 1 2 3 4 150 50 9 9 20 0 1 0 100 1 1";
        assert_eq!(process_time(stat), Duration::from_secs(2));
        let stat = "cpu  100 0 200 9000 50 0 100 0 70 0\ncpu0 1 1 1 1";
        assert_eq!(machine_time(stat), Duration::from_secs(4));
        assert_eq!(kilobytes("Name:\tx\nVmRSS:\t    12 kB\n", "VmRSS:"), 12 * 1024);
    }

    #[test]
    fn this_process_uses_something() {
        assert!(Memory::of(process::id()).resident > 0);
        assert!(Usage::now(process::id()).machine > Duration::ZERO);
    }
}
