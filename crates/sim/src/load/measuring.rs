//! Measures a cluster under load: what is counted between two moments, at the paper's rates.

use guira_item::Span;
use guira_loadgen::latency::Latencies;

use super::{
    LoadReport, Pattern, Sample,
    cluster::{Cluster, FAR},
    station::Station,
};

impl Cluster {
    fn served(&self) -> Vec<u64> {
        self.stations[self.caches.len()..].iter().map(Station::served).collect()
    }

    /// Measures under load; then nothing is asked any more, and what is under way is waited for.
    pub(super) fn measure(mut self) -> LoadReport {
        let (measure, scale) = (self.scenario.measure, self.scenario.scale);
        let sample_every = self.scenario.sample_every;
        self.slow_switch_down();
        let begun_at = self.now;
        let until = begun_at + measure;
        self.latencies = Latencies::default();
        let (first, first_served) = (self.tally_now(), self.served());
        let mut before = (begun_at, first);
        let every = |span: Span| if span.ns() > 0 { begun_at + span } else { FAR };
        let mut sample_at = every(sample_every);
        let mut change_at = every(self.scenario.change.map(|change| change.first).unwrap_or_default());
        let mut samples = Vec::new();
        let mut new = None;
        while self.now < until {
            let next = until.min(sample_at).min(change_at);
            self.run(next.since(self.now));
            if next == sample_at {
                let (from, earlier) = before;
                let tally = self.tally_now();
                let per_s = scale / self.now.since(from).as_s();
                samples.push(Sample {
                    at_s: self.now.since(begun_at).as_s(),
                    answered_per_s: (tally.answered - earlier.answered) as f64 * per_s,
                    hits_per_s: (tally.hits - earlier.hits) as f64 * per_s,
                    lost: share(tally.dropped - earlier.dropped, tally.asked - earlier.asked),
                    routed_of_new: new.map(|len| self.routed_of_hottest(len)),
                });
                before = (self.now, tally);
                sample_at = self.now + sample_every;
            }
            if next == change_at
                && let Some(change) = self.scenario.change
            {
                self.popularity.change(change.pattern, change.keys, &mut self.rng);
                change_at = self.now + change.every;
                new = (change.pattern == Pattern::HotIn).then_some(change.keys);
            }
        }
        let (last, per_s) = (self.tally_now(), scale / measure.as_s());
        let mut backends_per_s: Vec<f64> =
            self.served().iter().zip(&first_served).map(|(last, first)| (last - first) as f64 * per_s).collect();
        backends_per_s.sort_by(|a, b| b.total_cmp(a));
        let latency = self.latencies.summary();
        // Longer than anything is waited for.
        self.idle(Span::from_s(1));
        LoadReport {
            asked_per_s: (last.asked - first.asked) as f64 * per_s,
            answered_per_s: (last.answered - first.answered) as f64 * per_s,
            hits_per_s: (last.hits - first.hits) as f64 * per_s,
            lost: share(last.dropped - first.dropped, last.asked - first.asked),
            mean_us: latency.mean_us,
            p50_us: latency.p50_us,
            p99_us: latency.p99_us,
            backends_per_s,
            cached: self.cached(),
            admitted: last.admitted - first.admitted,
            passed_on: last.passed_on - first.passed_on,
            rule_updates: last.rule_updates - first.rule_updates,
            requests: self.tally.asked,
            requests_answered: self.tally.answered,
            requests_lost: self.tally.failed,
            wrong_answers: self.tally.wrong,
            steps: self.steps,
            samples,
        }
    }
}

fn share(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { part as f64 / all as f64 }
}
