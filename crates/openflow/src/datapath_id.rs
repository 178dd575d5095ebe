//! A switch's number, which it says itself, written as `ovs-vsctl` and `ovs-ofctl show` write it: 16 hexadecimal digits.

use std::{fmt, str::FromStr};

/// A switch's number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DatapathId(pub u64);

impl DatapathId {
    const DIGITS: usize = 16;
}

impl fmt::Display for DatapathId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// What is no switch's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoDatapathId;

impl fmt::Display for NoDatapathId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a switch's datapath id is written as 16 hexadecimal digits (ovs-vsctl get bridge NAME datapath_id)",
        )
    }
}

impl std::error::Error for NoDatapathId {}

impl FromStr for DatapathId {
    type Err = NoDatapathId;

    fn from_str(text: &str) -> Result<Self, NoDatapathId> {
        let is_one = text.len() == Self::DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_one.then(|| u64::from_str_radix(text, 16).ok().map(Self)).flatten().ok_or(NoDatapathId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_nothing_else_is_one() {
        for number in [0, 7, 0x0123_4567_89ab_cdef, u64::MAX] {
            assert_eq!(DatapathId(number).to_string().parse(), Ok(DatapathId(number)));
        }
        for text in ["", "7", "0x00000000000000", "+000000000000007", "00000000000000007", "000000000000000g"] {
            assert_eq!(text.parse::<DatapathId>(), Err(NoDatapathId), "{text}");
        }
    }
}
