//! Numbers about commands, under memcached's names. Plain words: every worker has its own, the server adds them up.

use std::ops::AddAssign;

macro_rules! counters {
    ($($name:ident: $meaning:literal,)*) => {
        /// Numbers about commands, as `stats` shows them.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct Counters {
            $(#[doc = $meaning] pub $name: u64,)*
        }

        impl Counters {
            /// Name and number, in the order in which `stats` shows them.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }
        }

        impl AddAssign<&Counters> for Counters {
            fn add_assign(&mut self, other: &Counters) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counters! {
    cmd_get: "Keys asked for by get, gets and mg.",
    cmd_set: "Values that arrived whole to be stored.",
    cmd_flush: "flush_all commands, the refused ones too.",
    cmd_touch: "Keys touched by touch, gat and gats.",
    cmd_meta: "Meta commands.",
    get_hits: "Keys found by a read.",
    get_misses: "Keys not found by a read.",
    delete_misses: "Deletes of what was not there.",
    delete_hits: "Deletes that removed something.",
    incr_misses: "incr of what was not there.",
    incr_hits: "incr that changed a number.",
    decr_misses: "decr of what was not there.",
    decr_hits: "decr that changed a number.",
    cas_misses: "cas of what was not there.",
    cas_hits: "cas that stored.",
    cas_badval: "cas with another version.",
    touch_hits: "Touched keys that were there.",
    touch_misses: "Touched keys that were not there.",
    store_too_large: "Values refused for their length.",
    store_no_memory: "Values refused for lack of memory.",
    auth_cmds: "Authentication attempts.",
    auth_errors: "Failed authentication attempts.",
}
