//! Workloads described by a table of statistics: one row a cluster, as published for Twitter's caches
//! (Yang et al., OSDI 2020).
//!
//! Columns are found by name: `cluster`, `key_size_bytes`, `value_size_bytes`, `common_ttl` (`1h:0.7, 300s:0.3`),
//! `operations` (`get:0.9 set:0.1`) and `zipf_alpha` (NA: uniform). Others are ignored; `#` opens a comment.

use std::io::Read;
use std::path::Path;

use crate::error::LoadError;
use crate::key_source::Popularity;
use crate::mix::{Kind, Mix};
use crate::payload::{KEY_LEN_MAX_BYTES, VALUE_LEN_MAX_BYTES, key_len_min_bytes};
use crate::size::Sizes;
use crate::workload::Workload;

/// The largest zipf exponent believed.
const EXPONENT_MAX: f64 = 10.0;
const COLUMNS: [&str; 6] = ["cluster", "key_size_bytes", "value_size_bytes", "common_ttl", "operations", "zipf_alpha"];

/// One row of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// Its number.
    pub number: u32,
    /// Mean key length, bytes.
    pub key_len_bytes: u32,
    /// Mean value length, bytes.
    pub value_len_bytes: u32,
    /// Lifetimes with their shares, seconds.
    pub ttl: Sizes,
    /// Operations.
    pub mix: Mix,
    /// Popularity.
    pub popularity: Popularity,
}

impl Cluster {
    /// A workload like this cluster's over `keys` keys, one operation a turn. Keys are at least long enough to be
    /// told apart.
    pub fn workload(&self, keys: u64) -> Workload {
        let key_len_bytes = self.key_len_bytes.max(key_len_min_bytes(keys) as u32);
        Workload {
            keys,
            popularity: self.popularity,
            mix: self.mix.clone(),
            key_size: Sizes::Fixed(key_len_bytes),
            value_size: Sizes::Fixed(self.value_len_bytes),
            ttl: self.ttl.clone(),
            keys_per_get: 1,
            writes_per_turn: 1,
            seed: u64::from(self.number),
        }
    }
}

/// Reads the whole table at `path`.
pub fn read(path: &Path) -> Result<Vec<Cluster>, LoadError> {
    let file = path.display().to_string();
    let opened = std::fs::File::open(path);
    parse(&file, opened.map_err(|source| LoadError::File { file: file.clone(), source })?)
}

/// Row `number` of the table at `path`.
pub fn cluster(path: &Path, number: u32) -> Result<Cluster, LoadError> {
    let clusters = read(path)?;
    let known: Vec<String> = clusters.iter().map(|cluster| cluster.number.to_string()).collect();
    clusters.into_iter().find(|cluster| cluster.number == number).ok_or_else(|| {
        let file = path.display();
        LoadError::Setting(format!("{file} has no cluster {number}; it has {}", known.join(", ")))
    })
}

/// Reads a table; `file` names it in errors.
pub fn parse(file: &str, input: impl Read) -> Result<Vec<Cluster>, LoadError> {
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).flexible(true).from_reader(input);
    let header = reader.headers().map_err(|error| at(file, line_of(&error), "", error.to_string()))?.clone();
    let header_line = header.position().map_or(1, csv::Position::line);
    let mut columns = [0; COLUMNS.len()];
    for (column, name) in columns.iter_mut().zip(COLUMNS) {
        let found = header.iter().position(|known| known.trim() == name);
        *column = found.ok_or_else(|| at(file, header_line, name, "the table has no such column".into()))?;
    }
    let mut clusters: Vec<Cluster> = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| at(file, line_of(&error), "", error.to_string()))?;
        let line = record.position().map_or(0, csv::Position::line);
        let cell = |column: usize| -> Result<&str, LoadError> {
            let missing = || at(file, line, COLUMNS[column], "is missing".into());
            record.get(columns[column]).map(str::trim).ok_or_else(missing)
        };
        let bad = |column: usize, problem: String| at(file, line, COLUMNS[column], problem);
        let number = |column: usize, max: u32| -> Result<u32, LoadError> {
            let text = cell(column)?;
            let problem = || bad(column, format!("'{text}' is not a whole number up to {max}"));
            text.parse().ok().filter(|number| *number <= max).ok_or_else(problem)
        };
        let cluster = Cluster {
            number: number(0, u32::MAX)?,
            key_len_bytes: number(1, KEY_LEN_MAX_BYTES as u32)?.max(1),
            value_len_bytes: number(2, VALUE_LEN_MAX_BYTES)?,
            ttl: lifetimes(cell(3)?).map_err(|problem| bad(3, problem))?,
            mix: operations(cell(4)?).map_err(|problem| bad(4, problem))?,
            popularity: popularity(cell(5)?).map_err(|problem| bad(5, problem))?,
        };
        if clusters.iter().any(|known| known.number == cluster.number) {
            return Err(bad(0, format!("cluster {} is there twice", cluster.number)));
        }
        clusters.push(cluster);
    }
    Ok(clusters)
}

fn at(file: &str, line: u64, column: &'static str, problem: String) -> LoadError {
    LoadError::Line { file: file.into(), line, column, problem: problem.replace('\n', " ") }
}

fn line_of(error: &csv::Error) -> u64 {
    error.position().map_or(0, csv::Position::line)
}

/// `1h:0.67, 2h:0.33` as seconds with shares; empty for no expiry.
fn lifetimes(text: &str) -> Result<Sizes, String> {
    if text.is_empty() {
        return Ok(Sizes::Fixed(0));
    }
    let pair = |pair: &str| {
        let bad = || format!("'{}' is not like 1.5h:0.25", pair.trim());
        let (time, share) = pair.trim().split_once(':').ok_or_else(bad)?;
        let unit_s = [("s", 1.0), ("m", 60.0), ("h", 3_600.0), ("d", 86_400.0)];
        let (digits, factor) =
            unit_s.iter().find_map(|(unit, factor)| Some((time.strip_suffix(unit)?, *factor))).ok_or_else(bad)?;
        let seconds = digits.parse::<f64>().map_err(|_| bad())? * factor;
        let valid = (0.0..=f64::from(u32::MAX)).contains(&seconds);
        if valid { Ok((seconds as u32, share_of(share).ok_or_else(bad)?)) } else { Err(bad()) }
    };
    Ok(Sizes::Weighted(text.split(',').map(pair).collect::<Result<_, String>>()?))
}

/// `get:0.9 set:0.1` as a mix.
fn operations(text: &str) -> Result<Mix, String> {
    let pair = |pair: &str| {
        let bad = || format!("'{pair}' is not like get:0.9");
        let (name, share) = pair.split_once(':').ok_or_else(bad)?;
        let kind = Kind::named(name).ok_or_else(|| format!("there is no operation '{name}'"))?;
        Ok((kind, share_of(share).ok_or_else(bad)?))
    };
    let pairs: Vec<_> = text.split_whitespace().map(pair).collect::<Result<_, String>>()?;
    Mix::new(pairs).ok_or_else(|| "no operation is left".into())
}

fn share_of(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|share: &f64| (0.0..=1.0).contains(share))
}

fn popularity(text: &str) -> Result<Popularity, String> {
    if matches!(text, "NA" | "N/A" | "") {
        return Ok(Popularity::Uniform);
    }
    let exponent = text.parse().ok().filter(|exponent| (0.0..=EXPONENT_MAX).contains(exponent));
    let exponent = exponent.ok_or_else(|| format!("'{text}' is not an exponent from 0 to {EXPONENT_MAX}"))?;
    Ok(Popularity::Zipf { exponent })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str =
        "# statistics\ncluster,category,key_size_bytes,value_size_bytes,common_ttl,operations,zipf_alpha\n";

    fn one(row: &str) -> Result<Vec<Cluster>, LoadError> {
        parse("table.csv", format!("{HEADER}{row}\n").as_bytes())
    }

    #[test]
    fn a_row_becomes_a_workload() {
        let clusters = one("7,2,17,1936,\"1.5h:0.75, 2d:0.25\",get:0.82 set:0.18,1.0666").expect("well formed");
        let workload = clusters[0].workload(1_000_000);
        assert_eq!(workload.ttl, Sizes::Weighted(vec![(5_400, 0.75), (172_800, 0.25)]));
        assert_eq!(workload.popularity, Popularity::Zipf { exponent: 1.0666 });
        assert!((workload.mix.share(Kind::Set) - 0.18).abs() < 1e-9);
        assert!(workload.check().is_ok());
    }

    #[test]
    fn short_keys_grow_until_they_can_be_told_apart() {
        let clusters = one("45,2,3,120,15d:1.00,get:1.0,NA").expect("well formed");
        assert!(clusters[0].workload(1_000_000).check().is_ok());
        assert_eq!(clusters[0].popularity, Popularity::Uniform);
    }

    #[test]
    fn bad_rows_name_line_and_column() {
        let cases = [
            ("x,2,17,1936,1h:1,get:1,1", "cluster"),
            ("1,2,-17,1936,1h:1,get:1,1", "key_size_bytes"),
            ("1,2,300,1936,1h:1,get:1,1", "key_size_bytes"),
            ("1,2,17,99999999999,1h:1,get:1,1", "value_size_bytes"),
            ("1,2,17,10,1x:1,get:1,1", "common_ttl"),
            ("1,2,17,10,1h:2,get:1,1", "common_ttl"),
            ("1,2,17,10,1h:1,scan:1,1", "operations"),
            ("1,2,17,10,1h:1,,1", "operations"),
            ("1,2,17,10,1h:1,get:1,inf", "zipf_alpha"),
            ("1,2,17,10,1h:1,get:1", "zipf_alpha"),
        ];
        for (row, column) in cases {
            let line = one(row).expect_err(row).to_string();
            assert!(line.starts_with(&format!("table.csv: line 3, column {column}: ")), "{row}: {line}");
            assert!(!line.contains('\n'));
        }
        let line = one("1,2,17,10,1h:1,get:1,1\n1,2,17,10,1h:1,get:1,1").expect_err("twice").to_string();
        assert!(line.contains("line 4"), "{line}");
    }

    #[test]
    fn a_table_without_a_column_says_which() {
        let line = parse("t.csv", &b"cluster,key_size_bytes\n1,2\n"[..]).expect_err("no values").to_string();
        assert_eq!(line, "t.csv: line 1, column value_size_bytes: the table has no such column");
    }
}
