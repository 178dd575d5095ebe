//! Bar charts as SVG and PNG, with an embedded font, so that a plot needs nothing installed.
//!
//! ```text
//!   | ##      ##         one group a variant (threads, memory limit, ...),
//!   | ## ==   ## ==      one bar a peer, its number above it
//!   +-------------
//! ```

use std::path::{Path, PathBuf};
use std::sync::Once;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::FontStyle;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::error::LoadError;

const SIZE_PIXELS: (u32, u32) = (960, 540);
/// Colours that stay apart in grey and for colour-blind eyes (Okabe & Ito, 2008).
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(128, 128, 128),
];

/// A chart of grouped bars.
#[derive(Clone, Debug, Default)]
pub struct BarChart {
    /// Heading.
    pub title: String,
    /// What the bars measure, with its unit.
    pub axis: String,
    /// Names of the bars of every group, in order.
    pub series: Vec<String>,
    /// Groups: a label and one value a series (NaN for none).
    pub groups: Vec<(String, Vec<f64>)>,
}

impl BarChart {
    /// Writes `<stem>.svg` and `<stem>.png` and returns their paths.
    pub fn save(&self, stem: &Path) -> Result<[PathBuf; 2], LoadError> {
        register_font();
        let (svg, png) = (stem.with_extension("svg"), stem.with_extension("png"));
        let failed = |error: String| LoadError::Plot(error);
        self.draw(SVGBackend::new(&svg, SIZE_PIXELS).into_drawing_area()).map_err(failed)?;
        self.draw(BitMapBackend::new(&png, SIZE_PIXELS).into_drawing_area()).map_err(failed)?;
        Ok([svg, png])
    }

    fn draw<B: DrawingBackend>(&self, area: DrawingArea<B, Shift>) -> Result<(), String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        area.fill(&WHITE).map_err(|error| text(&error))?;
        let values = self.groups.iter().flat_map(|(_, values)| values).filter(|value| value.is_finite());
        let top = values.fold(0.0f64, |top, value| top.max(*value)).max(f64::MIN_POSITIVE) * 1.3;
        let groups = self.groups.len().max(1);
        let mut chart = ChartBuilder::on(&area)
            .caption(&self.title, ("sans-serif", 22))
            .margin(14)
            .x_label_area_size(34)
            .y_label_area_size(90)
            .build_cartesian_2d(0.0..groups as f64, 0.0..top)
            .map_err(|error| text(&error))?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .disable_x_axis()
            .y_desc(&self.axis)
            .y_label_formatter(&|value| short(*value))
            .label_style(("sans-serif", 15))
            .light_line_style(WHITE)
            .draw()
            .map_err(|error| text(&error))?;
        let width = 0.8 / self.series.len().max(1) as f64;
        for (number, name) in self.series.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            let bars = self.groups.iter().enumerate().filter_map(|(group, (_, values))| {
                let value = values.get(number).copied().filter(|value| value.is_finite())?;
                let left = group as f64 + 0.1 + width * number as f64;
                Some((left, value))
            });
            let boxes = bars.clone().map(|(left, value)| {
                Rectangle::new([(left + width * 0.05, 0.0), (left + width * 0.95, value)], colour.filled())
            });
            chart
                .draw_series(boxes)
                .map_err(|error| text(&error))?
                .label(name.clone())
                .legend(move |(x, y)| Rectangle::new([(x, y - 6), (x + 14, y + 6)], colour.filled()));
            let above = Pos::new(HPos::Center, VPos::Bottom);
            let style = TextStyle::from(("sans-serif", 15).into_font()).pos(above);
            let labels = bars
                .map(|(left, value)| Text::new(short(value), (left + width / 2.0, value + top * 0.008), style.clone()));
            chart.draw_series(labels).map_err(|error| text(&error))?;
        }
        let below = TextStyle::from(("sans-serif", 16).into_font()).pos(Pos::new(HPos::Center, VPos::Top));
        for (group, (label, _)) in self.groups.iter().enumerate() {
            let (x, y) = chart.backend_coord(&(group as f64 + 0.5, 0.0));
            area.draw(&Text::new(label.clone(), (x, y + 10), below.clone())).map_err(|error| text(&error))?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.85))
            .border_style(BLACK.mix(0.3))
            .label_font(("sans-serif", 16))
            .draw()
            .map_err(|error| text(&error))?;
        area.present().map_err(|error| text(&error))
    }
}

/// A number as people read it on a chart: three digits and k, M or G.
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

fn register_font() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // A broken font would show as a plot error with its own text later on.
        let _ = plotters::style::register_font("sans-serif", FontStyle::Normal, dejavu::sans::regular());
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_files_are_written_and_hold_their_text() {
        let folder = tempfile::tempdir().expect("a folder");
        let chart = BarChart {
            title: "Multiget".into(),
            axis: "keys/s".into(),
            series: vec!["guira".into(), "memcached".into()],
            groups: vec![("1 thread".into(), vec![8.1e6, 1.5e6]), ("2 threads".into(), vec![1.6e7, f64::NAN])],
        };
        let [svg, png] = chart.save(&folder.path().join("multiget")).expect("draws");
        let svg = std::fs::read_to_string(svg).expect("an svg");
        assert!(svg.contains("Multiget") && svg.contains("8.10M") && svg.contains("memcached"));
        assert!(std::fs::metadata(png).expect("a png").len() > 5_000);
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(short(0.0), "0");
        assert_eq!(short(1_523_000.0), "1.52M");
        assert_eq!(short(43_210.0), "43.2k");
        assert_eq!(short(0.62), "0.6200");
        assert_eq!(short(120.0), "120");
    }
}
