//! Times that chance chooses.

use guira_item::Span;
use rand::{RngExt, rngs::Xoshiro256PlusPlus};

/// One between these.
pub(crate) fn between(rng: &mut Xoshiro256PlusPlus, least: Span, most: Span) -> Span {
    Span::from_ns(rng.random_range(least.ns()..most.ns()))
}

/// One about as long.
pub(crate) fn around(rng: &mut Xoshiro256PlusPlus, span: Span) -> Span {
    Span::from_ns(rng.random_range(0..=2 * span.ns()))
}
