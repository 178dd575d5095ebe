//! Which group gives memory to the others: one whose elements stay for much longer than those of another.
//!
//! Always true: a group that fills a page needs it as much as one that evicts, so that what went from one to the other does not come
//! back at once; and chance alone, which makes some groups evict more than others for a while, moves no page: emptying one costs
//! all the elements in it, those in use too.

/// A group gives pages to the others if one of them takes, for each page it has, so many times as much memory as it does.
const PRESSURE_RATIO: f64 = 2.0;

/// And so many standard deviations more, of which elements come and go one by one: the groups are looked at again and again.
const DEVIATIONS: f64 = 4.0;

/// Evictions for each group below which nothing is concluded from them.
const EVICTIONS_MIN: u64 = 64;

/// Evictions for each group after which what has been counted is too old.
const EVICTIONS_MAX: u64 = 64 * EVICTIONS_MIN;

/// What a group has needed since it was made, and has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Need {
    /// Cache lines of elements that came, but for what their owners gave back: those in use and those that were evicted.
    pub lines: u64,
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
        let since = |number: usize| needs[number].lines.saturating_sub(self.before[number].lines) as f64;
        let pressure = |number: usize| since(number) / needs[number].pages.max(1) as f64;
        let lines: f64 = (0..needs.len()).map(since).sum();
        let evictions: u64 = needs.iter().zip(&self.before).map(|(now, before)| now.evictions - before.evictions).sum();
        if evictions < EVICTIONS_MIN * needs.len() as u64 {
            return None;
        }
        let by_pressure = |one: &usize, other: &usize| pressure(*one).total_cmp(&pressure(*other));
        let taker = (0..needs.len()).max_by(by_pressure)?;
        let giver = (0..needs.len()).filter(|group| needs[*group].pages > 1).min_by(by_pressure)?;
        let taken = since(taker);
        let expected = PRESSURE_RATIO * pressure(giver) * needs[taker].pages.max(1) as f64;
        let chance = DEVIATIONS * (taken * lines / evictions as f64).sqrt();
        if taken > expected + chance {
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
    use super::*;

    const GROUPS: usize = 8;
    const PAGES: usize = 100;
    const LINES: u64 = 3;

    /// Elements go to groups by `share` and chance; pages that one gives are filled by the next that needs memory. Returns how
    /// many pages each has given.
    fn play(share: [u64; GROUPS], elements: u64) -> [usize; GROUPS] {
        let (mut balance, mut needs) = (Balance::default(), [Need { pages: PAGES, ..Need::default() }; GROUPS]);
        let (mut given, mut free, mut filling, mut random) = ([0; GROUPS], 0, [0; GROUPS], 1u64);
        for number in 0..elements {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let mut drawn = (random >> 8) % share.iter().sum::<u64>();
            let group = share
                .iter()
                .position(|share| {
                    let is_it = drawn < *share;
                    drawn = drawn.saturating_sub(*share);
                    is_it
                })
                .expect("shares add up");
            needs[group].lines += LINES;
            if filling[group] == 0 && free > 0 {
                free -= 1;
                needs[group].pages += 1;
                filling[group] = 1_024 / LINES;
            }
            match filling[group] {
                0 => needs[group].evictions += 1,
                _ => filling[group] -= 1,
            }
            if number % 50 == 0
                && let Some(giver) = balance.giver(&needs)
            {
                given[giver] += 1;
                needs[giver].pages -= 1;
                free += 1;
                balance.begin(needs.to_vec());
            }
        }
        given
    }

    #[test]
    fn chance_moves_no_page() {
        assert_eq!(play([1; GROUPS], 2_000_000), [0; GROUPS]);
        assert_eq!(play([5, 4, 5, 6, 5, 4, 6, 5], 2_000_000), [0; GROUPS], "it is not worth it");
    }

    #[test]
    fn who_needs_less_gives_to_who_needs_more() {
        let given = play([10, 1, 1, 1, 1, 1, 1, 1], 500_000);
        assert!(given[0] == 0 && given[1..].iter().all(|pages| *pages > 20), "{given:?}");
        let given = play([8, 8, 8, 8, 8, 8, 8, 1], 500_000);
        assert!(given[..7] == [0; 7] && given[7] > 20, "{given:?}");
    }
}
