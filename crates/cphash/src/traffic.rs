//! What a client counts of its messages: how many lines they take, and where its time goes.

/// Cache lines that have changed hands between a client and the partitions, and the words in them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Lines of requests: lookups, inserts and calls, and references given back.
    pub request_lines: u64,
    /// Words in them.
    pub request_words: u64,
    /// Lines of replies.
    pub reply_lines: u64,
    /// Words in them.
    pub reply_words: u64,
}

/// Where a client's time has gone, by [`guira_sync::cycles`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClientCycles {
    /// Hashing keys and sending messages.
    pub send: u64,
    /// Waiting for replies and taking them.
    pub receive: u64,
    /// Serving partitions whose server thread sleeps or is busy elsewhere.
    pub serve: u64,
    /// Comparing keys, copying values, answering, and giving references back.
    pub access: u64,
}
