//! Where on an axis a value lies, and which values are written beside it.

use super::Spread;

/// Largest over smallest median from which on an axis is logarithmic: more, and the smallest could not be told apart.
const LINEAR_RATIO_MAX: f64 = 20.0;

/// The same for what was chosen, which often doubles from one to the next.
const LINEAR_CHOICES_MAX: f64 = 64.0;

/// Values beyond which they are many: then they are moments or places in a row, as far from each other everywhere.
pub const MANY: usize = 24;

/// An axis from one pixel to another.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    low: f64,
    high: f64,
    pub is_logarithmic: bool,
    from: f64,
    to: f64,
}

impl Scale {
    /// An axis for lengths: from zero.
    pub fn of_lengths(values: impl Iterator<Item = Spread>, from: f64, to: f64) -> Self {
        let high = values.map(|spread| spread.high).filter(|high| high.is_finite()).fold(0.0, f64::max);
        Self { low: 0.0, high: high.max(f64::MIN_POSITIVE) * 1.05, is_logarithmic: false, from, to }
    }

    /// An axis for points: from zero, or logarithmic if they lie far apart and none is zero.
    pub fn of_points(values: impl Iterator<Item = Spread> + Clone, from: f64, to: f64) -> Self {
        let smallest = |of: fn(Spread) -> f64| values.clone().map(of).fold(f64::INFINITY, f64::min);
        let largest = values.clone().map(|spread| spread.median).fold(0.0, f64::max);
        let (low, lowest_median) = (smallest(|spread| spread.low), smallest(|spread| spread.median));
        let linear = Self::of_lengths(values.clone(), from, to);
        if low > 0.0 && largest / lowest_median > LINEAR_RATIO_MAX {
            return Self { low: low / 1.2, high: linear.high * 1.15, is_logarithmic: true, ..linear };
        }
        linear
    }

    /// An axis for what was chosen, with some room at both ends; logarithmic if the choices are few and lie very far apart.
    pub fn of_choices(choices: &[f64], from: f64, to: f64) -> Self {
        let wider = |(low, high): (f64, f64), value: &f64| (low.min(*value), high.max(*value));
        let (low, high) = choices.iter().fold((f64::INFINITY, f64::NEG_INFINITY), wider);
        if choices.len() <= MANY && low > 0.0 && high / low > LINEAR_CHOICES_MAX {
            return Self { low: low / 1.3, high: high * 1.3, is_logarithmic: true, from, to };
        }
        let room = if high > low { (high - low) * 0.06 } else { 1.0 };
        Self { low: low - room, high: high + room, is_logarithmic: false, from, to }
    }

    /// The pixel of `value`.
    pub fn at(&self, value: f64) -> f64 {
        let share = match self.is_logarithmic {
            true => (value / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        };
        self.from + share * (self.to - self.from)
    }

    /// Whether a value lies on it.
    pub fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// Round values within the axis, about `count` of them if it is linear.
    pub fn ticks(&self, count: usize) -> Vec<f64> {
        let decades = |mantissas: &'static [f64], from: f64, to: f64| {
            let decades = from.log10().floor() as i32..=to.log10().floor() as i32;
            decades.flat_map(move |power| mantissas.iter().map(move |mantissa| mantissa * 10f64.powi(power)))
        };
        if self.is_logarithmic {
            let mantissas: &[f64] = if self.high / self.low > 1e3 { &[1.0] } else { &[1.0, 2.0, 5.0] };
            return decades(mantissas, self.low, self.high).filter(|value| self.holds(*value)).collect();
        }
        let least = self.high / count as f64;
        let step = decades(&[1.0, 2.0, 5.0], least, least * 10.0).find(|step| *step >= least).unwrap_or(least);
        (0..).map(|number| f64::from(number) * step).take_while(|value| *value <= self.high).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_values_are_shown_from_zero_and_far_ones_by_ratio() {
        let exactly = |values: [f64; 2]| values.map(Spread::exactly).into_iter();
        let near = Scale::of_points(exactly([50.0, 250.0]), 0.0, 262.5);
        assert!(!near.is_logarithmic && (near.at(250.0) - 250.0).abs() < 1.0);
        assert_eq!(near.ticks(6), [0.0, 50.0, 100.0, 150.0, 200.0, 250.0]);
        let far = Scale::of_points(exactly([45.0, 2_500.0]), 100.0, 0.0);
        assert!(far.is_logarithmic && far.at(2_500.0) > 0.0 && far.at(45.0) < 100.0);
        assert_eq!(far.ticks(6), [50.0, 100.0, 200.0, 500.0, 1_000.0, 2_000.0]);
        assert!(!Scale::of_points(exactly([0.0, 13.0]), 0.0, 1.0).is_logarithmic, "zero has no logarithm");
    }

    #[test]
    fn nothing_measured_is_an_axis_too() {
        assert!(Scale::of_points(std::iter::empty(), 0.0, 100.0).at(0.0).abs() < 1e-9);
        assert_eq!(Scale::of_choices(&[1.0], 0.0, 100.0).at(1.0), 50.0);
    }
}
