//! The commands that are not about keys: their arguments, checked as memcached checks them.
//!
//! What tunes parts of memcached that Guira does not have (its segmented LRU, its page mover, extstore) is answered here
//! and goes no further. Unlike memcached, watch and metadump may be pipelined behind other commands.

use guira_item::Time;

use crate::command::{Context, Step};
use crate::counters::CLASSES_MAX;
use crate::error_lines::{BAD_EXPTIME, BAD_FORMAT, END, ERROR, OK};
use crate::tokens::{Tokens, parse_i32, parse_u32};
use crate::{ClassSet, Control, Crawler, Stats, WatchSet};

/// Bounds of `cache_memlimit`, in megabytes.
const MEMLIMIT_MIN_MB: u32 = 8;
const MEMLIMIT_MAX_MB: u32 = 1_000_000_000;

/// `stats [...]`
pub(crate) fn stats<'a>(context: &mut Context<'_, 'a>, words: &Tokens<'a>) -> Step<'a> {
    let stats = match words.get(1) {
        b"" => Stats::General,
        b"reset" => Stats::Reset,
        b"settings" => Stats::Settings,
        b"items" => Stats::Items,
        b"slabs" => Stats::Slabs,
        b"sizes" => Stats::Sizes,
        b"sizes_enable" => Stats::SizesEnable,
        b"sizes_disable" => Stats::SizesDisable,
        b"conns" => Stats::Conns,
        b"extstore" => return say(context, END),
        b"detail" => match words.get(2) {
            b"on" => Stats::DetailSwitch { on: true },
            b"off" => Stats::DetailSwitch { on: false },
            b"dump" => Stats::DetailDump,
            _ => return say(context, b"CLIENT_ERROR usage: stats detail on|off|dump\r\n"),
        },
        b"cachedump" => {
            if !context.settings.dump_enabled {
                return say(context, b"CLIENT_ERROR stats cachedump not allowed\r\n");
            }
            if words.len() < 4 {
                return say(context, b"CLIENT_ERROR bad command line\r\n");
            }
            match (parse_u32(words.get(2)), parse_u32(words.get(3))) {
                (Some(class), Some(_)) if class as usize >= CLASSES_MAX => {
                    return say(context, b"CLIENT_ERROR Illegal slab id\r\n");
                }
                (Some(class), Some(limit)) => Stats::Cachedump { class, limit },
                _ => return say(context, BAD_FORMAT),
            }
        }
        other => Stats::Other(other),
    };
    Step::Control(Control::Stats(stats))
}

/// `flush_all [exptime] [noreply]`
pub(crate) fn flush_all<'a>(context: &mut Context<'_, 'a>, words: &Tokens<'a>) -> Step<'a> {
    if words.len() > 3 {
        return say(context, ERROR);
    }
    let noreply = words.noreply();
    context.batch.count(|counters| &mut counters.cmd_flush);
    if !context.settings.flush_enabled {
        return say_unless(context, noreply, b"CLIENT_ERROR flush_all not allowed\r\n");
    }
    let has_delay = words.len() != if noreply { 2 } else { 1 };
    let delay = if has_delay { parse_i32(words.get(1)) } else { Some(0) };
    match delay {
        None => say_unless(context, noreply, BAD_EXPTIME),
        Some(..=0) => Step::Control(Control::FlushAll { at: context.now, noreply }),
        Some(exptime) => {
            let at = Time(context.expiry(exptime).to_raw());
            Step::Control(Control::FlushAll { at, noreply })
        }
    }
}

/// `verbosity <level> [noreply]`
pub(crate) fn verbosity<'a>(context: &mut Context<'_, 'a>, words: &Tokens<'a>) -> Step<'a> {
    if words.len() != 2 && words.len() != 3 {
        return say(context, ERROR);
    }
    let noreply = words.noreply();
    match parse_u32(words.get(1)) {
        Some(level) => Step::Control(Control::Verbosity { level, noreply }),
        None => say_unless(context, noreply, BAD_FORMAT),
    }
}

/// `shutdown [graceful]`
pub(crate) fn shutdown<'a>(context: &mut Context<'_, 'a>, words: &Tokens<'a>) -> Step<'a> {
    if !context.settings.shutdown_enabled {
        return say(context, b"ERROR: shutdown not enabled\r\n");
    }
    match words.from(1) {
        [] => Step::Control(Control::Shutdown { graceful: false }),
        [b"graceful"] => Step::Control(Control::Shutdown { graceful: true }),
        _ => say(context, b"CLIENT_ERROR invalid shutdown mode\r\n"),
    }
}

/// `cache_memlimit <megabytes> [noreply]`
pub(crate) fn cache_memlimit<'a>(context: &mut Context<'_, 'a>, words: &Tokens<'a>) -> Step<'a> {
    if words.len() != 2 && words.len() != 3 {
        return say(context, ERROR);
    }
    let noreply = words.noreply();
    match parse_u32(words.get(1)) {
        None => say_unless(context, noreply, ERROR),
        Some(..MEMLIMIT_MIN_MB) => {
            say_unless(context, noreply, b"MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n")
        }
        Some(megabytes @ ..=MEMLIMIT_MAX_MB) => Step::Control(Control::CacheMemlimit { megabytes, noreply }),
        Some(_) => say_unless(context, noreply, b"MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n"),
    }
}

/// `watch [what]*`
pub(crate) fn watch<'a>(context: &mut Context<'_, 'a>, words: &Tokens<'a>) -> Step<'a> {
    let noreply = words.noreply();
    if !context.settings.watch_enabled {
        return say_unless(context, noreply, b"CLIENT_ERROR watch commands not allowed\r\n");
    }
    let mut set = WatchSet { fetchers: words.len() == 1, ..WatchSet::default() };
    for word in words.from(1) {
        let place = match *word {
            b"rawcmds" => &mut set.rawcmds,
            b"evictions" => &mut set.evictions,
            b"fetchers" => &mut set.fetchers,
            b"mutations" => &mut set.mutations,
            b"sysevents" => &mut set.sysevents,
            b"connevents" => &mut set.connevents,
            b"proxyreqs" => &mut set.proxyreqs,
            b"proxyevents" => &mut set.proxyevents,
            b"proxyuser" => &mut set.proxyuser,
            _ => return say_unless(context, noreply, ERROR),
        };
        *place = true;
    }
    Step::Control(Control::Watch { set })
}

/// `lru_crawler ...`
pub(crate) fn lru_crawler<'a>(context: &mut Context<'_, 'a>, words: &Tokens<'a>) -> Step<'a> {
    let crawler = match (words.get(1), words.from(2)) {
        (b"enable", []) => Crawler::Enable,
        (b"disable", []) => Crawler::Disable,
        (b"sleep", [micros]) => match parse_u32(micros) {
            None => return say(context, BAD_FORMAT),
            Some(micros @ ..=1_000_000) => Crawler::Sleep { micros },
            Some(_) => return say(context, b"CLIENT_ERROR sleep must be one second or less\r\n"),
        },
        (b"tocrawl", [items]) => match parse_u32(items) {
            None => return say(context, BAD_FORMAT),
            Some(items) => Crawler::ToCrawl { items },
        },
        (b"crawl", [b"hash"]) => return say(context, b"ERROR an unknown error happened\r\n"),
        (b"metadump", [_]) if !context.settings.dump_enabled => {
            return say(context, b"ERROR metadump not allowed\r\n");
        }
        (b"metadump", [b"hash"]) => Crawler::Metadump { classes: ClassSet::ALL },
        (what @ (b"crawl" | b"metadump"), [classes]) => match ClassSet::parse(classes) {
            None => return say(context, b"BADCLASS invalid class id\r\n"),
            Some(classes) if classes.is_empty() => return say(context, b"NOTSTARTED no items to crawl\r\n"),
            Some(classes) if what == b"crawl" => Crawler::Crawl { classes },
            Some(classes) => Crawler::Metadump { classes },
        },
        _ => return say(context, ERROR),
    };
    Step::Control(Control::Crawler(crawler))
}

/// `slabs reassign|automove ...`
pub(crate) fn slabs<'a>(context: &mut Context<'_, 'a>, words: &Tokens<'a>) -> Step<'a> {
    match (words.get(1), words.from(2)) {
        (b"reassign", [source, destination]) => match (parse_i32(source), parse_i32(destination)) {
            (Some(source), Some(destination)) => Step::Control(Control::SlabsReassign { source, destination }),
            _ => say(context, BAD_FORMAT),
        },
        (b"automove", [level, rest @ ..]) => {
            let text = match (*level, rest) {
                (b"ratio", [ratio, ..]) if is_decimal(ratio) => OK,
                (b"ratio", _) => ERROR,
                _ => match parse_u32(level) {
                    None => BAD_FORMAT,
                    Some(..=2) => OK,
                    Some(_) => ERROR,
                },
            };
            say_unless(context, words.noreply(), text)
        }
        _ => say(context, ERROR),
    }
}

/// `lru tune|mode|temp_ttl ...`
pub(crate) fn lru<'a>(context: &mut Context<'_, 'a>, words: &Tokens<'a>) -> Step<'a> {
    if words.len() < 2 {
        return say(context, ERROR);
    }
    let text = match (words.get(1), words.from(2)) {
        (b"tune", [hot, warm, hot_age, warm_age, ..]) => {
            match (parse_u32(hot), parse_u32(warm), parse_decimal(hot_age), parse_decimal(warm_age)) {
                (Some(hot), Some(warm), Some(hot_age), Some(warm_age)) => {
                    if hot.wrapping_add(warm) > 80 {
                        b"ERROR hot and warm pcts must not exceed 80\r\n"
                    } else if hot_age <= 0.0 || warm_age <= 0.0 {
                        b"ERROR hot/warm age factors must be greater than 0\r\n"
                    } else {
                        OK
                    }
                }
                _ => ERROR,
            }
        }
        (b"mode", [b"flat" | b"segmented", ..]) => OK,
        (b"temp_ttl", [ttl, ..]) if parse_i32(ttl).is_some() => OK,
        _ => ERROR,
    };
    say_unless(context, words.noreply(), text)
}

/// `extstore ...`
pub(crate) fn extstore<'a>(context: &mut Context<'_, 'a>, words: &Tokens<'a>) -> Step<'a> {
    if words.len() < 2 {
        return say(context, ERROR);
    }
    say_unless(context, words.noreply(), b"ERROR extstore is not supported\r\n")
}

/// `refresh_certs`
pub(crate) fn refresh_certs<'a>(context: &mut Context<'_, 'a>) -> Step<'a> {
    say(context, b"Error TLS not enabled\r\n")
}

fn parse_decimal(word: &[u8]) -> Option<f64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

fn is_decimal(word: &[u8]) -> bool {
    parse_decimal(word).is_some()
}

fn say<'a>(context: &mut Context<'_, 'a>, text: &'static [u8]) -> Step<'a> {
    say_unless(context, false, text)
}

fn say_unless<'a>(context: &mut Context<'_, 'a>, noreply: bool, text: &'static [u8]) -> Step<'a> {
    context.batch.say_unless(noreply, text);
    Step::Line
}
