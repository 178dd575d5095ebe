//! Random memcached commands, good and bad, that collide on a few keys.
//!
//! Always true: nothing depends on the time of day (expiry times are over at once or far away), on sizes near the item
//! limit, or on statistics; no value holds the word that ends a chunk; a key's version is asked for only together with the
//! key, so that answers can be told apart.
//!
//! Left out, because the two answer differently, each with its reason:
//! - delayed flushes: in memcached 1.6.18 a pending one brings flushed items back;
//! - one mg that sets an expiry in two ways (flags N and T), and `ma` that asks for it (t) before it sets it: memcached goes
//!   flag by flag, Guira answers with the expiry that holds afterwards;
//! - flag T of ma: when the number gets longer, memcached sets the expiry of the item it has just replaced;
//! - values of nothing but white space, and minus signs in values and keys: memcached's incr reads on behind a value, into
//!   what lies there in memory, for digits, and for numbers over 2^63 for a minus sign (it may find one in an address: a
//!   difference counts if servers started anew show it too);
//! - flags T and N of mg that are over at once: with t memcached prints the time that remains, below zero, modulo 2^32, and
//!   takes it for a very long one with R; Guira's is 0;
//! - an opaque that is too long in mg with N: memcached has made the item by then without noting that somebody has won, in
//!   Guira the next reader is told so (Z);
//! - an ms that finds no memory: memcached lets go of what it would have replaced in every mode, Guira, as for the classic commands,
//!   only in mode set and without C;
//! - get or gat of a key that is too long behind others: memcached marks or touches those before it refuses the command.
//!
//! Left out, because the answer is about the server and not about an item (`administration.rs` compares what can be): stats,
//! lru_crawler, lru, slabs, watch, cache_memlimit, refresh_certs, extstore, shutdown. Guira takes watch and metadump behind
//! other commands, which memcached refuses, and has no extstore whose settings could be changed.
//!
//! Left out, because Guira has it not: the binary protocol and SASL (it says so and closes the connection).
//!
//! Made equal rather than left out is what `normalise.rs` lists: versions, seconds, sizes and classes, and whether a key comes
//! back as base64 (memcached: if it was stored so; Guira: if it was asked so).

use crate::normalise::{VERSION_MARK, from_base64};

/// One command, its data block included.
#[derive(Clone, Debug)]
pub struct Command {
    /// What is sent. Between two [`VERSION_MARK`]s stands a key whose last seen version is sent instead.
    pub bytes: Vec<u8>,
    /// The server has to close the connection after it.
    pub closes: bool,
    /// All answers before it have to be read before it is sent: in a pipeline memcached is not the same every time. When a
    /// number gets shorter it fills it up with spaces in place, unless an answer that is still on its way holds the item;
    /// and a get of a key that is too long, or an endless line, takes back all answers that are still on their way.
    pub waits: bool,
}

/// SplitMix64: the same stream for the same seed, for ever.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len() as u64) as usize]
    }
}

const KEYS: &[&str] =
    &["k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7", "a:rather:long/key_with+marks.and[so]on", "\u{e4}"];
/// Keys in base64: k0, k1, k2 above, one that is never said otherwise, and the bytes 00 ff.
const BASE64_KEYS: &[&str] = &["azA=", "azE=", "azI=", "YjA=", "AP8="];
const EXPTIMES: &[&str] =
    &["0", "0", "0", "0", "0", "0", "1000", "100000", "2592000", "2100000000", "-1", "-100", "2592001"];
/// Those that leave the item there.
const EXPTIMES_AHEAD: &[&str] = &["0", "0", "0", "1000", "100000", "2592000", "2100000000"];
const FLAGS: &[&str] = &["0", "0", "0", "1", "65535", "4294967295"];
const DELTAS: &[&str] = &["0", "1", "1", "7", "10", "99999", "18446744073709551615", "9223372036854775808"];
const NUMBERS: &[&str] = &[
    "0",
    "1",
    "9",
    "10",
    "42",
    "99",
    "100",
    "00012",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999",
    "999999999999999999999",
    " 5",
    "5 ",
    "5x",
    "+5",
    "",
];

/// Whole lines that are wrong, odd or rare. Each is complete in itself.
const ODDITIES: &[&str] = &[
    "\r\n",
    " \r\n",
    "  \r\n",
    "\n",
    "get\r\n",
    "get \r\n",
    "gets\r\n",
    "gat\r\n",
    "gat 1000\r\n",
    "gats 1000\r\n",
    "gat abc k0\r\n",
    "gat k0\r\n",
    "GET k0\r\n",
    "get k0 \r\n",
    " get k0\r\n",
    "get  k0   k1\r\n",
    "get k0\n",
    "get\tk0\r\n",
    "get k0\0\r\n",
    "get \u{7}\r\n",
    "getx k0\r\n",
    "set\r\n",
    "set k0\r\n",
    "set k0 0\r\n",
    "set k0 0 0\r\n",
    "set k0 0 0 \r\n",
    "set k0 0 0 abc\r\n",
    "set k0 abc 0 1\r\n",
    "set k0 0 abc 1\r\n",
    "set k0 -1 0 1\r\n",
    "set k0 0 0 -1\r\n",
    "set k0 0 0 -2147483648\r\n",
    "set k0 0 0 2147483647\r\n",
    "set k0 0 0 2147483648\r\n",
    "set k0 0 0 4294967296\r\n\r\n",
    "set k0 0 0 4294967299\r\nabc\r\n",
    "ms k0 4294967299\r\nabc\r\n",
    "set k0 4294967296 0 1\r\nx\r\n",
    "set k0 18446744073709551616 0 1\r\nx\r\n",
    "ms k0 3 F4294967296\r\nabc\r\n",
    "set k0 0 0 18446744073709551615\r\n",
    "set k0 0 99999999999999999999 1\r\n",
    "set k0 0 0 1 2 3\r\n",
    "set k0 1.5 0 1\r\n",
    "set k0 0 0 3\r\nabcdef\r\n",
    "set k0 0 0 3\r\nabcd\r\n",
    "set k0 0 0 3\nabc\nx\r\n",
    "set k0 0 0 3\nabc\r\n",
    "set k0 0 0 10\r\nabc\r\n12345\r\n",
    "set k0 0 0 10\r\nabc\r\n1234567890\r\n",
    "set k0 0 0 0\r\n\r\n",
    "set k0 0 0 0 noreply\r\n\r\n",
    "set k0 0 0 3 noreply\r\nabcd\r\n",
    "set k0 0 0 3 noreplyx\r\nabc\r\n",
    "set k0 0 0 3 norepl\r\nabc\r\n",
    "set  k0  0  0  3 \r\nabc\r\n",
    "add k0 0 0\r\n",
    "append k0 0 0 -5\r\n",
    "cas k0 0 0 1\r\n",
    "cas k0 0 0 1 \r\n",
    "cas k0 0 0 3 abc\r\nabc\r\n",
    "cas k0 0 0 3 -1\r\nabc\r\n",
    "cas k0 0 0 3 18446744073709551616\r\nabc\r\n",
    "incr\r\n",
    "incr k0\r\n",
    "incr k0 abc\r\n",
    "incr k0 -1\r\n",
    "incr k0 18446744073709551616\r\n",
    "incr k0 1 2\r\n",
    "incr k0 1 noreply\r\n",
    "decr k0 5 noreply\r\n",
    "decr k0 \r\n",
    "delete\r\n",
    "delete k0 0\r\n",
    "delete k0 5\r\n",
    "delete k0 noreply\r\n",
    "delete k0 0 noreply\r\n",
    "delete k0 0 0\r\n",
    "delete k0 1 noreply\r\n",
    "touch\r\n",
    "touch k0\r\n",
    "touch k0 abc\r\n",
    "touch k0 1000 noreply\r\n",
    "touch k0 1000 x\r\n",
    "version\r\n",
    "version x\r\n",
    "verbosity\r\n",
    "verbosity 0\r\n",
    "verbosity 0 noreply\r\n",
    "verbosity abc\r\n",
    "verbosity 0 0 0\r\n",
    "flush_all\r\n",
    "flush_all noreply\r\n",
    "flush_all 0\r\n",
    "flush_all 0 noreply\r\n",
    "flush_all -1\r\n",
    "flush_all abc\r\n",
    "stats reset\r\n",
    "unknown\r\n",
    "unknown k0 1 2 3\r\n",
    "\u{1}\u{2a}\r\n",
    "mx k0\r\n",
    "m\r\n",
    "mg\r\n",
    "mg \r\n",
    "ms\r\n",
    "md\r\n",
    "ma\r\n",
    "me\r\n",
    "mg k0 v v\r\n",
    "mg k0 kk\r\n",
    "mg k0 !\r\n",
    "mg k0 O\r\n",
    "mg k0 O12345678901234567890123456789012\r\n",
    "mg k0 O123456789012345678901234567890123\r\n",
    "ms k0 3 O123456789012345678901234567890123\r\nabc\r\n",
    "md k0 O123456789012345678901234567890123\r\n",
    "mg k0 T\r\n",
    "mg k0 Tabc\r\n",
    "mg k0 Nabc\r\n",
    "mg k0 Rabc v\r\n",
    "mg azA b k v\r\n",
    "mg !!!! b v\r\n",
    "mg k0 b v\r\n",
    "mg k0  v   k \r\n",
    "mg k0 v\n",
    "mg k0 s v\r\n",
    "mg k0 v s\r\n",
    "mg k0 q\r\n",
    "mg k0 E5\r\n",
    "ms k0\r\n",
    "ms k0 \r\n",
    "ms k0 abc\r\n",
    "ms k0 -1\r\n",
    "ms k0 S3\r\nabc\r\n",
    "ms k0 3\r\nabcd\r\n",
    "ms k0 3 MX\r\nabc\r\n",
    "ms k0 3 M\r\nabc\r\n",
    "ms k0 3 Fabc\r\nabc\r\n",
    "ms k0 3 Tabc\r\nabc\r\n",
    "ms k0 3 Cabc\r\nabc\r\n",
    "ms k0 3 k k\r\nabc\r\n",
    "ms k0 18446744073709551615\r\n",
    "ms k0 2147483648\r\n",
    "ms azA 3 b\r\nabc\r\n",
    "ms k0 3 q\r\nabc\r\n",
    "ms k0 0\r\n\r\n",
    "ms k0 3\r\nabc\r\n",
    "md k0 q\r\n",
    "md k0 Cabc\r\n",
    "md k0 Tabc\r\n",
    "md k0 T1000\r\n",
    "md k0 x\r\n",
    "ma k0 Dabc\r\n",
    "ma k0 D-1\r\n",
    "ma k0 MZ\r\n",
    "ma k0 M\r\n",
    "ma k0 Nabc\r\n",
    "ma k0 N0 Jabc\r\n",
    "ma k0 J5 v\r\n",
    "ma k0 q\r\n",
    "ma k0 D18446744073709551616\r\n",
    "me k0\r\n",
    "me azA= b\r\n",
    "me none\r\n",
];

/// `count` commands that depend on nothing but `seed`. An even seed gives little arithmetic, hence long pipelines.
pub fn commands(seed: u64, count: usize) -> Vec<Command> {
    let mut random = Random(seed);
    let arithmetic = seed % 2 == 1;
    (0..count).map(|_| command(&mut random, arithmetic)).collect()
}

fn command(random: &mut Random, with_arithmetic: bool) -> Command {
    if random.one_in(400) {
        return Command { bytes: closing(random), closes: true, waits: true };
    }
    let bytes: Vec<u8> = match random.below(100) {
        0..=17 => retrieval(random),
        18..=39 => storage(random),
        40..=47 if with_arithmetic => arithmetic(random),
        40..=51 => format!("delete {}{}\r\n", key(random), noreply(random)).into(),
        52..=54 => format!("touch {} {}{}\r\n", key(random), random.pick(EXPTIMES), noreply(random)).into(),
        55..=66 => meta_get(random),
        67..=76 => meta_set(random),
        77..=81 => meta_delete(random),
        82..=88 if with_arithmetic => meta_arithmetic(random),
        82..=89 => bad_key(random),
        _ => random.pick(ODDITIES).into(),
    };
    let is_any_of = |names: &[&[u8]]| names.iter().any(|name| bytes.starts_with(name));
    let waits = is_any_of(&[b"incr ", b"decr ", b"ma "]) || is_any_of(&[b"get ", b"gat "]) && has_long_key(&bytes);
    Command { bytes, closes: false, waits }
}

fn has_long_key(bytes: &[u8]) -> bool {
    bytes.split(|&byte| byte == b' ').any(|word| word.trim_ascii_end().len() > 250)
}

fn closing(random: &mut Random) -> Vec<u8> {
    match random.below(3) {
        // A line that is too long to be anything.
        0 => vec![b'x'; 3000],
        1 => b"quit\r\nget k0\r\n".to_vec(),
        _ => b"quit\r\n".to_vec(),
    }
}

fn key(random: &mut Random) -> String {
    if random.one_in(200) { "l".repeat(250) } else { random.pick(KEYS).to_owned() }
}

fn noreply(random: &mut Random) -> &'static str {
    if random.one_in(6) { " noreply" } else { "" }
}

fn exptime(random: &mut Random) -> &'static str {
    random.pick(EXPTIMES)
}

fn version_of(key: &[u8]) -> Vec<u8> {
    [&[VERSION_MARK], key, &[VERSION_MARK]].concat()
}

fn value(random: &mut Random) -> Vec<u8> {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789 \r\n\0\xff\x80";
    let len = match random.below(1000) {
        0..=399 => return random.pick(NUMBERS).into(),
        400..=939 => random.below(40),
        940..=979 => 100 + random.below(900),
        980..=994 => 1000 + random.below(4000),
        995..=998 => 15_000 + random.below(8000),
        // Over the limit of 1 MB.
        _ => return vec![b'z'; 1_100_000],
    };
    let mut value: Vec<u8> = (0..len).map(|_| LETTERS[random.below(LETTERS.len() as u64) as usize]).collect();
    if value.trim_ascii().is_empty() {
        value.fill(b'w');
    }
    value
}

fn retrieval(random: &mut Random) -> Vec<u8> {
    let mut line = match random.below(8) {
        0..=2 => "get".to_owned(),
        3..=5 => "gets".to_owned(),
        6 => format!("gat {}", exptime(random)),
        _ => format!("gats {}", exptime(random)),
    };
    let keys = match random.below(40) {
        0 => 100,
        1..=10 => 2 + random.below(8),
        _ => 1,
    };
    for _ in 0..keys {
        line.push(' ');
        line.push_str(&key(random));
    }
    line.push_str("\r\n");
    line.into()
}

fn storage(random: &mut Random) -> Vec<u8> {
    let name = random.pick(&["set", "set", "set", "add", "replace", "append", "prepend", "cas", "cas"]);
    let key = key(random);
    let value = value(random);
    let mut line = format!("{name} {key} {} {} {}", random.pick(FLAGS), exptime(random), value.len()).into_bytes();
    if name == "cas" {
        line.push(b' ');
        line.extend(version_of(key.as_bytes()));
    }
    line.extend(noreply(random).bytes());
    line.extend(b"\r\n");
    line.extend(value);
    line.extend(b"\r\n");
    line
}

fn arithmetic(random: &mut Random) -> Vec<u8> {
    let name = random.pick(&["incr", "decr"]);
    format!("{name} {} {}{}\r\n", key(random), random.pick(DELTAS), noreply(random)).into()
}

/// A meta command's line: name, key, whatever stands behind the key, and some of the flags in some order.
fn meta(random: &mut Random, name: &str, behind_key: &str, flags: &[&str], versioned: bool) -> Vec<u8> {
    let base64 = random.one_in(6);
    let key = if base64 { random.pick(BASE64_KEYS).to_owned() } else { key(random) };
    let mut chosen: Vec<Vec<u8>> = Vec::new();
    for flag in flags {
        if random.one_in(4) {
            chosen.push(match *flag {
                "T" | "N" if name == "mg" => format!("{flag}{}", random.pick(EXPTIMES_AHEAD)).into(),
                "T" | "N" => format!("{flag}{}", exptime(random)).into(),
                "D" | "J" => format!("{flag}{}", random.pick(DELTAS)).into(),
                "F" => format!("{flag}{}", random.pick(FLAGS)).into(),
                "R" => format!("{flag}{}", random.pick(&["0", "30", "5000", "3000000"])).into(),
                "O" => format!("{flag}{}", random.below(100_000)).into(),
                other => other.into(),
            });
        }
    }
    if versioned && random.one_in(3) {
        let plain_key = if base64 { from_base64(key.as_bytes()) } else { key.clone().into() };
        chosen.push([b"C", version_of(&plain_key).as_slice()].concat());
    }
    if base64 {
        chosen.push(b"b".to_vec());
    }
    if random.one_in(3) {
        // Who asks for the version says the key.
        chosen.push(b"c".to_vec());
        chosen.push(b"k".to_vec());
    } else if random.one_in(4) {
        chosen.push(b"k".to_vec());
    }
    if random.one_in(8) {
        chosen.push(b"q".to_vec());
    }
    for place in (1..chosen.len()).rev() {
        chosen.swap(place, random.below(place as u64 + 1) as usize);
    }
    let mut line = format!("{name} {key}{behind_key}").into_bytes();
    for flag in chosen {
        line.push(b' ');
        line.extend(flag);
    }
    line.extend(b"\r\n");
    line
}

fn meta_get(random: &mut Random) -> Vec<u8> {
    let sets_expiry = random.pick(&["N", "T"]);
    meta(random, "mg", "", &["v", "v", "f", "h", "l", "t", "s", "u", "O", "R", sets_expiry], false)
}

fn meta_set(random: &mut Random) -> Vec<u8> {
    let value = value(random);
    let mode = random.pick(&["", "", "", " MS", " ME", " MA", " MP", " MR", " Me", " Mset", " Ma", " Mp", " Mr"]);
    let behind_key = format!(" {}{mode}", value.len());
    let mut bytes = meta(random, "ms", &behind_key, &["F", "T", "O", "I"], true);
    bytes.extend(value);
    bytes.extend(b"\r\n");
    bytes
}

fn meta_delete(random: &mut Random) -> Vec<u8> {
    meta(random, "md", "", &["O", "I", "T"], true)
}

fn meta_arithmetic(random: &mut Random) -> Vec<u8> {
    let mode = random.pick(&["", "", " MI", " MD", " M+", " M-", " Mi", " Md", " Mincr", " Mdecr"]);
    let mut line = meta(random, "ma", mode, &["N", "J", "D", "v", "v", "O"], true);
    if random.one_in(4) {
        line.truncate(line.len() - 2);
        line.extend(b" t\r\n");
    }
    line
}

fn bad_key(random: &mut Random) -> Vec<u8> {
    let key = "x".repeat(251 + random.below(100) as usize);
    let exptime = exptime(random);
    match random.below(9) {
        0 => format!("get {key}\r\n"),
        1 => format!("get {key} k1\r\n"),
        2 => format!("set {key} 0 0 3\r\nabc\r\n"),
        3 => format!("mg {key} v\r\n"),
        4 => format!("ms {key} 3\r\nabc\r\n"),
        5 => format!("delete {key}\r\n"),
        6 => format!("incr {key} 1\r\n"),
        7 => format!("gat {exptime} {key} k0\r\n"),
        _ => format!("touch {key} {exptime}\r\n"),
    }
    .into()
}
