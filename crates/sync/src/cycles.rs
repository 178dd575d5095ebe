//! The processor's own clock, which costs some ten nanoseconds to read: for what is too short for the system's.

/// Ticks since some moment: of the time stamp counter on x86-64, which runs at one rate whatever the core does; nanoseconds
/// elsewhere.
#[inline]
pub fn cycles() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction reads a register and is there on every x86-64 processor.
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        use std::{sync::LazyLock, time::Instant};
        static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
        BEGIN.elapsed().as_nanos() as u64
    }
}
