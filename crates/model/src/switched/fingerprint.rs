//! A number for what a core is: two that have the same one do the same from here on.
//!
//! Always true: it goes over all that a core keeps, as its `Serialize` tells it, but for what cannot make a difference here:
//! - a moment counts as the ticks until it comes, from now; what is due is due, however long it has been. Of [`SINCE`] it matters whether a tick
//!   has gone by. So states that differ in nothing but when they are, are one, and there is no end of time;
//! - lengths of time (all are below a tick, or the same in all states), but for those in [`EXACT`], seconds (no item ends; when a `flush_all` is to come the world tells), and the fields of [`PASSED_OVER`], are left out;
//! - loads, and the queries from which they come, are left out: there is room in the cache node for every key;
//! - maps count in any order.

use std::convert::Infallible;
use std::fmt;

use guira_item::{Moment, Span};
use serde::ser::{
    Error, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

/// What clocks advance by: longer than all that is waited for before something is sent again, shorter than a lease.
pub(crate) const TICK: Span = Span::from_ms(1_000);

/// Moments further away are so far that they do not come.
const IN_SIGHT: u64 = 16;

/// Fields that make no difference:
/// - where a moment of the cache node's clock was told by it (`at`), the network counts how old the message is;
/// - `heard_at` counts for items that end;
/// - `sent_at`: how long answers take, which changes no more than how soon something is sent again;
/// - `fetched`, `idle_s`, `is_used`: how used an item is, of which clients are told and nothing else;
/// - `segment_from`: segments of a cache node do not end here;
/// - `controller`: sessions with who is not there; `queries`: for loads.
const PASSED_OVER: [&str; 9] =
    ["at", "heard_at", "sent_at", "fetched", "idle_s", "is_used", "segment_from", "controller", "queries"];

/// Structs in which moments and lengths of time count to the nanosecond: of a gateway's requests, which is due first says in which order they
/// are sent again; a giver waits twice as long after each attempt that comes to nothing.
const EXACT: [&str; 3] = ["Pending", "Upstream", "Giving"];

/// The field that tells since when something waits.
const SINCE: &str = "since";

/// The field that is a set without an order.
const UNORDERED: &str = "declined";

/// The number of `of`, whose clock says `now`.
pub(crate) fn fingerprint(of: &impl Serialize, now: Moment) -> u64 {
    let mut printer = Printer::new(now);
    of.serialize(&mut printer).expect("nothing is written");
    printer.sum
}

struct Printer {
    now: Moment,
    sum: u64,
    field: &'static str,
    is_moment: bool,
    is_exact: bool,
}

/// Nothing goes wrong.
#[derive(Debug)]
struct Never(Infallible);

impl fmt::Display for Never {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {}
    }
}

impl std::error::Error for Never {}

impl Error for Never {
    fn custom<T: fmt::Display>(told: T) -> Self {
        panic!("what is told apart here can be serialized: {told}")
    }
}

impl Printer {
    fn new(now: Moment) -> Self {
        Self { now, sum: 0x243f_6a88_85a3_08d3, field: "", is_moment: false, is_exact: false }
    }

    fn put(&mut self, word: u64) {
        // Folded multiplication: all bits of the product count.
        let product = u128::from(self.sum ^ word ^ 0x9e37_79b9_7f4a_7c15) * 0xa076_1d64_78bd_642f;
        self.sum = (product as u64) ^ ((product >> 64) as u64);
    }

    fn put_bytes(&mut self, bytes: &[u8]) {
        self.put(bytes.len() as u64);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.put(u64::from_le_bytes(word));
        }
    }

    /// The number of a part that stands for itself.
    fn apart(&self, part: &(impl Serialize + ?Sized)) -> u64 {
        let mut printer = Self::new(self.now);
        part.serialize(&mut printer).expect("nothing is written");
        printer.sum
    }

    fn put_moment(&mut self, moment: Moment) {
        let now = self.now;
        let ticks = if self.field == SINCE {
            u64::from(now.since(moment) >= TICK)
        } else if self.is_exact {
            moment.since(now).ns().min(IN_SIGHT * TICK.ns())
        } else {
            moment.since(now).ns().div_ceil(TICK.ns()).min(IN_SIGHT)
        };
        self.put(ticks);
    }
}

type Done = Result<(), Never>;

macro_rules! words {
    ($($name:ident: $of:ty),*) => {
        $(fn $name(self, word: $of) -> Done {
            self.put(word as u64);
            Ok(())
        })*
    };
}

impl<'p> Serializer for &'p mut Printer {
    type Ok = ();
    type Error = Never;
    type SerializeSeq = Parts<'p>;
    type SerializeTuple = Parts<'p>;
    type SerializeTupleStruct = Parts<'p>;
    type SerializeTupleVariant = Parts<'p>;
    type SerializeMap = Parts<'p>;
    type SerializeStruct = Parts<'p>;
    type SerializeStructVariant = Parts<'p>;

    words! {
        serialize_bool: bool, serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_char: char
    }

    fn serialize_u64(self, word: u64) -> Done {
        if std::mem::take(&mut self.is_moment) {
            self.put_moment(Moment::from_ns(word));
        } else {
            self.put(word);
        }
        Ok(())
    }

    // Loads.
    fn serialize_f32(self, _: f32) -> Done {
        Ok(())
    }

    fn serialize_f64(self, _: f64) -> Done {
        Ok(())
    }

    fn serialize_str(self, text: &str) -> Done {
        self.put_bytes(text.as_bytes());
        Ok(())
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Done {
        self.put_bytes(bytes);
        Ok(())
    }

    fn serialize_none(self) -> Done {
        self.put(0);
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, some: &T) -> Done {
        self.put(1);
        some.serialize(self)
    }

    fn serialize_unit(self) -> Done {
        self.put(0);
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Done {
        Ok(())
    }

    fn serialize_unit_variant(self, _: &'static str, variant: u32, _: &'static str) -> Done {
        self.put(variant.into());
        Ok(())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, name: &'static str, inner: &T) -> Done {
        match name {
            "Time" => Ok(()),
            "Span" if !self.is_exact => Ok(()),
            _ => {
                self.is_moment = name == "Moment";
                inner.serialize(self)
            }
        }
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        variant: u32,
        _: &'static str,
        inner: &T,
    ) -> Done {
        self.put(variant.into());
        inner.serialize(self)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Parts<'p>, Never> {
        let is_unordered = self.field == UNORDERED;
        Ok(Parts { is_unordered, ..Parts::of(self) })
    }

    fn serialize_tuple(self, _: usize) -> Result<Parts<'p>, Never> {
        Ok(Parts::of(self))
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Parts<'p>, Never> {
        Ok(Parts::of(self))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        variant: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Parts<'p>, Never> {
        self.put(variant.into());
        Ok(Parts::of(self))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Parts<'p>, Never> {
        Ok(Parts { is_unordered: true, ..Parts::of(self) })
    }

    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Parts<'p>, Never> {
        let was_exact = std::mem::replace(&mut self.is_exact, EXACT.contains(&name));
        Ok(Parts { was_exact, ..Parts::of(self) })
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        variant: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Parts<'p>, Never> {
        self.put(variant.into());
        Ok(Parts::of(self))
    }
}

/// The parts of something, in their order or in any.
struct Parts<'p> {
    printer: &'p mut Printer,
    is_unordered: bool,
    was_exact: bool,
    /// Of a map, the key's number.
    key: u64,
    count: u64,
    any_order: u64,
}

impl<'p> Parts<'p> {
    fn of(printer: &'p mut Printer) -> Self {
        Self { was_exact: printer.is_exact, printer, is_unordered: false, key: 0, count: 0, any_order: 0 }
    }

    fn part(&mut self, part: &(impl Serialize + ?Sized)) -> Done {
        self.count += 1;
        if self.is_unordered {
            self.any_order = self.any_order.wrapping_add(self.printer.apart(part));
            Ok(())
        } else {
            part.serialize(&mut *self.printer)
        }
    }

    fn field(&mut self, name: &'static str, part: &(impl Serialize + ?Sized)) -> Done {
        if PASSED_OVER.contains(&name) {
            return Ok(());
        }
        let outer = std::mem::replace(&mut self.printer.field, name);
        part.serialize(&mut *self.printer)?;
        self.printer.field = outer;
        Ok(())
    }

    fn done(self) -> Done {
        self.printer.put(self.count);
        if self.is_unordered {
            self.printer.put(self.any_order);
        }
        Ok(())
    }
}

macro_rules! parts {
    ($($shape:ident: $part:ident),*) => {
        $(impl $shape for Parts<'_> {
            type Ok = ();
            type Error = Never;

            fn $part<T: Serialize + ?Sized>(&mut self, part: &T) -> Done {
                self.part(part)
            }

            fn end(self) -> Done {
                self.done()
            }
        })*
    };
}

parts! {
    SerializeSeq: serialize_element, SerializeTuple: serialize_element, SerializeTupleStruct: serialize_field,
    SerializeTupleVariant: serialize_field
}

macro_rules! fields {
    ($($shape:ident),*) => {
        $(impl $shape for Parts<'_> {
            type Ok = ();
            type Error = Never;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, part: &T) -> Done {
                self.field(name, part)
            }

            fn end(self) -> Done {
                self.printer.is_exact = self.was_exact;
                Ok(())
            }
        })*
    };
}

fields! { SerializeStruct, SerializeStructVariant }

impl SerializeMap for Parts<'_> {
    type Ok = ();
    type Error = Never;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Done {
        self.key = self.printer.apart(key);
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
        let mut entry = Printer::new(self.printer.now);
        entry.put(self.key);
        value.serialize(&mut entry)?;
        self.count += 1;
        self.any_order = self.any_order.wrapping_add(entry.sum);
        Ok(())
    }

    fn end(self) -> Done {
        self.done()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use serde::Serialize;

    use super::*;

    #[derive(Serialize)]
    struct Some {
        lease_until: Moment,
        since: Moment,
        takes: Span,
        counts: HashMap<u32, u8>,
    }

    fn number(now_ms: u64, lease_until_ms: u64, since_ms: u64, counts: impl IntoIterator<Item = (u32, u8)>) -> u64 {
        let at = |ms| Moment::from_ns(ms * 1_000_000);
        let some = Some {
            lease_until: at(lease_until_ms),
            since: at(since_ms),
            takes: Span::from_ms(now_ms),
            counts: counts.into_iter().collect(),
        };
        fingerprint(&some, at(now_ms))
    }

    #[test]
    fn what_differs_in_when_it_is_is_the_same() {
        let one = number(5_000, 7_000, 5_000, []);
        assert_eq!(one, number(9_000, 11_000, 9_000, []));
        assert_eq!(one, number(5_000, 6_500, 4_500, []), "by ticks");
        assert_ne!(one, number(5_000, 7_001, 5_000, []));
        assert_ne!(one, number(5_000, 7_000, 4_000, []));
        assert_eq!(number(5_000, 5_000, 1_000, []), number(5_000, 0, 4_000, []), "due is due");
    }

    #[test]
    fn maps_have_no_order_and_entries_do_not_mix() {
        let entries = (0..100).map(|at| (at, at as u8));
        assert_eq!(number(1, 2, 1, entries.clone()), number(1, 2, 1, entries.rev()));
        assert_ne!(number(1, 2, 1, [(1, 2), (3, 4)]), number(1, 2, 1, [(1, 4), (3, 2)]));
    }
}
