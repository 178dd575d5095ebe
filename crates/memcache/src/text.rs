//! Text written into room that is already there.

/// A cursor over a slice that is long enough.
pub(crate) struct Text<'t> {
    room: &'t mut [u8],
    len: usize,
}

impl<'t> Text<'t> {
    #[inline]
    pub(crate) fn new(room: &'t mut [u8]) -> Self {
        Self { room, len: 0 }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn byte(&mut self, byte: u8) {
        self.room[self.len] = byte;
        self.len += 1;
    }

    #[inline]
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        self.room[self.len..end].copy_from_slice(bytes);
        self.len = end;
    }

    /// `number` in decimal.
    #[inline]
    pub(crate) fn number(&mut self, number: u64) {
        match number {
            0..10 => self.byte(b'0' + number as u8),
            10..100 => self.bytes(&[b'0' + (number / 10) as u8, b'0' + (number % 10) as u8]),
            _ => self.bytes(itoa::Buffer::new().format(number).as_bytes()),
        }
    }

    /// A space, a letter, a number.
    pub(crate) fn flag(&mut self, letter: u8, number: u64) {
        self.bytes(&[b' ', letter]);
        self.number(number);
    }
}
