//! Reading what is written in network byte order.
//!
//! Always true: nothing is read beyond what there is; who wants more is told so, and has read nothing.

use crate::Malformed;

/// What is left to read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    pub(crate) fn new(bytes: &'b [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn rest(&self) -> &'b [u8] {
        self.0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (first, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*first)
    }

    /// The next bytes, as a reader of their own.
    pub(crate) fn part(&mut self, len: usize) -> Result<Reader<'b>, Malformed> {
        let (first, rest) = self.0.split_at_checked(len).ok_or(Malformed)?;
        self.0 = rest;
        Ok(Reader(first))
    }

    pub(crate) fn skip(&mut self, len: usize) -> Result<(), Malformed> {
        self.part(len).map(drop)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        self.array().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_be_bytes)
    }
}

/// Zeros until what was written from `start` on has a length that 8 divides.
pub(crate) fn pad_to_8(into: &mut Vec<u8>, start: usize) {
    let len = (into.len() - start).next_multiple_of(8);
    into.resize(start + len, 0);
}
