//! What two right servers may say differently, taken out of their answers, and nothing else: versions (compared by the
//! order in which they first appear for a key), seconds that may tick in between, the program's version, where and how
//! large an item lies in memory, and whether a key comes back as base64 (memcached: if it was stored so; Guira: if it was
//! asked so). Beside a cluster also whether an item was fetched before: nobody keeps that there.

use std::collections::HashMap;

/// Encloses, in a command, a key whose last seen version is to be sent.
pub const VERSION_MARK: u8 = 2;

/// Sent for a key that has shown no version yet; no server counts that far.
const VERSION_UNSEEN: u64 = 7_777_777_777_777;

/// The versions one server has shown for each key.
#[derive(Default)]
pub struct Versions {
    of_key: HashMap<Vec<u8>, KeyVersions>,
}

#[derive(Default)]
struct KeyVersions {
    order: HashMap<u64, usize>,
    last: Option<u64>,
}

impl Versions {
    /// The command as this server is to get it.
    pub fn fill_in(&self, command: &[u8], into: &mut Vec<u8>) {
        for (place, piece) in command.split(|&byte| byte == VERSION_MARK).enumerate() {
            if place % 2 == 0 {
                into.extend_from_slice(piece);
            } else {
                let last = self.of_key.get(piece).and_then(|versions| versions.last).unwrap_or(VERSION_UNSEEN);
                into.extend_from_slice(last.to_string().as_bytes());
            }
        }
    }

    /// How manieth version of this key it is.
    fn order(&mut self, key: &[u8], version: &[u8]) -> Option<String> {
        let version: u64 = std::str::from_utf8(version).ok()?.parse().ok()?;
        let versions = self.of_key.entry(key.to_vec()).or_default();
        let next = versions.order.len();
        let order = *versions.order.entry(version).or_insert(next);
        // 0 is what an unsuccessful command shows: not a version.
        if version != 0 {
            versions.last = Some(version);
        }
        Some(if version == 0 { "cas=none".to_owned() } else { format!("cas#{order}") })
    }
}

/// Whether both servers know if an item was fetched before.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fetches {
    Kept,
    NotKept,
}

/// The answers with everything that may differ made equal.
pub fn normalise(answers: &[u8], fetches: Fetches, versions: &mut Versions) -> Vec<u8> {
    let mut normal = Vec::with_capacity(answers.len());
    let mut rest = answers;
    while !rest.is_empty() {
        let line_len = rest.iter().position(|&byte| byte == b'\n').map_or(rest.len(), |place| place + 1);
        let (line, behind) = rest.split_at(line_len);
        rest = behind;
        let (text, end) = match line.strip_suffix(b"\r\n") {
            Some(text) => (text, b"\r\n".as_slice()),
            None => (line, b"".as_slice()),
        };
        let words: Vec<&[u8]> = text.split(|&byte| byte == b' ').collect();
        match words.as_slice() {
            [b"VALUE", key, _, len, version @ ..] => {
                normal.extend_from_slice(&words[..4].join(&b' '));
                if let [version] = version {
                    push_word(&mut normal, versions.order(key, version).unwrap_or_default().as_bytes());
                }
                normal.extend_from_slice(end);
                rest = copy_value(rest, len, &mut normal);
            }
            [b"VA", len, ..] => {
                meta_line(&words, fetches, versions, &mut normal);
                normal.extend_from_slice(end);
                rest = copy_value(rest, len, &mut normal);
            }
            [b"HD" | b"EN" | b"NF" | b"NS" | b"EX", ..] => {
                meta_line(&words, fetches, versions, &mut normal);
                normal.extend_from_slice(end);
            }
            [b"ME", ..] => {
                debug_line(&words, fetches, &mut normal);
                normal.extend_from_slice(end);
            }
            [b"VERSION", _] => normal.extend_from_slice(b"VERSION *\r\n"),
            _ => normal.extend_from_slice(line),
        }
    }
    normal
}

fn push_word(normal: &mut Vec<u8>, word: &[u8]) {
    if normal.last().is_some_and(|&last| last != b'\n') {
        normal.push(b' ');
    }
    normal.extend_from_slice(word);
}

/// Copies the data block that follows a line unchanged.
fn copy_value<'a>(rest: &'a [u8], len: &[u8], normal: &mut Vec<u8>) -> &'a [u8] {
    let len: usize = std::str::from_utf8(len).ok().and_then(|len| len.parse().ok()).unwrap_or(0);
    let (value, behind) = rest.split_at(rest.len().min(len + 2));
    normal.extend_from_slice(value);
    behind
}

/// `HD`, `VA` and the others: flags `c`, `t`, `l` and, perhaps, `h` carry what may differ.
fn meta_line(words: &[&[u8]], fetches: Fetches, versions: &mut Versions, normal: &mut Vec<u8>) {
    let flags_at = if words[0] == b"VA" { 2 } else { 1 };
    let base64 = words[flags_at..].contains(&b"b".as_slice());
    let key = words[flags_at..].iter().find_map(|word| word.strip_prefix(b"k")).unwrap_or_default();
    let key = &if base64 { from_base64(key) } else { key.to_vec() };
    for (place, word) in words.iter().enumerate() {
        match word {
            [b'b'] if place >= flags_at => {}
            [b'k', ..] if place >= flags_at => push_word(normal, &[b"k", key.as_slice()].concat()),
            [b'c', version @ ..] if place >= flags_at => {
                let order = versions.order(key, version).unwrap_or_else(|| "cas?".to_owned());
                push_word(normal, order.as_bytes());
            }
            [b't', seconds @ ..] if place >= flags_at => {
                push_word(normal, format!("t{}", about(seconds)).as_bytes());
            }
            [b'l', seconds @ ..] if place >= flags_at && seconds.iter().all(u8::is_ascii_digit) => {
                push_word(normal, b"l*");
            }
            [b'h', b'0' | b'1'] if place >= flags_at && fetches == Fetches::NotKept => push_word(normal, b"h*"),
            word => push_word(normal, word),
        }
    }
}

/// The bytes behind a base64 text; what is not base64 counts for nothing.
pub fn from_base64(text: &[u8]) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let mut bytes = Vec::new();
    let (mut bits, mut bits_len) = (0_u32, 0);
    for digit in text.iter().copied().filter_map(digit) {
        bits = bits << 6 | u32::from(digit);
        bits_len += 6;
        if bits_len >= 8 {
            bits_len -= 8;
            bytes.push((bits >> bits_len) as u8);
        }
    }
    bytes
}

/// `ME key exp=... la=... cas=... fetch=... cls=... size=...`
fn debug_line(words: &[&[u8]], fetches: Fetches, normal: &mut Vec<u8>) {
    normal.extend_from_slice(b"ME *");
    for word in &words[2.min(words.len())..] {
        let name_len = word.iter().position(|&byte| byte == b'=').map_or(0, |place| place + 1);
        match word.split_at(name_len) {
            (b"exp=", seconds) => push_word(normal, format!("exp={}", about(seconds)).as_bytes()),
            (name @ (b"la=" | b"cas=" | b"cls=" | b"size="), _) => push_word(normal, &[name, b"*"].concat()),
            (b"fetch=", _) if fetches == Fetches::NotKept => push_word(normal, b"fetch=*"),
            _ => push_word(normal, word),
        }
    }
}

/// A remaining time, give or take some seconds: the streams' expiry times lie far apart.
fn about(seconds: &[u8]) -> String {
    const COARSE_S: u64 = 500;
    const FAR_S: u64 = 10_000_000;
    /// memcached shows what is over as a number just below 2^32.
    const OVER_S: u64 = 4_000_000_000;
    let text = String::from_utf8_lossy(seconds);
    // `me` counts down to the expiry from below; -1 is never.
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) if digits != "1" => ("-", digits),
        _ => ("", &*text),
    };
    match digits.parse::<u64>() {
        Ok(seconds) if seconds > OVER_S => "~0".to_owned(),
        Ok(seconds) if seconds > FAR_S => format!("{sign}far"),
        Ok(seconds) => format!("{sign}~{}", (seconds + COARSE_S / 2) / COARSE_S * COARSE_S),
        Err(_) => text.into_owned(),
    }
}

#[test]
fn only_what_may_differ_is_made_equal() {
    let mut versions = Versions::default();
    let answers = b"VALUE k0 5 3 17\r\nc9\n\r\nEND\r\nHD c17 kk0 t998\r\nVA 2 kk0 c18 l7 t-1 s2 Oc5\r\nt5\r\nEX\r\n\
        HD kazA= b c18\r\nME k0 exp=100000 la=3 cas=5 fetch=no cls=1 size=63\r\nVERSION 1.6.18\r\nERROR\r\n";
    let normal = normalise(answers, Fetches::Kept, &mut versions);
    let expected = "VALUE k0 5 3 cas#0\r\nc9\n\r\nEND\r\nHD cas#0 kk0 t~1000\r\nVA 2 kk0 cas#1 l* t-1 s2 Oc5\r\nt5\r\nEX\r\n\
        HD kk0 cas#1\r\nME * exp=~100000 la=* cas=* fetch=no cls=* size=*\r\nVERSION *\r\nERROR\r\n";
    assert_eq!(String::from_utf8(normal).unwrap(), expected);
    let of_use = b"HD h0 t0\r\nVA 2 h1\r\nh0\r\nME k0 fetch=yes\r\n";
    let normal = normalise(of_use, Fetches::NotKept, &mut versions);
    assert_eq!(String::from_utf8(normal).unwrap(), "HD h* t~0\r\nVA 2 h*\r\nh0\r\nME * fetch=*\r\n");
    let mut filled = Vec::new();
    versions.fill_in(b"cas k0 0 0 1 \x02k0\x02\r\nx\r\n", &mut filled);
    assert_eq!(filled, b"cas k0 0 0 1 18\r\nx\r\n");
}
