//! The head of an HTTP request, as much of it as a scrape needs.
//!
//! Always true: the first line alone says what is wanted; what follows it, up to the empty line, is passed over.

/// The longest head, in bytes: a scrape's is some hundred.
pub(crate) const HEAD_LEN_MAX: usize = 8 << 10;

/// A request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    pub(crate) wanted: Wanted,
    /// The answer has a body; `HEAD` asks for one without.
    pub(crate) with_body: bool,
}

/// What a client wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wanted {
    /// `/metrics`.
    Metrics,
    /// `/`.
    Root,
    /// A path that leads nowhere.
    UnknownPath,
    /// Something else than to read.
    OtherMethod,
}

/// Whether `bytes` reach the end of a head.
pub(crate) fn is_whole(bytes: &[u8]) -> bool {
    bytes.windows(4).any(|window| window == b"\r\n\r\n")
}

/// Reads a head, or as much of one as there will be. A query behind the path means nothing.
pub(crate) fn parse(head: &[u8]) -> Request {
    let line = head.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let wanted = match (method, target.split(|byte| *byte == b'?').next().unwrap_or_default()) {
        (b"GET" | b"HEAD", b"/metrics") => Wanted::Metrics,
        (b"GET" | b"HEAD", b"/") => Wanted::Root,
        (b"GET" | b"HEAD", _) => Wanted::UnknownPath,
        _ => Wanted::OtherMethod,
    };
    Request { wanted, with_body: method != b"HEAD" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_says_what_is_wanted() {
        let heads: [(&[u8], Wanted, bool); 7] = [
            (b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", Wanted::Metrics, true),
            (b"HEAD /metrics?x=/ HTTP/1.1\r\n\r\n", Wanted::Metrics, false),
            (b"GET / HTTP/1.0\r\n\r\n", Wanted::Root, true),
            (b"GET /metrics/ HTTP/1.0\r\n\r\n", Wanted::UnknownPath, true),
            (b"POST /metrics HTTP/1.1\r\n\r\n", Wanted::OtherMethod, true),
            (b" GET /metrics HTTP/1.1\r\n\r\n", Wanted::OtherMethod, true),
            (b"", Wanted::OtherMethod, true),
        ];
        for (head, wanted, with_body) in heads {
            assert_eq!(parse(head), Request { wanted, with_body }, "{}", head.escape_ascii());
        }
    }

    /// The words were told apart by the spaces of the whole head: in a first line that names no version, the path went on into
    /// the next line and was not found.
    #[test]
    fn a_path_ends_with_its_line() {
        assert_eq!(parse(b"GET /metrics\r\nHost: a\r\n\r\n").wanted, Wanted::Metrics);
        assert_eq!(parse(b"GET\r\nHost: /metrics\r\n\r\n").wanted, Wanted::UnknownPath);
    }
}
