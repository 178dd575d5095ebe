//! What a transport has sent, received and dropped.

/// Numbers since it was bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Datagrams received, those that were then dropped as well.
    pub datagrams_in: u64,
    /// Their bytes, headers of ours included.
    pub bytes_in: u64,
    /// Datagrams that the socket took.
    pub datagrams_out: u64,
    /// Their bytes, headers of ours included.
    pub bytes_out: u64,
    /// Messages that were in them: with those of streams all that have gone.
    pub messages_out: u64,

    /// Datagrams dropped: shorter than a header.
    pub in_too_short: u64,
    /// Datagrams dropped: of another version.
    pub in_version: u64,
    /// Datagrams dropped: for another node.
    pub in_not_for_me: u64,
    /// Datagrams dropped: not sealed with our secret.
    pub in_forged: u64,
    /// Datagrams dropped: sealed by who is no member.
    pub in_stranger: u64,
    /// Datagrams dropped: not from the address of the member that has sealed them.
    pub in_wrong_address: u64,
    /// Datagrams dropped: no bundle of messages.
    pub in_malformed: u64,
    /// Datagrams dropped: on the port of gets that the network routes, and to no get's address, or to that of another backend's.
    pub in_misrouted: u64,
    /// Frames dropped that are not as they were sent: cut off or in parts, or with a checksum that is wrong.
    pub in_damaged: u64,

    /// Datagrams, and messages of streams, sealed in an epoch before ours: a view has not come there yet.
    pub in_old_epoch: u64,
    /// The same, in an epoch after ours: it has not come here yet.
    pub in_new_epoch: u64,

    /// Messages dropped: to who is no member.
    pub out_unknown_receiver: u64,
    /// Messages dropped: longer than [`MESSAGE_LEN_MAX`](crate::MESSAGE_LEN_MAX), or than a stream carries
    /// ([`LONG_MESSAGE_LEN_MAX`](crate::LONG_MESSAGE_LEN_MAX)).
    pub out_too_long: u64,
    /// Messages dropped: too much waits to be sent.
    pub out_queue_full: u64,
    /// Datagrams dropped: the socket refused them for good (no route, for instance).
    pub out_unsendable: u64,

    /// Streams that members have opened to us.
    pub streams_in: u64,
    /// Streams that we have opened to members.
    pub streams_out: u64,
    /// Messages that came through streams. What is dropped of them is counted as datagrams are, and ends the stream.
    pub long_in: u64,
    /// Bytes that came through streams, those of strangers as well.
    pub long_bytes_in: u64,
    /// Messages that streams took.
    pub long_out: u64,
    /// Writes in which they took them, or some of one: system calls.
    pub long_writes: u64,
    /// Their bytes, headers of ours included.
    pub long_bytes_out: u64,
    /// Connections closed: from where no member is, without a greeting, or without one in time.
    pub in_unwanted: u64,
    /// Messages dropped: too much waits for streams.
    pub out_long_full: u64,
    /// Messages dropped: no stream could be opened, or it took nothing any more.
    pub out_long_lost: u64,
    /// Messages not queued: the same one waits already.
    pub out_long_same: u64,
}

impl Counts {
    /// Messages that have gone, by whichever way.
    pub fn all_messages_out(&self) -> u64 {
        self.messages_out + self.long_out
    }

    /// In so many datagrams and writes.
    pub fn packets_out(&self) -> u64 {
        self.datagrams_out + self.long_writes
    }
}
