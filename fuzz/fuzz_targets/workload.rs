//! What the load generator may be told to do: a trace, a table of clusters, sizes, targets. The first byte says which.
#![no_main]

use std::io::{self, Read};

use guira_loadgen::error::LoadError;
use guira_loadgen::key_source::Popularity;
use guira_loadgen::mix::Kind;
use guira_loadgen::pacing::Arrivals;
use guira_loadgen::payload::{KEY_LEN_MAX_BYTES, VALUE_LEN_MAX_BYTES};
use guira_loadgen::rate_search::Goal;
use guira_loadgen::size::Sizes;
use guira_loadgen::trace::{Request, Trace};
use guira_loadgen::workload_table::{self, Cluster};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let [pick, piece_len, rest @ ..] = data else { return };
    match pick % 4 {
        0 => check_trace(rest, 1 + usize::from(*piece_len)),
        1 => check_table(rest, 1 + usize::from(*piece_len)),
        2 => check_sizes(&String::from_utf8_lossy(rest)),
        _ => check_targets(&String::from_utf8_lossy(rest)),
    }
});

/// A file that comes in pieces.
struct Pieces<'a> {
    bytes: &'a [u8],
    piece_len: usize,
}

impl Read for Pieces<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let len = self.piece_len.min(into.len());
        self.bytes.read(&mut into[..len])
    }
}

/// A bad line is one line, and says where it is.
fn check_error(error: &LoadError) -> u64 {
    let text = error.to_string();
    assert!(text.starts_with("file: line ") && !text.contains('\n'), "{text}");
    let LoadError::Line { line, .. } = error else { panic!("{text}") };
    *line
}

/// In pieces the trace is the same; every line is a request in its bounds or a mistake that is named; a request that was read
/// can be written down again.
fn check_trace(bytes: &[u8], piece_len: usize) {
    let read = |piece_len| -> Vec<Result<Request, LoadError>> {
        Trace::new("file".into(), Pieces { bytes, piece_len }).collect()
    };
    let rows = read(usize::MAX);
    assert_eq!(format!("{rows:?}"), format!("{:?}", read(piece_len)));
    let lines = bytes.split(|byte| *byte == b'\n').count();
    assert!(rows.len() <= lines);
    let mistakes: Vec<u64> = rows.iter().filter_map(|row| row.as_ref().err()).map(check_error).collect();
    assert!(mistakes.is_sorted() && mistakes.iter().all(|line| (1..=lines as u64).contains(line)));
    let requests: Vec<Request> = rows.into_iter().flatten().collect();
    let mut again = String::new();
    for Request { timestamp_s, key, value_len_bytes, client_id, kind, ttl_s } in &requests {
        assert!((1..=KEY_LEN_MAX_BYTES).contains(&key.len()) && key.iter().all(|byte| *byte > b' ' && *byte != 127));
        assert!(*value_len_bytes <= VALUE_LEN_MAX_BYTES);
        let (key, key_len, name) = (std::str::from_utf8(key).expect("of a text"), key.len(), kind.name());
        again += &format!("{timestamp_s},{key},{key_len},{value_len_bytes},{client_id},{name},{ttl_s}\n");
    }
    let read: Result<Vec<Request>, _> = Trace::new("file".into(), again.as_bytes()).collect();
    assert_eq!(read.expect(&again), requests);
}

const HEADER: &str = "cluster,key_size_bytes,value_size_bytes,common_ttl,operations,zipf_alpha\n";

/// In pieces the table is the same; every cluster is a workload that can be asked for, and can be written down again.
fn check_table(bytes: &[u8], piece_len: usize) {
    let bytes = [HEADER.as_bytes(), bytes].concat();
    let read = |piece_len| workload_table::parse("file", Pieces { bytes: &bytes, piece_len });
    let table = read(usize::MAX);
    assert_eq!(format!("{table:?}"), format!("{:?}", read(piece_len)));
    let clusters = match table {
        Ok(clusters) => clusters,
        Err(error) => {
            check_error(&error);
            return;
        }
    };
    for (index, cluster) in clusters.iter().enumerate() {
        assert!(clusters[..index].iter().all(|other| other.number != cluster.number));
        assert!(cluster.workload(1_000_000).check().is_ok(), "{cluster:?}");
        let row = row_of(cluster);
        let again = workload_table::parse("file", format!("{HEADER}{row}\n").as_bytes()).expect(&row).remove(0);
        // Shares are divided by their sum, so that those of the second reading differ in their last digits.
        let differs = |kind: Kind| (cluster.mix.share(kind) - again.mix.share(kind)).abs() > 1e-9;
        assert!(!cluster.mix.kinds().any(differs), "{row}");
        assert_eq!(Cluster { mix: cluster.mix.clone(), ..again }, *cluster, "{row}");
    }
}

fn row_of(cluster: &Cluster) -> String {
    let Cluster { number, key_len_bytes, value_len_bytes, ttl, mix, popularity } = cluster;
    let lifetimes = match ttl {
        Sizes::Weighted(list) => list.iter().map(|(s, share)| format!("{s}s:{share}")).collect::<Vec<_>>().join(","),
        _ => String::new(),
    };
    let mut kinds: Vec<Kind> = mix.kinds().collect();
    kinds.sort_by_key(|kind| kind.name());
    kinds.dedup();
    let operations = kinds.iter().map(|kind| format!("{}:{}", kind.name(), mix.share(*kind).min(1.0)));
    let operations = operations.collect::<Vec<_>>().join(" ");
    let exponent = match popularity {
        Popularity::Zipf { exponent } => exponent.to_string(),
        _ => "NA".into(),
    };
    format!("{number},{key_len_bytes},{value_len_bytes},\"{lifetimes}\",{operations},{exponent}")
}

/// Sizes that were understood come up within their bounds, and can be said again.
fn check_sizes(text: &str) {
    let Ok(sizes) = text.parse::<Sizes>() else { return };
    let (min, max) = sizes.bounds();
    assert!((0..32).all(|id| (min..=max).contains(&sizes.of(id, 1))));
    assert!(sizes.fixed().is_none_or(|size| size == min && size == max));
    let again = match &sizes {
        Sizes::Fixed(size) => size.to_string(),
        Sizes::Even { min, max } => format!("{min}-{max}"),
        Sizes::Weighted(list) => {
            assert!(list.iter().map(|(_, weight)| weight).sum::<f64>().is_finite());
            list.iter().map(|(size, weight)| format!("{size}:{weight}")).collect::<Vec<_>>().join(",")
        }
    };
    assert_eq!(again.parse(), Ok(sizes));
}

/// A target that was understood can be met or missed, and can be said again up to rounding.
fn check_targets(text: &str) {
    let _ = text.parse::<Arrivals>();
    let Ok(goal) = text.parse::<Goal>() else { return };
    let numbers = |goal: &Goal| match *goal {
        Goal::Latency { quantile, max_us } => [quantile, max_us],
        Goal::Errors { max } | Goal::Misses { max } => [1.0, max],
    };
    let [quantile, max] = numbers(&goal);
    assert!((0.0..=1.0).contains(&quantile) && (0.0..=f64::MAX).contains(&max));
    let again = match goal {
        Goal::Latency { .. } => format!("p{}={max}us", quantile * 100.0),
        Goal::Errors { .. } => format!("errors={max}"),
        Goal::Misses { .. } => format!("misses={max}"),
    };
    let again: Goal = again.parse().expect(&again);
    assert_eq!(std::mem::discriminant(&again), std::mem::discriminant(&goal));
    assert!(numbers(&again).iter().zip([quantile, max]).all(|(again, first)| (again - first).abs() <= first * 1e-9));
}
