//! The state of a store as bytes.
//!
//! ```text
//! format u32 (1) | generation u32 | flush at, Unix time in seconds u64 (0: never) | versions reserved u64
//! ```

use guira_item::store::{Generation, StoreState};

/// The version of everything a store has: of the keys, the records and the state.
pub(crate) const FORMAT: u32 = 1;

/// Why bytes are no state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StateError {
    /// They are of another format.
    OtherFormat(u32),
    /// They are none.
    Damaged,
}

pub(crate) fn encode(state: &StoreState) -> Vec<u8> {
    let StoreState { generation, flush_at_unix_s, versions_reserved } = state;
    let mut bytes = FORMAT.to_le_bytes().to_vec();
    bytes.extend_from_slice(&generation.0.to_le_bytes());
    bytes.extend_from_slice(&flush_at_unix_s.to_le_bytes());
    bytes.extend_from_slice(&versions_reserved.to_le_bytes());
    bytes
}

pub(crate) fn decode(bytes: &[u8]) -> Result<StoreState, StateError> {
    let (format, rest) = bytes.split_first_chunk().ok_or(StateError::Damaged)?;
    match u32::from_le_bytes(*format) {
        FORMAT => {}
        other => return Err(StateError::OtherFormat(other)),
    }
    let fields = rest.split_first_chunk().and_then(|(generation, rest)| {
        let (flush_at, rest) = rest.split_first_chunk()?;
        let versions: &[u8; 8] = rest.try_into().ok()?;
        Some((u32::from_le_bytes(*generation), u64::from_le_bytes(*flush_at), u64::from_le_bytes(*versions)))
    });
    let (generation, flush_at_unix_s, versions_reserved) = fields.ok_or(StateError::Damaged)?;
    Ok(StoreState { generation: Generation(generation), flush_at_unix_s, versions_reserved })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_read_as_they_are_written_and_nothing_else_is() {
        let state = StoreState { generation: Generation(3), flush_at_unix_s: 1 << 33, versions_reserved: 1 << 37 };
        let mut bytes = encode(&state);
        assert_eq!(decode(&bytes), Ok(state));
        for len in 0..bytes.len() {
            assert_eq!(decode(&bytes[..len]), Err(StateError::Damaged), "{len} bytes");
        }
        bytes.push(0);
        assert_eq!(decode(&bytes), Err(StateError::Damaged));
        bytes[0] = 2;
        assert_eq!(decode(&bytes), Err(StateError::OtherFormat(2)));
    }
}
