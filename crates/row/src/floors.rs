//! Floors: below a part's floor nothing counts that is in its rows.
//!
//! ```text
//! part      0 .. 7         8 .. 11        12 ..
//! floor     none        (3, 1041)       (5, 7)        runs of parts with the same floor
//! ```
//! Always true: a floor that was acknowledged only rises; whoever raises one has no use for what was written before to the keys of that part. An earlier owner that goes on does
//! not know of it, and may serve what is below: that has to be held by its lease.
//!
//! As bytes, all little-endian: format u8 (1), then for each run: first part u16, parts u16, epoch i64, serial i64; in ascending order.

use std::{collections::BTreeMap, fmt};

use guira_item::store::Part;

use crate::{Epoch, Stamp};

/// The format of what is kept.
const FORMAT: u8 = 1;

/// Bytes of a run.
const RUN_LEN: usize = 2 + 2 + 8 + 8;

/// The floors of all parts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Floors(BTreeMap<Part, Stamp>);

/// Why bytes are no floors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FloorsError {
    /// They are of another format.
    OtherFormat(u8),
    /// They are none.
    Damaged,
}

impl fmt::Display for FloorsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherFormat(format) => write!(f, "they are of format {format}, and this build reads {FORMAT}"),
            Self::Damaged => f.write_str("they are damaged"),
        }
    }
}

impl std::error::Error for FloorsError {}

impl Floors {
    /// The floor of a part, if it has one.
    pub fn of(&self, part: Part) -> Option<Stamp> {
        self.0.get(&part).copied()
    }

    /// Whether no part has one.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Raises those of some parts; one that is higher stays.
    pub fn raise(&mut self, parts: impl IntoIterator<Item = Part>, to: Stamp) {
        for part in parts {
            let floor = self.0.entry(part).or_insert(to);
            *floor = to.max(*floor);
        }
    }

    /// As bytes: 20 for each run of parts, 320 KiB at most where there are 16,384.
    pub fn encode(&self) -> Vec<u8> {
        let mut runs: Vec<(Part, u16, Stamp)> = Vec::new();
        for (part, floor) in &self.0 {
            match runs.last_mut() {
                Some((first, parts, of_them))
                    if of_them == floor && first.0.checked_add(*parts) == Some(part.0) && *parts < u16::MAX =>
                {
                    *parts += 1;
                }
                _ => runs.push((*part, 1, *floor)),
            }
        }
        let mut bytes = vec![FORMAT];
        for (Part(first), parts, Stamp { epoch: Epoch(epoch), serial }) in runs {
            bytes.extend_from_slice(&first.to_le_bytes());
            bytes.extend_from_slice(&parts.to_le_bytes());
            bytes.extend_from_slice(&epoch.to_le_bytes());
            bytes.extend_from_slice(&serial.to_le_bytes());
        }
        bytes
    }

    /// From bytes.
    ///
    /// # Errors
    /// [`FloorsError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, FloorsError> {
        let (format, runs) = bytes.split_first().ok_or(FloorsError::Damaged)?;
        if *format != FORMAT {
            return Err(FloorsError::OtherFormat(*format));
        }
        let (runs, rest) = runs.as_chunks::<RUN_LEN>();
        let mut floors = BTreeMap::new();
        let mut from = 0;
        for run in runs {
            let (first, parts, floor) = decode_run(run);
            let end = u32::from(first) + u32::from(parts);
            if parts == 0 || u32::from(first) < from || end > 1 << 16 {
                return Err(FloorsError::Damaged);
            }
            from = end;
            floors.extend((u32::from(first)..end).map(|part| (Part(part as u16), floor)));
        }
        if rest.is_empty() { Ok(Self(floors)) } else { Err(FloorsError::Damaged) }
    }
}

fn decode_run(run: &[u8; RUN_LEN]) -> (u16, u16, Stamp) {
    fn part<const N: usize>(run: &[u8; RUN_LEN], from: usize) -> [u8; N] {
        std::array::from_fn(|at| run[from + at])
    }
    let (epoch, serial) = (Epoch(i64::from_le_bytes(part(run, 4))), i64::from_le_bytes(part(run, 12)));
    (u16::from_le_bytes(part(run, 0)), u16::from_le_bytes(part(run, 2)), Stamp { epoch, serial })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(epoch: i64, serial: i64) -> Stamp {
        Stamp { epoch: Epoch(epoch), serial }
    }

    fn parts(of: std::ops::RangeInclusive<u16>) -> impl Iterator<Item = Part> {
        of.map(Part)
    }

    #[test]
    fn floors_only_rise() {
        let mut floors = Floors::default();
        floors.raise(parts(3..=5), stamp(2, 7));
        floors.raise(parts(5..=6), stamp(1, 900));
        floors.raise(parts(4..=4), stamp(2, 8));
        let of = |part| floors.of(Part(part));
        assert_eq!((of(2), of(3), of(4), of(5)), (None, Some(stamp(2, 7)), Some(stamp(2, 8)), Some(stamp(2, 7))));
        assert_eq!((of(6), of(7)), (Some(stamp(1, 900)), None));
    }

    #[test]
    fn floors_are_read_as_they_are_written_a_run_at_a_time() {
        let mut floors = Floors::default();
        assert_eq!(floors.encode().len(), 1);
        assert_eq!(Floors::decode(&floors.encode()), Ok(Floors::default()));
        floors.raise(parts(0..=2_000), stamp(2, 7));
        floors.raise(parts(2_001..=2_002), stamp(3, 1));
        floors.raise(parts(2_004..=2_004), stamp(3, 1));
        floors.raise(parts(65_000..=65_535), stamp(i64::MAX, i64::MIN));
        let bytes = floors.encode();
        assert_eq!(bytes.len(), 1 + 4 * RUN_LEN);
        assert_eq!(Floors::decode(&bytes), Ok(floors.clone()));
        for len in 0..bytes.len() {
            let cut = Floors::decode(&bytes[..len]);
            assert_eq!(cut.is_ok(), len > 0 && (len - 1) % RUN_LEN == 0, "{len} bytes");
        }
        // All of them, and then some.
        floors.raise(parts(0..=65_535), stamp(i64::MAX, i64::MAX));
        assert_eq!(Floors::decode(&floors.encode()), Ok(floors));
    }

    #[test]
    fn whatever_bytes_are_taken_for_floors_are_written_as_such_again() {
        let mut dice = 88_172_645_463_325_252_u64;
        let mut below = |bound: usize| {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            (dice >> 11) as usize % bound
        };
        let mut floors = Floors::default();
        floors.raise(parts(0..=2), stamp(1, 1));
        floors.raise(parts(4..=4), stamp(1, 2));
        floors.raise(parts(6..=9), stamp(1, 1));
        let mut taken = 0;
        for _ in 0..20_000 {
            let mut bytes = floors.encode();
            // Numbers of parts, mostly: there is little to be wrong with a stamp.
            for _ in 0..=below(3) {
                let (run, len) = (1 + RUN_LEN * below(3), if below(4) == 0 { RUN_LEN } else { 4 });
                bytes[run + below(len)] = below(12) as u8;
            }
            let cut = below(8) / 7 * below(bytes.len());
            bytes.truncate(bytes.len() - cut);
            if let Ok(read) = Floors::decode(&bytes) {
                taken += 1;
                assert_eq!(Floors::decode(&read.encode()), Ok(read));
            }
        }
        assert!((1_000..19_000).contains(&taken), "{taken} of 20,000");
    }

    #[test]
    fn what_is_out_of_order_or_of_another_format_is_no_floors() {
        let run = |first: u16, parts: u16| {
            let mut bytes = [&first.to_le_bytes()[..], &parts.to_le_bytes()].concat();
            bytes.extend([0; 16]);
            bytes
        };
        let floors = |runs: &[Vec<u8>]| Floors::decode(&[vec![FORMAT], runs.concat()].concat());
        assert!(floors(&[run(0, 2), run(2, 1), run(65_535, 1)]).is_ok());
        for bad in [vec![run(0, 2), run(1, 1)], vec![run(5, 1), run(4, 1)], vec![run(3, 0)], vec![run(65_535, 2)]] {
            assert_eq!(floors(&bad), Err(FloorsError::Damaged));
        }
        assert_eq!(Floors::decode(&[2]), Err(FloorsError::OtherFormat(2)));
        assert_eq!(Floors::decode(&[]), Err(FloorsError::Damaged));
    }
}
