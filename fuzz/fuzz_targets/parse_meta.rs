//! One meta command: its name picked by the first byte, the rest arbitrary, so that the flags are reached at once.
#![no_main]

mod conversation;

use guira_memcache::Dialect;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((pick, rest)) = data.split_first() else { return };
    let name = [&b"mg a "[..], b"ms a 3 ", b"md a ", b"ma a ", b"me a ", b"mg YQ== b ", b"ms AAAA 3 b "]
        [usize::from(pick % 7)];
    let input = [name, rest, b"\r\nabc\r\nmn\r\n"].concat();
    conversation::check(Dialect::Memcached, None, &input, &[*pick]);
});
