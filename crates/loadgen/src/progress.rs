//! A progress bar on standard error, if that is a terminal and the work takes long enough to wonder about.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

/// Shows how far a piece of work has come; silent where nobody watches.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar named `what` over `total` steps.
    pub fn new(what: &str, total: u64) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self { bar: ProgressBar::hidden() };
        }
        let bar = ProgressBar::new(total);
        if let Ok(style) = ProgressStyle::with_template("{msg:40} [{bar:30}] {percent:>3} % {eta:>5}") {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(what.to_string());
        Self { bar }
    }

    /// `done` steps are done.
    pub fn at(&self, done: u64) {
        self.bar.set_position(done);
    }

    /// What is being done now.
    pub fn now(&self, what: &str) {
        self.bar.set_message(what.to_string());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_watching_is_no_error() {
        let progress = Progress::new("testing", 10);
        progress.at(5);
        progress.now("still testing");
    }
}
