//! Reads as the table does them, short way and long way, but for one fault: what the models must be able to notice.
//!
//! Always true: with [`ReadFault::Harmless`] it is the table's protocol step by step, which passes the models too; so what they
//! notice with another fault is that fault.

use crate::{
    Geometry, Probe, SegmentSource, Table,
    read::Disturbed,
    residence::{Homes, Residence},
    segment::SegmentRef,
    tags::Lane,
};

/// What is done otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReadFault {
    /// Nothing.
    Harmless,
    /// Neither stripe nor layout is asked again.
    AsksNothingAgain,
    /// The stripe asked is that of the second bucket.
    AsksSecondStripe,
    /// The layout is asked for before the stripe.
    AsksLayoutFirst,
    /// Beside growth the layout is not asked again.
    AsksLayoutOnce,
    /// That the key is nowhere is believed at once.
    BelievesMisses,
    /// Beside growth only the old segment is looked at.
    LooksInOldOnly,
}

impl ReadFault {
    pub fn read<'a, G: Geometry, S: SegmentSource, D: Default, R>(
        self,
        table: &'a Table<G, S, D>,
        probe: &Probe,
        mut examine: impl FnMut(G::Content<'a>) -> Option<R>,
    ) -> Option<R> {
        let mut seen = self.look_in_both(table, probe, &mut examine);
        loop {
            match seen {
                Ok(found) => return found,
                Err(Disturbed) => seen = self.look(table, probe, &mut examine),
            }
        }
    }

    /// The stripe that is asked, of those of a key's buckets.
    fn stripe(self, [first, second]: [usize; 2]) -> usize {
        if self == Self::AsksSecondStripe { second } else { first }
    }

    fn believes<R>(self, found: Option<&R>) -> bool {
        self == Self::AsksNothingAgain || self == Self::BelievesMisses && found.is_none()
    }

    /// See [`Table::look_in_both`].
    pub fn look_in_both<'a, G: Geometry, S: SegmentSource, D: Default, R>(
        self,
        table: &'a Table<G, S, D>,
        probe: &Probe,
        examine: &mut impl FnMut(G::Content<'a>) -> Option<R>,
    ) -> Result<Option<R>, Disturbed> {
        let full_mask = Table::<G, S, D>::FULL_MASK;
        let buckets = [probe.first(full_mask), probe.second(full_mask)];
        let ask_layout = || table.directories.steady_segment(probe.position());
        let early = (self == Self::AsksLayoutFirst).then(ask_layout);
        let version = table.stripes.try_begin(self.stripe(buckets)).ok_or(Disturbed)?;
        let base = early.unwrap_or_else(ask_layout).ok_or(Disturbed)?;
        // SAFETY: a directory holds what the source, which lives as long as the table, handed out for full-sized segments.
        let segment: SegmentRef<'_, G> = unsafe { SegmentRef::new(base, full_mask) };
        let found = look_in_segment(segment, buckets, probe, examine);
        if self.believes(found.as_ref()) || version.is_unchanged() { Ok(found) } else { Err(Disturbed) }
    }

    /// See `Table::look`.
    fn look<'a, G: Geometry, S: SegmentSource, D: Default, R>(
        self,
        table: &'a Table<G, S, D>,
        probe: &Probe,
        examine: &mut impl FnMut(G::Content<'a>) -> Option<R>,
    ) -> Result<Option<R>, Disturbed> {
        let before = table.directories.word();
        let mask = Table::<G, S, D>::bucket_mask(before);
        let buckets = [probe.first(mask), probe.second(mask)];
        let version = table.stripes.begin(self.stripe(buckets));
        let word = if self == Self::AsksLayoutFirst { before } else { table.directories.word() };
        if Table::<G, S, D>::bucket_mask(word) != mask {
            return Err(Disturbed);
        }
        let Homes { from, to } = table.homes(word, probe.position()).ok_or(Disturbed)?;
        let to = to.filter(|_| self != Self::LooksInOldOnly);
        let found = Homes { from, to }.each().find_map(|segment| look_in_segment(segment, buckets, probe, examine));
        let is_valid = || version.is_unchanged() && (self == Self::AsksLayoutOnce || table.directories.word() == word);
        if self.believes(found.as_ref()) || is_valid() { Ok(found) } else { Err(Disturbed) }
    }
}

fn look_in_segment<'a, G: Geometry, R>(
    segment: SegmentRef<'a, G>,
    [first, second]: [usize; 2],
    probe: &Probe,
    examine: &mut impl FnMut(G::Content<'a>) -> Option<R>,
) -> Option<R> {
    let tags = segment.tags(first);
    let at_home = tags.matching(Lane::home(probe.tag())).find_map(|slot| examine(segment.content(first, slot)));
    if at_home.is_some() || !tags.may_be_away(probe.tag()) {
        return at_home;
    }
    let mut away = segment.tags(second).matching(Lane::away(probe.tag()));
    away.find_map(|slot| examine(segment.content(second, slot)))
}
