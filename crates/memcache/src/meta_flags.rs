//! The flags of a meta command: one letter each, some with a token glued to it.
//!
//! Reports the error memcached reports: a repeated or unknown flag at once, a bad token only after all flags have been
//! read, the last one winning.

use guira_item::{Expiry, Key};

use crate::command::Context;
use crate::error_lines::BAD_FORMAT;
use crate::tokens::{parse_i32, parse_u32, parse_u64};

/// The most words a meta command may have, its name and key among them (memcached's MFLAG_MAX_OPT_LENGTH less its end
/// mark).
pub(crate) const WORDS_MAX: usize = 19;

/// The longest opaque, in bytes, with its `O`.
const OPAQUE_LEN_MAX: usize = 32;

const BAD_TOKEN: &[u8] = b"CLIENT_ERROR bad token in command line format\r\n";
const DUPLICATE: &[u8] = b"CLIENT_ERROR duplicate flag\r\n";
const INVALID: &[u8] = b"CLIENT_ERROR invalid flag\r\n";
const BAD_KEY: &[u8] = b"CLIENT_ERROR error decoding key\r\n";
const BAD_MODE_LEN: &[u8] = b"CLIENT_ERROR incorrect length for M token\r\n";
const BAD_INITIAL: &[u8] = b"CLIENT_ERROR invalid numeric initial value\r\n";
const BAD_DELTA: &[u8] = b"CLIENT_ERROR invalid numeric delta value\r\n";

/// What the flags say, for whichever command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MetaFlags<'a> {
    /// The key, decoded if `base64`.
    pub(crate) key: Key<'a>,
    /// b
    pub(crate) base64: bool,
    /// v
    pub(crate) value: bool,
    /// u
    pub(crate) no_bump: bool,
    /// q
    pub(crate) quiet: bool,
    /// I
    pub(crate) invalidate: bool,
    /// N
    pub(crate) vivify: Option<Expiry>,
    /// T
    pub(crate) touch: Option<Expiry>,
    /// N and T were given, T behind N: it decides for a created item too.
    pub(crate) touch_is_last: bool,
    /// R
    pub(crate) recache: Option<Expiry>,
    /// R came after T.
    pub(crate) recache_after_touch: bool,
    /// F
    pub(crate) client_flags: u32,
    /// C
    pub(crate) cas: Option<u64>,
    /// M
    pub(crate) mode: Option<u8>,
    /// J
    pub(crate) initial: u64,
    /// D
    pub(crate) delta: u64,
    /// The token of O is longer than memcached repeats.
    pub(crate) opaque_is_too_long: bool,
}

impl<'a> MetaFlags<'a> {
    /// Reads the flags that go with `key`; the error is the line to say.
    pub(crate) fn parse(context: &Context<'_, 'a>, key: Key<'a>, words: &[&'a [u8]]) -> Result<Self, &'static [u8]> {
        let mut flags = Self {
            key,
            base64: false,
            value: false,
            no_bump: false,
            quiet: false,
            invalidate: false,
            vivify: None,
            touch: None,
            touch_is_last: false,
            recache: None,
            recache_after_touch: false,
            client_flags: 0,
            cas: None,
            mode: None,
            initial: 0,
            delta: 1,
            opaque_is_too_long: false,
        };
        let mut seen = 0u128;
        let mut failed = false;
        let mut error = BAD_FORMAT;
        for word in words {
            let (letter, token) = (word[0], &word[1..]);
            if letter >= 127 || seen & 1 << letter != 0 {
                return Err(DUPLICATE);
            }
            seen |= 1 << letter;
            if let Err(text) = flags.take(context, letter, token)? {
                failed = true;
                error = text.unwrap_or(error);
            }
        }
        if failed { Err(error) } else { Ok(flags) }
    }

    /// Takes in one flag. The outer error ends the reading; the inner one is remembered, with its text if it has one.
    fn take(
        &mut self,
        context: &Context<'_, 'a>,
        letter: u8,
        token: &[u8],
    ) -> Result<Result<(), Option<&'static [u8]>>, &'static [u8]> {
        let expiry = |place: &mut Option<Expiry>| match parse_i32(token) {
            Some(exptime) => {
                *place = Some(context.expiry(exptime));
                Ok(())
            }
            None => Err(Some(BAD_TOKEN)),
        };
        let number = |place: &mut u64, error| match parse_u64(token) {
            Some(number) => {
                *place = number;
                Ok(())
            }
            None => Err(Some(error)),
        };
        Ok(match letter {
            b'b' => match context.scratch.decode(self.key.as_bytes()) {
                Some(key) => {
                    self.key = key;
                    self.base64 = true;
                    Ok(())
                }
                None => Err(Some(BAD_KEY)),
            },
            b'N' => expiry(&mut self.vivify),
            b'T' => {
                self.touch_is_last = self.vivify.is_some();
                expiry(&mut self.touch)
            }
            b'R' => {
                self.recache_after_touch = self.touch.is_some();
                expiry(&mut self.recache)
            }
            b'F' => parse_u32(token).map(|flags| self.client_flags = flags).ok_or(None),
            b'C' => parse_u64(token).map(|cas| self.cas = Some(cas)).ok_or(Some(BAD_TOKEN)),
            b'J' => number(&mut self.initial, BAD_INITIAL),
            b'D' => number(&mut self.delta, BAD_DELTA),
            b'M' => match token {
                [mode] => {
                    self.mode = Some(*mode);
                    Ok(())
                }
                _ => Err(Some(BAD_MODE_LEN)),
            },
            b'v' => self.switch(|flags| &mut flags.value),
            b'u' => self.switch(|flags| &mut flags.no_bump),
            b'q' => self.switch(|flags| &mut flags.quiet),
            b'I' => self.switch(|flags| &mut flags.invalidate),
            b'O' => {
                self.opaque_is_too_long = is_opaque_too_long(token);
                Ok(())
            }
            // They only ask for something in the answer, or are for proxies.
            b'k' | b's' | b't' | b'c' | b'f' | b'h' | b'l' | b'P' | b'L' => Ok(()),
            _ => return Err(INVALID),
        })
    }

    fn switch(&mut self, place: fn(&mut Self) -> &mut bool) -> Result<(), Option<&'static [u8]>> {
        *place(self) = true;
        Ok(())
    }

    /// The expiry of an item that the command creates on a miss.
    pub(crate) fn creation(&self) -> Option<Expiry> {
        if self.touch_is_last { self.touch } else { self.vivify }
    }
}

/// Whether an opaque (without its `O`) is longer than memcached repeats.
pub(crate) fn is_opaque_too_long(token: &[u8]) -> bool {
    token.len() + 1 > OPAQUE_LEN_MAX
}
