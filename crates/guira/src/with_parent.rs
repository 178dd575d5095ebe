//! A process that ends with the one that has started it, however that ends: `--with-parent`.

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

/// From now on this process is told to end when the thread that has started it does, which is one of `parent`'s.
///
/// # Errors
/// It has ended already.
pub(crate) fn end_with(parent: i32) -> Result<(), String> {
    set_parent_process_death_signal(Some(Signal::TERM)).map_err(|error| format!("--with-parent: {error}"))?;
    if getppid().map(|pid| pid.as_raw_nonzero().get()) != Some(parent) {
        return Err(format!("--with-parent {parent}: it has ended already"));
    }
    Ok(())
}
