//! What a member's status tells of what was dropped at its sockets.

use guira_cluster::Wire;
use serde_json::{Map, Value, json};

type Reason = (&'static str, fn(&Wire) -> u64);

/// Of what came: datagrams, messages and connections.
const DROPPED: [Reason; 11] = [
    ("too_short", |wire| wire.transport.in_too_short),
    ("of_another_version", |wire| wire.transport.in_version),
    ("for_another_member", |wire| wire.transport.in_not_for_me),
    ("forged", |wire| wire.transport.in_forged),
    ("of_no_member", |wire| wire.transport.in_stranger),
    ("from_elsewhere", |wire| wire.transport.in_wrong_address),
    ("malformed", |wire| wire.transport.in_malformed),
    ("misrouted", |wire| wire.transport.in_misrouted),
    ("damaged", |wire| wire.transport.in_damaged),
    ("undecodable", |wire| wire.undecodable),
    ("unwanted_connections", |wire| wire.transport.in_unwanted),
];

/// Of what was to go: messages, and datagrams that the system would not send.
const UNSENT: [Reason; 6] = [
    ("to_no_member", |wire| wire.transport.out_unknown_receiver),
    ("too_long", |wire| wire.transport.out_too_long),
    ("queue_full", |wire| wire.transport.out_queue_full),
    ("unsendable", |wire| wire.transport.out_unsendable),
    ("stream_full", |wire| wire.transport.out_long_full),
    ("stream_lost", |wire| wire.transport.out_long_lost),
];

/// A status, and what was dropped: `dropped` of what came, `unsent` of what was to go; why, in `drops`, where there is anything of it.
pub(super) fn with_dropped(mut status: Value, wires: &[Wire]) -> Value {
    let counted = |reasons: &[Reason]| -> Vec<(&'static str, u64)> {
        reasons.iter().map(|(name, count)| (*name, wires.iter().map(count).sum())).collect()
    };
    let (dropped, unsent) = (counted(&DROPPED), counted(&UNSENT));
    let sum = |counted: &[(&str, u64)]| counted.iter().map(|(_, count)| count).sum::<u64>();
    (status["dropped"], status["unsent"]) = (json!(sum(&dropped)), json!(sum(&unsent)));
    let there = dropped.into_iter().chain(unsent).filter(|(_, count)| *count > 0);
    let drops: Map<String, Value> = there.map(|(name, count)| (name.to_owned(), json!(count))).collect();
    if !drops.is_empty() {
        status["drops"] = Value::Object(drops);
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_dropped_is_told_and_why() {
        let quiet = with_dropped(json!({ "items": 3 }), &[Wire::default()]);
        assert_eq!(quiet, json!({ "items": 3, "dropped": 0, "unsent": 0 }));

        let (mut one, mut other) = (Wire::default(), Wire { undecodable: 1, ..Wire::default() });
        (one.transport.in_forged, other.transport.in_forged, other.transport.out_queue_full) = (2, 3, 4);
        let told = with_dropped(json!({}), &[one, other]);
        let drops = json!({ "forged": 5, "undecodable": 1, "queue_full": 4 });
        assert_eq!(told, json!({ "dropped": 6, "unsent": 4, "drops": drops }));
    }
}
