//! Sizes and lifetimes drawn per key: fixed, even over a range, or from a weighted list.
//!
//! Always true: the draw depends on the key's id alone, so a key keeps its length for ever and a preloaded value is
//! as long as the one a later set writes.

use serde::{Deserialize, Serialize};

use crate::scramble::mix;

/// A distribution of whole numbers (bytes or seconds).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sizes {
    /// Always this.
    Fixed(u32),
    /// Every number of the range alike, both ends included.
    Even {
        /// The smallest.
        min: u32,
        /// The largest.
        max: u32,
    },
    /// Numbers with weights; the weights need not add up to 1.
    Weighted(Vec<(u32, f64)>),
}

impl Sizes {
    /// The size that belongs to `id`. `salt` keeps several distributions over the same keys independent.
    pub fn of(&self, id: u64, salt: u64) -> u32 {
        match self {
            Self::Fixed(size) => *size,
            Self::Even { min, max } => {
                let span = u64::from(max - min) + 1;
                min + (mix(id ^ mix(salt)) % span) as u32
            }
            Self::Weighted(list) => {
                let total: f64 = list.iter().map(|(_, weight)| weight).sum();
                let mut rest = mix(id ^ mix(salt)) as f64 / u64::MAX as f64 * total;
                for (size, weight) in list {
                    rest -= weight;
                    if rest <= 0.0 {
                        return *size;
                    }
                }
                list.last().map_or(0, |(size, _)| *size)
            }
        }
    }

    /// The one size there is, if there is only one.
    pub fn fixed(&self) -> Option<u32> {
        match self {
            Self::Fixed(size) => Some(*size),
            Self::Even { min, max } => (min == max).then_some(*min),
            Self::Weighted(list) => (list.len() == 1).then(|| list[0].0),
        }
    }

    /// The smallest and the largest size that can come up.
    pub fn bounds(&self) -> (u32, u32) {
        match self {
            Self::Fixed(size) => (*size, *size),
            Self::Even { min, max } => (*min, *max),
            Self::Weighted(list) => {
                let sizes = list.iter().map(|(size, _)| *size);
                (sizes.clone().min().unwrap_or(0), sizes.max().unwrap_or(0))
            }
        }
    }
}

impl std::str::FromStr for Sizes {
    type Err = String;

    /// Reads `32`, `16-64` or `100:0.9,1000:0.1`.
    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("'{text}' is no size; write 32, 16-64 or 100:0.9,1000:0.1");
        let number = |text: &str| text.trim().parse::<u32>().map_err(|_| bad());
        if text.contains(':') {
            let list = text.split(',').map(|part| {
                let (size, weight) = part.split_once(':').ok_or_else(bad)?;
                let weight: f64 = weight.trim().parse().map_err(|_| bad())?;
                if weight.is_finite() && weight >= 0.0 { Ok((number(size)?, weight)) } else { Err(bad()) }
            });
            let list: Vec<(u32, f64)> = list.collect::<Result<_, _>>()?;
            let total: f64 = list.iter().map(|(_, weight)| weight).sum();
            return if total.is_finite() { Ok(Self::Weighted(list)) } else { Err(bad()) };
        }
        match text.split_once('-') {
            None => Ok(Self::Fixed(number(text)?)),
            Some((min, max)) => match (number(min)?, number(max)?) {
                (min, max) if min <= max => Ok(Self::Even { min, max }),
                _ => Err(bad()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_keeps_its_size() {
        let sizes = Sizes::Even { min: 10, max: 20 };
        for id in 0..100 {
            assert_eq!(sizes.of(id, 1), sizes.of(id, 1));
            assert!((10..=20).contains(&sizes.of(id, 1)));
        }
    }

    #[test]
    fn weights_are_kept() {
        let sizes: Sizes = "100:0.9,1000:0.1".parse().expect("a weighted list");
        let large = (0..10_000).filter(|id| sizes.of(*id, 3) == 1000).count();
        assert!((900..1_100).contains(&large), "{large}");
        assert_eq!(sizes.bounds(), (100, 1000));
    }

    /// Of weights whose sum is no number any more, only the last size ever came up.
    #[test]
    fn weights_that_cannot_be_added_are_refused() {
        assert!("1:1e308,2:1e308,3:1e308".parse::<Sizes>().is_err());
    }

    #[test]
    fn text_forms() {
        assert_eq!("32".parse(), Ok(Sizes::Fixed(32)));
        assert_eq!("16-64".parse(), Ok(Sizes::Even { min: 16, max: 64 }));
        for bad in ["", "x", "64-16", "1:x", "-3"] {
            assert!(bad.parse::<Sizes>().is_err(), "{bad}");
        }
    }
}
