//! A node's side of a copy of its own shard, from whoever is home of it.
//!
//! Always true: pages are taken in their order, each once; what was copied is worth something only as long as the same home has the shard without a break.

use guira_consistency::{Epoch, Writer};
use guira_item::{Moment, Span};
use guira_routing::NodeId;

use crate::{CopyNumber, Fetch, HomecomingConfig, HomecomingMutant, Page, PageNumber, Rest};

/// A home of a shard: who, in which life, and since when without a break.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Source {
    pub(crate) home: (NodeId, Writer),
    pub(crate) since: Option<Epoch>,
}

/// A copy, while it lasts.
#[derive(Clone, Debug)]
pub(crate) struct Taking {
    pub(crate) shard: usize,
    pub(crate) source: Source,
    /// Since when nothing of the shard has been lost, as of its views.
    pub(crate) kept_since: Option<Epoch>,
    copy: CopyNumber,
    /// The page that is asked for.
    page: PageNumber,
    asks_at: Moment,
    /// Items that have been copied.
    pub(crate) items: u64,
    /// In which view all is here, and the home serves nothing of it.
    sealed_in: Option<Epoch>,
    /// And none of its keys is on its way into the hot set or out of it, here.
    is_settled: bool,
}

impl Taking {
    pub(crate) fn new(now: Moment, shard: usize, source: Source, kept_since: Option<Epoch>, copy: CopyNumber) -> Self {
        let page = PageNumber::FIRST;
        Self { shard, source, kept_since, copy, page, asks_at: now, items: 0, sealed_in: None, is_settled: false }
    }

    /// What is to be asked now, if it is time; told again after a while.
    pub(crate) fn ask(&mut self, now: Moment, epoch: Epoch, writer: Writer, again_after: Span) -> Option<Fetch> {
        if now < self.asks_at || self.sealed_in.is_some() {
            return None;
        }
        self.asks_at = now + again_after;
        Some(Fetch { epoch, writer, shard: self.shard, copy: self.copy, page: self.page })
    }

    /// Whether a page is the one that is asked for.
    pub(crate) fn waits_for(&self, from: NodeId, page: &Page, config: &HomecomingConfig) -> bool {
        let Fetch { shard, copy, page: number, .. } = page.fetch;
        let is_next = number == self.page && self.sealed_in.is_none();
        let is_it = is_next || (number < self.page && config.has(HomecomingMutant::OldPage));
        from == self.source.home.0 && shard == self.shard && copy == self.copy && is_it
    }

    /// A page was taken, that says what else there is.
    pub(crate) fn go_on(&mut self, now: Moment, page: &Page, waits_for: Span, config: &HomecomingConfig) {
        if page.fetch.page < self.page {
            return;
        }
        let is_all = config.has(HomecomingMutant::PageIsAll) || page.rest == Rest::Nothing;
        self.items += page.items.len() as u64;
        self.page = page.fetch.page.next();
        self.asks_at = if page.rest == Rest::Waits { now + waits_for } else { now };
        self.sealed_in = is_all.then_some(page.fetch.epoch);
    }

    /// There is another view, in which the home is the same one: it may change what it has.
    pub(crate) fn unseal(&mut self, now: Moment) {
        (self.sealed_in, self.is_settled, self.asks_at) = (None, false, now);
    }

    /// None of its keys is on its way into the hot set or out of it: the home lets none begin that.
    pub(crate) fn settle(&mut self) {
        self.is_settled = self.sealed_in.is_some();
    }

    /// All is here, in the view that is.
    pub(crate) fn is_all(&self) -> bool {
        self.sealed_in.is_some() && self.is_settled
    }

    /// All is here but that.
    pub(crate) fn is_sealed(&self) -> bool {
        self.sealed_in.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: NodeId = NodeId(1);

    fn taking() -> Taking {
        let source = Source { home: (HOME, Writer(1)), since: Some(Epoch(2)) };
        Taking::new(Moment::default(), 0, source, Some(Epoch(2)), CopyNumber(4))
    }

    fn page(number: u64, rest: Rest) -> Page {
        let (copy, page) = (CopyNumber(4), PageNumber(number));
        let fetch = Fetch { epoch: Epoch(3), writer: Writer(2), shard: 0, copy, page };
        Page { fetch, items: Vec::new(), highest: 0, rest }
    }

    #[test]
    fn each_page_is_taken_once_and_in_its_turn() {
        let (mut taking, config, now) = (taking(), HomecomingConfig::USUAL, Moment::default());
        let asked = taking.ask(now, Epoch(3), Writer(2), Span::from_ms(40));
        assert_eq!(asked, Some(page(1, Rest::More).fetch));
        assert_eq!(taking.ask(now, Epoch(3), Writer(2), Span::from_ms(40)), None, "not yet again");
        let first = page(1, Rest::More);
        assert!(taking.waits_for(HOME, &first, &config) && !taking.waits_for(NodeId(3), &first, &config));
        taking.go_on(now, &first, Span::from_ms(10), &config);
        assert!(!taking.waits_for(HOME, &first, &config), "it was taken");
        let late = HomecomingConfig { mutant: Some(HomecomingMutant::OldPage), ..config };
        assert!(taking.waits_for(HOME, &first, &late), "a fault that is put in");
        assert!(!taking.waits_for(HOME, &page(3, Rest::Nothing), &config), "it was not asked for");
        taking.go_on(now, &page(2, Rest::Nothing), Span::from_ms(10), &config);
        assert!(taking.is_sealed() && !taking.is_all() && taking.ask(now, Epoch(3), Writer(2), TICK).is_none());
        taking.settle();
        assert!(taking.is_all());
        taking.unseal(now);
        assert!(!taking.is_all() && taking.ask(now, Epoch(4), Writer(2), TICK).is_some(), "it may have changed");
    }

    const TICK: Span = Span::from_ms(10);
}
