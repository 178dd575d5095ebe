//! The head of a scrape's request, whole and as it comes in.
#![no_main]

#[path = "../../crates/server/src/http_request.rs"]
mod http_request;

use http_request::{HEAD_LEN_MAX, Wanted, is_whole, parse};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let data = &data[..data.len().min(HEAD_LEN_MAX)];
    let request = parse(data);
    let end = (0..=data.len()).find(|end| data[..*end].ends_with(b"\r\n\r\n"));
    assert_eq!(is_whole(data), end.is_some());
    if let Some(end) = end {
        assert!(!is_whole(&data[..end - 1]) && is_whole(&data[..end]));
        assert_eq!(parse(&data[..end]), request, "what follows a head changes it");
    }

    // The same said the other way round: what is wanted makes the beginnings that a head may have.
    let opens = |method: &str, path: &str, ends: &[u8]| {
        let rest = data.strip_prefix(method.as_bytes()).and_then(|rest| rest.strip_prefix(path.as_bytes()));
        rest.is_some_and(|rest| rest.first().is_none_or(|byte| ends.contains(byte)))
    };
    let reads = |path: &str| ["GET ", "HEAD "].iter().any(|method| opens(method, path, b" ?\r\n"));
    let is_method = |method: &str| opens(method, "", b" \r\n");
    let wanted = match () {
        () if reads("/metrics") => Wanted::Metrics,
        () if reads("/") => Wanted::Root,
        () if is_method("GET") || is_method("HEAD") => Wanted::UnknownPath,
        () => Wanted::OtherMethod,
    };
    assert_eq!((request.wanted, request.with_body), (wanted, !is_method("HEAD")));
});
