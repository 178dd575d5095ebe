//! Things told apart by a number that is made of all that they are.

use std::cmp::Ordering;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Deref;

/// A thing with its number.
#[derive(Clone, Debug)]
pub struct Printed<T> {
    print: u64,
    it: T,
}

impl<T: Hash> Printed<T> {
    pub fn new(it: T) -> Self {
        Self { print: print(&it), it }
    }
}

impl<T> Deref for Printed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.it
    }
}

impl<T> PartialEq for Printed<T> {
    fn eq(&self, other: &Self) -> bool {
        self.print == other.print
    }
}

impl<T> Eq for Printed<T> {}

impl<T> PartialOrd for Printed<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Printed<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.print.cmp(&other.print)
    }
}

impl<T> Hash for Printed<T> {
    fn hash<H: Hasher>(&self, to: &mut H) {
        self.print.hash(to);
    }
}

/// The number of a thing.
pub fn print(it: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    it.hash(&mut hasher);
    hasher.finish()
}
