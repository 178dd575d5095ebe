//! How many packets a core routes in a second: the program, beside one that only forwards, and beside the gateway's router.
//!
//! The kernel shows the program frames as if they had come by a link, and what it sends leaves by one: the time of that is the core's, with that of the far
//! end, which takes frames in and drops them on the same core. A frame is shown so many times before it is the next one's turn, since the kernel takes one
//! at a time. Dry, nothing leaves, and the time is that of the program alone.

use std::time::{Duration, Instant};

use guira_loadgen::affinity;
use guira_loadgen::progress::Progress;
use guira_openflow::{Actions, FlowKey, Lookups};
use guira_xdp::{Action, Frames, Mode, Router};

use super::bench::Bench;
use super::gateways::Gateway;
use super::rule_set::{RuleSet, answer_frame, get_frame};
use super::wire::Wire;
use crate::error::BenchError;
use crate::metric;
use crate::report::{Aim, ExperimentReport};

pub(super) const NAME: &str = "packets";

/// Frames that are shown in turn.
const FRAMES: u64 = 64;

/// Times that one is shown before the next: what the kernel does for each call is little beside that.
const REPEAT: u32 = 4_096;

/// The same where nothing leaves.
const DRY_REPEAT: u32 = 10_000;

const AIMS: [Aim; 2] = [
    Aim { peer: "guira", variant: None, metric: metric::OVER_GATEWAY, bound: 3.0 },
    Aim { peer: "forward", variant: None, metric: metric::FORWARDING_OVER, bound: 1.3 },
];

/// What frames are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mix {
    /// Gets of cached keys.
    Hits,
    /// Gets of keys that are not.
    Misses,
    /// Both by turns.
    Half,
    /// Answers to a gateway.
    Answers,
}

impl Mix {
    const ALL: [Self; 4] = [Self::Hits, Self::Misses, Self::Half, Self::Answers];

    fn name(self) -> &'static str {
        match self {
            Self::Hits => "hits",
            Self::Misses => "misses",
            Self::Half => "hits and misses",
            Self::Answers => "answers",
        }
    }

    /// Frames that are spread over all that the set has rules for, and over as much that it has none for.
    fn frames(self, rules: &RuleSet) -> Vec<(Goes, Vec<u8>)> {
        let (first, step) = (rules.keys().start, (rules.len() / FRAMES).max(1));
        let hit = |at: u64| (Goes::ByHash, get_frame(first + at * step % rules.len()));
        let miss = |at: u64| (Goes::ByBackend, get_frame(rules.keys().end + at * step));
        let frame = |at: u64| match self {
            Self::Hits => hit(at),
            Self::Misses => miss(at),
            Self::Half if at.is_multiple_of(2) => hit(at / 2),
            Self::Half => miss(at / 2),
            Self::Answers => (Goes::ToMember, answer_frame(at)),
        };
        (0..FRAMES).map(frame).collect()
    }
}

/// What a frame is routed by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Goes {
    ByHash,
    ByBackend,
    ToMember,
}

/// A program on links of its own, whose far ends take frames in. Dropped in this order.
struct Contestant {
    peer: &'static str,
    router: Router,
    _drops: Router,
    wire: Wire,
}

impl Contestant {
    fn start(peer: &'static str, action: Action, rules: &RuleSet) -> Result<Self, BenchError> {
        let wire = Wire::new()?;
        // Without who takes frames as drivers do the driver sends none.
        let drops = wire.drops()?;
        let mut router = wire.router(2 * rules.len(), action, Some(Mode::Driver))?;
        if action == Action::Route {
            make(&mut router, rules.all())?;
        }
        Ok(Self { peer, router, _drops: drops, wire })
    }

    /// What is done on the core, in the box.
    fn on_core<T: Send>(
        &self,
        core: usize,
        act: impl FnOnce() -> Result<T, BenchError> + Send,
    ) -> Result<T, BenchError> {
        self.wire.within(|| {
            let _pinned = affinity::pin(core).map_err(|error| BenchError::Invalid(error.to_string()))?;
            act()
        })
    }

    /// Packets a second, of which all have arrived where they were to.
    fn live(&self, core: usize, frames: &[(Goes, Vec<u8>)], span: Duration) -> Result<f64, BenchError> {
        let (arrived, counts, sent) = (self.wire.arrived()?, self.router.counts(), self.sent());
        let (turns, took) = self.on_core(core, || {
            // Not timed: what was not used for a while is near again.
            try_frame(&self.router, &frames[0].1, REPEAT, Frames::Live)?;
            let (began, mut turns) = (Instant::now(), vec![0_u64; frames.len()]);
            for (at, (_, frame)) in frames.iter().enumerate().cycle() {
                try_frame(&self.router, frame, REPEAT, Frames::Live)?;
                turns[at] += 1;
                if began.elapsed() >= span {
                    break;
                }
            }
            Ok((turns, began.elapsed()))
        })?;
        let shown = |turns: u64| turns * u64::from(REPEAT);
        let all = shown(turns.iter().sum());
        let warm_up = u64::from(REPEAT);
        self.wire.expect_arrived(&arrived, all + warm_up)?;
        if self.peer == "guira" {
            let of = |goes: Goes| {
                let of_kind = frames.iter().zip(&turns).filter(|((its, _), _)| *its == goes);
                let first = if frames[0].0 == goes { warm_up } else { 0 };
                shown(of_kind.map(|(_, turns)| turns).sum()) + first
            };
            let expected = [of(Goes::ByHash), of(Goes::ByBackend), of(Goes::ToMember), 0, all + warm_up];
            let now = self.router.counts();
            let counted = [
                now.by_hash - counts.by_hash,
                now.by_backend - counts.by_backend,
                now.to_member - counts.to_member,
                now.of_nobody - counts.of_nobody,
                self.sent() - sent,
            ];
            if counted != expected {
                return Err(BenchError::Invalid(format!(
                    "by hash, by backend, to members, dropped and sent there were {counted:?} frames, and not {expected:?}"
                )));
            }
        }
        Ok(all as f64 / took.as_secs_f64())
    }

    fn sent(&self) -> u64 {
        self.router.links().iter().map(|link| link.sent).sum()
    }

    /// Nanoseconds of the program alone for a packet.
    fn dry(&self, core: usize, frames: &[(Goes, Vec<u8>)], repeat: u32) -> Result<f64, BenchError> {
        self.on_core(core, || {
            let tried = frames.iter().map(|(_, frame)| try_frame(&self.router, frame, repeat, Frames::Dry));
            let all_ns = tried.sum::<Result<u64, BenchError>>()?;
            Ok(all_ns as f64 / frames.len() as f64)
        })
    }
}

fn try_frame(router: &Router, frame: &[u8], repeat: u32, frames: Frames) -> Result<u64, BenchError> {
    let trial = router.try_frame(frame, repeat, frames, &mut [0; 256]);
    let trial = trial.map_err(|source| BenchError::System { doing: "showing the program a frame", source })?;
    Ok(trial.took_ns.into())
}

/// Makes rules without anybody between.
pub(super) fn make(router: &mut Router, rules: impl IntoIterator<Item = (FlowKey, Actions)>) -> Result<(), BenchError> {
    let refused = |refusal| BenchError::Invalid(format!("the program refuses a rule: {refusal:?}"));
    rules.into_iter().try_for_each(|(key, actions)| router.make(key, actions)).map_err(refused)
}

pub(super) fn run(bench: &Bench) -> Result<ExperimentReport, BenchError> {
    let rules = bench.cached();
    let words = format!(
        "frames of {} B, {FRAMES} different ones in turn, each {REPEAT} times, with rules for {} hashes, on one core; they leave by a veth, whose far end counts \
         and drops them on the same core; beside a gateway ({} connections, each of which reads one of {} keys after the other, all of them cached or none), of \
         whose CPU time a get is two packets, there and back",
        get_frame(0).len(),
        rules.len(),
        bench.clusters.connections,
        bench.clusters.keys
    );
    let mut report = ExperimentReport::new(NAME, "Packets that a core routes", words);
    let contestants =
        [Contestant::start("guira", Action::Route, &rules)?, Contestant::start("forward", Action::Forward, &rules)?];
    let gateways = [(Mix::Hits, Gateway::with_hits(bench)?), (Mix::Misses, Gateway::with_misses(bench)?)];
    let progress = Progress::new(NAME, bench.rounds as u64);
    for round in 0..bench.rounds {
        progress.at(round as u64);
        for mix in Mix::ALL {
            let (variant, frames) = (mix.name(), mix.frames(&rules));
            let mut per_s = [0.0; 2];
            for at in [round % 2, 1 - round % 2] {
                let contestant = &contestants[at];
                per_s[at] = contestant.live(bench.core, &frames, bench.measure)?;
                report.record(variant, contestant.peer, metric::PACKETS, per_s[at]);
                let took_ns = contestant.dry(bench.core, &frames, bench.extent.scaled(DRY_REPEAT, 100))?;
                report.record(variant, contestant.peer, metric::PACKET_NS, took_ns);
            }
            let [ours, forwarding] = per_s;
            report.record(variant, "forward", metric::FORWARDING_OVER, forwarding / ours);
            if let Some((_, gateway)) = gateways.iter().find(|(its, _)| *its == mix) {
                let of_gateway = gateway.measure(NAME, &mut report, variant)?;
                report.record(variant, "guira", metric::OVER_GATEWAY, ours / of_gateway);
            }
        }
    }
    gateways.into_iter().try_for_each(|(_, gateway)| gateway.down())?;
    AIMS.iter().for_each(|aim| report.aim(aim));
    report.notes.push(
        "the kernel shows the program one frame many times, so that its rule is in the core's nearest cache each time but the first".into(),
    );
    report.notes.push(
        "what is shown has been received already (BPF_PROG_TEST_RUN), and of a gateway's time most is its clients': with another router it still speaks to them"
            .into(),
    );
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_of_the_mix_and_all_different() {
        for rules in [RuleSet::of(0..10_000), RuleSet::of(7..507)] {
            for mix in Mix::ALL {
                let frames = mix.frames(&rules);
                assert_eq!(frames.len(), FRAMES as usize);
                let mut distinct: Vec<&Vec<u8>> = frames.iter().map(|(_, frame)| frame).collect();
                distinct.sort_unstable();
                distinct.dedup();
                assert_eq!(distinct.len(), FRAMES as usize, "{mix:?}");
            }
            let hits = Mix::Half.frames(&rules).iter().filter(|(goes, _)| *goes == Goes::ByHash).count();
            assert_eq!(hits, FRAMES as usize / 2);
        }
    }
}
