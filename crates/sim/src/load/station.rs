//! A node's time: one request after the other, each for as long as the node's rate says, and a bounded queue before it.
//!
//! Always true: two requests are done at least `1/rate` apart; what does not find room is lost and was never there.

use std::collections::VecDeque;

use guira_item::Moment;

/// Picoseconds: a fast cache node's requests take 71.4 ns each.
const PS_PER_NS: u64 = 1_000;

/// A server with a queue.
#[derive(Debug)]
pub(crate) struct Station<R> {
    service_ps: u64,
    queue_len_max: usize,
    free_at_ps: u64,
    /// With when they are done.
    queue: VecDeque<(Moment, R)>,
    served: u64,
}

impl<R> Station<R> {
    /// A station for so many requests a second.
    pub(crate) fn new(per_s: f64, queue_len_max: usize) -> Self {
        let service_ps = (1e12 / per_s) as u64;
        Self { service_ps, queue_len_max, free_at_ps: 0, queue: VecDeque::new(), served: 0 }
    }

    /// Takes a request. `Ok`: whether it is the only one, so that its end has to be heeded. `Err`: it is lost.
    pub(crate) fn offer(&mut self, now: Moment, request: R) -> Result<bool, R> {
        if self.queue.len() >= self.queue_len_max {
            return Err(request);
        }
        let begins_ps = self.free_at_ps.max(now.ns() * PS_PER_NS);
        self.free_at_ps = begins_ps + self.service_ps;
        let is_only = self.queue.is_empty();
        self.queue.push_back((Moment::from_ns(self.free_at_ps.div_ceil(PS_PER_NS)), request));
        Ok(is_only)
    }

    /// When the first is done.
    pub(crate) fn done_at(&self) -> Option<Moment> {
        self.queue.front().map(|(at, _)| *at)
    }

    /// Takes out the first.
    pub(crate) fn finish(&mut self) -> Option<R> {
        let (_, request) = self.queue.pop_front()?;
        self.served += 1;
        Some(request)
    }

    /// Requests that are done.
    pub(crate) fn served(&self) -> u64 {
        self.served
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_done_one_after_the_other_at_the_rate_and_beyond_the_queue_lost() {
        let mut station = Station::new(14e6, 3);
        let at = Moment::from_ns(1_000);
        assert_eq!(station.offer(at, 'a'), Ok(true));
        assert_eq!(station.offer(at, 'b'), Ok(false));
        assert_eq!(station.offer(at, 'c'), Ok(false));
        assert_eq!(station.offer(at, 'd'), Err('d'));
        let mut done = Vec::new();
        while let Some(at) = station.done_at() {
            done.push((at.ns(), station.finish()));
        }
        assert_eq!(done, [(1_072, Some('a')), (1_143, Some('b')), (1_215, Some('c'))]);
        assert_eq!(station.served(), 3);
        assert_eq!(station.offer(Moment::from_ns(5_000), 'e'), Ok(true));
        assert_eq!(station.done_at(), Some(Moment::from_ns(5_072)));
    }
}
