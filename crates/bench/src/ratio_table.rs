//! Ratios as a table: a line a variant, a column a peer, since there are too many for a line each.
//!
//! ```text
//!   guira's throughput over   chaining   cuckoo
//!     1 thread                   2.08x    1.51x
//! ```

use std::fmt;

use crate::report::Ratio;

/// Writes ratios of one experiment, one table a metric.
pub(crate) struct RatioTable<'a>(pub &'a [Ratio]);

fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut list: Vec<&str> = Vec::new();
    for name in names {
        if !list.contains(&name) {
            list.push(name);
        }
    }
    list
}

impl fmt::Display for RatioTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for metric in distinct(self.0.iter().map(|ratio| ratio.metric.as_str())) {
            let ratios: Vec<&Ratio> = self.0.iter().filter(|ratio| ratio.metric == metric).collect();
            let peers = distinct(ratios.iter().map(|ratio| ratio.over.as_str()));
            let variants = distinct(ratios.iter().map(|ratio| ratio.variant.as_str()));
            let heading = format!("guira's {metric}, times better than");
            let first = variants.iter().map(|variant| variant.len() + 2).max().unwrap_or(0).max(heading.len());
            write!(f, "  {heading:first$}")?;
            peers.iter().try_for_each(|peer| write!(f, "{peer:>0$}", peer.len().max(6) + 2))?;
            writeln!(f)?;
            for variant in variants {
                write!(f, "    {variant:0$}", first - 2)?;
                for peer in &peers {
                    let known = ratios.iter().find(|ratio| ratio.variant == variant && ratio.over == *peer);
                    let text = known.map_or_else(|| "-".to_string(), |ratio| format!("{:.2}x", ratio.times_better));
                    write!(f, "{text:>0$}", peer.len().max(6) + 2)?;
                }
                writeln!(f)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_a_variant_and_a_column_a_peer() {
        let ratio = |variant: &str, over: &str, times_better| Ratio {
            variant: variant.into(),
            metric: "throughput".into(),
            over: over.into(),
            times_better,
        };
        let ratios =
            [ratio("1 thread", "chaining", 2.0), ratio("1 thread", "cuckoo", 1.5), ratio("all", "cuckoo", 3.0)];
        let text = RatioTable(&ratios).to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[1].contains("1 thread") && lines[1].contains("2.00x") && lines[1].ends_with("1.50x"), "{text}");
        assert!(lines[2].contains('-') && lines[2].ends_with("3.00x"), "{text}");
    }
}
