//! Any bytes as the value under which a store keeps an item, and as its state: they are refused, or written again they are the same.
#![no_main]
#![allow(dead_code)]

#[path = "../../crates/persist/src/state.rs"]
mod state;

use guira_persist::record;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Some(item) = record::decode(data) {
        let mut bytes = Vec::new();
        record::encode(&item, &mut bytes);
        assert_eq!(bytes, data);
    }
    if let Ok(state) = state::decode(data) {
        assert_eq!(state::encode(&state), data);
    }
});
