//! Any bytes as the value under which a store keeps an item: they are refused, or written again they are the same.
#![no_main]

use guira_persist::record::{decode, encode};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some(record) = decode(data) else { return };
    let mut bytes = Vec::new();
    encode(&record, &mut bytes);
    assert_eq!(bytes, data);
});
