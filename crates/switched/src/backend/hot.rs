//! Who is hot at a backend: the trackers, and when what they find is told.

use guira_hotkeys::{Alpha, BurstLog, HotKey, KeyHasher, Sampler, TopKeys};
use guira_item::{Moment, Span};
use serde::{Deserialize, Serialize, Serializer, ser::SerializeStruct};

use crate::Loaded;

/// What is told to cache nodes (SwitchKV, section 4.4; what is told of every query is its "traditional" method).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reports {
    /// Every key that is read, at once.
    EveryQuery,
    /// The hottest of each segment.
    Periodic,
    /// Bursts, at once, and that they have grown.
    Instant,
    /// The hottest of each segment, and bursts.
    #[default]
    Both,
    /// Nothing: nothing is counted either.
    None,
}

/// How hot keys are found. The defaults are the paper's (section 4.4).
#[derive(Clone, Debug)]
pub struct HotConfig {
    /// What is told.
    pub reports: Reports,
    /// How long a segment is.
    pub segment: Span,
    /// Keys in a report that are not cached; up to four times as many if each of those beyond is a four-hundredth of what the node does, or more. As many that are cached may
    /// be there beside them.
    pub reported: usize,
    /// Keys that are counted in a segment.
    pub tracked: usize,
    /// How much the last segment weighs.
    pub alpha: Alpha,
    /// One query in so many is counted.
    pub sample_one_in: u32,
    /// Queries in the log of the last ones.
    pub burst_log: usize,
    /// Visits among them beyond which a key bursts.
    pub burst_visits: u32,
    /// The node's own load, queries a second, below which nothing bursts, and no report has more than `reported`.
    pub burst_load_min: f64,
    /// Seeds the trackers.
    pub seed: u64,
}

impl Default for HotConfig {
    fn default() -> Self {
        Self {
            reports: Reports::Both,
            segment: Span::from_s(1),
            reported: 5,
            tracked: 1_000,
            alpha: Alpha::new(0.5).expect("between 0 and 1"),
            sample_one_in: 1,
            burst_log: 200,
            burst_visits: 8,
            burst_load_min: 100.0,
            seed: 0,
        }
    }
}

/// How many times the keys of a report have their loads kept from segment to segment. Some of them are cached, and wait for a rule; and of a key that is lukewarm more than
/// one segment is known, though it is not among the hottest of each.
pub(super) const KEPT_PER_REPORTED: usize = 4;

/// A key that is kept and has this share of its backend's queries is reported even behind the first `reported`: when hundreds become hot at once, some backends have more
/// of them than that, and would be asked for the rest for another segment.
const REPORTED_SHARE: f64 = 1.0 / 400.0;

/// The trackers of one backend.
#[derive(Clone, Debug)]
pub(super) struct HotKeys {
    config: HotConfig,
    sampler: Sampler,
    /// Of the seed of both trackers.
    hasher: KeyHasher,
    top: TopKeys,
    log: BurstLog,
    segment_from: Moment,
    /// In this segment, not sampled.
    queries: u64,
    /// In the last one.
    per_s: f64,
}

/// What of it can matter later: for who compares states.
impl Serialize for HotKeys {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut fields = to.serialize_struct("HotKeys", 3)?;
        fields.serialize_field("wake_at", &self.wake_at())?;
        fields.serialize_field("seen", &self.top.seen().collect::<Vec<_>>())?;
        fields.serialize_field("queries", &self.queries)?;
        fields.end()
    }
}

impl HotKeys {
    pub(super) fn new(config: &HotConfig, now: Moment) -> Self {
        // No more than are counted; who is to report more than that is refused by the tracker.
        let kept = (config.reported * KEPT_PER_REPORTED).min(config.tracked.max(config.reported));
        Self {
            sampler: Sampler::new(config.sample_one_in, config.seed),
            hasher: KeyHasher::new(config.seed),
            top: TopKeys::new(kept, config.tracked, config.alpha, config.seed),
            log: BurstLog::new(config.burst_log, config.seed),
            segment_from: now,
            queries: 0,
            per_s: 0.0,
            config: config.clone(),
        }
    }

    /// Counts a read; whether its key is to be told at once.
    pub(super) fn see(&mut self, key: &[u8], now: Moment) -> bool {
        self.queries += 1;
        if self.config.reports == Reports::None {
            return false;
        }
        let key = self.hasher.hash(key);
        if self.sampler.picks() {
            self.top.see_hashed(key);
        }
        match self.config.reports {
            Reports::EveryQuery => true,
            Reports::Periodic | Reports::None => false,
            Reports::Instant | Reports::Both => {
                self.log.see_hashed(key) > self.config.burst_visits && self.load(now) >= self.config.burst_load_min
            }
        }
    }

    /// Queries a second of late: of the last segment, or of this one if that is more already.
    pub(super) fn load(&self, now: Moment) -> f64 {
        let elapsed_s = now.since(self.segment_from).as_s().max(self.config.segment.as_s() / 8.0);
        self.per_s.max(self.queries as f64 / elapsed_s)
    }

    /// The load of a key that bursts, by its share of the queries since its first one in the log; the least that one can have, if it is not there.
    pub(super) fn burst_load(&self, key: &[u8], now: Moment) -> f32 {
        let least = f64::from(self.config.burst_visits) / self.config.burst_log as f64;
        (self.load(now) * self.log.share(key).max(least)) as f32
    }

    /// The hottest keys that are not cached, and the hottest of those that are and are asked for here all the same; if a segment is over.
    pub(super) fn report(&mut self, now: Moment, is_cached: impl Fn(&[u8]) -> bool) -> Option<Vec<Loaded>> {
        let elapsed = now.since(self.segment_from);
        if elapsed < self.config.segment {
            return None;
        }
        let elapsed_s = elapsed.as_s();
        self.top.end_segment(f64::from(self.config.sample_one_in) / elapsed_s);
        self.per_s = self.queries as f64 / elapsed_s;
        (self.queries, self.segment_from) = (0, now);
        let (cached, others): (Vec<&HotKey>, Vec<&HotKey>) =
            self.top.hottest().iter().partition(|hot| is_cached(&hot.key));
        // What was drawn once by chance is not much of anything.
        let drawn_once = f64::from(self.config.sample_one_in - 1) / elapsed_s;
        let least = drawn_once.max(self.per_s * REPORTED_SHARE);
        let is_much = |hot: &HotKey| self.per_s >= self.config.burst_load_min && hot.per_s >= least;
        let reported = self.config.reported;
        let others = others.into_iter().enumerate().filter(|(at, hot)| *at < reported || is_much(hot));
        let all = others.map(|(_, hot)| hot).chain(cached.into_iter().take(reported));
        Some(all.map(|hot| Loaded { key: (*hot.key).into(), per_s: hot.per_s as f32 }).collect())
    }

    pub(super) fn wake_at(&self) -> Moment {
        self.segment_from + self.config.segment
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is reported after a second in which each of these was asked for so often; keys from 100 on are cached.
    fn reported(visits: &[(u8, usize)], burst_load_min: f64) -> Vec<u8> {
        let config = HotConfig { burst_load_min, alpha: Alpha::new(1.0).expect("an alpha"), ..HotConfig::default() };
        let (mut hot, begins) = (HotKeys::new(&config, Moment::default()), Moment::default());
        for (key, times) in visits {
            (0..*times).for_each(|_| {
                hot.see(&[*key], begins);
            });
        }
        assert!(hot.report(begins + Span::from_ms(999), |_| false).is_none(), "it is not over");
        let reported = hot.report(begins + Span::from_s(1), |key| key[0] >= 100).expect("it is over");
        reported.iter().map(|loaded| loaded.key.0[0]).collect()
    }

    #[test]
    fn cached_keys_take_no_place_from_others() {
        let cached = (100..108).map(|key| (key, 900 - usize::from(key)));
        let others = (0..8).map(|key| (key, 90 - usize::from(key)));
        let visits: Vec<_> = cached.chain(others).collect();
        assert_eq!(reported(&visits, f64::INFINITY), [0, 1, 2, 3, 4, 100, 101, 102, 103, 104]);
    }

    #[test]
    fn of_what_is_sampled_one_query_alone_is_not_much() {
        let config = HotConfig { sample_one_in: 50, burst_load_min: 0.0, ..HotConfig::default() };
        let (mut hot, begins) = (HotKeys::new(&config, Moment::default()), Moment::default());
        // One key is a half of all, and each other one is asked for once: some forty of each are drawn.
        for key in (0..2_000u32).flat_map(|key| [0, key]) {
            hot.see(&key.to_le_bytes(), begins);
        }
        let reported = hot.report(begins + Span::from_s(1), |_| false).expect("it is over");
        assert_eq!(&*reported[0].key.0, 0u32.to_le_bytes());
        assert!((500.0..2_000.0).contains(&reported[0].per_s), "{}, half of a first segment's", reported[0].per_s);
        assert!(reported.len() <= config.reported, "{} keys", reported.len());
    }

    #[test]
    fn what_is_much_of_the_load_is_reported_behind_the_hottest_unless_there_is_little_to_do() {
        // The last has less than a four-hundredth.
        let visits: Vec<_> = (0..7).map(|key| (key, 100 - usize::from(key))).chain([(7, 1)]).collect();
        assert_eq!(reported(&visits, 100.0), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(reported(&visits, 1_000.0), [0, 1, 2, 3, 4]);
        let many: Vec<_> = (0..30).map(|key| (key, 100 - usize::from(key))).collect();
        assert_eq!(reported(&many, 100.0), (0..20).collect::<Vec<_>>(), "no more than are kept");
    }
}
