//! What always has to be true of a measurement, on clusters small enough to be measured in a moment.

use guira_item::Span;

use super::*;

/// Eight backends of 1,000 requests a second.
fn small(cache_mode: CacheMode) -> LoadScenario {
    LoadScenario {
        cache_mode,
        backends: 8,
        backend_per_s: 1_000.0,
        cache_per_s: 100_000.0,
        cache_items: 100,
        scale: 1.0,
        settle: Span::from_ms(700),
        measure: Span::from_ms(500),
        ..LoadScenario::default()
    }
}

#[test]
fn every_request_is_answered_once_and_no_node_exceeds_its_rate() {
    for cache_mode in [CacheMode::None, CacheMode::Switched, CacheMode::LookAside, CacheMode::LookThrough] {
        for writes in [None, Some(Writes { share: 0.2, by_popularity: true })] {
            let report = measure(&LoadScenario { writes, ..small(cache_mode) });
            assert_eq!(report.requests, report.requests_answered + report.requests_lost, "{cache_mode:?}");
            assert_eq!(report.wrong_answers, 0, "{cache_mode:?}");
            assert!(report.requests_lost > 0, "some is lost where most is asked: {report:?}");
            // What has begun before may be done in it.
            let busiest = report.backends_per_s[0];
            assert!((900.0..=1_002.0).contains(&busiest), "{cache_mode:?}: {busiest}");
            assert!(report.hits_per_s + report.passed_on as f64 <= 100_010.0, "{cache_mode:?}: {report:?}");
        }
    }
}

#[test]
fn without_a_cache_alike_keys_use_all_backends_and_one_key_uses_one() {
    let alike = measure(&LoadScenario { exponent: 0.0, ..small(CacheMode::None) });
    assert!((7_000.0..8_010.0).contains(&alike.answered_per_s), "{alike:?}");
    let one = LoadScenario { asked: Asked::Hottest(1), ..small(CacheMode::None) };
    let uncached = measure(&one);
    assert!((900.0..1_010.0).contains(&uncached.answered_per_s), "{uncached:?}");
    let cached = measure(&LoadScenario { cache_mode: CacheMode::Switched, settle: Span::from_s(2), ..one });
    assert!(cached.answered_per_s > 20_000.0, "{cached:?}");
}

#[test]
fn a_cache_before_all_is_the_limit_and_one_beside_them_is_not() {
    let slow = |cache_mode| LoadScenario { cache_per_s: 6_000.0, ..small(cache_mode) };
    let beside = measure(&slow(CacheMode::Switched));
    for cache_mode in [CacheMode::LookAside, CacheMode::LookThrough] {
        let before = measure(&slow(cache_mode));
        assert!(before.answered_per_s < 6_010.0, "{before:?}");
        assert!(beside.answered_per_s > before.answered_per_s * 1.4, "{beside:?} {before:?}");
    }
}

#[test]
fn a_miss_takes_as_many_hops_as_its_cache_mode_says() {
    // Little is asked, so that nobody waits: 1 ms at a backend, 10 us at a cache node.
    let us = |cache_mode| {
        let scenario = LoadScenario {
            exponent: 0.0,
            cache_items: 0,
            warms: false,
            offer: Offer::PerSecond(20.0),
            measure: Span::from_s(2),
            ..small(cache_mode)
        };
        measure(&scenario).p50_us
    };
    let near = |measured: f64, us: f64| (measured - us).abs() < us * 0.002;
    assert!(near(us(CacheMode::Switched), 1_020.0));
    assert!(near(us(CacheMode::LookThrough), 1_040.0));
    assert!(near(us(CacheMode::LookAside), 1_050.0));
}

#[test]
fn a_run_repeats_itself() {
    let scenario = LoadScenario {
        change: Some(Change { pattern: Pattern::HotIn, keys: 5, first: Span::from_ms(100), every: Span::from_ms(200) }),
        sample_every: Span::from_ms(100),
        ..small(CacheMode::Switched)
    };
    let first = measure(&scenario);
    assert_eq!(first, measure(&scenario));
    assert_eq!(first.samples.len(), 5);
    assert_ne!(first, measure(&LoadScenario { seed: 2, ..scenario }));
}

#[test]
fn what_becomes_hot_at_once_is_cached_within_half_a_second_when_bursts_are_told() {
    let scenario = LoadScenario {
        backends: 32,
        backend_per_s: 1_000.0,
        cache_items: 1_000,
        reports: Reports::Instant,
        settle: Span::from_s(2),
        measure: Span::from_ms(1_500),
        sample_every: Span::from_ms(100),
        change: Some(Change { pattern: Pattern::HotIn, keys: 20, first: Span::from_ms(500), every: Span::from_s(9) }),
        ..small(CacheMode::Switched)
    };
    let report = measure(&scenario);
    let average =
        |samples: &[Sample]| samples.iter().map(|sample| sample.answered_per_s).sum::<f64>() / samples.len() as f64;
    let before = average(&report.samples[..5]);
    let uncached = measure(&LoadScenario { cache_mode: CacheMode::None, change: None, ..scenario });
    assert!(before > 2.0 * uncached.answered_per_s, "{before} beside {uncached:?}");
    let lost_most = report.samples[5..10].iter().map(|sample| sample.lost).fold(0.0, f64::max);
    assert!(lost_most > 0.02, "it is felt: {report:?}");
    assert!(average(&report.samples[10..]) > 0.9 * before, "{report:?}");
}

/// What is lukewarm may be cached while its rule waits behind many others. When it becomes the hottest key its backend is asked for it all the same, and it is there
/// already: so nothing but its load makes its rule come sooner.
#[test]
fn a_cached_key_that_becomes_the_hottest_does_not_wait_for_its_rule_behind_others() {
    let scenario = |seed, cache_mode| LoadScenario {
        backends: 32,
        backend_per_s: 1_000.0,
        cache_items: 1_000,
        rules_per_s: 40,
        measure: Span::from_s(8),
        sample_every: Span::from_s(1),
        change: Some(Change { pattern: Pattern::HotOut, keys: 500, first: Span::from_us(1), every: Span::from_s(1) }),
        seed,
        ..small(cache_mode)
    };
    // What was cached at first is cold after the second of eight seconds.
    let lasting_per_s = |seed, cache_mode| {
        let samples = measure(&scenario(seed, cache_mode)).samples;
        samples[2..].iter().map(|sample| sample.answered_per_s).sum::<f64>() / 6.0
    };
    for seed in [1, 2] {
        let (cached, uncached) = (lasting_per_s(seed, CacheMode::Switched), lasting_per_s(seed, CacheMode::None));
        assert!(cached > 1.6 * uncached, "seed {seed}: {cached} beside {uncached}");
    }
}
