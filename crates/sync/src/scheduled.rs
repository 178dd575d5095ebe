//! Atomics that shuttle schedules and that are no larger than the standard ones: an access is a point at which another thread may
//! come to run, and then the standard type's. Shuttle's own keep clocks beside their values, so that memory which is used
//! as atomics, as a map's segments are, cannot be made of them.
//!
//! Every access takes its place in one global order, whatever its ordering says: what weaker ones allow is not to be found this way.

use std::sync::atomic::{self as standard, Ordering};

pub use std::sync::atomic::fence;

/// Lets shuttle choose who runs next. To be called before an access of a standard atomic that is one of these.
#[inline]
pub fn schedule() {
    shuttle_engine::runtime::thread::switch();
}

const _: () = assert!(size_of::<AtomicU8>() == 1 && size_of::<AtomicU32>() == 4 && size_of::<AtomicU64>() == 8);
const _: () = assert!(size_of::<AtomicPtr<u8>>() == size_of::<*mut u8>());

macro_rules! integer {
    ($($name:ident: $integer:ty),*) => {$(
        #[doc = concat!("As the standard `", stringify!($name), "`.")]
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub struct $name(standard::$name);

        #[expect(missing_docs, reason = "as the standard type's")]
        impl $name {
            pub const fn new(value: $integer) -> Self {
                Self(standard::$name::new(value))
            }

            pub fn load(&self, order: Ordering) -> $integer {
                schedule();
                self.0.load(order)
            }

            pub fn store(&self, value: $integer, order: Ordering) {
                schedule();
                self.0.store(value, order);
            }

            pub fn swap(&self, value: $integer, order: Ordering) -> $integer {
                schedule();
                self.0.swap(value, order)
            }

            pub fn compare_exchange(
                &self,
                current: $integer,
                new: $integer,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$integer, $integer> {
                schedule();
                self.0.compare_exchange(current, new, success, failure)
            }

            /// It never fails for no reason: whoever calls it does so in a loop, which would only go round once more.
            pub fn compare_exchange_weak(
                &self,
                current: $integer,
                new: $integer,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$integer, $integer> {
                self.compare_exchange(current, new, success, failure)
            }

            pub fn fetch_add(&self, value: $integer, order: Ordering) -> $integer {
                schedule();
                self.0.fetch_add(value, order)
            }

            pub fn fetch_sub(&self, value: $integer, order: Ordering) -> $integer {
                schedule();
                self.0.fetch_sub(value, order)
            }

            pub fn fetch_update(
                &self,
                success: Ordering,
                failure: Ordering,
                update: impl FnMut($integer) -> Option<$integer>,
            ) -> Result<$integer, $integer> {
                schedule();
                self.0.fetch_update(success, failure, update)
            }

            pub fn fetch_min(&self, value: $integer, order: Ordering) -> $integer {
                schedule();
                self.0.fetch_min(value, order)
            }
        }
    )*};
}

integer!(AtomicU8: u8, AtomicU32: u32, AtomicU64: u64, AtomicUsize: usize);

/// As the standard `AtomicBool`.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct AtomicBool(standard::AtomicBool);

#[expect(missing_docs, reason = "as the standard type's")]
impl AtomicBool {
    pub const fn new(value: bool) -> Self {
        Self(standard::AtomicBool::new(value))
    }

    pub fn load(&self, order: Ordering) -> bool {
        schedule();
        self.0.load(order)
    }

    pub fn store(&self, value: bool, order: Ordering) {
        schedule();
        self.0.store(value, order);
    }
}

/// As the standard `AtomicPtr`.
#[derive(Debug)]
#[repr(transparent)]
pub struct AtomicPtr<T>(standard::AtomicPtr<T>);

#[expect(missing_docs, reason = "as the standard type's")]
impl<T> AtomicPtr<T> {
    pub const fn new(pointer: *mut T) -> Self {
        Self(standard::AtomicPtr::new(pointer))
    }

    pub fn load(&self, order: Ordering) -> *mut T {
        schedule();
        self.0.load(order)
    }

    pub fn store(&self, pointer: *mut T, order: Ordering) {
        schedule();
        self.0.store(pointer, order);
    }

    pub fn swap(&self, pointer: *mut T, order: Ordering) -> *mut T {
        schedule();
        self.0.swap(pointer, order)
    }
}
