//! Any bytes in any pieces. The first byte says how many of the next ones are lengths of pieces.
#![no_main]

mod conversation;

use guira_memcache::Dialect;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((count, rest)) = data.split_first() else { return };
    let (lens, input) = rest.split_at(usize::from(count % 8).min(rest.len()));
    conversation::check(Dialect::Memcached, None, input, lens);
});
