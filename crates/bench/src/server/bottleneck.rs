//! Whose limit a throughput was: the server's, the generator's, or neither's.

use crate::metric::{GENERATOR_BUSY, SERVER_BUSY, THROUGHPUT};
use crate::report::ExperimentReport;

/// Share of a core from which on it counts as fully used; the kernel counts in hundredths of a second.
const BUSY: f64 = 0.9;

/// Notes what makes a throughput less than the server's own: a generator at its limit, or cores left idle.
pub fn note(report: &mut ExperimentReport) {
    for row in report.rows.iter().filter(|row| row.median(THROUGHPUT).is_some()) {
        let (Some(server), Some(generator)) = (row.median(SERVER_BUSY), row.median(GENERATOR_BUSY)) else {
            continue;
        };
        let name = format!("{} {}", row.variant, row.peer);
        if server < BUSY && generator < BUSY {
            report.notes.push(format!(
                "{}: server {server:.2} and generator {generator:.2} cores: the machine was shared, or too little \
                 was in flight",
                name.trim()
            ));
        } else if server < BUSY {
            report.notes.push(format!("{}: the generator was the limit; read the CPU time", name.trim()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_throughput_that_is_not_the_servers_is_noted() {
        for (server, generator, notes, word) in
            [(1.0, 0.4, 0, ""), (0.5, 1.0, 1, "limit"), (0.5, 0.4, 1, "shared"), (1.0, 1.0, 0, "")]
        {
            let mut report = ExperimentReport::new("multiget", "Multiget", "16 B keys");
            for (metric, value) in [(THROUGHPUT, 8e6), (SERVER_BUSY, server), (GENERATOR_BUSY, generator)] {
                report.record("", "guira", metric, value);
            }
            note(&mut report);
            assert_eq!(report.notes.len(), notes);
            assert!(report.notes.iter().all(|note| note.contains(word)), "{:?}", report.notes);
        }
    }
}
