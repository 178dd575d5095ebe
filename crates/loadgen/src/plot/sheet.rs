//! A sheet of paper: texts, lines and filled shapes at places in pixels, kept until it is saved as SVG and as PNG.

use std::path::{Path, PathBuf};
use std::sync::Once;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::FontStyle;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{GRID, INK};
use crate::error::LoadError;

/// A PNG has twice the pixels, so that it is sharp where it is shown smaller.
const PNG_SCALE: f64 = 2.0;
/// The PNG's text hangs this share of its size too high, compared with the SVG's.
const PNG_TEXT_SHIFT: f64 = 0.12;
const BAND_OPACITY: f64 = 0.15;

/// A place: right and down from the upper left corner, pixels.
pub type Place = (f64, f64);

/// Sizes of text, pixels.
pub const TITLE: f64 = 20.0;
pub const LABEL: f64 = 15.0;

/// What a text's place is, from left to right; its middle is meant from top to bottom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    Left,
    Middle,
    Right,
    /// The middle of a text that reads upwards.
    Upwards,
}

#[derive(Clone, Debug)]
enum Mark {
    Text { text: String, at: Place, size: f64, anchor: Anchor },
    Line { points: Vec<Place>, colour: RGBColor, width: f64 },
    Area { points: Vec<Place>, colour: RGBAColor },
}

/// A drawing of one size.
#[derive(Clone, Debug)]
pub struct Sheet {
    width: f64,
    height: f64,
    marks: Vec<Mark>,
}

impl Sheet {
    pub(super) fn new(width: f64, height: f64) -> Self {
        register_font();
        Self { width, height, marks: Vec::new() }
    }

    #[cfg(test)]
    pub(super) fn height(&self) -> f64 {
        self.height
    }

    pub(super) fn text(&mut self, text: impl Into<String>, at: Place, size: f64, anchor: Anchor) {
        self.marks.push(Mark::Text { text: text.into(), at, size, anchor });
    }

    pub(super) fn line(&mut self, points: impl Into<Vec<Place>>, colour: RGBColor, width: f64) {
        self.marks.push(Mark::Line { points: points.into(), colour, width });
    }

    pub(super) fn area(&mut self, points: impl Into<Vec<Place>>, colour: RGBColor) {
        self.marks.push(Mark::Area { points: points.into(), colour: colour.mix(1.0) });
    }

    /// A box between two corners.
    pub(super) fn boxed(&mut self, (left, top): Place, (right, bottom): Place, colour: RGBColor) {
        self.area([(left, top), (right, top), (right, bottom), (left, bottom)], colour);
    }

    /// A line of the grid.
    pub(super) fn grid(&mut self, from: Place, to: Place) {
        self.line([from, to], GRID, 1.0);
    }

    /// An area through which what lies below it shows.
    pub(super) fn band(&mut self, points: impl Into<Vec<Place>>, colour: RGBColor) {
        self.marks.push(Mark::Area { points: points.into(), colour: colour.mix(BAND_OPACITY) });
    }

    /// Writes `<stem>.svg` and `<stem>.png` and returns their paths.
    ///
    /// # Errors
    /// [`LoadError::Plot`] if a file cannot be written.
    pub fn save(&self, stem: &Path) -> Result<[PathBuf; 2], LoadError> {
        let (svg, png) = (stem.with_extension("svg"), stem.with_extension("png"));
        let pixels = |scale: f64| ((self.width * scale) as u32, (self.height * scale) as u32);
        self.draw(&SVGBackend::new(&svg, pixels(1.0)).into_drawing_area(), 1.0, 0.0).map_err(LoadError::Plot)?;
        self.draw(&BitMapBackend::new(&png, pixels(PNG_SCALE)).into_drawing_area(), PNG_SCALE, PNG_TEXT_SHIFT)
            .map_err(LoadError::Plot)?;
        Ok([svg, png])
    }

    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>, scale: f64, text_shift: f64) -> Result<(), String> {
        let pixel = |(x, y): Place| ((x * scale).round() as i32, (y * scale).round() as i32);
        let pixels = |points: &[Place]| points.iter().copied().map(pixel).collect::<Vec<_>>();
        area.fill(&WHITE).map_err(|error| error.to_string())?;
        for mark in &self.marks {
            let drawn = match mark {
                Mark::Text { text, at, size, anchor } => {
                    let across = match anchor {
                        Anchor::Left => HPos::Left,
                        Anchor::Middle | Anchor::Upwards => HPos::Center,
                        Anchor::Right => HPos::Right,
                    };
                    let font = ("sans-serif", size * scale).into_font();
                    let font = if *anchor == Anchor::Upwards { font.transform(FontTransform::Rotate270) } else { font };
                    let style = TextStyle::from(font).color(&INK).pos(Pos::new(across, VPos::Center));
                    let (x, y) = *at;
                    let place = match anchor {
                        Anchor::Upwards => (x + size * text_shift, y),
                        _ => (x, y + size * text_shift),
                    };
                    area.draw(&Text::new(text.as_str(), pixel(place), style))
                }
                Mark::Line { points, colour, width } => {
                    area.draw(&PathElement::new(pixels(points), colour.stroke_width((width * scale).round() as u32)))
                }
                Mark::Area { points, colour } => area.draw(&Polygon::new(pixels(points), colour.filled())),
            };
            drawn.map_err(|error| error.to_string())?;
        }
        area.present().map_err(|error| error.to_string())
    }
}

/// Width of a text, pixels.
pub fn width_of(text: &str, size: f64) -> f64 {
    register_font();
    // A broken font shows as an error when the sheet is saved.
    ("sans-serif", size).into_font().box_size(text).map_or(0.0, |(width, _)| f64::from(width))
}

/// The widest of some texts, pixels.
pub fn widest<T: AsRef<str>>(texts: impl IntoIterator<Item = T>, size: f64) -> f64 {
    texts.into_iter().map(|text| width_of(text.as_ref(), size)).fold(0.0, f64::max)
}

fn register_font() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // A broken font would show as a plot error with its own text later on.
        let _ = plotters::style::register_font("sans-serif", FontStyle::Normal, dejavu::sans::regular());
    });
}
