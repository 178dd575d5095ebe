//! Lines whose text is always the same: memcached 1.6.18's words, with the line end.

pub(crate) const ERROR: &[u8] = b"ERROR\r\n";
pub(crate) const BAD_FORMAT: &[u8] = b"CLIENT_ERROR bad command line format\r\n";
pub(crate) const BAD_CHUNK: &[u8] = b"CLIENT_ERROR bad data chunk\r\n";
pub(crate) const BAD_EXPTIME: &[u8] = b"CLIENT_ERROR invalid exptime argument\r\n";
pub(crate) const BAD_DELTA: &[u8] = b"CLIENT_ERROR invalid numeric delta argument\r\n";
pub(crate) const BAD_DELETE: &[u8] = b"CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n";
pub(crate) const NON_NUMERIC: &[u8] = b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
pub(crate) const OPAQUE_TOO_LONG: &[u8] = b"CLIENT_ERROR opaque token too long\r\n";
pub(crate) const TOO_LARGE: &[u8] = b"SERVER_ERROR object too large for cache\r\n";
pub(crate) const OUT_OF_MEMORY_STORING: &[u8] = b"SERVER_ERROR out of memory storing object\r\n";
pub(crate) const OUT_OF_MEMORY: &[u8] = b"SERVER_ERROR out of memory\r\n";
pub(crate) const NO_BINARY: &[u8] = b"SERVER_ERROR the binary protocol is not supported, use the text protocol\r\n";
pub(crate) const FAILED: &[u8] = b"SERVER_ERROR the operation failed, nothing was changed\r\n";
pub(crate) const FAILED_BUSY: &[u8] = b"SERVER_ERROR busy, nothing was changed\r\n";
pub(crate) const FAILED_AWAY: &[u8] =
    b"SERVER_ERROR who has this key has not answered in time, nothing was changed\r\n";
pub(crate) const FAILED_UNKNOWN: &[u8] = b"SERVER_ERROR the outcome is unknown, the operation may have taken place\r\n";
pub(crate) const OK: &[u8] = b"OK\r\n";
pub(crate) const END: &[u8] = b"END\r\n";
