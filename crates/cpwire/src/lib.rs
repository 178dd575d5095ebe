//! CPSERVER's and LOCKSERVER's binary protocol (CPHASH, PPoPP'12, section 4.1), without I/O: bytes to requests and answers,
//! and back.
//!
//! ```text
//! LOOKUP   | 1 << 60 | hash key : u64 |                                  answer  | size : u32 | value |   size 0: not found
//! INSERT   | 2 << 60 | hash key : u64 | size : u32 | value |             no answer
//! ```
//! All numbers are little-endian; a hash key has 60 bits, a value at least one byte.
//!
//! - [`step`] takes one [`Request`] from what a client has sent; [`push_lookup`] and [`push_insert`] write one.
//! - [`answer()`] takes one [`Answer`] from what a server has sent; [`size_field`] is what stands before a value.
//!
//! Always true: nothing is kept between two calls and nothing is allocated, so bytes mean the same in whatever pieces they come.
#![forbid(unsafe_code)]

mod answer;
mod hash_key;
mod request;

pub use answer::{ANSWER_HEADER_LEN, Answer, MISS, answer, size_field};
pub use hash_key::{HashKey, NAME_LEN};
pub use request::{
    INSERT_HEADER_LEN, LOOKUP_LEN, Malformed, Request, Step, Unfinished, first_key, push_insert, push_lookup, step,
};
