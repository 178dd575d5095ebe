//! Processor time of this process, from `/proc/self/stat`.

use std::fs;

/// Clock ticks since the process started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct CpuTime {
    user_ticks: u64,
    system_ticks: u64,
    ticks_per_s: u64,
}

impl CpuTime {
    /// Zero where there is no `/proc`.
    pub(crate) fn of_this_process() -> Self {
        let ticks_per_s = rustix::param::clock_ticks_per_second().max(1);
        let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let (user_ticks, system_ticks) = parse(&text).unwrap_or_default();
        Self { user_ticks, system_ticks, ticks_per_s }
    }

    /// Seconds and microseconds, `12.340000`.
    pub(crate) fn user_text(self) -> String {
        self.text(self.user_ticks)
    }

    /// Seconds and microseconds, `12.340000`.
    pub(crate) fn system_text(self) -> String {
        self.text(self.system_ticks)
    }

    fn text(self, ticks: u64) -> String {
        let micros = ticks % self.ticks_per_s * 1_000_000 / self.ticks_per_s;
        format!("{}.{micros:06}", ticks / self.ticks_per_s)
    }
}

/// Fields 14 and 15; the name in field 2 may contain anything, so counting starts behind its last bracket.
fn parse(stat: &str) -> Option<(u64, u64)> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_may_contain_brackets_and_blanks() {
        let stat = "1 (a) b) c) R 0 1 1 0 -1 4194304 105 0 0 0 123 45 0 0 20 0 1 0 100";
        assert_eq!(parse(stat), Some((123, 45)));
        let time = CpuTime { user_ticks: 123, system_ticks: 45, ticks_per_s: 100 };
        assert_eq!((time.user_text().as_str(), time.system_text().as_str()), ("1.230000", "0.450000"));
    }
}
