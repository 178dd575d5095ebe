//! Lines over a quantity: threads, occupancy, memory.
//!
//! A line keeps its colour and the shape of its points in all panels. What somebody else measured is drawn hollow and without a
//! line, in the colour of the line that has its name. The range of the rounds is a light band.

use std::f64::consts::TAU;

use plotters::style::{RGBColor, WHITE};

use super::scale::Scale;
use super::sheet::{Anchor, LABEL, Place, Sheet, TITLE, widest, width_of};
use super::{COLOURS, INK, Spread, WIDTH, tick};

const HEIGHT: f64 = 540.0;
const MARGIN: f64 = 16.0;
const ROW: f64 = 24.0;
/// Between two panels.
const GAP: f64 = 22.0;
/// A point's corners, and the direction of the first, in turns from the right downwards.
const POINTS: [(u32, f64); 8] =
    [(24, 0.0), (4, 0.125), (3, -0.25), (4, 0.0), (3, 0.25), (5, -0.25), (6, 0.0), (24, 0.0)];
const POINT_RADIUS: f64 = 5.0;
/// Length of a line in the legend.
const SAMPLE: f64 = 28.0;

/// A chart of lines.
#[derive(Clone, Debug, Default)]
pub struct LineChart {
    /// Heading.
    pub title: String,
    /// What the lines run over, with its unit.
    pub across: String,
    /// What they show, with its unit.
    pub up: String,
    /// Panels, from left to right.
    pub panels: Vec<LinePanel>,
}

/// One panel.
#[derive(Clone, Debug, Default)]
pub struct LinePanel {
    /// What is particular to it; may be empty.
    pub name: String,
    /// Its lines.
    pub lines: Vec<Line>,
}

/// One line.
#[derive(Clone, Debug, Default)]
pub struct Line {
    /// Name in the legend.
    pub name: String,
    /// Its points from left to right.
    pub points: Vec<(f64, Spread)>,
    /// Who else measured it, if it was not us.
    pub source: Option<String>,
}

/// A line of the legend: its name, colour and points.
struct Entry {
    name: String,
    text: String,
    style: usize,
    is_hollow: bool,
}

impl LineChart {
    /// Draws it.
    pub fn sheet(&self) -> Sheet {
        let mut sheet = Sheet::new(WIDTH, HEIGHT);
        sheet.text(&self.title, (WIDTH / 2.0, 22.0), TITLE, Anchor::Middle);
        let entries = self.legend();
        let top = draw_legend(&mut sheet, &entries, 52.0);
        let has_names = self.panels.iter().any(|panel| !panel.name.is_empty());
        let top = top + if has_names { ROW } else { 8.0 };
        let bottom = HEIGHT - 60.0;
        let points = || self.panels.iter().flat_map(|panel| &panel.lines).flat_map(|line| &line.points);
        let up = Scale::of_points(points().map(|(_, spread)| *spread), bottom, top);
        let ticks = up.ticks(7);
        let left = MARGIN + ROW + widest(ticks.iter().map(|value| tick(*value)), LABEL) + 10.0;
        let name = if up.is_logarithmic { format!("{}, logarithmic", self.up) } else { self.up.clone() };
        sheet.text(name, (MARGIN + 6.0, f64::midpoint(top, bottom)), LABEL, Anchor::Upwards);
        for value in &ticks {
            sheet.text(tick(*value), (left - 8.0, up.at(*value)), LABEL, Anchor::Right);
        }
        let count = self.panels.len().max(1) as f64;
        let width = (WIDTH - MARGIN - left - GAP * (count - 1.0)) / count;
        for (number, panel) in self.panels.iter().enumerate() {
            let left = left + number as f64 * (width + GAP);
            let across = Scale::of_choices(points().map(|(x, _)| *x), left, left + width);
            sheet.text(&panel.name, (left + width / 2.0, top - 12.0), LABEL, Anchor::Middle);
            ticks.iter().for_each(|value| sheet.grid((left, up.at(*value)), (left + width, up.at(*value))));
            sheet.line([(left, top), (left, bottom), (left + width, bottom)], INK, 1.0);
            self.draw_choices(&mut sheet, across, bottom);
            let lines = panel.lines.iter();
            let drawn = lines.filter_map(|line| Some((line, entries.iter().find(|entry| entry.is(line))?)));
            for (line, entry) in drawn.clone() {
                draw_band(&mut sheet, line, entry, across, up);
            }
            for (line, entry) in drawn {
                draw_line(&mut sheet, line, entry, across, up);
            }
        }
        sheet.text(&self.across, (f64::midpoint(left, WIDTH - MARGIN), HEIGHT - 16.0), LABEL, Anchor::Middle);
        sheet
    }

    /// Every line once; lines with one name look alike.
    fn legend(&self) -> Vec<Entry> {
        let mut names: Vec<&str> = Vec::new();
        let mut entries: Vec<Entry> = Vec::new();
        for line in self.panels.iter().flat_map(|panel| &panel.lines) {
            let style = names.iter().position(|name| *name == line.name).unwrap_or_else(|| {
                names.push(&line.name);
                names.len() - 1
            });
            if !entries.iter().any(|entry| entry.is(line)) {
                let text = match &line.source {
                    Some(source) => format!("{} ({source})", line.name),
                    None => line.name.clone(),
                };
                entries.push(Entry { name: line.name.clone(), text, style, is_hollow: line.source.is_some() });
            }
        }
        entries
    }

    /// Marks what was chosen below a panel, and names it where there is room.
    fn draw_choices(&self, sheet: &mut Sheet, across: Scale, bottom: f64) {
        let lines = self.panels.iter().flat_map(|panel| &panel.lines);
        let mut choices: Vec<f64> = lines.flat_map(|line| &line.points).map(|(x, _)| *x).collect();
        choices.sort_by(f64::total_cmp);
        choices.dedup();
        let mut free_from = f64::NEG_INFINITY;
        for x in choices {
            let (at, text) = (across.at(x), tick(x));
            sheet.line([(at, bottom), (at, bottom + 5.0)], INK, 1.0);
            let half = width_of(&text, LABEL) / 2.0;
            if at - half >= free_from {
                sheet.text(text, (at, bottom + 17.0), LABEL, Anchor::Middle);
                free_from = at + half + 6.0;
            }
        }
    }
}

impl Entry {
    fn is(&self, line: &Line) -> bool {
        self.name == line.name && self.is_hollow == line.source.is_some()
    }

    fn colour(&self) -> RGBColor {
        COLOURS[self.style % COLOURS.len()]
    }

    fn draw_point(&self, sheet: &mut Sheet, (x, y): Place) {
        let (corners, first) = POINTS[self.style % POINTS.len()];
        let corner = |number: u32, radius: f64| {
            let angle = (first + f64::from(number) / f64::from(corners)) * TAU;
            (x + radius * angle.cos(), y + radius * angle.sin())
        };
        // A white rim keeps points apart that lie on each other.
        let rim = if self.is_hollow { 0.0 } else { 1.5 };
        sheet.area((0..corners).map(|number| corner(number, POINT_RADIUS + rim)).collect::<Vec<_>>(), WHITE);
        let points: Vec<Place> = (0..=corners).map(|number| corner(number, POINT_RADIUS)).collect();
        if self.is_hollow {
            sheet.line(points, self.colour(), 2.0);
        } else {
            sheet.area(points, self.colour());
        }
    }
}

/// Draws the legend in rows from `top`; returns where it ends.
fn draw_legend(sheet: &mut Sheet, entries: &[Entry], top: f64) -> f64 {
    let width = |entry: &Entry| SAMPLE + 8.0 + width_of(&entry.text, LABEL) + 26.0;
    let mut rows: Vec<Vec<&Entry>> = vec![Vec::new()];
    let mut used = 0.0;
    for entry in entries {
        if used + width(entry) > WIDTH - 2.0 * MARGIN && used > 0.0 {
            rows.push(Vec::new());
            used = 0.0;
        }
        used += width(entry);
        rows.last_mut().into_iter().for_each(|row| row.push(entry));
    }
    for (number, row) in rows.iter().enumerate() {
        let y = top + number as f64 * ROW;
        let mut x = (WIDTH - row.iter().map(|entry| width(entry)).sum::<f64>() + 26.0) / 2.0;
        for entry in row {
            if !entry.is_hollow {
                sheet.line([(x, y), (x + SAMPLE, y)], entry.colour(), 2.0);
            }
            entry.draw_point(sheet, (x + SAMPLE / 2.0, y));
            sheet.text(&entry.text, (x + SAMPLE + 8.0, y), LABEL, Anchor::Left);
            x += width(entry);
        }
    }
    top + (rows.len() as f64 - 1.0) * ROW + 16.0
}

/// The range of a line's rounds.
fn draw_band(sheet: &mut Sheet, line: &Line, entry: &Entry, across: Scale, up: Scale) {
    if let [(x, only)] = line.points.as_slice() {
        return sheet.line([(across.at(*x), up.at(only.low)), (across.at(*x), up.at(only.high))], entry.colour(), 1.0);
    }
    let low = line.points.iter().map(|(x, spread)| (across.at(*x), up.at(spread.low)));
    let high = line.points.iter().map(|(x, spread)| (across.at(*x), up.at(spread.high)));
    sheet.band(low.chain(high.rev()).collect::<Vec<_>>(), entry.colour());
}

fn draw_line(sheet: &mut Sheet, line: &Line, entry: &Entry, across: Scale, up: Scale) {
    let places: Vec<Place> = line.points.iter().map(|(x, spread)| (across.at(*x), up.at(spread.median))).collect();
    if !entry.is_hollow && places.len() > 1 {
        sheet.line(places.clone(), entry.colour(), 2.0);
    }
    places.into_iter().for_each(|place| entry.draw_point(sheet, place));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_one_name_look_alike_and_both_files_hold_their_text() {
        let line = |name: &str, points: &[(f64, f64)], source: Option<&str>| Line {
            name: name.into(),
            points: points.iter().map(|(x, y)| (*x, Spread { low: y / 2.0, median: *y, high: y * 2.0 })).collect(),
            source: source.map(String::from),
        };
        let ours = vec![line("1 path", &[(10.0, 50.0), (94.0, 2500.0)], None), line("guira", &[(10.0, 160.0)], None)];
        let theirs = vec![line("guira", &[(10.0, 1.0)], None), line("1 path", &[(95.0, 1300.0)], Some("the paper"))];
        let panel = |name: &str, lines| LinePanel { name: name.into(), lines };
        let chart = LineChart {
            title: "Cost".into(),
            across: "occupancy (%)".into(),
            up: "time (ns)".into(),
            panels: vec![panel("ours", ours), panel("theirs", theirs)],
        };
        let styles: Vec<_> = chart.legend().iter().map(|entry| (entry.style, entry.is_hollow)).collect();
        assert_eq!(styles, [(0, false), (1, false), (0, true)]);
        let folder = tempfile::tempdir().expect("a folder");
        let [svg, png] = chart.sheet().save(&folder.path().join("cost")).expect("draws");
        let svg = std::fs::read_to_string(svg).expect("an svg");
        for text in ["Cost", "1 path (the paper)", "time (ns), logarithmic", "occupancy (%)", "theirs"] {
            assert!(svg.contains(text), "no '{text}'");
        }
        assert!(std::fs::metadata(png).expect("a png").len() > 5_000);
    }
}
