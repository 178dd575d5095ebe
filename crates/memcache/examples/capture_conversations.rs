//! Writes down what Debian's memcached answers: fills `tests/conversations.txt` with the answers to the inputs in it. Run
//! it after adding a conversation; a difference in the others means that memcached or the machine has changed.
//!
//! `cargo run -p guira-memcache --example capture_conversations`

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command};
use std::time::Duration;

#[path = "../tests/reference/mod.rs"]
mod reference;

fn main() -> io::Result<()> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/conversations.txt");
    let text = std::fs::read_to_string(path)?;
    let auth = std::env::temp_dir().join(format!("guira-auth-{}", std::process::id()));
    std::fs::write(&auth, "ann:secret\n")?;
    let mut conversations = reference::conversations(&text).into_iter();
    let mut filled = String::new();
    let mut input_lines = Vec::new();
    let mut lines = text.lines().chain([""]).peekable();
    while let Some(line) = lines.next() {
        let is_answer = line.starts_with("< ") || line == "closed";
        if is_answer {
            continue;
        }
        if line.starts_with("> ") {
            input_lines.push(line);
        }
        filled.push_str(line);
        filled.push('\n');
        let ends = !input_lines.is_empty() && lines.peek().is_none_or(|next| !next.starts_with("> "));
        if ends {
            input_lines.clear();
            let conversation = conversations.next().expect("one for each input");
            let options = conversation.options.replace("-Y", &format!("-Y {}", auth.display()));
            let (output, closed) = talk(&options, &conversation.input)?;
            for line in reference::escape(&output) {
                filled.push_str(&format!("< {line}\n"));
            }
            if closed {
                filled.push_str("closed\n");
            }
        }
    }
    std::fs::remove_file(&auth)?;
    std::fs::write(path, filled.trim_end().to_owned() + "\n")
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How long memcached is silent when it is through. Some conversations end without an answer.
const SILENCE: Duration = Duration::from_millis(300);

/// What a fresh memcached answers to `input`, and whether it hangs up.
fn talk(options: &str, input: &[u8]) -> io::Result<(Vec<u8>, bool)> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
    let child = Command::new("memcached")
        .args(["-u", "nobody", "-l", "127.0.0.1", "-t", "1", "-p", &port])
        .args(options.split_whitespace())
        .spawn()?;
    let _server = Server(child);
    let mut stream = loop {
        match TcpStream::connect(format!("127.0.0.1:{port}")) {
            Ok(stream) => break stream,
            Err(_) => std::thread::yield_now(),
        }
    };
    stream.set_read_timeout(Some(SILENCE))?;
    stream.write_all(input)?;
    let mut output = Vec::new();
    let mut chunk = [0; 1 << 16];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => return Ok((output, true)),
            Ok(len) => output.extend_from_slice(&chunk[..len]),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok((output, true)),
            Err(_) => return Ok((output, false)),
        }
    }
}
