//! What a result must name to mean anything: the machine, the kernel, the date.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// The machine a benchmark ran on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Processor model as the kernel names it.
    pub cpu: String,
    /// Cores this process may use.
    pub cores: usize,
    /// Memory, MiB.
    pub memory_mib: u64,
    /// Kernel release.
    pub kernel: String,
}

impl Machine {
    /// The machine we run on; what cannot be read is "unknown" or 0.
    pub fn here() -> Self {
        let file = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_string())
        };
        let memory = field(&file("/proc/meminfo"), "MemTotal").and_then(|text| text.split(' ').next()?.parse().ok());
        let kernel = file("/proc/sys/kernel/osrelease").trim().to_string();
        Self {
            cpu: field(&file("/proc/cpuinfo"), "model name").unwrap_or_else(|| "unknown".into()),
            cores: guira_loadgen::affinity::cores().len(),
            memory_mib: memory.map_or(0, |kib: u64| kib / 1024),
            kernel: if kernel.is_empty() { "unknown".into() } else { kernel },
        }
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {} cores, {} MiB, Linux {}", self.cpu, self.cores, self.memory_mib, self.kernel)
    }
}

/// Now, as `2026-11-20T12:00:00Z`.
#[expect(clippy::disallowed_methods, reason = "a report carries the date of the run")]
pub fn utc_now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    utc(since)
}

/// `unix_s` seconds after 1970 as a date and time (Howard Hinnant's civil-from-days).
fn utc(unix_s: u64) -> String {
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_civil() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(utc(1_798_761_599), "2026-12-31T23:59:59Z");
    }

    #[test]
    fn this_machine_has_cores_and_memory() {
        let machine = Machine::here();
        assert!(machine.cores > 0 && machine.memory_mib > 0);
        assert!(!machine.to_string().contains('\n'));
    }
}
