//! A file of users, and a conversation with a client that must be one of them. The first two bytes say how long the file is
//! and how the conversation is cut.
#![no_main]

mod conversation;

use guira_memcache::{AuthFile, AuthFileError, Dialect};

/// What a file may hold at most, as its refusal says.
const ENTRIES_MAX: usize = 64;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let [file_len, cut, rest @ ..] = data else { return };
    let (text, input) = rest.split_at(usize::from(*file_len).min(rest.len()));
    let lines = text.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let entries: Vec<&[u8]> = lines.clone().filter(|line| !line.is_empty()).collect();
    let users = match AuthFile::parse(text) {
        Ok(users) => users,
        Err(AuthFileError::Empty) => return assert!(entries.is_empty()),
        Err(AuthFileError::NoColon { line }) => {
            let bad = lines.clone().nth(line - 1).expect("a line of the file");
            return assert!(!bad.is_empty() && !bad.contains(&b':'));
        }
        Err(AuthFileError::TooManyLines { max }) => {
            return assert!(max == ENTRIES_MAX && entries.len() > max);
        }
    };
    assert!((1..=ENTRIES_MAX).contains(&entries.len()));
    let mut logins = entries.iter().map(|entry| {
        let colon = entry.iter().position(|byte| *byte == b':').expect("each line has a colon");
        (&entry[..colon], &entry[colon + 1..])
    });
    for (user, password) in logins.clone() {
        assert!(users.check(user, password));
        let longer = [password, b"x"].concat();
        let is_another = entries.contains(&&*[user, b":", &longer].concat());
        assert_eq!(users.check(user, &longer), is_another, "more than the password opens");
    }

    // Whoever is served must have named somebody.
    let heard = conversation::check(Dialect::Memcached, Some(&users), input, &[*cut]);
    let is_said = |word: &[u8]| word.is_empty() || input.windows(word.len()).any(|window| window == word);
    let names_somebody = entries.iter().any(|entry| entry.split(|byte| *byte == b':').all(is_said));
    assert!(names_somebody || heard.requests.is_empty() && heard.controls.is_empty(), "served without a login");

    // And whoever names somebody is served.
    let is_word = |word: &[u8]| !word.is_empty() && !word.contains(&b' ') && !word.contains(&0);
    if let Some((user, password)) = logins.find(|(user, password)| is_word(user) && is_word(password)) {
        let secret = [user, b" ", password].concat();
        let login = [format!("set auth 0 0 {}\r\n", secret.len()).as_bytes(), &secret, b"\r\n"].concat();
        let served =
            conversation::hold(Dialect::Memcached, Some(&users), &[&login[..], b"get a\r\n"].concat(), &[], false);
        assert!(served.sent.starts_with(b"STORED\r\n") && served.requests.len() == 1);
    }
});
