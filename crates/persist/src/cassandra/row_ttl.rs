//! How long Cassandra keeps a row.
//!
//! Always true: a row stays far longer than anything may be on its way to it, so no write that comes late finds it gone; one whose end a
//! Cassandra cannot write has none.

use guira_item::store::Record;

use crate::record;

/// How long a row stays after the end of what is in it, in seconds: far longer than anything may be on its way to it.
const ROW_AFTERLIFE_S: u64 = 86_400;

/// The longest that Cassandra keeps a row that is to end, in seconds: 20 years.
const ROW_TTL_MAX_S: u64 = 20 * 365 * 86_400;

/// The last second that a Cassandra of any version can write as the end of a row; what lasts longer has none.
const ROW_END_MAX_UNIX_S: u64 = (1 << 31) - 2 * ROW_AFTERLIFE_S;

/// How long a row of an item is kept, in seconds, at `unix_now`; 0: for ever.
pub(super) fn item_ttl_s(content: Option<&[u8]>, unix_now: u64) -> i32 {
    let end_unix_s = match content.map(record::decode) {
        // Nothing is under the key.
        None => unix_now,
        Some(Some(Record { expires_unix_s: 0, .. }) | None) => return 0,
        Some(Some(Record { expires_unix_s, .. })) => expires_unix_s.max(unix_now),
    };
    match (end_unix_s, end_unix_s - unix_now + ROW_AFTERLIFE_S) {
        (..ROW_END_MAX_UNIX_S, ttl_s @ ..=ROW_TTL_MAX_S) => i32::try_from(ttl_s).unwrap_or(0),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use guira_item::store::Generation;

    use super::*;

    /// How long a record that ends at a second is kept.
    fn ttl_s(expires_unix_s: u64, unix_now: u64) -> i32 {
        let (generation, value) = (Generation(0), &b"v"[..]);
        let record = Record { flags: 7, expires_unix_s, version: 1, generation, stale: false, win_sent: true, value };
        let mut bytes = Vec::new();
        record::encode(&record, &mut bytes);
        item_ttl_s(Some(&bytes), unix_now)
    }

    #[test]
    fn rows_end_a_day_after_what_is_in_them() {
        let day = 86_400;
        assert_eq!(item_ttl_s(None, 1_000), day, "deleted");
        assert_eq!(ttl_s(0, 1_000), 0, "for ever");
        assert_eq!(ttl_s(1_500, 1_000), day + 500);
        assert_eq!(ttl_s(500, 1_000), day, "over");
        assert_eq!(ttl_s(1 << 40, 1_000), 0, "later than Cassandra can tell");
        assert_eq!(ttl_s(1 << 31, 1_780_000_000), 0, "in 2038");
    }
}
