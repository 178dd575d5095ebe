//! Dumps of the items, a piece at a time: `lru_crawler metadump`, `stats cachedump`, `stats sizes`.
//!
//! Always true: a piece looks at a bounded number of places and is sent before the next is made, so that a dump of any
//! length costs little memory and keeps nobody waiting.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use guira_item::{Clock, ItemInfo, ScanCursor, Service, Time};
use guira_memcache::{ClassSet, Output};

use crate::stats;
use crate::watchers::UriText;

/// Places of the index that a piece looks at: some 10^2 microseconds of work.
const PLACES_PER_PIECE: usize = 2048;

/// memcached's bound on the length of a cachedump, in bytes.
const CACHEDUMP_LEN_MAX: usize = 2 << 20;

/// Sizes are counted in steps of so many bytes, as memcached counts them.
const SIZE_STEP: usize = 32;

/// How an item is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// `key=... exp=...`, a line an item, then `END`.
    Metadata,
    /// `ITEM <key> [<bytes> b; <unix time> s]`, so many lines at most (0: no limit), then `END`.
    Cachedump {
        /// Lines still allowed.
        limit: u32,
    },
    /// `STAT <bytes> <items>`, a line a step of [`SIZE_STEP`], then `END`.
    Sizes,
}

/// A dump under way.
#[derive(Debug)]
pub(crate) struct Dump {
    form: Form,
    classes: ClassSet,
    cursor: ScanCursor,
    /// Lines and bytes written so far.
    lines: u32,
    bytes: usize,
    /// Items by the steps of their size.
    sizes: BTreeMap<usize, u64>,
}

impl Dump {
    /// A dump of the items of some slab classes.
    pub(crate) fn of(form: Form, classes: ClassSet) -> Box<Self> {
        let (cursor, sizes) = (ScanCursor::default(), BTreeMap::new());
        Box::new(Self { form, classes, cursor, lines: 0, bytes: 0, sizes })
    }

    /// Writes the next piece; returns whether it was the last.
    pub(crate) fn step(&mut self, service: &impl Service, now: Time, clock: &Clock, output: &mut Output) -> bool {
        let mut text = String::new();
        let next = service.scan(self.cursor, PLACES_PER_PIECE, now, &mut |item| {
            if self.form == Form::Sizes {
                *self.sizes.entry(item.total_len.next_multiple_of(SIZE_STEP)).or_default() += 1;
            } else if self.classes.contains(item.class) {
                write_item(self.form, &mut self.lines, item, now, clock, &mut text);
            }
        });
        output.push(text.as_bytes());
        self.bytes += text.len();
        let full = match self.form {
            Form::Cachedump { limit } => self.bytes > CACHEDUMP_LEN_MAX || (limit > 0 && self.lines >= limit),
            Form::Metadata | Form::Sizes => false,
        };
        match next {
            Some(cursor) if !full => self.cursor = cursor,
            _ => {
                let rows: Vec<_> = self
                    .sizes
                    .iter()
                    .map(|(size, items)| (size.to_string().into(), items.to_string().into()))
                    .collect();
                stats::write(&rows, output);
                return true;
            }
        }
        false
    }
}

fn write_item(form: Form, lines: &mut u32, item: &ItemInfo<'_>, now: Time, clock: &Clock, text: &mut String) {
    let unix_of = |raw: u32| clock.to_unix_s(Time(raw));
    let written = match form {
        Form::Metadata => {
            let exp = match item.expiry.to_raw() {
                0 => -1,
                raw => i64::try_from(unix_of(raw)).unwrap_or(i64::MAX),
            };
            let used_at = clock.to_unix_s(now).saturating_sub(u64::from(item.idle_s));
            let fetch = if item.fetched { "yes" } else { "no" };
            let (key, cas, class, len) = (UriText(item.key), item.cas, item.class, item.total_len);
            writeln!(text, "key={key} exp={exp} la={used_at} cas={cas} fetch={fetch} cls={class} size={len}")
        }
        Form::Cachedump { limit } => {
            // The answer is text: a key that is not is left out, as memcached's binary keys are.
            let Ok(key) = std::str::from_utf8(item.key) else { return };
            if limit > 0 && *lines >= limit {
                return;
            }
            let exp = if item.expiry.to_raw() == 0 { 0 } else { unix_of(item.expiry.to_raw()) };
            write!(text, "ITEM {key} [{} b; {exp} s]\r\n", item.value_len)
        }
        Form::Sizes => unreachable!("counted, not written one by one"),
    };
    debug_assert!(written.is_ok(), "writing to a String");
    *lines += 1;
}
