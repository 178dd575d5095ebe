//! A sweep: the contenders under loads that differ in one parameter.

use super::{
    Aim, Bench, BenchError, ExperimentReport,
    contenders::{Achieved, Contender},
    load::{Load, VALUE_BYTES},
    metric,
};

/// What is varied, in which steps, for whom.
pub(in super::super) struct Sweep {
    /// Name on the command line.
    pub name: &'static str,
    /// Heading of the report.
    pub title: &'static str,
    /// What is varied, with its unit.
    pub axis: &'static str,
    /// What the steps differ from the usual load in, besides, and what the paper found.
    pub remark: &'static str,
    /// Its working set in MB of values, unless that is varied or chosen.
    pub(super) working_set_mb: usize,
    pub(super) contenders: &'static [Contender],
    /// What is aimed at.
    pub(super) aims: &'static [Aim],
    /// The loads, each by the name of its variant, of which the usual one is given.
    pub(super) steps: fn(&Bench, Load) -> Vec<(String, Load)>,
}

impl Sweep {
    /// Measures every contender at every step, in turns.
    pub fn run(&self, bench: &Bench) -> Result<ExperimentReport, BenchError> {
        let load = Load::of(bench, self.working_set_mb);
        let steps = (self.steps)(bench, load);
        let words = format!(
            "8 B keys and values, uniform, all stored before; unless told otherwise {} of values, {:.0} % inserts, batches of \
             {}, {} eviction, room for {:.0} % and {} cores; cphash has server threads on {} of them and clients on the rest (or a \
             client on each core, where there are no server threads or one for each), the others have a thread that asks on each \
             (cphash, no servers: clients carry batches out partition by partition; cphash, by load: clients on all of them, and \
             as many server threads beside as are busy, after a second of the load); memc3 evicts by CLOCK whatever the others \
             do, and has half their memory, as its items are half as large; lockhash, bucket locks: random eviction only; dashmap \
             stores no items",
            bytes(load.keys * VALUE_BYTES),
            100.0 * load.inserts,
            load.batch,
            load.eviction.name(),
            100.0 * load.capacity as f64 / load.keys as f64,
            load.cores,
            load.servers,
        );
        let mut report = ExperimentReport::new(self.name, self.title, words).over(self.axis);
        for _ in 0..bench.rounds {
            for (variant, load) in &steps {
                self.compare(bench, &mut report, variant, load)?;
            }
        }
        report.notes.push(self.remark.into());
        self.aims.iter().for_each(|aim| report.aim(aim));
        Ok(report)
    }

    fn compare(
        &self,
        bench: &Bench,
        report: &mut ExperimentReport,
        variant: &str,
        load: &Load,
    ) -> Result<(), BenchError> {
        let draws = load.draws(bench);
        let mut rates: Vec<(Contender, f64)> = Vec::new();
        for contender in self.contenders.iter().filter(|contender| contender.can_bear(load)) {
            let Achieved { rate, flow, .. } = contender.measure(bench, load, &draws)?;
            report.record(variant, contender.name(), metric::OPERATIONS, rate.per_s);
            if let Some(flow) = flow {
                report.record(variant, contender.name(), metric::LINES_PER_OPERATION, flow.lines_per_operation());
                report.record(variant, contender.name(), metric::WORDS_PER_LINE, flow.words_per_line());
            }
            rates.push((*contender, rate.per_s));
        }
        let lockhash = rates.iter().find(|(contender, _)| *contender == Contender::Lockhash).map(|(_, rate)| *rate);
        for (contender, rate) in rates.iter().filter(|(contender, _)| *contender != Contender::Lockhash) {
            let times = lockhash.map(|lockhash| rate / lockhash);
            times.into_iter().for_each(|times| report.record(variant, contender.name(), metric::OVER_LOCKHASH, times));
        }
        Ok(())
    }
}

/// A number of bytes in words.
fn bytes(count: usize) -> String {
    if count >= 1 << 20 { format!("{} MB", count >> 20) } else { format!("{} KB", count >> 10) }
}
