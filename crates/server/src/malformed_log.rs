//! How often a worker logs clients that send what cannot be understood: whoever can reach the port can do that as often as it
//! can connect, and a line is written by the worker itself.
//!
//! Always true: at most one line a [`PAUSE_MS`], and each says how many clients got none since the line before it; `stats`
//! counts all of them as they come (`cp_malformed`).

/// Between two lines, in milliseconds: soon enough for who watches the log, and no flood however many workers write.
const PAUSE_MS: u64 = 1000;

/// One worker's lines.
#[derive(Debug, Default)]
pub(crate) struct MalformedLog {
    /// When the last line was written, if there was one; milliseconds as in `Reading::elapsed_ms`.
    last_ms: Option<u64>,
    /// Clients since then.
    untold: u64,
}

impl MalformedLog {
    /// Takes note of a client; `Some` if it gets a line, with how many got none since the last.
    pub(crate) fn note(&mut self, now_ms: u64) -> Option<u64> {
        if self.last_ms.is_some_and(|last_ms| now_ms < last_ms + PAUSE_MS) {
            self.untold += 1;
            return None;
        }
        self.last_ms = Some(now_ms);
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_of_those_that_got_none() {
        let mut log = MalformedLog::default();
        let told: Vec<_> = [5, 5, 6, 1004, 1005, 1006, 2005, 9000].map(|now_ms| log.note(now_ms)).into();
        assert_eq!(told, [Some(0), None, None, None, Some(3), None, Some(1), Some(0)]);
    }
}
