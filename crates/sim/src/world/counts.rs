//! What members and their surroundings have counted.

use super::World;
use crate::{members::Core, scenario::Report, switch::SwitchCounts, table::TableCounts};

impl World {
    /// Adds what a core has counted, which goes with it.
    pub(super) fn count(&mut self, core: &Core) {
        match core {
            Core::Backend(core) => {
                self.report.lease_waits += core.counts().lease_waits;
                self.report.two_phased += core.counts().two_phased;
                self.report.given += core.counts().given;
            }
            Core::Cache(core) => {
                self.report.cache_hits += core.counts().hits;
                self.report.cache_updates += core.counts().updated;
            }
            Core::Controller(core) => self.report.charges += core.counts().charges,
            Core::Gateway(core) => {
                self.report.moved += core.counts().moved;
                self.report.hedged += core.counts().hedged;
                self.report.away += core.counts().away;
                self.count_rules(core.rules().counts());
            }
        }
    }

    fn count_rules(&mut self, SwitchCounts { waited, replaced, refused }: SwitchCounts) {
        self.report.rules_waited += waited;
        self.report.rules_replaced += replaced;
        self.report.rules_refused += refused;
    }

    /// What has come of it all.
    pub(super) fn all_counted(mut self) -> Report {
        self.count_rules(self.switch.counts());
        for (_, node) in std::mem::take(&mut self.nodes) {
            if let Some(core) = &node.core {
                self.count(core);
            }
            let TableCounts { came_late, news } = node.disk.take_counts();
            self.report.came_late += came_late;
            self.report.news += news;
        }
        let tally = self.clients.tally;
        Report {
            operations: tally.asked,
            answered: tally.answered,
            failed: tally.failed,
            unknown: tally.unknown,
            came_due: tally.came_due,
            ..self.report
        }
    }
}
