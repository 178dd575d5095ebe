//! One run as a line of a file: what was varied, and what came of it.

use guira_plan::{Consistency, Deployment, MessageLens};
use serde::{Deserialize, Serialize};

use super::{LoadReport, LoadScenario, Offer, Variant, measure};

/// One run. Rates and times are the paper's.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Which experiment it belongs to.
    pub experiment: String,
    /// What is compared.
    pub variant: Variant,
    /// Nodes.
    pub nodes: u16,
    /// Keys, and those of them that are hot: the paper's, and as simulated.
    pub keys: u64,
    /// Of which are hot.
    pub cached: u64,
    /// As simulated.
    pub simulated_keys: (u64, u64),
    /// Of the zipf distribution.
    pub exponent: f64,
    /// The share of writes.
    pub write_share: f64,
    /// Bytes of a value.
    pub value_len: usize,
    /// Out of each node, bytes a second.
    pub bytes_per_s: f64,
    /// Packets a second; `None`: no limit.
    pub packets_per_s: Option<f64>,
    /// Of each packet.
    pub header_len: usize,
    /// Messages share packets.
    pub coalesces: bool,
    /// Requests a second that are asked; `None`: so many at a time.
    pub offered_per_s: Option<f64>,
    /// Times were so many times as long.
    pub scale: u64,
    /// Everything was drawn from it.
    pub seed: u64,
    /// What came of it.
    pub report: LoadReport,
}

impl Row {
    /// Runs a scenario.
    pub(super) fn run(experiment: &str, scenario: &LoadScenario) -> Self {
        Self {
            experiment: experiment.to_owned(),
            variant: scenario.variant,
            nodes: scenario.nodes,
            keys: scenario.keys,
            cached: if scenario.variant.is_cached() { scenario.cached } else { 0 },
            simulated_keys: scenario.simulated_keys(),
            exponent: if scenario.variant == Variant::Uniform { 0.0 } else { scenario.exponent },
            write_share: scenario.write_share,
            value_len: scenario.value_len,
            bytes_per_s: scenario.bytes_per_s,
            packets_per_s: scenario.packets_per_s.is_finite().then_some(scenario.packets_per_s),
            header_len: scenario.header_len,
            coalesces: scenario.coalesces,
            offered_per_s: match scenario.offer {
                Offer::Outstanding(_) => None,
                Offer::PerSecond(per_s) => Some(per_s),
            },
            scale: scenario.scale,
            seed: scenario.seed,
            report: measure(scenario),
        }
    }

    /// As equations 1 to 7 have it, at the hit ratio that was seen, with messages of such bytes.
    pub fn deployment(&self, lens: MessageLens) -> Option<Deployment> {
        let Self { nodes, bytes_per_s, write_share, report, .. } = self;
        Deployment::new(u32::from(*nodes), 1, *bytes_per_s, report.hit_share, *write_share, lens).ok()
    }

    fn consistency(&self) -> Consistency {
        if self.variant == Variant::Sc { Consistency::Sc } else { Consistency::Lin }
    }

    /// What the equations give with the bytes that our messages had: requests a second.
    pub fn planned_per_s(&self) -> Option<f64> {
        self.deployment(self.report.traffic.lens())?.requests_per_s(self.consistency())
    }

    /// Bytes that a request took of the network, all that was sent.
    pub fn bytes_a_request(&self) -> f64 {
        self.report.traffic.len() as f64 / self.report.answered as f64
    }

    /// The same, as the equations have it.
    pub fn planned_bytes(&self) -> Option<f64> {
        let deployment = self.deployment(self.report.traffic.lens())?;
        Some(deployment.bytes_of_misses() + deployment.bytes_of_consistency(self.consistency()))
    }

    /// The run of another variant that is alike but for that.
    pub(super) fn beside<'rows>(&self, variant: Variant, rows: &[&'rows Row]) -> Option<&'rows Row> {
        let is_alike = |other: &&Row| {
            other.variant == variant
                && (other.nodes, other.seed, other.value_len) == (self.nodes, self.seed, self.value_len)
                && (other.coalesces, other.offered_per_s) == (self.coalesces, self.offered_per_s)
                && (variant == Variant::Uniform || other.exponent == self.exponent)
        };
        // What has no cache is the same at any share of writes, which need not be there.
        let of_writes = |other: &&Row| other.write_share == self.write_share;
        let alike: Vec<&'rows Row> = rows.iter().copied().filter(is_alike).collect();
        alike.iter().copied().find(of_writes).or_else(|| alike.first().copied())
    }

    /// Times the throughput of the run beside it.
    pub(super) fn times(&self, variant: Variant, rows: &[&Row]) -> Option<f64> {
        Some(self.report.answered_per_s / self.beside(variant, rows)?.report.answered_per_s)
    }
}
