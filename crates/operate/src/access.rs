//! Who is answered: everybody on this machine, or who knows a token.
//!
//! Always true: what another machine can reach wants a token; without one, who was asked under a name that is not this machine's is refused, since a
//! web page can give its own name this machine's address; how long a comparison takes tells nothing of the token.

use std::{
    fmt,
    fs::File,
    io::{self, Read},
    net::{IpAddr, SocketAddr},
    path::Path,
};

use axum::http::{
    HeaderMap, StatusCode,
    header::{AUTHORIZATION, HOST},
};

use crate::refusal::Refusal;

/// The shortest token: shorter ones can be tried one after the other.
const TOKEN_LEN_MIN: usize = 16;

/// The longest one.
const TOKEN_LEN_MAX: usize = 256;

/// The longest file with one.
const FILE_LEN_MAX: u64 = 4_096;

/// What requests have to bring along, as its hash: of two hashes it is compared whether they are the same, in the same time always.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(blake3::Hash);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// What is no token.
#[derive(Debug)]
pub enum TokenError {
    /// The file cannot be read.
    File(io::Error),
    /// It is too short, too long, or has characters that a header cannot have.
    Text,
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::Text => {
                write!(f, "a token is one line of {TOKEN_LEN_MIN} to {TOKEN_LEN_MAX} letters, digits and signs")
            }
        }
    }
}

impl std::error::Error for TokenError {}

impl Token {
    /// The token in a file; blanks and ends of lines around it are none of it.
    ///
    /// # Errors
    /// There is no such file, or no token in it.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let mut text = Vec::new();
        let file = File::open(path).map_err(TokenError::File)?;
        file.take(FILE_LEN_MAX + 1).read_to_end(&mut text).map_err(TokenError::File)?;
        if text.len() as u64 > FILE_LEN_MAX { Err(TokenError::Text) } else { Self::new(text.trim_ascii()) }
    }

    /// This token.
    ///
    /// # Errors
    /// It is none.
    pub fn new(text: &[u8]) -> Result<Self, TokenError> {
        let is_one = (TOKEN_LEN_MIN..=TOKEN_LEN_MAX).contains(&text.len()) && text.iter().all(u8::is_ascii_graphic);
        if is_one { Ok(Self(blake3::hash(text))) } else { Err(TokenError::Text) }
    }

    /// Whether the request has it: `Authorization: Bearer TOKEN`.
    fn is_in(&self, headers: &HeaderMap) -> bool {
        let told = headers.get(AUTHORIZATION).map(|value| value.as_bytes());
        let told = told.and_then(|value| value.split_at_checked("Bearer ".len()));
        told.is_some_and(|(scheme, token)| {
            scheme.eq_ignore_ascii_case(b"Bearer ") && blake3::hash(token.trim_ascii()) == self.0
        })
    }
}

/// An address that is not to be served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessError {
    /// Others can reach it, and there is no token.
    Open(SocketAddr),
}

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(address) => write!(f, "{address} can be reached from elsewhere, and needs a token"),
        }
    }
}

impl std::error::Error for AccessError {}

/// Who is answered, and where.
#[derive(Clone, Debug)]
pub struct Access {
    address: SocketAddr,
    token: Option<Token>,
}

impl Access {
    /// Who knows the token, if there is one, at an address.
    ///
    /// # Errors
    /// There has to be one.
    pub fn new(address: SocketAddr, token: Option<Token>) -> Result<Self, AccessError> {
        if token.is_none() && !address.ip().to_canonical().is_loopback() {
            return Err(AccessError::Open(address));
        }
        Ok(Self { address, token })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether a request with these headers is answered.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        match &self.token {
            Some(token) if token.is_in(headers) => Ok(()),
            Some(_) => Err(Refusal::new(StatusCode::UNAUTHORIZED, "write Authorization: Bearer TOKEN")),
            None if headers.get_all(HOST).iter().all(|host| is_here(host.as_bytes())) => Ok(()),
            None => Err(Refusal::new(StatusCode::FORBIDDEN, "ask by address, or by localhost")),
        }
    }
}

/// Whether a header `Host` names an address, or this machine.
fn is_here(host: &[u8]) -> bool {
    let Ok(host) = str::from_utf8(host) else { return false };
    if host.parse::<SocketAddr>().is_ok() {
        return true;
    }
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    bare.parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use axum::http::HeaderValue;

    use super::*;

    const TEXT: &[u8] = b"0123456789abcdef";

    fn headers(name: axum::http::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())])
    }

    fn access(token: Option<&[u8]>) -> Access {
        let token = token.map(|text| Token::new(text).expect("a token"));
        Access::new("127.0.0.1:1".parse().unwrap(), token).expect("on this machine")
    }

    #[test]
    fn what_others_can_reach_wants_a_token() {
        for address in ["0.0.0.0:80", "192.0.2.1:80", "[::]:80", "[::ffff:192.0.2.1]:80"] {
            let address: SocketAddr = address.parse().unwrap();
            assert_eq!(Access::new(address, None).err(), Some(AccessError::Open(address)));
            assert!(Access::new(address, Token::new(TEXT).ok()).is_ok());
        }
        for address in ["127.0.0.1:80", "127.1.2.3:80", "[::1]:80", "[::ffff:127.0.0.1]:80"] {
            assert!(Access::new(address.parse().unwrap(), None).is_ok(), "{address}");
        }
    }

    #[test]
    fn who_does_not_know_the_token_is_refused() {
        let access = access(Some(TEXT));
        for right in ["Bearer 0123456789abcdef", "bearer 0123456789abcdef", "Bearer  0123456789abcdef"] {
            assert!(access.check(&headers(AUTHORIZATION, right)).is_ok(), "{right}");
        }
        for wrong in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer 0123456789abcdeF",
            "Bearer 0123456789abcdef0",
            "Basic MDEyMzQ1Njc4OWFiY2RlZg==",
        ] {
            assert!(access.check(&headers(AUTHORIZATION, wrong)).is_err(), "{wrong}");
        }
        assert!(access.check(&HeaderMap::new()).is_err());
    }

    #[test]
    fn without_a_token_who_asks_under_a_foreign_name_is_refused() {
        let access = access(None);
        for here in ["localhost", "localhost:8080", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:8080", "[::1]", "[::1]:8080"]
        {
            assert!(access.check(&headers(HOST, here)).is_ok(), "{here}");
        }
        for foreign in
            ["", "example.org", "example.org:8080", "localhost.example.org", "127.0.0.1.example.org:80", "::1:x"]
        {
            assert!(access.check(&headers(HOST, foreign)).is_err(), "{foreign}");
        }
        assert!(access.check(&HeaderMap::new()).is_ok());
    }

    #[test]
    fn what_is_no_token_is_not_taken_for_one() {
        for text in [
            &b""[..],
            b"short",
            b"with a blank in it",
            b"\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9",
            &[b'x'; 257],
        ] {
            assert!(matches!(Token::new(text), Err(TokenError::Text)), "{}", text.escape_ascii());
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        assert!(matches!(Token::read(&path), Err(TokenError::File(_))));
        fs::write(&path, "  0123456789abcdef\n").expect("written");
        assert_eq!(Token::read(&path).expect("a token"), Token::new(TEXT).expect("a token"));
        fs::write(&path, [TEXT, &[b'\n'; FILE_LEN_MAX as usize]].concat()).expect("written");
        assert!(matches!(Token::read(&path), Err(TokenError::Text)));
        assert!(matches!(Token::read(Path::new("/dev/zero")), Err(TokenError::Text)), "it has no end");
    }
}
