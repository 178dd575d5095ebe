//! Writes answers: the sink for one batch.
//!
//! Always true: what has been written ends with a whole answer, except between `reserve` and `commit`; then the reserved
//! bytes lie behind it and do not count.

use guira_item::{Answer, Death, Failure, Footprints, Hit, PinnedValue, Sink, Time, VALUE_SLACK_LEN};

use crate::batch::{MetaCommand, MetaPlan, Plan};
use crate::error_lines::{
    END, ERROR, FAILED, FAILED_AWAY, FAILED_BUSY, FAILED_UNKNOWN, NON_NUMERIC, OPAQUE_TOO_LONG, OUT_OF_MEMORY,
    OUT_OF_MEMORY_STORING, TOO_LARGE,
};
use crate::meta_reply::{self, Facts, META_LINE_LEN_MAX};
use crate::text::Text;
use crate::{Batch, ClassCounter, ClassCounters, Counters, Output};

/// The longest `VALUE` line: word, key, and three numbers.
const VALUE_LINE_LEN_MAX: usize = 6 + 250 + 11 + 21 + 21 + 2;

/// Takes the answers to a batch.
#[derive(Debug)]
pub struct Replies<'r, 'a> {
    batch: &'r Batch<'a>,
    /// Requests answered so far.
    answered: usize,
    /// The next literal to be written, and the request it stands before.
    literal: usize,
    literal_before: usize,
    now: Time,
    output: &'r mut Output,
    counters: &'r mut Counters,
    classes: Option<&'r ClassCounters>,
    reserved: Option<Reserved>,
}

/// A value on its way into the output.
#[derive(Clone, Copy, Debug)]
struct Reserved {
    /// Length of the line and the value, from where the output ends now.
    line_len: usize,
    value_len: usize,
    /// The bytes before the value, which the engine may overwrite.
    before: [u8; VALUE_SLACK_LEN],
}

impl<'r, 'a> Replies<'r, 'a> {
    pub(crate) fn new(
        batch: &'r Batch<'a>,
        first: usize,
        now: Time,
        output: &'r mut Output,
        counters: &'r mut Counters,
    ) -> Self {
        // Those before an answer that has been written have been written with it.
        let literal = if first == 0 { 0 } else { batch.literals.partition_point(|it| (it.before as usize) < first) };
        let mut replies = Self {
            batch,
            answered: first,
            literal,
            literal_before: 0,
            now,
            output,
            counters,
            classes: None,
            reserved: None,
        };
        replies.literal_before = replies.next_literal_before();
        replies
    }

    /// Counts by slab class too.
    pub fn by_class(self, classes: &'r ClassCounters) -> Self {
        Self { classes: Some(classes), ..self }
    }

    #[inline]
    fn count_class(&self, class: u32, what: ClassCounter) {
        if let Some(classes) = self.classes {
            classes.count(class, what);
        }
    }

    /// Writes what stands behind the last request, if all have been answered.
    pub fn finish(mut self) {
        if self.answered == self.batch.requests.len() {
            self.write_literals(self.answered);
            *self.counters += &self.batch.counted;
        }
    }

    fn next_literal_before(&self) -> usize {
        self.batch.literals.get(self.literal).map_or(usize::MAX, |literal| literal.before as usize)
    }

    /// Writes the literals that stand before request number `index`.
    #[cold]
    fn write_literals(&mut self, index: usize) {
        while self.literal_before <= index {
            self.output.push(self.batch.literals[self.literal].text);
            self.literal += 1;
            self.literal_before = self.next_literal_before();
        }
    }

    /// Everything before request number `index` gets written.
    #[inline]
    fn reach(&mut self, index: usize) {
        debug_assert_eq!(index, self.answered, "answers come in order, each once");
        if self.literal_before <= index {
            self.write_literals(index);
        }
        if self.reserved.is_some() {
            self.restore();
        }
    }

    /// Puts back what the engine may have overwritten before a reserved value.
    #[inline]
    fn restore(&mut self) {
        if let Some(reserved) = self.reserved.take() {
            self.output.write_behind_end(reserved.line_len, &reserved.before);
        }
    }

    /// Writes the line before a value behind the end of the output, with `more` free bytes behind it; returns its length,
    /// or `None` if an error line was written instead.
    #[inline]
    fn value_line(&mut self, index: usize, hit: &Hit, more: usize) -> Option<usize> {
        let key = self.batch.requests[index].key;
        match self.batch.plans[index] {
            Plan::Value { with_cas, .. } => {
                let mut text = Text::new(self.output.room(VALUE_LINE_LEN_MAX + more));
                text.bytes(b"VALUE ");
                text.bytes(key.as_bytes());
                text.byte(b' ');
                text.number(u64::from(hit.flags));
                text.byte(b' ');
                text.number(hit.value_len as u64);
                if with_cas {
                    text.byte(b' ');
                    text.number(hit.cas);
                }
                text.bytes(b"\r\n");
                Some(text.len())
            }
            Plan::Lookup => {
                let size = guira_cpwire::size_field(hit.value_len);
                self.output.room(size.len() + more)[..size.len()].copy_from_slice(&size);
                Some(size.len())
            }
            Plan::Meta(meta) => {
                let plan = &self.batch.metas[usize::from(meta)];
                let mut text = Text::new(self.output.room(META_LINE_LEN_MAX + more));
                text.bytes(b"VA ");
                text.number(hit.value_len as u64);
                meta_reply::flags(&mut text, plan, key, &Facts::Hit(hit), self.now).ok()?;
                text.bytes(b"\r\n");
                Some(text.len())
            }
            plan => unreachable!("a value for {plan:?}"),
        }
    }

    /// What stands behind a value.
    #[inline]
    fn end_value(&mut self, index: usize) {
        if self.batch.plans[index] != Plan::Lookup {
            self.output.push(b"\r\n");
        }
    }

    /// Counts a read, with the class of what it found, and ends its answer.
    #[inline]
    fn end_read(&mut self, index: usize, found: Option<u32>) {
        self.answered = index + 1;
        let is_hit = found.is_some();
        let (touches, ends) = match self.batch.plans[index] {
            Plan::Value { touches, ends, .. } => (touches, ends),
            Plan::Lookup => (false, false),
            Plan::Meta(meta) => match self.batch.metas[usize::from(meta)].command {
                MetaCommand::Get { touches, .. } => (touches && is_hit, false),
                _ => {
                    self.counters.cmd_meta += 1;
                    return;
                }
            },
            _ => return,
        };
        if let Some(class) = found {
            self.count_class(class, if touches { ClassCounter::TouchHits } else { ClassCounter::GetHits });
        }
        let counters = &mut *self.counters;
        if touches {
            counters.cmd_touch += 1;
            *if is_hit { &mut counters.touch_hits } else { &mut counters.touch_misses } += 1;
        } else {
            counters.cmd_get += 1;
            *if is_hit { &mut counters.get_hits } else { &mut counters.get_misses } += 1;
        }
        if ends {
            self.end_get();
        }
    }

    /// The line that ends a get. Clients read up to the first `END` or error line, so there is exactly one: a failed key
    /// takes its place.
    #[inline]
    fn end_get(&mut self) {
        let text = match self.output.failed_get.take() {
            None => END,
            Some(why) => failure(why),
        };
        self.output.push(text);
    }

    fn classic(&mut self, index: usize, plan: Plan, answer: Answer, items: &Footprints) {
        let text: &[u8] = match plan {
            Plan::Value { .. } => {
                if let Answer::Failed(why) = answer {
                    self.output.failed_get = Some(why);
                }
                self.end_read(index, None);
                return;
            }
            Plan::Lookup => {
                // A failure cannot be told from a miss: there is no word for it.
                self.end_read(index, None);
                &guira_cpwire::MISS
            }
            Plan::Silent => return,
            Plan::Store { with_cas, extends, noreply } => {
                self.count_store(with_cas, answer, items);
                if noreply {
                    return;
                }
                match answer {
                    Answer::Stored { .. } => b"STORED\r\n",
                    Answer::Exists => b"EXISTS\r\n",
                    Answer::NotFound => b"NOT_FOUND\r\n",
                    // memcached does not tell a lack of memory from a lack of an item to extend.
                    Answer::TooLarge | Answer::OutOfMemory if extends => b"NOT_STORED\r\n",
                    Answer::NotStored => b"NOT_STORED\r\n",
                    other => store_error(other),
                }
            }
            Plan::Delete { noreply } => {
                self.count_delete(answer, items);
                if noreply {
                    return;
                }
                match answer {
                    Answer::Deleted => b"DELETED\r\n",
                    Answer::NotFound => b"NOT_FOUND\r\n",
                    other => store_error(other),
                }
            }
            Plan::Touch { noreply } => {
                self.count_touch(answer, items);
                if noreply {
                    return;
                }
                match answer {
                    Answer::Touched => b"TOUCHED\r\n",
                    Answer::NotFound => b"NOT_FOUND\r\n",
                    other => store_error(other),
                }
            }
            Plan::Arithmetic { up, noreply } => {
                self.count_arithmetic(up, answer, items);
                if noreply {
                    return;
                }
                match answer {
                    Answer::Number { value, .. } => {
                        self.output.push(itoa::Buffer::new().format(value).as_bytes());
                        b"\r\n"
                    }
                    Answer::NotFound => b"NOT_FOUND\r\n",
                    Answer::NonNumeric => NON_NUMERIC,
                    Answer::OutOfMemory | Answer::TooLarge => OUT_OF_MEMORY,
                    other => store_error(other),
                }
            }
            Plan::Meta(_) => unreachable!("not classic"),
        };
        self.output.push(text);
    }

    fn meta(&mut self, index: usize, plan: &MetaPlan<'_>, answer: Answer) {
        let creates = matches!(answer, Answer::Number { created: true, .. });
        let status: &[u8] = match (plan.command, answer) {
            (MetaCommand::Debug, Answer::Miss) => {
                self.output.push(b"EN\r\n");
                return;
            }
            (_, Answer::Miss) => b"EN",
            (MetaCommand::Set { extends: true, .. }, Answer::TooLarge | Answer::OutOfMemory) => b"NS",
            (MetaCommand::Arithmetic { .. }, Answer::OutOfMemory | Answer::TooLarge) => {
                self.output.push(OUT_OF_MEMORY);
                return;
            }
            (_, Answer::Stored { .. } | Answer::Deleted | Answer::Invalidated | Answer::Touched) => b"HD",
            (_, Answer::Number { .. }) => b"HD",
            (_, Answer::NotStored) => b"NS",
            (_, Answer::Exists) => b"EX",
            (_, Answer::NotFound) => b"NF",
            (_, Answer::NonNumeric) => {
                self.output.push(NON_NUMERIC);
                return;
            }
            (_, other) => {
                self.output.push(store_error(other));
                return;
            }
        };
        // q hides the answer that says that all is as expected: a miss of mg, a success of the others.
        let is_hidden = plan.quiet && matches!(status, b"EN" | b"HD") && !creates;
        let number = match (plan.command, answer) {
            (MetaCommand::Arithmetic { value: true, .. }, Answer::Number { value, .. }) => Some(value),
            _ => None,
        };
        let key = self.batch.requests[index].key;
        let mut text = Text::new(self.output.room(META_LINE_LEN_MAX));
        let mut digits = itoa::Buffer::new();
        let digits = number.map(|number| digits.format(number).as_bytes());
        match digits {
            Some(digits) => {
                text.bytes(b"VA ");
                text.number(digits.len() as u64);
            }
            None => text.bytes(status),
        }
        match meta_reply::flags(&mut text, plan, key, &Facts::Answer(&answer), self.now) {
            Err(_) => self.output.push(OPAQUE_TOO_LONG),
            Ok(()) if is_hidden => {}
            Ok(()) => {
                if let Some(digits) = digits {
                    text.bytes(b"\r\n");
                    text.bytes(digits);
                }
                text.bytes(b"\r\n");
                let len = text.len();
                self.output.extend(len);
            }
        }
    }

    fn count_store(&mut self, with_cas: bool, answer: Answer, items: &Footprints) {
        let counters = &mut *self.counters;
        counters.cmd_set += 1;
        let of_class = match answer {
            Answer::Stored { .. } if with_cas => {
                counters.cas_hits += 1;
                Some(ClassCounter::CasHits)
            }
            Answer::Exists if with_cas => {
                counters.cas_badval += 1;
                Some(ClassCounter::CasBadval)
            }
            Answer::NotFound if with_cas => {
                counters.cas_misses += 1;
                None
            }
            Answer::TooLarge => {
                counters.store_too_large += 1;
                None
            }
            Answer::OutOfMemory => {
                counters.store_no_memory += 1;
                None
            }
            _ => None,
        };
        // A set counts where its value belongs, everything else where the item was that it found.
        if let Some(item) = items.after {
            self.count_class(item.class, ClassCounter::CmdSet);
        }
        self.count_found(of_class, items);
    }

    fn count_delete(&mut self, answer: Answer, items: &Footprints) {
        match answer {
            Answer::Deleted => {
                self.counters.delete_hits += 1;
                self.count_found(Some(ClassCounter::DeleteHits), items);
            }
            Answer::NotFound | Answer::Exists => self.counters.delete_misses += 1,
            _ => {}
        }
    }

    fn count_touch(&mut self, answer: Answer, items: &Footprints) {
        self.counters.cmd_touch += 1;
        if answer == Answer::Touched {
            self.counters.touch_hits += 1;
            self.count_found(Some(ClassCounter::TouchHits), items);
        } else {
            self.counters.touch_misses += 1;
        }
    }

    fn count_arithmetic(&mut self, up: bool, answer: Answer, items: &Footprints) {
        let counters = &mut *self.counters;
        let (place, of_class) = match (up, answer) {
            (true, Answer::Number { created: false, .. }) => (&mut counters.incr_hits, Some(ClassCounter::IncrHits)),
            (false, Answer::Number { created: false, .. }) => (&mut counters.decr_hits, Some(ClassCounter::DecrHits)),
            (true, Answer::NotFound) => (&mut counters.incr_misses, None),
            (false, Answer::NotFound) => (&mut counters.decr_misses, None),
            _ => return,
        };
        *place += 1;
        self.count_found(of_class, items);
    }

    fn count_found(&self, what: Option<ClassCounter>, items: &Footprints) {
        if let (Some(what), Some(item)) = (what, items.before) {
            self.count_class(item.class, what);
        }
    }
}

/// The line for an answer that no command expects in the ordinary course.
fn store_error(answer: Answer) -> &'static [u8] {
    match answer {
        Answer::TooLarge => TOO_LARGE,
        Answer::OutOfMemory => OUT_OF_MEMORY_STORING,
        Answer::Failed(why) => failure(why),
        other => {
            debug_assert!(false, "the service answered {other:?}");
            ERROR
        }
    }
}

/// The line that says that an operation was not carried out, or may have been.
pub fn failure(why: Failure) -> &'static [u8] {
    match why {
        Failure::Refused => FAILED,
        Failure::Busy => FAILED_BUSY,
        Failure::Away => FAILED_AWAY,
        Failure::Unknown => FAILED_UNKNOWN,
    }
}

impl Sink for Replies<'_, '_> {
    #[inline]
    fn reserve(&mut self, index: usize, hit: &Hit) -> &mut [u8] {
        self.reach(index);
        let room_len = hit.value_len + VALUE_SLACK_LEN;
        // An opaque that is too long: the value goes nowhere (and was not asked for).
        let line_len = self.value_line(index, hit, room_len).unwrap_or(0);
        let room = self.output.room_with_front(line_len + room_len);
        let room = &mut room[line_len..];
        let before = room.first_chunk().copied().unwrap_or_default();
        self.reserved = Some(Reserved { line_len, value_len: hit.value_len, before });
        room
    }

    #[inline]
    fn commit(&mut self, index: usize, hit: &Hit) {
        let Some(reserved) = self.reserved.take() else { unreachable!("commit without reserve") };
        self.output.write_behind_end(reserved.line_len, &reserved.before);
        if reserved.line_len == 0 {
            self.output.push(OPAQUE_TOO_LONG);
        } else if self.output.failed_get.is_none() {
            self.output.extend(reserved.line_len + reserved.value_len);
            self.end_value(index);
        }
        self.end_read(index, Some(hit.class));
    }

    fn pinned(&mut self, index: usize, hit: &Hit, value: Box<dyn PinnedValue>) {
        self.reach(index);
        match self.value_line(index, hit, 0) {
            None => self.output.push(OPAQUE_TOO_LONG),
            Some(_) if self.output.failed_get.is_some() => {}
            Some(line_len) => {
                self.output.extend(line_len);
                self.output.push_pinned(value);
                self.end_value(index);
            }
        }
        self.end_read(index, Some(hit.class));
    }

    fn metadata(&mut self, index: usize, hit: &Hit) {
        self.reach(index);
        let Plan::Meta(meta) = self.batch.plans[index] else { unreachable!("only meta commands ask for no value") };
        let plan = &self.batch.metas[usize::from(meta)];
        let key = self.batch.requests[index].key;
        let mut text = Text::new(self.output.room(META_LINE_LEN_MAX));
        let written = if plan.command == MetaCommand::Debug {
            meta_reply::debug(&mut text, plan, key, hit, self.now);
            Ok(text.len())
        } else {
            text.bytes(b"HD");
            meta_reply::flags(&mut text, plan, key, &Facts::Hit(hit), self.now).map(|()| {
                text.bytes(b"\r\n");
                text.len()
            })
        };
        match written {
            Ok(len) => self.output.extend(len),
            Err(_) => self.output.push(OPAQUE_TOO_LONG),
        }
        self.end_read(index, Some(hit.class));
    }

    fn found_dead(&mut self, _index: usize, death: Death) {
        match death {
            Death::Expired => self.counters.get_expired += 1,
            Death::Flushed => self.counters.get_flushed += 1,
        }
    }

    #[inline]
    fn answer(&mut self, index: usize, answer: Answer) {
        self.answer_change(index, answer, &Footprints::default());
    }

    #[inline]
    fn answer_change(&mut self, index: usize, answer: Answer, items: &Footprints) {
        self.reach(index);
        match self.batch.plans[index] {
            Plan::Meta(meta) => {
                let plan = &self.batch.metas[usize::from(meta)];
                match plan.command {
                    MetaCommand::Get { .. } | MetaCommand::Debug => self.end_read(index, None),
                    MetaCommand::Set { with_cas, .. } => self.count_store(with_cas, answer, items),
                    MetaCommand::Delete => self.count_delete(answer, items),
                    MetaCommand::Arithmetic { up, .. } => self.count_arithmetic(up, answer, items),
                }
                self.meta(index, plan, answer);
            }
            plan => self.classic(index, plan, answer, items),
        }
        self.answered = index + 1;
    }
}
