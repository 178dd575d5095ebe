//! What a node counts, by the names that `stats` and Prometheus have for it.

use guira_item::OwnNumber;

use super::NodeHostStatus;

type Row = (&'static str, &'static str, bool, fn(&NodeHostStatus) -> u64);

/// Name, what it says, whether it adds up, and what it is of a node.
const ROWS: [Row; 44] = [
    ("symmetric_members", "Nodes of this node's view", false, |node| node.core.members as u64),
    ("symmetric_has_lease", "Whether this node has a lease", false, |node| node.core.has_lease.into()),
    ("symmetric_whole", "Whether this node has all hot keys", false, |node| node.core.is_whole.into()),
    ("symmetric_shards", "Shards of which this node is home", false, |node| node.core.shards as u64),
    ("symmetric_hot_keys", "Keys that are hot here, or on their way in or out", false, |node| {
        node.core.hot_keys as u64
    }),
    ("symmetric_pending", "Requests that wait for an answer", false, |node| node.pending as u64),
    ("symmetric_hot_reads", "Reads answered by what is hot here", true, |node| node.core.counts.hot_reads),
    ("symmetric_hot_writes", "Writes of what is hot", true, |node| node.core.counts.hot_writes),
    ("symmetric_at_home", "Requests of keys whose home is here", true, |node| node.core.counts.at_home),
    ("symmetric_forwarded", "Requests forwarded to homes", true, |node| node.core.counts.forwarded),
    ("symmetric_resent", "Requests told again for want of an answer", true, |node| node.core.counts.resent),
    ("symmetric_for_others", "Requests of other nodes", true, |node| node.core.counts.for_others),
    ("symmetric_refused", "Requests of nodes with another view", true, |node| node.core.counts.refused),
    ("symmetric_busy", "Requests refused since too much was under way", true, |node| node.core.counts.busy),
    ("symmetric_away", "Requests not answered in time, and not carried out", true, |node| node.core.counts.away),
    ("symmetric_unknown", "Requests of which nobody knows what became", true, |node| node.core.counts.unknown),
    ("symmetric_promotions", "Keys promoted here, as home", true, |node| node.core.counts.promotions),
    ("symmetric_evictions", "Keys evicted from the hot ones here, as home", true, |node| node.core.counts.evictions),
    ("symmetric_sent_requests", "Requests sent to homes, again as well", true, |node| node.core.sent.requests),
    ("symmetric_sent_answers", "Answers sent to other nodes", true, |node| node.core.sent.answers),
    ("symmetric_sent_invalidates", "Invalidations sent", true, |node| node.core.sent.invalidates),
    ("symmetric_sent_acks", "Acknowledgements sent", true, |node| node.core.sent.acks),
    ("symmetric_sent_validates", "Validations sent", true, |node| node.core.sent.validates),
    ("symmetric_sent_updates", "Updates sent", true, |node| node.core.sent.updates),
    ("symmetric_sent_questions", "Questions sent what has become of an update", true, |node| node.core.sent.questions),
    ("symmetric_sent_evictions", "Messages sent of keys that are to be hot no more", true, |node| {
        node.core.sent.evictions
    }),
    ("symmetric_sent_joining", "Questions and pages sent of nodes that join", true, |node| node.core.sent.joining),
    ("symmetric_sent_pages", "Questions and pages sent of shards that come back", true, |node| node.core.sent.pages),
    ("symmetric_sent_credits", "Messages sent that give or ask for credits alone", true, |node| node.core.sent.credits),
    ("symmetric_sent_to_coordinator", "Messages sent to the coordinator", true, |node| node.core.sent.to_coordinator),
    ("symmetric_credits_requests_waited", "Requests that waited for a credit", true, |node| {
        node.core.flow.requests_waited
    }),
    ("symmetric_credits_messages_waited", "Messages of hot keys that waited for a credit", true, |node| {
        node.core.flow.messages_waited
    }),
    ("symmetric_credits_messages_waiting", "Messages of hot keys that wait for a credit now", false, |node| {
        node.core.waiting as u64
    }),
    ("symmetric_credits_messages_dropped", "Messages of hot keys that found no room to wait", true, |node| {
        node.core.flow.messages_dropped
    }),
    ("symmetric_credits_asked", "Times that credits were asked for", true, |node| node.core.flow.asked),
    ("symmetric_credits_beyond", "Messages that came without a credit", true, |node| node.core.flow.beyond),
    ("symmetric_messages_out", "Messages sent to other members", true, |node| node.wire.transport.all_messages_out()),
    ("symmetric_packets_out", "Datagrams and writes that they were sent in", true, |node| {
        node.wire.transport.packets_out()
    }),
    ("symmetric_datagrams_in", "Datagrams received of members", true, |node| node.wire.transport.datagrams_in),
    ("symmetric_datagrams_out", "Datagrams sent to members", true, |node| node.wire.transport.datagrams_out),
    ("symmetric_datagram_bytes_in", "Bytes of datagrams received", true, |node| node.wire.transport.bytes_in),
    ("symmetric_datagram_bytes_out", "Bytes of datagrams sent", true, |node| node.wire.transport.bytes_out),
    ("symmetric_stream_bytes_in", "Bytes that came through streams", true, |node| node.wire.transport.long_bytes_in),
    ("symmetric_stream_bytes_out", "Bytes that streams took", true, |node| node.wire.transport.long_bytes_out),
];

/// What these nodes of one process count together.
pub(super) fn own_numbers(nodes: &[NodeHostStatus]) -> Vec<OwnNumber> {
    let number = |(name, help, adds_up, of): &Row| {
        let value = nodes.iter().map(of).sum();
        OwnNumber { name, help, adds_up: *adds_up, value }
    };
    ROWS.iter().map(number).collect()
}
