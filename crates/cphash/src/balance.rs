//! Which group gives memory to the others: one whose elements stay for much longer than those of another.
//!
//! Always true: a group that fills a page needs it as much as one that evicts, so that what went from one to the other does not come
//! back at once; and chance alone, which makes some groups evict more than others for a while, moves no page: emptying one costs
//! all the elements in it, those in use too.

/// A group gives pages to the others if one of them takes, for each page it has, so many times as much memory as it does.
const PRESSURE_RATIO: f64 = 2.0;

/// And so many standard deviations more: the groups are looked at again and again.
const DEVIATIONS: f64 = 4.0;

/// Evictions for each group below which nothing is concluded from them.
const EVICTIONS_MIN: u64 = 64;

/// Evictions for each group after which what has been counted is too old: one and a half times what is in a group of small elements.
const EVICTIONS_MAX: u64 = 512 * EVICTIONS_MIN;

/// What a group has needed since it was made, and has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Need {
    /// Cache lines of elements that came, but for what their owners gave back: those in use and those that were evicted.
    pub lines: u64,
    /// The sum of the squares of the lines of each, or more: the variance of `lines` if elements come one by one, by chance.
    pub squares: u64,
    /// Elements evicted.
    pub evictions: u64,
    pub pages: usize,
}

/// The needs of all groups when they were last compared.
#[derive(Debug, Default)]
pub(crate) struct Balance {
    before: Vec<Need>,
}

impl Balance {
    /// Begins to count anew, from these needs.
    pub fn begin(&mut self, needs: Vec<Need>) {
        self.before = needs;
    }

    /// The group that is to give pages, if any is.
    pub fn giver(&mut self, needs: &[Need]) -> Option<usize> {
        if self.before.len() != needs.len() {
            self.begin(vec![Need::default(); needs.len()]);
        }
        let evictions: u64 = needs.iter().zip(&self.before).map(|(now, before)| now.evictions - before.evictions).sum();
        if evictions < EVICTIONS_MIN * needs.len() as u64 {
            return None;
        }
        let since = |number: usize, count: fn(&Need) -> u64| {
            count(&needs[number]).saturating_sub(count(&self.before[number])) as f64
        };
        let (lines, squares) = (|number| since(number, |need| need.lines), |number| since(number, |need| need.squares));
        let pages = |number: usize| needs[number].pages.max(1) as f64;
        let by_pressure =
            |one: &usize, other: &usize| (lines(*one) / pages(*one)).total_cmp(&(lines(*other) / pages(*other)));
        let taker = (0..needs.len()).max_by(by_pressure)?;
        let giver = (0..needs.len()).filter(|group| needs[*group].pages > 1).min_by(by_pressure)?;
        // A group to which few have come by chance shows less variance than there is: each has its part of all of it at least.
        let squares_per_page = (0..needs.len()).map(squares).sum::<f64>() / (0..needs.len()).map(pages).sum::<f64>();
        let variance = |group: usize| squares(group).max(squares_per_page * pages(group));
        let expected = PRESSURE_RATIO * pages(taker) / pages(giver);
        let chance = DEVIATIONS * (variance(taker) + expected.powi(2) * variance(giver)).sqrt();
        if lines(taker) > expected * lines(giver) + chance {
            return Some(giver);
        }
        if evictions > EVICTIONS_MAX * needs.len() as u64 {
            self.begin(needs.to_vec());
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    const GROUPS: usize = 8;
    const PAGES: usize = 100;
    const PAGE_LINES: u64 = 1_024;

    /// A group, and its elements by their lines, the oldest first.
    struct Group {
        need: Need,
        elements: VecDeque<u64>,
        used: u64,
    }

    impl Group {
        /// Evicts until what it has fits its pages.
        fn evict(&mut self) {
            while self.used > self.need.pages as u64 * PAGE_LINES {
                self.used -= self.elements.pop_front().expect("what is used is elements");
                self.need.evictions += 1;
            }
        }
    }

    /// Which elements come, and how often it is looked at what they need.
    #[derive(Clone, Copy)]
    struct Arrivals {
        /// Of each group.
        share: [u64; GROUPS],
        /// Lines of an element, by a number that is drawn for it.
        lines: fn(u64) -> u64,
        /// Elements between two looks.
        look: usize,
    }

    /// Short ones, and now and then one of 64 or 512 KiB.
    const MIXED: fn(u64) -> u64 = |drawn| match drawn % 1_000 {
        0 => 8_192,
        1..=10 => 1_024,
        _ => 3,
    };

    /// Elements go to groups by chance; pages that one gives are taken by the next that needs memory. Returns how many pages each
    /// has given.
    fn play(arrivals: Arrivals, elements: usize) -> [usize; GROUPS] {
        let mut balance = Balance::default();
        let group = |_| Group { need: Need { pages: PAGES, ..Need::default() }, elements: VecDeque::new(), used: 0 };
        let mut groups: [Group; GROUPS] = std::array::from_fn(group);
        let (mut given, mut free, mut random) = ([0; GROUPS], 0, 1u64);
        for number in 0..elements {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let (mut drawn, lines) =
                ((random >> 8) % arrivals.share.iter().sum::<u64>(), (arrivals.lines)(random >> 24));
            let of = |share: &u64| {
                let is_it = drawn < *share;
                drawn = drawn.saturating_sub(*share);
                is_it
            };
            let group = &mut groups[arrivals.share.iter().position(of).expect("shares add up")];
            group.need.lines += lines;
            group.need.squares += lines.pow(2);
            group.elements.push_back(lines);
            group.used += lines;
            while free > 0 && group.used > group.need.pages as u64 * PAGE_LINES {
                free -= 1;
                group.need.pages += 1;
            }
            group.evict();
            let needs = groups.each_ref().map(|group| group.need);
            if number % arrivals.look == 0
                && let Some(giver) = balance.giver(&needs)
            {
                given[giver] += 1;
                groups[giver].need.pages -= 1;
                groups[giver].evict();
                free += 1;
                balance.begin(groups.iter().map(|group| group.need).collect());
            }
        }
        given
    }

    const ALIKE: Arrivals = Arrivals { share: [1; GROUPS], lines: |_| 3, look: 50 };

    #[test]
    fn chance_moves_no_page() {
        let share = [5, 4, 5, 6, 5, 4, 6, 5];
        for look in [50, 5_000] {
            for lines in [ALIKE.lines, MIXED] {
                let alike = Arrivals { lines, look, ..ALIKE };
                assert_eq!(play(alike, 2_000_000), [0; GROUPS], "{look}");
                assert_eq!(play(Arrivals { share, ..alike }, 2_000_000), [0; GROUPS], "{look}: it is not worth it");
            }
        }
    }

    #[test]
    fn who_needs_less_gives_to_who_needs_more() {
        // Where few long elements matter most it takes a larger difference to show in the time that there is.
        for (lines, least) in [(ALIKE.lines, 25), (MIXED, 10)] {
            let given = play(Arrivals { share: [10, 1, 1, 1, 1, 1, 1, 1], lines, ..ALIKE }, 2_000_000);
            assert!(given[0] == 0 && given[1..].iter().all(|pages| *pages > least), "{given:?}");
            let given = play(Arrivals { share: [8, 8, 8, 8, 8, 8, 8, 1], lines, ..ALIKE }, 2_000_000);
            assert!(given[..7] == [0; 7] && given[7] > least, "{given:?}");
        }
    }
}
