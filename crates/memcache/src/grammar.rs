//! Test input: random command streams, the same for the same seed, for tests that hold two servers side by side.
//!
//! Every item is one command, its value and whatever junk goes with it, and leaves the connection where the next command
//! begins. All keyed commands, meta flags and kinds of bad input occur, over few keys and small values.
//!
//! Left out is what may differ between memcached and a faithful server:
//! - `stats`, `version`, `watch`, `metadump`, `shutdown`, `quit`, delays of `flush_all`, exptimes of a few seconds;
//! - versions a client could only know from the server: they are 0, 1 (which only the very first item has) or huge;
//! - `h`, since what counts as fetched differs; a negative T or N beside `t` (memcached prints it modulo 2^32); N with b
//!   (memcached forgets that the key was base64); an opaque that is too long where memcached acts before refusing it;
//! - keys before one that is too long in a get (memcached has touched them);
//! - T with ma, and arithmetic on items that are stale or won: when the number gets longer memcached makes a new item and
//!   forgets all three. So only some keys ever go stale, and arithmetic keeps to the others;
//! - arithmetic on numbers from 2^63 on (memcached then looks for a minus sign in whatever lies behind the value).
//!
//! Some commands begin with `mn`: it makes memcached send what waits, which a refused get would drop, and release the
//! items being sent, without which arithmetic copies them and forgets their length and that they are stale. Its LRU
//! thread holds items in the same way: start it with `-o no_lru_maintainer,no_lru_crawler`.
//!
//! Whoever compares answers must still make equal: the version in `VALUE` lines of gets and gats, the tokens `c`, `t`
//! and `l` of meta answers, and everything but the key in `ME` lines.

const KEYS: [&str; 10] = ["a", "b", "k2", "k3", "k4", "key:5", "key:6", "tab\there", "\x01\x7f", "seven:eight:nine"];
/// The first keys of [`KEYS`] are the ones that may go stale or be won.
const STALE_KEYS: usize = 2;
const BASE64_KEYS: [&str; 4] = ["AAE=", "AP8A", "AAAAAAAA", "AGtleQ=="];
const NOT_BASE64: [&str; 5] = ["!", "YQ", "====", "AA", "Y"];
const FLAGS: [&str; 12] =
    ["0", "0", "1", "5", "4294967295", "4294967296", "18446744073709551615", "-1", "x", "+3", "07", "1x"];
const EXPTIMES: [&str; 10] = ["0", "0", "0", "0", "1000", "100000", "2000000000", "-1", "4294967295", "x"];
const DELTAS: [&str; 10] = ["1", "1", "2", "10", "99", "0", "18446744073709551616", "-1", "x", "+7"];
const BAD_LENS: [&str; 9] =
    ["-1", "x", "1x", "2147483646", "4294967295", "18446744073709551615", "18446744073709551616", "", "0x4"];
const CAS_UNIQUES: [&str; 5] = ["0", "999999999999999", "18446744073709551615", "x", "-1"];
const NUMBERS: [&str; 10] =
    ["0", "1", "9", "10", "99", "100", "4611686018427387904", "184467440737095516150", " 5 ", "-1"];
const JUNK: [&str; 22] = [
    "",
    " ",
    "x",
    "foo bar",
    "GET a",
    "get",
    "gets ",
    "set",
    "set a 0 0",
    "delete",
    "incr a",
    "touch a",
    "mg",
    "ms",
    "ms a",
    "mx a",
    "m",
    "gat",
    "gat x a",
    "cas a 0 0 1",
    "me",
    "verbosity x",
];

/// Values from this length on are too large.
const HUGE_LEN_MIN: usize = 1 << 20;

/// `count` commands for `seed`.
pub fn commands(seed: u64, count: usize) -> impl Iterator<Item = Vec<u8>> {
    // The first version is given to an item no other command names.
    let first = b"set the-first-item 0 0 1\r\nx\r\n".to_vec();
    let mut source = Source { random: Random(seed) };
    std::iter::once(first).chain(std::iter::repeat_with(move || source.command())).take(count)
}

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }

    fn pick<'t>(&mut self, from: &[&'t str]) -> &'t str {
        from[self.below(from.len())]
    }
}

struct Source {
    random: Random,
}

impl Source {
    fn command(&mut self) -> Vec<u8> {
        match self.random.below(100) {
            0..20 => self.get(),
            20..38 => self.store(),
            38..44 => self.delete(),
            44..50 => self.touch(),
            50..58 => self.arithmetic(),
            58..70 => self.meta_get(),
            70..82 => self.meta_set(),
            82..87 => self.meta_delete(),
            87..93 => self.meta_arithmetic(),
            93..95 => line(format!("me {}", self.key())),
            95 => b"mn\r\n".to_vec(),
            96 if self.random.one_in(20) => self.flush_all(),
            _ => self.junk(),
        }
    }

    fn key(&mut self) -> String {
        match self.random.below(60) {
            0 => "k".repeat(250),
            1 => "k".repeat(251),
            _ => self.short_key(),
        }
    }

    fn short_key(&mut self) -> String {
        self.random.pick(&KEYS).to_owned()
    }

    fn number_key(&mut self) -> String {
        if self.random.one_in(40) { "k".repeat(251) } else { self.random.pick(&KEYS[STALE_KEYS..]).to_owned() }
    }

    fn noreply(&mut self) -> &'static str {
        match self.random.below(12) {
            0 | 1 => " noreply",
            2 => " ",
            3 if self.random.one_in(4) => " junk",
            _ => "",
        }
    }

    fn get(&mut self) -> Vec<u8> {
        if self.random.one_in(80) {
            return line(format!("mn\r\nget {} {}", "x".repeat(251), self.short_key()));
        }
        let mut text = match self.random.below(10) {
            0..6 => "get".to_owned(),
            6..8 => "gets".to_owned(),
            8 => format!("gat {}", self.random.pick(&EXPTIMES)),
            _ => format!("gats {}", self.random.pick(&EXPTIMES)),
        };
        for _ in 0..if self.random.one_in(4) { self.random.below(40) } else { 1 } {
            text.push_str(if self.random.one_in(30) { "  " } else { " " });
            text.push_str(&self.short_key());
        }
        line(text)
    }

    /// Bytes of a value: text, a number, or anything.
    fn value(&mut self) -> Vec<u8> {
        match self.random.below(10) {
            0..4 => self.random.pick(&NUMBERS).as_bytes().to_vec(),
            4..9 => {
                let len = self.random.below(60);
                (0..len).map(|_| b'a' + self.random.below(26) as u8).collect()
            }
            _ => {
                let len = self.random.below(2000);
                (0..len).map(|_| self.random.next() as u8).collect()
            }
        }
    }

    /// A length and what follows the line: fitting or not.
    fn length_and_value(&mut self) -> (String, Vec<u8>) {
        match self.random.below(60) {
            0 => (self.random.pick(&BAD_LENS).to_owned(), b"abc\r\n".to_vec()),
            1 => {
                // Another end than announced, then an empty line.
                let mut bytes = self.value();
                bytes.extend(b"zz\r\n");
                ((bytes.len() - 4).to_string(), bytes)
            }
            2 if self.random.one_in(300) => {
                let len = (1 << 20) + self.random.below(3);
                let mut bytes = vec![b'L'; len];
                bytes.extend(b"\r\n");
                (len.to_string(), bytes)
            }
            _ => {
                let mut bytes = self.value();
                let len = bytes.len();
                bytes.extend(b"\r\n");
                (len.to_string(), bytes)
            }
        }
    }

    fn store(&mut self) -> Vec<u8> {
        let name = self.random.pick(&["set", "set", "set", "set", "add", "replace", "append", "prepend", "cas"]);
        let (len, value) = self.length_and_value();
        if value.len() > HUGE_LEN_MIN {
            // Refused for another reason, it would be an endless line.
            let unique = if name == "cas" { " 5" } else { "" };
            return [line(format!("{name} {} 0 0 {len}{unique}", self.short_key())), value].concat();
        }
        let key = self.key();
        let (flags, exptime) = (self.random.pick(&FLAGS), self.random.pick(&EXPTIMES));
        let mut text = format!("{name} {key} {flags} {exptime} {len}");
        if name == "cas" {
            text.push(' ');
            text.push_str(self.random.pick(&CAS_UNIQUES));
        }
        text.push_str(self.noreply());
        let mut bytes = line(text);
        bytes.extend(value);
        bytes
    }

    fn delete(&mut self) -> Vec<u8> {
        let delay = self.random.pick(&["", "", "", "", " 0", " 5"]);
        line(format!("delete {}{delay}{}", self.key(), self.noreply()))
    }

    fn touch(&mut self) -> Vec<u8> {
        line(format!("touch {} {}{}", self.key(), self.random.pick(&EXPTIMES), self.noreply()))
    }

    fn arithmetic(&mut self) -> Vec<u8> {
        let name = self.random.pick(&["incr", "decr"]);
        line(format!("mn\r\n{name} {} {}{}", self.number_key(), self.random.pick(&DELTAS), self.noreply()))
    }

    /// Appends each of `flags` with the given chance in twenty; repeats and unknown ones now and then.
    fn flags(&mut self, text: &mut String, chance: usize, flags: &[&str]) {
        let start = self.random.below(flags.len().max(1));
        for index in 0..flags.len() {
            if self.random.below(20) < chance {
                text.push(' ');
                text.push_str(flags[(start + index) % flags.len()]);
            }
        }
        if self.random.one_in(60) {
            text.push(' ');
            text.push_str(self.random.pick(&["z", "k k", "v v", "E1", "Tx", "Cx", "Fx", "MXX", "0", "~", "Jx", "Dx"]));
        }
    }

    /// A key and the flag that goes with it.
    fn meta_key(&mut self) -> (String, bool) {
        match self.random.below(40) {
            0 => (format!("{} b", self.random.pick(&NOT_BASE64)), true),
            1..7 => (self.random.pick(&BASE64_KEYS).to_owned(), true),
            _ => (self.key(), false),
        }
    }

    fn meta_get(&mut self) -> Vec<u8> {
        let (key, base64) = self.meta_key();
        let goes_stale = base64 || KEYS[..STALE_KEYS].contains(&key.as_str());
        let mut text = format!("mg {key}");
        let asked = ["v", "k", "f", "s", "c", "l", "u", "Oabc", "q", "Pp", "Ll/"];
        self.flags(&mut text, 6, &asked);
        match self.random.below(12) {
            0..5 => text.push_str(" t"),
            5 if goes_stale => text.push_str(" R50"),
            6 if goes_stale => text.push_str(" R2000"),
            7 => text.push_str(" T1000 t"),
            8 => text.push_str(" T-1"),
            9 if !base64 => text.push_str(" N1000"),
            10 if !base64 && goes_stale => text.push_str(" N1000 t R2000"),
            11 => text.push_str(&format!(" O{}", "o".repeat(25 + self.random.below(10)))),
            _ => {}
        }
        if base64 {
            text.push_str(" b");
        }
        line(text)
    }

    fn meta_set(&mut self) -> Vec<u8> {
        let (key, base64) = self.meta_key();
        let (len, value) = self.length_and_value();
        if value.len() > HUGE_LEN_MIN {
            return [line(format!("ms {} {len} k", self.short_key())), value].concat();
        }
        let mut text = format!("ms {key} {len}");
        self.flags(&mut text, 4, &["k", "c", "T0", "F7", "F4294967296", "Oxyz", "q", "Pp"]);
        if self.random.one_in(4) && (base64 || KEYS[..STALE_KEYS].contains(&key.as_str())) {
            text.push_str(" I");
        }
        let extends = ["MA", "MP"];
        match self.random.below(12) {
            0 => text.push_str(" ME"),
            1 => text.push_str(" MR"),
            2 => text.push_str(" MS"),
            3 if !base64 => text.push_str(&format!(" {}", self.random.pick(&extends))),
            4 => text.push_str(" MZ"),
            5 => text.push_str(&format!(" C{}", self.random.pick(&CAS_UNIQUES))),
            6 | 7 => text.push_str(" C1"),
            8 if !base64 => text.push_str(&format!(" {} C1", self.random.pick(&extends))),
            9 if self.random.one_in(3) => text.push_str(&format!(" O{}", "o".repeat(40))),
            _ => {}
        }
        if base64 {
            text.push_str(" b");
        }
        let mut bytes = line(text);
        bytes.extend(value);
        bytes
    }

    fn meta_delete(&mut self) -> Vec<u8> {
        let (key, base64) = self.meta_key();
        let mut text = format!("md {key}");
        self.flags(&mut text, 5, &["k", "Oxyz", "q", "Pp"]);
        let goes_stale = base64 || KEYS[..STALE_KEYS].contains(&key.as_str());
        let invalidate = if goes_stale { [" I", " I", " I T1000", " C1 I"] } else { ["", "", " T-1", " C0"] };
        text.push_str(if self.random.one_in(3) {
            self.random.pick(&["", " C1", " C0"])
        } else {
            self.random.pick(&invalidate)
        });
        if base64 {
            text.push_str(" b");
        }
        line(text)
    }

    fn meta_arithmetic(&mut self) -> Vec<u8> {
        let mut text = format!("mn\r\nma {}", self.number_key());
        self.flags(&mut text, 5, &["k", "Oxyz", "q", "Pp", "v", "c"]);
        let modes =
            ["", "", "", " MI", " MD", " M+", " M-", " Mi", " MX", " D5", " D18446744073709551615 MD", " C1", " C0"];
        text.push_str(self.random.pick(&modes));
        text.push_str(self.random.pick(&["", "", "", " N0", " N1000 J5", " t", " N0 J99 t"]));
        line(text)
    }

    fn flush_all(&mut self) -> Vec<u8> {
        line(
            self.random
                .pick(&["flush_all", "flush_all 0", "flush_all noreply", "flush_all x", "flush_all 0 0 0"])
                .into(),
        )
    }

    fn junk(&mut self) -> Vec<u8> {
        match self.random.below(8) {
            0 => b"\n".to_vec(),
            1 => b"get a\n".to_vec(),
            2 => b"get a\0b c\r\n".to_vec(),
            3 => {
                let len = 1 + self.random.below(30);
                let mut bytes: Vec<u8> = (0..len).map(|_| b' ' + self.random.below(90) as u8).collect();
                bytes[0] = b'?';
                bytes.extend(b"\r\n");
                bytes
            }
            4 => line(format!("mg a {}", "k ".repeat(self.random.below(30)))),
            5 => line(format!("set a {}", "x ".repeat(self.random.below(30)))),
            _ => line(self.random.pick(&JUNK).to_owned()),
        }
    }
}

fn line(text: String) -> Vec<u8> {
    let mut bytes = text.into_bytes();
    bytes.extend(b"\r\n");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_makes_the_same_commands() {
        let all = |seed| commands(seed, 200).collect::<Vec<_>>();
        assert_eq!(all(1), all(1));
        assert_ne!(all(1), all(2));
        assert_eq!(all(1).len(), 200);
    }
}
