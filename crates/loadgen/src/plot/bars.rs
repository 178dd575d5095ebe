//! Bars over names: servers, steps, structures. They lie, so that a name of any length has room beside its bar; the medians
//! stand in a column, and the range of the rounds is a thin line.

use plotters::style::{RGBColor, WHITE};

use super::scale::Scale;
use super::sheet::{Anchor, LABEL, Sheet, TITLE, widest, width_of};
use super::{COLOURS, INK, Spread, WIDTH, short, tick};

const MARGIN: f64 = 20.0;
const ROW: f64 = 32.0;
/// Half of a bar's height.
const HALF: f64 = 10.0;
/// Between two panels.
const GAP: f64 = 30.0;
const GREY: RGBColor = RGBColor(150, 150, 150);
/// Parts of bars, and the side of their box in the legend.
const DARK_BLUE: RGBColor = RGBColor(0, 60, 100);
const DARK_GREY: RGBColor = RGBColor(85, 85, 85);
const SAMPLE: f64 = 14.0;

/// A chart of bars.
#[derive(Clone, Debug, Default)]
pub struct BarChart {
    /// Heading.
    pub title: String,
    /// What the bars show, with its unit.
    pub across: String,
    /// What their darker parts are; may be empty.
    pub part: String,
    /// Panels, from left to right.
    pub panels: Vec<BarPanel>,
}

/// One panel.
#[derive(Clone, Debug, Default)]
pub struct BarPanel {
    /// What is particular to it; may be empty.
    pub name: String,
    /// Its bars from above.
    pub bars: Vec<Bar>,
}

/// One bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// The name beside it.
    pub name: String,
    /// Its length.
    pub value: Spread,
    /// So much of it is darker.
    pub part: Option<f64>,
    /// Whose it is.
    pub role: Role,
}

/// Whose a bar is, which decides how it is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// What the chart is about: coloured.
    Subject,
    /// What it is compared with: grey.
    Peer,
    /// Somebody else's figure: hollow.
    Published,
}

impl BarPanel {
    fn names(&self) -> impl Iterator<Item = &str> {
        self.bars.iter().map(|bar| bar.name.as_str())
    }
}

impl BarChart {
    /// Draws it.
    pub fn sheet(&self) -> Sheet {
        let rows = self.panels.iter().map(|panel| panel.bars.len()).max().unwrap_or(0) as f64;
        let has_names = self.panels.iter().any(|panel| !panel.name.is_empty());
        let legend = if self.part.is_empty() { 0.0 } else { 28.0 };
        let top = legend + if has_names { 76.0 } else { 50.0 };
        let bottom = top + rows * ROW;
        let mut sheet = Sheet::new(WIDTH, bottom + 64.0);
        sheet.text(&self.title, (WIDTH / 2.0, 22.0), TITLE, Anchor::Middle);
        if !self.part.is_empty() {
            self.draw_legend(&mut sheet);
        }
        // A panel has names of its own unless they are those of the panel on its left.
        let is_named = |number: usize| number == 0 || !self.panels[number].names().eq(self.panels[number - 1].names());
        let name_width = |number: usize| match is_named(number) {
            true => widest(self.panels[number].names(), LABEL) + 10.0,
            false => 0.0,
        };
        let bars = || self.panels.iter().flat_map(|panel| &panel.bars);
        let room = widest(bars().map(|bar| short(bar.value.median)), LABEL) + 12.0;
        let count = self.panels.len().max(1);
        let fixed = (0..self.panels.len()).map(name_width).sum::<f64>() + GAP * (count - 1) as f64 + 2.0 * MARGIN;
        let width = ((WIDTH - fixed) / count as f64).max(room + 40.0);
        let mut left = MARGIN;
        for (number, panel) in self.panels.iter().enumerate() {
            left += name_width(number);
            let (right, end) = (left + width - room, left + width);
            let across = Scale::of_lengths(bars().map(|bar| bar.value), left, right);
            draw_axis(&mut sheet, across, (top, bottom), right - left);
            sheet.text(&panel.name, (left + width / 2.0, top - 18.0), LABEL, Anchor::Middle);
            for (row, bar) in panel.bars.iter().enumerate() {
                let middle = top + (row as f64 + 0.5) * ROW;
                if is_named(number) {
                    sheet.text(&bar.name, (left - 8.0, middle), LABEL, Anchor::Right);
                }
                draw_bar(&mut sheet, bar, across, middle);
                sheet.text(short(bar.value.median), (end, middle), LABEL, Anchor::Right);
            }
            sheet.line([(left, top), (left, bottom)], INK, 1.0);
            left += width + GAP;
        }
        let middle = f64::midpoint(MARGIN + name_width(0), WIDTH - MARGIN);
        sheet.text(&self.across, (middle, bottom + 44.0), LABEL, Anchor::Middle);
        sheet
    }

    fn draw_legend(&self, sheet: &mut Sheet) {
        let (width, middle) = (2.0 * (SAMPLE + 4.0) + width_of(&self.part, LABEL), 54.0);
        let left = (WIDTH - width) / 2.0;
        for (number, colour) in [(0.0, DARK_BLUE), (1.0, DARK_GREY)] {
            let left = left + number * (SAMPLE + 2.0);
            sheet.boxed((left, middle - SAMPLE / 2.0), (left + SAMPLE, middle + SAMPLE / 2.0), colour);
        }
        sheet.text(&self.part, (left + 2.0 * (SAMPLE + 4.0), middle), LABEL, Anchor::Left);
    }
}

/// The grid of one panel and what is written below it.
fn draw_axis(sheet: &mut Sheet, across: Scale, (top, bottom): (f64, f64), width: f64) {
    let mut free_from = f64::NEG_INFINITY;
    for value in across.ticks((width / 100.0).clamp(3.0, 8.0) as usize) {
        let (at, text) = (across.at(value), tick(value));
        sheet.grid((at, top), (at, bottom));
        let half = width_of(&text, LABEL) / 2.0;
        if at - half >= free_from {
            sheet.text(text, (at, bottom + 14.0), LABEL, Anchor::Middle);
            free_from = at + half + 8.0;
        }
    }
}

fn draw_bar(sheet: &mut Sheet, bar: &Bar, across: Scale, middle: f64) {
    let (from, to) = ((across.at(0.0), middle - HALF), (across.at(bar.value.median), middle + HALF));
    match bar.role {
        Role::Subject => sheet.boxed(from, to, COLOURS[0]),
        Role::Peer => sheet.boxed(from, to, GREY),
        Role::Published => {
            sheet.boxed(from, to, WHITE);
            sheet.line([(from.0, from.1), (to.0, from.1), (to.0, to.1), (from.0, to.1)], GREY, 1.5);
        }
    }
    if let Some(part) = bar.part {
        let colour = if bar.role == Role::Subject { DARK_BLUE } else { DARK_GREY };
        sheet.boxed(from, (across.at(part), to.1), colour);
    }
    if bar.value.high > bar.value.low {
        sheet.line([(across.at(bar.value.low), middle), (across.at(bar.value.high), middle)], INK, 1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_files_are_written_and_hold_their_text() {
        let bar = |name: &str, value: f64, role| {
            let part = (role == Role::Subject).then_some(value / 4.0);
            Bar { name: name.into(), value: Spread::exactly(value), part, role }
        };
        let bars = vec![bar("guira", 8.1e6, Role::Subject), bar("memcached", 1.5e6, Role::Peer)];
        let more = vec![bar("guira", 1.6e7, Role::Subject), bar("the paper's", 1.5e6, Role::Published)];
        let panel = |name: &str, bars| BarPanel { name: name.into(), bars };
        let chart = BarChart {
            title: "Multiget".into(),
            across: "throughput (keys/s)".into(),
            part: "of which new".into(),
            panels: vec![panel("1 thread", bars.clone()), panel("2 threads", bars), panel("4 threads", more)],
        };
        let folder = tempfile::tempdir().expect("a folder");
        let [svg, png] = chart.sheet().save(&folder.path().join("multiget")).expect("draws");
        let svg = std::fs::read_to_string(svg).expect("an svg");
        for text in ["Multiget", "8.10M", "throughput (keys/s)", "of which new", "4 threads"] {
            assert!(svg.contains(text), "no '{text}'");
        }
        assert_eq!(svg.matches("memcached").count(), 1, "names are written once for panels that share them");
        assert!(std::fs::metadata(png).expect("a png").len() > 5_000);
    }
}
