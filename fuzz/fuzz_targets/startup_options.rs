//! What an operator may write: `-o`, `-l`, `-I` and the file of `--config`. The first byte says which. The parsers that the
//! program keeps to itself are compiled in here.
#![no_main]
#![allow(dead_code)]

#[path = "../../crates/guira/src/config_file.rs"]
mod config_file;
#[path = "../../crates/guira/src/extended.rs"]
mod extended;
#[path = "../../crates/guira/src/mistake.rs"]
mod mistake;
#[path = "../../crates/guira/src/options.rs"]
mod options;
#[path = "../../crates/guira/src/size.rs"]
mod size;

use std::net::{IpAddr, SocketAddr};

use guira_server::ListenAddress;
use options::Flags;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((pick, text)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    match pick % 4 {
        0 => check_extended(text),
        1 => check_listen(text),
        2 => check_size(text),
        _ => check_config(text),
    }
});

/// One `-o` with commas says what several without say; what was understood can be said again.
fn check_extended(text: &str) {
    let parsed = extended::parse(&[text.to_owned()]);
    let several: Vec<String> = text.split(',').map(str::to_owned).collect();
    assert_eq!(extended::parse(&several), parsed);
    let Ok(extended) = parsed else { return };
    // Named one by one: a field that is new has to be said again too.
    let extended::Extended {
        maxconns_fast,
        idle_timeout,
        read_buf_mem_limit,
        watcher_logbuf_size,
        track_sizes,
        ignored,
    } = &extended;
    let mut again = vec![if *maxconns_fast { "maxconns_fast" } else { "no_maxconns_fast" }.to_owned()];
    let seconds = idle_timeout.map(|timeout| format!("idle_timeout={}", timeout.as_secs()));
    let megabytes = read_buf_mem_limit.map(|len| format!("read_buf_mem_limit={}", len.div_ceil(1 << 20)));
    let kilobytes = watcher_logbuf_size.map(|len| format!("watcher_logbuf_size={}", len.div_ceil(1 << 10)));
    let sizes = track_sizes.then(|| "track_sizes".to_owned());
    again.extend([seconds, megabytes, kilobytes, sizes].into_iter().flatten());
    again.extend(ignored.iter().cloned());
    assert_eq!(extended::parse(&[again.join(",")]), Ok(extended));
}

/// One `-l` with commas says what several without say; what was understood can be said again, and an address that the standard
/// library reads is read the same.
fn check_listen(text: &str) {
    let parsed = ListenAddress::parse_list(text);
    let several: Result<Vec<_>, String> = text.split(',').map(ListenAddress::parse_list).collect();
    assert_eq!(several.map(|lists| lists.concat()), parsed);
    let Ok(addresses) = parsed else { return };
    for address in &addresses {
        let host = address.host.as_deref().map_or("*".to_owned(), |host| format!("[{host}]"));
        let printed = address.port.map_or(host.clone(), |port| format!("{host}:{port}"));
        if address.host.as_ref().is_none_or(|host| !host.contains(']')) {
            assert_eq!(ListenAddress::parse_list(&printed).as_deref(), Ok(std::slice::from_ref(address)), "{printed}");
        }
    }
    let read = addresses.first().map(|address| (address.host.as_deref().map(str::parse::<IpAddr>), address.port));
    if let Ok(socket) = text.trim().parse::<SocketAddr>()
        && !text.contains('%')
    {
        assert_eq!(read, Some((Some(Ok(socket.ip())), Some(socket.port()))), "{text}");
    }
    if let Ok(ip) = text.trim().parse::<IpAddr>() {
        assert_eq!(read, Some((Some(Ok(ip)), None)), "{text}");
    }
}

/// A size in units is as many bytes.
fn check_size(text: &str) {
    let Some(bytes) = size::size_bytes(text) else { return };
    assert_eq!(size::size_bytes(&bytes.to_string()), Some(bytes));
    let kilobytes = bytes.checked_mul(1 << 10);
    assert_eq!(size::size_bytes(&format!("{bytes}k")), kilobytes);
    assert_eq!(size::size_bytes(&format!("{bytes}M")), kilobytes.and_then(|bytes| bytes.checked_mul(1 << 10)));
}

/// A mistake is one line; what was understood can be printed and read again; a flag beats the file.
fn check_config(text: &str) {
    let config = || Flags { config: Some("guira.toml".into()), ..Flags::default() };
    let options = match config_file::layered(&mut config(), text) {
        Ok(options) => options,
        Err(line) => return assert!(!line.is_empty() && line.lines().count() == 1, "{line}"),
    };
    let printed = config_file::print(&options).expect("what a file can say can be printed");
    let again = config_file::layered(&mut config(), &printed).expect("what is printed can be read");
    // As text, where no number differs from itself.
    assert_eq!(config_file::print(&again).as_ref(), Ok(&printed));
    let mut flags = Flags { port: Some(7), enable_shutdown: Some(false), ..config() };
    let over = config_file::layered(&mut flags, text).expect("flags that are sound");
    assert_eq!((over.port, over.enable_shutdown, over.listen), (7, false, options.listen));
}
