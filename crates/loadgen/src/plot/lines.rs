//! Lines over a quantity: threads, occupancy, memory.
//!
//! A line keeps its colour and the shape of its points in all panels. What somebody else measured is drawn hollow and without a
//! line, in the colour of the line that has its name. The range of the rounds is a light band. A line through many values has points only
//! here and there, and an axis of many values has round ones below it.

use std::f64::consts::TAU;

use plotters::style::{RGBColor, WHITE};

use super::scale::{MANY, Scale};
use super::sheet::{Anchor, LABEL, Place, Sheet, TITLE, widest, width_of};
use super::{COLOURS, INK, Spread, WIDTH, tick};

const HEIGHT: f64 = 540.0;
/// Height of a panel's axes where there are several rows of panels.
const ROW_PANEL: f64 = 260.0;
/// What stands below them.
const TICKS: f64 = 36.0;
const LEGEND_TOP: f64 = 52.0;
const MARGIN: f64 = 16.0;
const ROW: f64 = 24.0;
/// Between two panels.
const GAP: f64 = 22.0;
/// A point's corners, and the direction of the first, in turns from the right downwards.
const POINTS: [(u32, f64); 8] =
    [(24, 0.0), (4, 0.125), (3, -0.25), (4, 0.0), (3, 0.25), (5, -0.25), (6, 0.0), (24, 0.0)];
const POINT_RADIUS: f64 = 5.0;
/// How far apart the points of a line are at least that goes through many.
const POINT_GAP: f64 = 60.0;
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
    /// Panels, from left to right, and in rows where they are too many for their names.
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
        let (entries, choices) = (self.legend(), self.choices());
        let legend_rows = legend_rows(&entries);
        let legend_end = LEGEND_TOP + (legend_rows.len() as f64 - 1.0) * ROW + 16.0;
        let has_names = self.panels.iter().any(|panel| !panel.name.is_empty());
        let first_top = legend_end + if has_names { ROW } else { 8.0 };
        let points = || self.panels.iter().flat_map(|panel| &panel.lines).flat_map(|line| &line.points);
        let scale = |bottom: f64, top: f64| Scale::of_points(points().map(|(_, spread)| *spread), bottom, top);
        let ticks = scale(1.0, 0.0).ticks(7);
        let left = MARGIN + ROW + widest(ticks.iter().map(|value| tick(*value)), LABEL) + 10.0;
        let name_width = widest(self.panels.iter().map(|panel| panel.name.clone()), LABEL);
        let columns =
            (((WIDTH - MARGIN - left + GAP) / (name_width + GAP)) as usize).clamp(1, self.panels.len().max(1));
        let rows = self.panels.len().div_ceil(columns).max(1);
        // Rows as long as each other.
        let columns = self.panels.len().div_ceil(rows).max(1);
        let panel_height = if rows == 1 { HEIGHT - 60.0 - first_top } else { ROW_PANEL };
        let height = first_top + (panel_height + ROW + TICKS) * (rows as f64 - 1.0) + panel_height + 60.0;
        let mut sheet = Sheet::new(WIDTH, height);
        sheet.text(&self.title, (WIDTH / 2.0, 22.0), TITLE, Anchor::Middle);
        draw_legend(&mut sheet, &legend_rows);
        let name = if scale(1.0, 0.0).is_logarithmic { format!("{}, logarithmic", self.up) } else { self.up.clone() };
        sheet.text(name, (MARGIN + 6.0, f64::midpoint(first_top, height - 60.0)), LABEL, Anchor::Upwards);
        let width = (WIDTH - MARGIN - left - GAP * (columns as f64 - 1.0)) / columns as f64;
        for (number, panel) in self.panels.iter().enumerate() {
            let (row, column) = (number / columns, number % columns);
            let top = first_top + row as f64 * (panel_height + ROW + TICKS);
            let (up, left) = (scale(top + panel_height, top), left + column as f64 * (width + GAP));
            if column == 0 {
                for value in &ticks {
                    sheet.text(tick(*value), (left - 8.0, up.at(*value)), LABEL, Anchor::Right);
                }
            }
            let across = Scale::of_choices(&choices, left, left + width);
            sheet.text(&panel.name, (left + width / 2.0, top - 12.0), LABEL, Anchor::Middle);
            ticks.iter().for_each(|value| sheet.grid((left, up.at(*value)), (left + width, up.at(*value))));
            sheet.line([(left, top), (left, top + panel_height), (left + width, top + panel_height)], INK, 1.0);
            draw_choices(&mut sheet, &choices, across, top + panel_height);
            draw_lines(&mut sheet, &panel.lines, &entries, across, up);
        }
        sheet.text(&self.across, (f64::midpoint(left, WIDTH - MARGIN), height - 16.0), LABEL, Anchor::Middle);
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

    /// What the lines run over, each value once.
    fn choices(&self) -> Vec<f64> {
        let lines = self.panels.iter().flat_map(|panel| &panel.lines);
        let mut choices: Vec<f64> = lines.flat_map(|line| &line.points).map(|(x, _)| *x).collect();
        choices.sort_by(f64::total_cmp);
        choices.dedup();
        choices
    }
}

impl Entry {
    fn is(&self, line: &Line) -> bool {
        self.name == line.name && self.is_hollow == line.source.is_some()
    }

    /// In the legend, with the space to the next.
    fn width(&self) -> f64 {
        SAMPLE + 8.0 + width_of(&self.text, LABEL) + 26.0
    }

    fn colour(&self) -> RGBColor {
        COLOURS[self.style % COLOURS.len()]
    }

    fn draw_point(&self, sheet: &mut Sheet, (x, y): Place) {
        // Eight shapes and twelve colours: twenty-four lines differ.
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

/// Marks what was chosen below a panel, or round values if that is much, and names it where there is room.
fn draw_choices(sheet: &mut Sheet, choices: &[f64], across: Scale, bottom: f64) {
    let marked: Vec<f64> = match choices.len() {
        0..=MANY => choices.to_vec(),
        _ => across.ticks(8).into_iter().filter(|value| across.holds(*value)).collect(),
    };
    let mut free_from = f64::NEG_INFINITY;
    for x in marked {
        let (at, text) = (across.at(x), tick(x));
        sheet.line([(at, bottom), (at, bottom + 5.0)], INK, 1.0);
        let half = width_of(&text, LABEL) / 2.0;
        if at - half >= free_from {
            sheet.text(text, (at, bottom + 17.0), LABEL, Anchor::Middle);
            free_from = at + half + 6.0;
        }
    }
}

/// The entries of each row of the legend.
fn legend_rows(entries: &[Entry]) -> Vec<Vec<&Entry>> {
    let mut rows: Vec<Vec<&Entry>> = vec![Vec::new()];
    let mut used = 0.0;
    for entry in entries {
        if used + entry.width() > WIDTH - 2.0 * MARGIN && used > 0.0 {
            rows.push(Vec::new());
            used = 0.0;
        }
        used += entry.width();
        rows.last_mut().into_iter().for_each(|row| row.push(entry));
    }
    rows
}

fn draw_legend(sheet: &mut Sheet, rows: &[Vec<&Entry>]) {
    for (number, row) in rows.iter().enumerate() {
        let y = LEGEND_TOP + number as f64 * ROW;
        let mut x = (WIDTH - row.iter().map(|entry| entry.width()).sum::<f64>() + 26.0) / 2.0;
        for entry in row {
            if !entry.is_hollow {
                sheet.line([(x, y), (x + SAMPLE, y)], entry.colour(), 2.0);
            }
            entry.draw_point(sheet, (x + SAMPLE / 2.0, y));
            sheet.text(&entry.text, (x + SAMPLE + 8.0, y), LABEL, Anchor::Left);
            x += entry.width();
        }
    }
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

/// Draws a panel's lines over the ranges of all of them.
fn draw_lines(sheet: &mut Sheet, lines: &[Line], entries: &[Entry], across: Scale, up: Scale) {
    let drawn = lines.iter().filter_map(|line| Some((line, entries.iter().find(|entry| entry.is(line))?)));
    for (line, entry) in drawn.clone() {
        draw_band(sheet, line, entry, across, up);
    }
    for (line, entry) in drawn {
        draw_line(sheet, line, entry, across, up);
    }
}

fn draw_line(sheet: &mut Sheet, line: &Line, entry: &Entry, across: Scale, up: Scale) {
    let places: Vec<Place> = line.points.iter().map(|(x, spread)| (across.at(*x), up.at(spread.median))).collect();
    if !entry.is_hollow && places.len() > 1 {
        sheet.line(places.clone(), entry.colour(), 2.0);
    }
    let gap = if places.len() > MANY { POINT_GAP } else { 0.0 };
    let mut free_from = f64::NEG_INFINITY;
    for place in places {
        if place.0 >= free_from {
            entry.draw_point(sheet, place);
            free_from = place.0 + gap;
        }
    }
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

    #[test]
    fn an_axis_of_many_values_has_round_ones_below_it() {
        let points = (1..=87).map(|tenth| (f64::from(tenth) / 10.0, Spread::exactly(5e6))).collect();
        let line = Line { name: "guira".into(), points, source: None };
        let panels = vec![LinePanel { name: String::new(), lines: vec![line] }];
        let folder = tempfile::tempdir().expect("a folder");
        let chart = LineChart { panels, ..LineChart::default() };
        let [svg, _] = chart.sheet().save(&folder.path().join("many")).expect("draws");
        let svg = std::fs::read_to_string(svg).expect("an svg");
        let texts: Vec<&str> = svg.lines().map(str::trim).filter(|line| line.parse::<f64>().is_ok()).collect();
        // Not logarithmic: they are as far from each other everywhere.
        assert!(["2", "4", "6", "8"].iter().all(|text| texts.contains(text)) && !texts.contains(&"0.1"), "{texts:?}");
    }

    #[test]
    fn panels_go_into_rows_where_their_names_would_touch() {
        let points = vec![(1.0, Spread::exactly(1.0)), (2.0, Spread::exactly(2.0))];
        let line = Line { name: "guira".into(), points, source: None };
        let panel = |number: usize| LinePanel {
            name: format!("a name that takes a third of the sheet {number}"),
            lines: vec![line.clone()],
        };
        let height = |panels: usize| {
            LineChart { panels: (0..panels).map(panel).collect(), ..LineChart::default() }.sheet().height()
        };
        assert_eq!(height(1), HEIGHT);
        assert!(height(6) > height(2) && height(6) < height(11), "{} {} {}", height(2), height(6), height(11));
    }
}
