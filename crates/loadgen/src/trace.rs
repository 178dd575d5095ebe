//! Recorded requests, one a line: `timestamp,key,key_size,value_size,client_id,operation,ttl`, the format of
//! Twitter's cache-trace. Read as a stream: a trace may be larger than memory.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use crate::error::LoadError;
use crate::mix::Kind;
use crate::payload::{KEY_LEN_MAX_BYTES, VALUE_LEN_MAX_BYTES};

const LINE_LEN_MAX_BYTES: u64 = 4096;

/// One recorded request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Seconds since the trace began.
    pub timestamp_s: u64,
    /// The key, as recorded.
    pub key: Vec<u8>,
    /// Length of its value, bytes.
    pub value_len_bytes: u32,
    /// The client that sent it.
    pub client_id: u64,
    /// What it did.
    pub kind: Kind,
    /// Lifetime given, seconds; 0 for none.
    pub ttl_s: u32,
}

/// Reads a trace line by line. A bad line is an error that names it; reading can go on after it.
pub struct Trace<R> {
    file: String,
    input: BufReader<R>,
    line: u64,
    text: Vec<u8>,
}

impl Trace<std::fs::File> {
    /// Opens the trace at `path`.
    pub fn open(path: &Path) -> Result<Self, LoadError> {
        let file = path.display().to_string();
        match std::fs::File::open(path) {
            Ok(input) => Ok(Self::new(file, input)),
            Err(source) => Err(LoadError::File { file, source }),
        }
    }
}

impl<R: Read> Trace<R> {
    /// Reads `input`, which errors call `file`.
    pub fn new(file: String, input: R) -> Self {
        Self { file, input: BufReader::with_capacity(64 << 10, input), line: 0, text: Vec::new() }
    }

    fn bad(&self, column: &'static str, problem: impl Into<String>) -> LoadError {
        LoadError::Line { file: self.file.clone(), line: self.line, column, problem: problem.into() }
    }

    fn read_line(&mut self) -> Result<bool, LoadError> {
        self.text.clear();
        self.line += 1;
        let read = self.input.by_ref().take(LINE_LEN_MAX_BYTES).read_until(b'\n', &mut self.text);
        let read = read.map_err(|source| LoadError::File { file: self.file.clone(), source })?;
        if read as u64 == LINE_LEN_MAX_BYTES && !self.text.ends_with(b"\n") {
            let skipped = self.input.skip_until(b'\n');
            skipped.map_err(|source| LoadError::File { file: self.file.clone(), source })?;
            return Err(self.bad("", format!("the line is longer than {LINE_LEN_MAX_BYTES} bytes")));
        }
        Ok(read > 0)
    }

    fn parse(&self) -> Result<Request, LoadError> {
        let text = std::str::from_utf8(&self.text).map_err(|_| self.bad("", "is not UTF-8"))?;
        let mut cells = text.trim_end_matches(['\r', '\n']).split(',');
        let mut cell = |name| cells.next().ok_or_else(|| self.bad(name, "is missing"));
        let timestamp = cell("timestamp")?;
        let (key, key_size, value_size) = (cell("key")?, cell("key_size")?, cell("value_size")?);
        let (client_id, operation, ttl) = (cell("client_id")?, cell("operation")?, cell("ttl")?);
        if cells.next().is_some() {
            return Err(self.bad("", "has more than seven columns"));
        }
        let number = |column, text: &str, max: u64| -> Result<u64, LoadError> {
            let problem = || self.bad(column, format!("'{text}' is not a whole number up to {max}"));
            text.trim().parse().ok().filter(|number| *number <= max).ok_or_else(problem)
        };
        if key.is_empty() || key.len() > KEY_LEN_MAX_BYTES || key.bytes().any(|byte| byte <= b' ' || byte == 127) {
            return Err(self.bad("key", "is no key: 1 to 250 bytes without spaces or control characters"));
        }
        number("key_size", key_size, u64::from(u32::MAX))?;
        Ok(Request {
            timestamp_s: number("timestamp", timestamp, u64::MAX / 1_000_000_000)?,
            key: key.as_bytes().to_vec(),
            value_len_bytes: number("value_size", value_size, u64::from(VALUE_LEN_MAX_BYTES))? as u32,
            client_id: number("client_id", client_id, u64::MAX)?,
            kind: Kind::named(operation.trim())
                .ok_or_else(|| self.bad("operation", format!("there is no operation '{operation}'")))?,
            ttl_s: number("ttl", ttl, u64::from(u32::MAX))? as u32,
        })
    }
}

impl<R: Read> Iterator for Trace<R> {
    type Item = Result<Request, LoadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.read_line() {
                Err(error) => return Some(Err(error)),
                Ok(false) => return None,
                // A header and empty lines are no requests.
                Ok(true) if self.text.trim_ascii().is_empty() => {}
                Ok(true) if self.line == 1 && self.text.starts_with(b"timestamp,") => {}
                Ok(true) => return Some(self.parse()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<Result<Request, LoadError>> {
        Trace::new("t.csv".into(), text.as_bytes()).collect()
    }

    #[test]
    fn requests_are_read_with_or_without_a_header() {
        let rows = "0,abc-1,5,230,17,get,0\n1,abc-1,5,230,17,set,3600\r\n";
        for text in [rows.to_string(), format!("timestamp,key,key_size,value_size,client_id,operation,ttl\n{rows}")] {
            let requests: Vec<Request> = read(&text).into_iter().map(|row| row.expect("well formed")).collect();
            assert_eq!((requests[0].kind, requests[1].kind), (Kind::Get, Kind::Set));
            assert_eq!((requests[1].timestamp_s, requests[1].ttl_s, requests[1].value_len_bytes), (1, 3600, 230));
        }
    }

    #[test]
    fn a_bad_line_is_named_and_the_next_one_still_read() {
        let long = "k".repeat(5000);
        let cases = [
            ("x,k,1,1,1,get,0".to_string(), "column timestamp"),
            ("0,,1,1,1,get,0".into(), "column key"),
            ("0,a b,1,1,1,get,0".into(), "column key"),
            ("0,k,1,99999999999,1,get,0".into(), "column value_size"),
            ("0,k,1,1,1,fly,0".into(), "column operation"),
            ("0,k,1,1,1,get".into(), "column ttl"),
            ("0,k,1,1,1,get,0,9".into(), "more than seven"),
            (format!("0,{long},1,1,1,get,0"), "longer than"),
        ];
        for (row, named) in cases {
            let rows = read(&format!("0,k,1,1,1,get,0\n{row}\n0,k,1,1,1,get,0\n"));
            assert_eq!(rows.len(), 3, "{named}");
            let line = rows[1].as_ref().expect_err(named).to_string();
            assert!(line.starts_with("t.csv: line 2") && line.contains(named), "{line}");
            assert!(rows[2].is_ok());
        }
    }
}
