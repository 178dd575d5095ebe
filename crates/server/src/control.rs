//! Carries out the commands that are not about single keys.
//!
//! Always true: everything the same connection asked before has been answered into `output` already.

use std::sync::atomic::Ordering::Relaxed;

use guira_item::{Answer, MemoryLimitError, ReassignError, Service, Ticket, Time};
use guira_memcache::{ClassSet, Control, Crawler, Output, Stats, WatchSet};

use crate::connections_report::RollCall;
use crate::dump::{Dump, Form};
use crate::shared::{Shared, Stop};
use crate::stats;

/// Watchers at a time, memcached's limit: each may have a queue of lines wait for it, and each line goes to all of them.
/// Workers that are asked in the same moment may each let one more in.
const WATCHERS_MAX: usize = 20;

/// memcached's line when there is no memory for a report.
const OUT_OF_MEMORY_STATS: &[u8] = b"SERVER_ERROR out of memory writing stats\r\n";

/// What the connection has to do next.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Nothing: it has been answered.
    Done,
    /// Close.
    Close,
    /// Send this.
    Dump(Box<Dump>),
    /// Become a watcher.
    Watch(WatchSet),
    /// List all connections.
    RollCall,
    /// Wait for the answer to a `flush_all` under its ticket.
    Flush {
        /// Nobody is to be told.
        noreply: bool,
    },
}

/// Carries out `command` at `now`; what is answered later is answered under `ticket`.
pub(crate) fn carry_out<S: Service>(
    shared: &Shared<S>,
    worker: &mut S::Worker,
    command: &Control<'_>,
    now: Time,
    ticket: Ticket,
    output: &mut Output,
) -> Outcome {
    let mut say = |line: &[u8], noreply: bool| {
        if !noreply {
            output.push(line);
        }
        Outcome::Done
    };
    match *command {
        Control::Stats(which) => report(shared, which, output),
        Control::FlushAll { at, noreply } => match shared.service.flush_all(worker, at, now, ticket) {
            Some(answer) => say(flush_answer(answer), noreply),
            None => Outcome::Flush { noreply },
        },
        Control::Version => say(format!("VERSION {}\r\n", shared.settings.version).as_bytes(), false),
        Control::Verbosity { level, noreply } => {
            shared.verbosity.store(level, Relaxed);
            if let Some(hook) = &shared.settings.on_verbosity {
                hook(level);
            }
            say(b"OK\r\n", noreply)
        }
        Control::Shutdown { graceful } => {
            shared.stop(if graceful { Stop::Graceful } else { Stop::Now });
            Outcome::Close
        }
        Control::Crawler(crawler) => crawl(shared, crawler, output),
        Control::SlabsReassign { source, destination } => {
            say(reassign(&shared.service, worker, now, source, destination), false)
        }
        Control::Watch { .. } if shared.watchers.count() >= WATCHERS_MAX => {
            say(b"WATCHER_TOO_MANY log watcher limit reached\r\n", false)
        }
        Control::Watch { set } => {
            output.push(b"OK\r\n");
            Outcome::Watch(set)
        }
        Control::CacheMemlimit { megabytes, noreply } => {
            let bytes = (megabytes as usize).saturating_mul(1 << 20);
            match shared.service.set_memory_limit(bytes) {
                Ok(()) => say(b"OK\r\n", noreply),
                Err(error) => say(memory_limit_refusal(error).as_bytes(), noreply),
            }
        }
    }
}

/// What is said to a `flush_all`.
pub(crate) fn flush_answer(answer: Answer) -> &'static [u8] {
    match answer {
        Answer::Failed(why) => guira_memcache::failure(why),
        _ => b"OK\r\n",
    }
}

/// memcached's word for it, then what can be had here.
fn memory_limit_refusal(error: MemoryLimitError) -> String {
    const MIB: usize = 1 << 20;
    match error {
        MemoryLimitError::TooLarge { max } => {
            format!("MEMLIMIT_ADJUST_FAILED at most the {}m of -m: restart with a larger one\r\n", max / MIB)
        }
        MemoryLimitError::TooSmall { min } => {
            format!("MEMLIMIT_ADJUST_FAILED at least {}m are needed now\r\n", min.div_ceil(MIB))
        }
    }
}

/// `slabs reassign`; source -1 is any class.
fn reassign<S: Service>(
    service: &S,
    worker: &mut S::Worker,
    now: Time,
    source: i32,
    destination: i32,
) -> &'static [u8] {
    if source == destination {
        return b"SAME src and dst class are identical\r\n";
    }
    let from = if source == -1 { Ok(None) } else { u32::try_from(source).map(Some) };
    let outcome = match (from, u32::try_from(destination)) {
        (Ok(from), Ok(to)) => service.reassign_page(worker, now, from, to),
        _ => Err(ReassignError::BadClass),
    };
    match outcome {
        Ok(()) => b"OK\r\n",
        Err(ReassignError::BadClass) => b"BADCLASS invalid src or dst class id\r\n",
        Err(ReassignError::NoSpare) => b"NOSPARE source class has no spare pages\r\n",
        Err(ReassignError::Busy) => b"BUSY currently processing reassign request\r\n",
    }
}

fn report<S: Service>(shared: &Shared<S>, which: Stats<'_>, output: &mut Output) -> Outcome {
    match which {
        Stats::General => stats::write(&stats::general(shared), output),
        Stats::Settings => stats::write(&stats::settings(shared), output),
        Stats::Items => stats::write(&stats::items(&shared.engine_stats(), &shared.tallies.class_totals()), output),
        Stats::Slabs => stats::write(&stats::slabs(&shared.engine_stats(), &shared.tallies.class_totals()), output),
        Stats::Sizes if shared.sizes_enabled.load(Relaxed) => {
            return Outcome::Dump(Dump::of(Form::Sizes, ClassSet::ALL));
        }
        Stats::Sizes => stats::write(&[("sizes_status".into(), "disabled".into())], output),
        Stats::SizesEnable | Stats::SizesDisable => {
            let enabled = which == Stats::SizesEnable;
            shared.sizes_enabled.store(enabled, Relaxed);
            // Without an end line, as memcached says it.
            let status = if enabled { "enabled" } else { "disabled" };
            output.push(format!("STAT sizes_status {status}\r\n").as_bytes());
        }
        Stats::Conns if RollCall::may_start(shared) => return Outcome::RollCall,
        Stats::Conns => output.push(OUT_OF_MEMORY_STATS),
        Stats::Reset => {
            shared.tallies.reset(|| shared.service.stats());
            shared.watchers.reset_skipped();
            shared.prefixes.reset();
            output.push(b"RESET\r\n");
        }
        Stats::DetailSwitch { on } => {
            shared.prefixes.switch(on);
            output.push(b"OK\r\n");
        }
        Stats::DetailDump => shared.prefixes.dump(output),
        Stats::Cachedump { class, limit } => {
            return Outcome::Dump(Dump::of(Form::Cachedump { limit }, ClassSet::of(class)));
        }
        Stats::Other(b"extstore") => output.push(b"END\r\n"),
        Stats::Other(_) => output.push(b"ERROR\r\n"),
    }
    Outcome::Done
}

fn crawl<S: Service>(shared: &Shared<S>, crawler: Crawler, output: &mut Output) -> Outcome {
    match crawler {
        Crawler::Metadump { .. } | Crawler::Crawl { .. } if !shared.crawler_enabled.load(Relaxed) => {
            output.push(b"CLIENT_ERROR lru crawler disabled\r\n");
            return Outcome::Done;
        }
        Crawler::Metadump { classes } => return Outcome::Dump(Dump::of(Form::Metadata, classes)),
        Crawler::Enable => shared.crawler_enabled.store(true, Relaxed),
        Crawler::Disable => shared.crawler_enabled.store(false, Relaxed),
        Crawler::Crawl { .. } => {
            shared.tallies.rare.crawler_starts.fetch_add(1, Relaxed);
            shared.wake_janitor();
        }
        Crawler::Sleep { .. } | Crawler::ToCrawl { .. } => {}
    }
    output.push(b"OK\r\n");
    Outcome::Done
}
