//! The tests that every engine passes: the same for all, so that whoever chooses another engine loses nothing. An engine's crate
//! names itself as the [`Subject`] of [`engine_suite!`], and has a test for each.
//!
//! - `caller`: asks an engine, and keeps its answers.
//! - `values`: what is stored comes back, for as long as it should.
//! - `memory`: it stays under its limit, and goes where it is needed.
//! - `model`: every operation does what `guira_item::apply` says.
//! - `stress`: all cores at once.
#![forbid(unsafe_code)]

pub mod caller;
pub mod memory;
pub mod model;
pub mod stress;
pub mod values;

/// What a test asks of an engine to be made.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// In bytes.
    pub memory_limit: usize,
    /// One of the subject's policies.
    pub eviction: &'static str,
    /// Evict rather than refuse.
    pub evictions_enabled: bool,
}

/// An engine under test, and what is particular about it.
#[derive(Clone, Copy, Debug)]
pub struct Subject<E> {
    /// Names of its eviction policies, the default first.
    pub policies: &'static [&'static str],
    /// Makes one.
    pub make: fn(&Setup) -> E,
    /// The most bytes that an item of 16 and 32 bytes takes in a full cache of a few megabytes, by policy.
    pub bytes_per_item_max: fn(&'static str) -> f64,
    /// Bytes that statistics count for an item with an expiry besides key and value.
    pub header_len: u64,
    /// Looks into an engine that was under stress, by policy.
    pub check_busy: fn(&E, &'static str),
    /// Looks into an engine that was under stress and is empty now, by policy.
    pub check_empty: fn(&E, &'static str),
}

impl<E> Subject<E> {
    /// An engine of so many megabytes with the default policy.
    pub fn engine(&self, megabytes: usize) -> E {
        self.engine_with(megabytes, self.policies[0])
    }

    /// An engine of so many megabytes.
    pub fn engine_with(&self, megabytes: usize, eviction: &'static str) -> E {
        (self.make)(&Setup { memory_limit: megabytes << 20, eviction, evictions_enabled: true })
    }

    /// One that refuses what it has no memory for.
    pub fn engine_that_refuses(&self, megabytes: usize) -> E {
        let eviction = self.policies[0];
        (self.make)(&Setup { memory_limit: megabytes << 20, eviction, evictions_enabled: false })
    }
}

/// A test for each of the suite's, of the [`Subject`] that is given.
#[macro_export]
macro_rules! engine_suite {
    ($subject:expr) => {
        $crate::engine_suite! { @tests $subject;
            values::{values_of_every_length_come_back, an_item_above_the_largest_is_refused, items_expire_and_the_crawler_takes_their_memory_back, a_flush_takes_what_was_there_and_nothing_else, a_read_finds_what_it_has_created_already_expired, what_is_restored_is_as_it_was, a_value_being_sent_survives_its_own_replacement, a_scan_shows_every_item_once, every_read_tells_the_class_that_the_item_lies_in},
            memory::{a_full_cache_that_is_looked_after_keeps_its_items, background_work_leaves_a_balanced_cache_alone, memory_stays_under_the_limit_and_answers_stay_right, a_page_is_reassigned_but_for_no_item_that_must_stay, memory_is_lent_up_to_a_half_and_comes_back, what_is_lent_follows_a_lowered_limit, without_eviction_only_free_memory_is_lent, without_eviction_a_full_cache_refuses_and_loses_nothing, what_finds_no_memory_is_counted_once, a_long_value_is_counted_where_memory_is_short, without_eviction_what_is_dead_makes_room, a_cas_without_memory_leaves_the_item, touched_items_are_evicted_like_others},
            model::{behaves_as_the_operations_say, batches_behave_as_their_operations_one_by_one},
            stress::{no_value_is_torn_under_stress, no_key_is_lost_while_the_index_grows, batches_of_many_threads_read_what_they_wrote},
        }
    };
    (@tests $subject:expr; $($module:ident::{$($name:ident),+},)+) => {
        $($(
            #[test]
            fn $name() {
                $crate::$module::$name(&$subject);
            }
        )+)+
    };
}
