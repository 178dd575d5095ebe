//! The order of what a client asks for at once: of one key, one after the other.
//!
//! ```text
//! set a | get b | get a | get c    -->    set a, then get a    get b    get c
//! ```
//! Requests take different ways: a read may be answered where a copy is while the change that the same client has sent before it is on its way to who has
//! the key, and datagrams pass each other. A client that does not wait for answers means what it says in order.
//!
//! Always true: what may change a key is not under way together with anything else that the same batch asks of that key; what only reads waits for no
//! other read.

use std::collections::{HashMap, VecDeque};

use crate::asked::Asked;

/// What is asked for, and what is asked for once that is answered.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) first: Asked,
    pub(crate) behind: VecDeque<Asked>,
}

impl Line {
    fn of(first: Asked) -> Self {
        Self { first, behind: VecDeque::new() }
    }
}

/// The lines of a batch, in the order of those who are first. O(1) an operation; each by itself, without looking at keys, if all only read.
pub(crate) fn lines_of(all: Vec<Asked>) -> Vec<Line> {
    let changes = |asked: &Asked| !asked.operation.get().only_reads();
    if all.len() == 1 || !all.iter().any(changes) {
        return all.into_iter().map(Line::of).collect();
    }
    // Of each key, by number: whether something changes it.
    let mut is_changed: Vec<bool> = Vec::new();
    let mut numbers: HashMap<&[u8], usize> = HashMap::with_capacity(all.len());
    let mut keys: Vec<usize> = Vec::with_capacity(all.len());
    for asked in &all {
        let number = *numbers.entry(&asked.key).or_insert(is_changed.len());
        if number == is_changed.len() {
            is_changed.push(false);
        }
        is_changed[number] |= changes(asked);
        keys.push(number);
    }
    let mut lines: Vec<Line> = Vec::with_capacity(all.len());
    let mut line_of: Vec<Option<usize>> = vec![None; is_changed.len()];
    for (asked, key) in all.into_iter().zip(keys) {
        match line_of[key] {
            Some(line) => lines[line].behind.push_back(asked),
            None => {
                line_of[key] = is_changed[key].then_some(lines.len());
                lines.push(Line::of(asked));
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use guira_chain::{Owned, Place};
    use guira_item::{Expiry, Get, Operation, Ticket};
    use proptest::prelude::*;

    use super::*;
    use crate::owed::{Mailbox, Owed};

    fn asked(at: u32, key: u8, changes: bool) -> Asked {
        let touch = Get { touch: Some(Expiry::NEVER), ..Get::PLAIN };
        let operation = Operation::Get(if changes { touch } else { Get::PLAIN });
        assert_ne!(operation.only_reads(), changes);
        let mailbox = Arc::new(Mailbox::new(Arc::new(|| {})));
        let owed = Owed::new(&mailbox, Place { ticket: Ticket(0), serial: 0, at }, None);
        Asked { key: [key].into(), operation: Owned::of(&operation), owed }
    }

    proptest! {
        #[test]
        fn who_waits_is_who_must(batch in prop::collection::vec((0u8..4, any::<bool>()), 1..40)) {
            let all = batch.iter().zip(0..).map(|((key, changes), at)| asked(at, *key, *changes)).collect();
            let lines: Vec<Vec<usize>> = lines_of(all)
                .into_iter()
                .map(|Line { first, behind }| {
                    [first].into_iter().chain(behind).map(|asked| asked.owed.place().at as usize).collect()
                })
                .collect();
            let firsts: Vec<usize> = lines.iter().map(|line| line[0]).collect();
            prop_assert!(firsts.is_sorted() && lines.iter().all(|line| line.is_sorted()));
            let is_of_one_key = |line: &Vec<usize>| line.iter().all(|at| batch[*at].0 == batch[line[0]].0);
            prop_assert!(lines.iter().all(is_of_one_key), "no key waits for another");
            let mut of_each: Vec<Option<usize>> = vec![None; batch.len()];
            for (number, line) in lines.iter().enumerate() {
                line.iter().for_each(|at| of_each[*at] = Some(number));
            }
            prop_assert!(of_each.iter().all(Option::is_some), "each is asked for");
            for (one, (key, _)) in batch.iter().enumerate() {
                for (other, _) in batch.iter().enumerate().filter(|(other, (of, _))| one < *other && of == key) {
                    let is_changed = batch.iter().any(|(of, changes)| of == key && *changes);
                    prop_assert_eq!(of_each[one] == of_each[other], is_changed);
                }
            }
        }
    }
}
