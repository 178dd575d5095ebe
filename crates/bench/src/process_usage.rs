//! What a process has used, as the kernel counts it in /proc.

use std::path::PathBuf;

use crate::error::BenchError;

/// What a process has used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// User and system time of all its threads, seconds.
    pub cpu_s: f64,
    /// Resident memory, huge pages included, bytes.
    pub rss_bytes: u64,
}

/// What process `pid` has used since it started.
pub(crate) fn of(pid: u32) -> Result<Usage, BenchError> {
    let folder = PathBuf::from(format!("/proc/{pid}"));
    let read = |file: &str| {
        std::fs::read_to_string(folder.join(file))
            .map_err(|source| BenchError::System { doing: "reading a process' usage (it may have ended)", source })
    };
    let (stat, status) = (read("stat")?, read("status")?);
    let ticks = cpu_ticks(&stat).ok_or_else(|| BenchError::Invalid(format!("/proc/{pid}/stat makes no sense")))?;
    let cpu_s = ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
    Ok(Usage { cpu_s, rss_bytes: (kib(&status, "VmRSS:") + kib(&status, "HugetlbPages:")) * 1024 })
}

/// Fields 14 and 15 of /proc/PID/stat. The name, field 2, may hold spaces and brackets, so count from its end.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

fn kib(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_ticks_survive_odd_names() {
        let stat = "77 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 120 34 0 0 20 0 1";
        assert_eq!(cpu_ticks(stat), Some(154));
        assert_eq!(cpu_ticks("nonsense"), None);
    }

    #[test]
    fn our_own_usage_can_be_read() {
        assert!(of(std::process::id()).expect("we run").rss_bytes > 100_000);
    }
}
