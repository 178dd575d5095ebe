//! Charts as SVG and PNG, with an embedded font, so that a plot needs nothing installed.
//!
//! ```text
//!   LineChart: over a quantity      BarChart: over names         both: panels side by side that share the scale;
//!     |     _.o                       guira     |======| 8.66M   medians, and the range of the rounds
//!     | .o-'  _.#                     memcached |=| 1.54M
//!     |o__.#-'                                  +---------
//!     +----------
//! ```
//! Always true: no text lies on other text or on data. Legends stand above the panels, names of bars beside them, and a label
//! of the axis without room is left out.

mod bars;
mod lines;
mod scale;
mod sheet;

pub use bars::{Bar, BarChart, BarPanel, Role};
pub use lines::{Line, LineChart, LinePanel};
pub use sheet::Sheet;

use plotters::style::RGBColor;

/// Colours that stay apart in grey and for colour-blind eyes (Okabe & Ito, 2008), and darker ones for charts of many lines.
const COLOURS: [RGBColor; 12] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(213, 94, 0),
    RGBColor(86, 180, 233),
    RGBColor(120, 120, 120),
    RGBColor(200, 180, 0),
    RGBColor(110, 50, 10),
    RGBColor(80, 30, 120),
    RGBColor(0, 80, 70),
    RGBColor(170, 20, 60),
];
const INK: RGBColor = RGBColor(30, 30, 30);
const GRID: RGBColor = RGBColor(225, 225, 225);
const WIDTH: f64 = 960.0;

/// A median and the range it comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The smallest.
    pub low: f64,
    /// The median.
    pub median: f64,
    /// The largest.
    pub high: f64,
}

impl Spread {
    /// One value, without a range.
    pub fn exactly(value: f64) -> Self {
        Self { low: value, median: value, high: value }
    }

    /// Of some values in whatever order, the median being the mean of the two in the middle; NaN if there are none.
    pub fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (Some(low), Some(high)) = (sorted.first(), sorted.last()) else { return Self::exactly(f64::NAN) };
        let len = sorted.len();
        Self { low: *low, median: f64::midpoint(sorted[(len - 1) / 2], sorted[len / 2]), high: *high }
    }
}

/// A number as people read it in a table: three digits and k, M or G.
pub fn short(value: f64) -> String {
    let (scaled, suffix) = match value.abs() {
        size if size >= 1e9 => (value / 1e9, "G"),
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        0.0 => 0,
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        size if size >= 0.01 => 4,
        _ => 6,
    };
    format!("{scaled:.digits$}{suffix}")
}

/// A number as an axis shows it: as [`short`], without zeros that say nothing.
fn tick(value: f64) -> String {
    let text = short(value);
    let digits = text.trim_end_matches(['k', 'M', 'G']);
    let suffix = &text[digits.len()..];
    let digits = if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits };
    format!("{digits}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_need_no_order() {
        assert_eq!(Spread::of(&[3.0, 1.0, 2.0]), Spread { low: 1.0, median: 2.0, high: 3.0 });
        assert_eq!(Spread::of(&[4.0, 1.0, 2.0, 3.0]).median, 2.5);
        assert!(Spread::of(&[]).median.is_nan());
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(short(0.0), "0");
        assert_eq!(short(1_523_000.0), "1.52M");
        assert_eq!(short(43_210.0), "43.2k");
        assert_eq!(short(0.62), "0.6200");
        assert_eq!(short(120.0), "120");
    }

    #[test]
    fn ticks_have_no_idle_zeros() {
        let texts = [0.0, 0.05, 0.5, 2.0, 100.0, 20_000.0, 2_500_000.0].map(tick);
        assert_eq!(texts, ["0", "0.05", "0.5", "2", "100", "20k", "2.5M"]);
    }
}
