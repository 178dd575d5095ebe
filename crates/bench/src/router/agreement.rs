//! How long it takes until a switch has exactly the rules that are wanted: after many of them were replaced at once, after its controller was started again,
//! and after it was itself.
//!
//! Beside our controller Open vSwitch's own tool (`replace-flows`), which reads what a switch has, too, and tells it what differs.
//! Always true: all begins where a switch has what was wanted before; the time ends when our controller says that the switch has what is wanted, or the tool
//! is back, and the switch is then found to have that and nothing else.

use std::time::{Duration, Instant};

use guira_loadgen::progress::Progress;

use super::bench::Bench;
use super::controller::Controller;
use super::rule_set::RuleSet;
use super::site::{OvsSite, Site, XdpSite};
use super::updates::write;
use crate::error::BenchError;
use crate::metric;
use crate::report::ExperimentReport;

pub(super) const NAME: &str = "agreement";

/// What happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Event {
    /// So many rules are replaced at once.
    Storm(u64),
    /// The controller is gone, and another one there that wants so many other rules.
    Controller(u64),
    /// The switch is gone with all it had, and there again.
    Switch,
}

impl Event {
    /// All, of a table with so many cached keys. What only shows that it works leaves out what takes its second and shows no more.
    fn all(keys: u64, is_tiny: bool) -> Vec<Self> {
        let (few, many) = (keys / 10, keys / 2);
        let all = [Self::Storm(few), Self::Storm(many), Self::Controller(0), Self::Controller(few), Self::Switch];
        all.into_iter().filter(|event| !is_tiny || *event != Self::Controller(0)).collect()
    }

    fn name(self) -> String {
        match self {
            Self::Storm(rules) => format!("storm of {rules}"),
            Self::Controller(0) => "controller again".into(),
            Self::Controller(rules) => format!("controller again, {rules} others"),
            Self::Switch => "switch again".into(),
        }
    }

    /// How many rules are other ones then.
    fn differing(self) -> u64 {
        match self {
            Self::Storm(rules) | Self::Controller(rules) => rules,
            Self::Switch => 0,
        }
    }
}

/// How long it took; the second, since the switch has called, if it has.
struct Took {
    all: Duration,
    since_it_called: Option<Duration>,
}

/// Who has a switch come to have what is wanted, and what that was last.
trait Teller {
    /// The event, and until the switch has these rules.
    fn agree(&mut self, event: Event, wanted: &RuleSet) -> Result<Took, BenchError>;
}

/// Our controller, of some switch.
struct Controlled<S> {
    site: S,
    controller: Option<Controller>,
    has: RuleSet,
}

impl<S: Site> Controlled<S> {
    fn begin(mut site: S, rules: &RuleSet) -> Result<Self, BenchError> {
        let controller = Controller::listen(site.listener()?, rules.all())?;
        site.call()?;
        controller.settled()?;
        site.expect_exactly(rules, rules)?;
        Ok(Self { site, controller: Some(controller), has: rules.clone() })
    }
}

impl<S: Site> Teller for Controlled<S> {
    fn agree(&mut self, event: Event, wanted: &RuleSet) -> Result<Took, BenchError> {
        let gone = || BenchError::Invalid("there is no controller".into());
        let changes = self.has.changes_to(wanted);
        let began = match event {
            Event::Storm(_) => {
                let began = Instant::now();
                self.controller.as_ref().ok_or_else(gone)?.update(changes)?;
                began
            }
            Event::Controller(_) => {
                drop(self.controller.take());
                let all: Vec<_> = wanted.all().collect();
                let began = Instant::now();
                self.controller = Some(Controller::listen(self.site.listener()?, all)?);
                began
            }
            Event::Switch => {
                self.site.power_off()?;
                let began = Instant::now();
                self.site.power_on()?;
                began
            }
        };
        let settled = self.controller.as_ref().ok_or_else(gone)?.settled()?;
        self.site.expect_exactly(wanted, &self.has)?;
        self.has = wanted.clone();
        let since_it_called = settled.called_at.map(|called_at| settled.at - called_at);
        Ok(Took { all: settled.at - began, since_it_called })
    }
}

/// Open vSwitch's own tool. It has no life of its own between two calls: another controller is another call.
struct Tool<'b> {
    bench: &'b Bench,
    site: OvsSite,
    has: RuleSet,
}

impl<'b> Tool<'b> {
    fn begin(bench: &'b Bench, rules: &RuleSet) -> Result<Self, BenchError> {
        let tool = Self { bench, site: OvsSite::start(bench, "agreement-tool")?, has: rules.clone() };
        tool.replace_by(&tool.file(rules)?)?;
        tool.site.expect_exactly(rules, rules)?;
        Ok(tool)
    }

    fn file(&self, wanted: &RuleSet) -> Result<String, BenchError> {
        write(&self.bench.clusters.workplace.place("all.flows"), &wanted.all_lines())
    }

    fn replace_by(&self, file: &str) -> Result<(), BenchError> {
        self.site.tool("replace-flows", &[file]).map(drop)
    }
}

impl Teller for Tool<'_> {
    fn agree(&mut self, event: Event, wanted: &RuleSet) -> Result<Took, BenchError> {
        let (file, is_again) = (self.file(wanted)?, event == Event::Switch);
        if is_again {
            self.site.power_off()?;
        }
        let began = Instant::now();
        if is_again {
            self.site.power_on()?;
        }
        self.replace_by(&file)?;
        let all = began.elapsed();
        self.site.expect_exactly(wanted, &self.has)?;
        self.has = wanted.clone();
        Ok(Took { all, since_it_called: None })
    }
}

pub(super) fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    let mut rules = bench.table();
    let words = format!(
        "{} rules of hashes: of {} cached keys, and {} of a buffer; some are replaced at once, or controller or switch are started again; until the switch has \
         answered the last barrier or has been read, and then its flows, and what the program does with a get of each key, are compared with all that are \
         wanted; Open vSwitch by our controller, and by ovs-ofctl, which replaces flows by those of a file; the program by our controller",
        rules.len(),
        bench.keys,
        bench.buffer
    );
    let mut report = ExperimentReport::new(NAME, "Until a switch has the rules that are wanted", words);
    let site = OvsSite::start(bench, "agreement-controller")?;
    let mut tellers: [(&str, Box<dyn Teller + '_>); 3] = [
        ("guira", Box::new(Controlled::begin(site, &rules)?)),
        ("ovs-ofctl", Box::new(Tool::begin(bench, &rules)?)),
        ("guira, XDP", Box::new(Controlled::begin(XdpSite::new(bench)?, &rules)?)),
    ];
    let events = Event::all(bench.keys, bench.extent.tiny);
    let progress = Progress::new(NAME, (bench.rounds * events.len()) as u64);
    for round in 0..bench.rounds {
        for (at, event) in events.iter().copied().enumerate() {
            progress.at((round * events.len() + at) as u64);
            rules = rules.moved_on(event.differing());
            let len = tellers.len();
            for at in 0..len {
                let (peer, teller) = &mut tellers[(at + round) % len];
                let (variant, took) = (event.name(), teller.agree(event, &rules)?);
                let ms = |took: Duration| took.as_secs_f64() * 1e3;
                report.record(&variant, peer, metric::AGREED_AFTER, ms(took.all));
                if let Some(since) = took.since_it_called {
                    report.record(&variant, peer, metric::SINCE_IT_CALLED, ms(since));
                }
            }
        }
    }
    note_worst(&mut report);
    Ok(report)
}

/// Says of each row how long it took at worst.
fn note_worst(report: &mut ExperimentReport) {
    for row in report.rows.clone() {
        let rounds = row.measurements.iter().filter(|known| known.metric == metric::AGREED_AFTER.name);
        let worst = rounds.flat_map(|known| known.rounds.iter().copied()).fold(0.0, f64::max);
        report.record(&row.variant, &row.peer, metric::AGREED_AT_WORST, worst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_round_is_told_beside_the_median() {
        let mut report = ExperimentReport::new(NAME, "", "");
        for took_ms in [3.0, 9.0, 2.0] {
            report.record("a storm", "guira", metric::AGREED_AFTER, took_ms);
            report.record("a storm", "guira", metric::SINCE_IT_CALLED, 100.0);
        }
        note_worst(&mut report);
        let row = report.row("a storm", "guira").expect("it was recorded");
        assert_eq!((row.median(metric::AGREED_AFTER), row.median(metric::AGREED_AT_WORST)), (Some(3.0), Some(9.0)));
    }
}
