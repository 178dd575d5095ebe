//! What nodes say that they have counted: the names that their status has for it are here and nowhere else.
//!
//! Always true: a sum is over all nodes; what a binary of another build does not tell is `None`, and whoever wants it says so.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::error::BenchError;

/// Where a status has what is always there.
const EPOCH: &str = "/epoch";
const HITS: &str = "/hits";
const HOT_WRITES: &str = "/hot_writes";
const AT_HOME: &str = "/at_home";
const FORWARDED: &str = "/forwarded";
const RESENT: &str = "/resent";
const PROMOTIONS: &str = "/changes/promotions";
const HOT_KEYS: &str = "/hot_keys";
const PENDING: &str = "/pending";

/// Where it has what has gone to other nodes.
const SENT: &str = "/sent";
/// Kinds in there; all others but those that go to the coordinator keep hot keys the same.
const REQUESTS: &str = "requests";
const ANSWERS: &str = "answers";
const TO_COORDINATOR: &str = "to_coordinator";
const MESSAGES: &str = "/messages_out";
const PACKETS: &str = "/packets_out";

/// What members have counted since they were started.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    /// The latest view that any has; of what was counted since a sample before, how many views later that is.
    pub epoch: u64,
    /// Requests that the node which was asked has answered by what is hot there, without a message.
    pub hits: u64,
    /// Writes of hot keys.
    pub hot_writes: u64,
    /// Requests for keys whose home was asked.
    pub at_home: u64,
    /// Requests that went to the key's home.
    pub forwarded: u64,
    /// Of these that were sent again.
    pub resent: u64,
    /// Keys that have come to be hot.
    pub promotions: u64,
    /// Keys that are hot at the node that has fewest.
    pub hot_keys: u64,
    /// What is under way.
    pub pending: u64,
    /// What has gone from node to node.
    pub sent: Option<Sent>,
    /// CPU time of each node, seconds.
    pub nodes_cpu_s: Vec<f64>,
    /// That of all members, seconds.
    pub cpu_s: f64,
    /// Whose counts these are.
    pub pids: BTreeMap<u16, u32>,
    /// Nodes that have told.
    pub nodes: usize,
}

/// What has gone from node to node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sent {
    /// Requests for keys whose home is elsewhere, those that were sent again included.
    pub requests: u64,
    /// Answers to them.
    pub answers: u64,
    /// What keeps hot keys the same on all nodes, credits for that included.
    pub consistency: u64,
    /// Everything, leases and what is said of the hot set included.
    pub messages: u64,
    /// Writes and datagrams that it went in.
    pub packets: u64,
}

impl Sent {
    fn each(&self, other: &Self, of: fn(u64, u64) -> u64) -> Self {
        Self {
            requests: of(self.requests, other.requests),
            answers: of(self.answers, other.answers),
            consistency: of(self.consistency, other.consistency),
            messages: of(self.messages, other.messages),
            packets: of(self.packets, other.packets),
        }
    }

    /// What a status tells of it.
    fn told(status: &Value) -> Option<Self> {
        let number = |path: &str| status.pointer(path).and_then(Value::as_u64);
        let sent = status.pointer(SENT)?.as_object()?;
        let of_kind = |kind: &str| sent.get(kind).and_then(Value::as_u64);
        let (requests, answers) = (of_kind(REQUESTS)?, of_kind(ANSWERS)?);
        let all: u64 = sent.values().filter_map(Value::as_u64).sum();
        Some(Self {
            requests,
            answers,
            consistency: all - requests - answers - of_kind(TO_COORDINATOR)?,
            messages: number(MESSAGES)?,
            packets: number(PACKETS)?,
        })
    }

    /// Messages that requests have cost.
    pub fn for_requests(&self) -> u64 {
        self.requests + self.answers + self.consistency
    }
}

impl Sample {
    /// Adds a node's status; the name of what is not in it, if something is not.
    pub fn add(&mut self, status: &Value) -> Result<(), &'static str> {
        let number = |path: &'static str| status.pointer(path).and_then(Value::as_u64).ok_or(path);
        self.epoch = self.epoch.max(number(EPOCH)?);
        self.hits += number(HITS)?;
        self.hot_writes += number(HOT_WRITES)?;
        self.at_home += number(AT_HOME)?;
        self.forwarded += number(FORWARDED)?;
        self.resent += number(RESENT)?;
        self.promotions += number(PROMOTIONS)?;
        self.pending += number(PENDING)?;
        let (hot_keys, sent) = (number(HOT_KEYS)?, Sent::told(status));
        let is_first = self.nodes == 0;
        self.hot_keys = if is_first { hot_keys } else { self.hot_keys.min(hot_keys) };
        self.sent = match (self.sent, sent) {
            (_, sent) if is_first => sent,
            (Some(all), Some(sent)) => Some(all.each(&sent, |all, one| all + one)),
            _ => None,
        };
        self.nodes += 1;
        Ok(())
    }

    /// What was counted since `before`; what is hot and under way as it is now.
    ///
    /// # Errors
    /// A member was started again in between.
    pub fn since(&self, before: &Self) -> Result<Self, BenchError> {
        if self.pids != before.pids {
            return Err(BenchError::Invalid("a member of the cluster has ended, and was started again".into()));
        }
        let sent = self.sent.zip(before.sent);
        Ok(Self {
            epoch: self.epoch - before.epoch,
            hits: self.hits - before.hits,
            hot_writes: self.hot_writes - before.hot_writes,
            at_home: self.at_home - before.at_home,
            forwarded: self.forwarded - before.forwarded,
            resent: self.resent - before.resent,
            promotions: self.promotions - before.promotions,
            hot_keys: self.hot_keys,
            pending: self.pending,
            sent: sent.map(|(now, then)| now.each(&then, |now, then| now - then)),
            nodes_cpu_s: self.nodes_cpu_s.iter().zip(&before.nodes_cpu_s).map(|(now, then)| now - then).collect(),
            cpu_s: self.cpu_s - before.cpu_s,
            pids: self.pids.clone(),
            nodes: self.nodes,
        })
    }

    /// Whether nobody has asked anything in between.
    pub fn has_same_requests(&self, other: &Self) -> bool {
        let requests = |sample: &Self| (sample.asked(), sample.resent, sample.sent.map(|sent| sent.for_requests()));
        requests(self) == requests(other)
    }

    /// Requests of clients.
    pub fn asked(&self) -> u64 {
        self.hits + self.hot_writes + self.at_home + self.forwarded
    }

    /// So many of these, as a share of all requests.
    pub fn of_asked(&self, count: u64) -> f64 {
        count as f64 / (self.asked() as f64).max(1.0)
    }

    /// What has gone from node to node.
    ///
    /// # Errors
    /// The binary does not tell.
    pub fn sent(&self) -> Result<Sent, BenchError> {
        self.sent.ok_or_else(|| BenchError::Lacking("counts of messages between nodes in their status".into()))
    }

    /// CPU time of the busiest node over that of all on average.
    pub fn busiest_over_mean(&self) -> f64 {
        let most = self.nodes_cpu_s.iter().copied().fold(0.0, f64::max);
        most * self.nodes_cpu_s.len() as f64 / self.nodes_cpu_s.iter().sum::<f64>().max(f64::MIN_POSITIVE)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(hits: u64, hot_keys: u64) -> Value {
        json!({
            "epoch": 3, "hits": hits, "hot_writes": 2, "at_home": 3, "forwarded": 4, "resent": 1, "pending": 0, "hot_keys": hot_keys,
            "changes": { "promotions": 5, "evictions": 0 },
            "sent": { "requests": 5, "answers": 4, "acks": 2, "invalidates": 1, "to_coordinator": 9 },
            "messages_out": 20, "packets_out": 10,
        })
    }

    #[test]
    fn nodes_are_summed_and_a_sample_before_is_taken_off() {
        let mut before = Sample::default();
        [status(10, 7), status(20, 6)].iter().for_each(|status| before.add(status).expect("all is there"));
        before.nodes_cpu_s = vec![1.0, 1.0];
        assert_eq!((before.asked(), before.hot_keys), (48, 6));
        assert_eq!(before.sent().expect("it is told").for_requests(), 24);
        assert!(before.has_same_requests(&before.clone()));
        let mut after = Sample::default();
        [status(110, 9), status(20, 8)].iter().for_each(|status| after.add(status).expect("all is there"));
        after.nodes_cpu_s = vec![4.0, 2.0];
        assert!(!after.has_same_requests(&before));
        let counted = after.since(&before).expect("nobody was started again");
        assert_eq!((counted.asked(), counted.hits, counted.hot_keys), (100, 100, 8));
        assert_eq!(counted.of_asked(counted.hits), 1.0);
        assert_eq!(counted.sent().expect("it is told"), Sent::default());
        assert_eq!(counted.busiest_over_mean(), 1.5);
        after.pids.insert(1, 100);
        assert!(after.since(&before).is_err(), "somebody was");
    }

    #[test]
    fn what_a_binary_does_not_tell_is_not_taken_for_nothing() {
        let mut earlier = status(1, 1);
        earlier.as_object_mut().expect("an object").remove("packets_out");
        for order in [[&status(1, 1), &earlier], [&earlier, &status(1, 1)]] {
            let mut sample = Sample::default();
            order.iter().for_each(|status| sample.add(status).expect("the rest is there"));
            let error = sample.sent().expect_err("one of them does not tell").to_string();
            assert!(error.contains("--guira"), "{error}");
        }
        assert_eq!(Sample::default().add(&json!({ "epoch": 3 })), Err(HITS));
    }
}
