//! Keys as clients name them.

use guira_loadgen::payload::push_key;

/// Bytes of a key (16, as the paper's).
pub(super) const KEY_LEN: usize = 16;

/// A key by its bytes: its number in hexadecimal.
pub(super) type KeyName = [u8; KEY_LEN];

/// The name of a key's number.
pub(super) fn name_of(number: u64) -> KeyName {
    let mut name = Vec::with_capacity(KEY_LEN);
    push_key(&mut name, number, KEY_LEN);
    name.try_into().expect("so many bytes were asked for")
}
