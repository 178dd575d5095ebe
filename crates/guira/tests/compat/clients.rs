//! Unmodified clients: libmemcached's conformance test and tools, pymemcache, the Rust crate `memcache`.

use std::{env, fs, net::SocketAddr, path::PathBuf, process::Command};

use crate::server::{Program, Server, client};

/// The lines `[pass]` of libmemcached's conformance test for the text protocol.
fn capabilities(address: SocketAddr) -> Vec<String> {
    let port = address.port().to_string();
    // It exits with an error if a test fails: the comparison says more.
    let output = Command::new("memccapable").args(["-a", "-h", "127.0.0.1", "-p", &port]).output();
    let output = output.expect("memccapable; `make test` installs libmemcached-tools");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// Runs libmemcached's conformance test, which has to find as much as with memcached.
pub fn memccapable(address: SocketAddr) {
    let memcached = Server::start(Program::Memcached, &[]);
    let expected = capabilities(memcached.address());
    assert!(expected.len() > 20, "memccapable ran: {expected:#?}");
    assert_eq!(capabilities(address), expected);
}

#[test]
fn memccapable_passes_all_that_memcached_passes() {
    let server = Server::start(Program::Guira, &[]);
    memccapable(server.address());
}

#[test]
fn libmemcached_tools_copy_list_and_remove() {
    let server = Server::start(Program::Guira, &[]);
    libmemcached_tools(server.address());
}

/// Runs libmemcached's tools, each once.
pub fn libmemcached_tools(address: SocketAddr) {
    let servers = format!("--servers={address}");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("poem");
    // Longer than any buffer on the way.
    let poem = "so much depends upon a red wheel barrow\n".repeat(10_000);
    fs::write(&file, &poem).expect("a file");

    let path = file.to_str().expect("a path of letters");
    client("memccp", &[&servers, path]);
    client("memcexist", &[&servers, "poem"]);
    assert_eq!(client("memccat", &[&servers, "poem"]).trim_end(), poem.trim_end());
    client("memctouch", &[&servers, "--expire=1000", "poem"]);
    client("memcping", &[&servers]);
    let stats = client("memcstat", &[&servers]);
    for name in ["pid", "version", "curr_items", "get_hits", "limit_maxbytes", "threads"] {
        assert!(stats.contains(&format!("\t{name}: ")), "{name} in {stats}");
    }
    client("memcrm", &[&servers, "poem"]);
    let gone = Command::new("memcexist").args([&servers, "poem"]).output().expect("memcexist runs");
    assert!(!gone.status.success(), "poem was removed");
    client("memccp", &[&servers, path]);
    client("memcflush", &[&servers]);
    let gone = Command::new("memcexist").args([&servers, "poem"]).output().expect("memcexist runs");
    assert!(!gone.status.success(), "everything was flushed");
}

/// The interpreter that has pymemcache: `scripts/install` puts it there.
fn python() -> PathBuf {
    if let Some(python) = env::var_os("GUIRA_PYTHON") {
        return python.into();
    }
    let home = env::var_os("HOME").expect("HOME");
    PathBuf::from(home).join(".cache/guira/python/bin/python")
}

/// Runs a session of pymemcache; with values of a given length at most, if it is with a cluster.
pub fn pymemcache(address: SocketAddr, value_len_max: Option<usize>) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/compat/pymemcache_session.py");
    let (port, len) = (address.port().to_string(), value_len_max.map(|len| len.to_string()));
    let arguments: Vec<&str> = [script, &port].into_iter().chain(len.as_deref()).collect();
    assert_eq!(client(python(), &arguments).trim(), "all is well");
}

#[test]
fn pymemcache_works_unmodified() {
    let server = Server::start(Program::Guira, &[]);
    pymemcache(server.address(), None);
}

#[test]
fn the_rust_client_works_unmodified() {
    let server = Server::start(Program::Guira, &[]);
    rust_client(server.address());
}

/// Runs a session of the crate `memcache`.
pub fn rust_client(address: SocketAddr) {
    let url = format!("memcache://{address}?protocol=ascii&timeout=30");
    let client = memcache::connect(url).expect("it is there");

    assert!(client.version().expect("an answer")[0].1.starts_with(|first: char| first.is_ascii_digit()));
    client.flush().expect("an answer");
    client.set("greeting", "hello", 0).expect("an answer");
    assert_eq!(client.get::<String>("greeting").expect("an answer").as_deref(), Some("hello"));
    client.append("greeting", ", world").expect("an answer");
    client.prepend("greeting", ">> ").expect("an answer");
    assert_eq!(client.get::<String>("greeting").expect("an answer").as_deref(), Some(">> hello, world"));
    // This client tells only hard errors of add and replace: what was stored tells the rest.
    client.add("greeting", "again", 0).expect("an answer");
    client.replace("nothing", "bye", 0).expect("an answer");
    assert_eq!(client.get::<String>("greeting").expect("an answer").as_deref(), Some(">> hello, world"));
    assert_eq!(client.get::<String>("nothing").expect("an answer"), None);
    client.replace("greeting", "bye", 1000).expect("an answer");

    let several = client.gets::<String>(&["greeting", "nothing"]).expect("an answer");
    assert_eq!(several.len(), 1);
    let (_, _, version) =
        client.gets::<(Vec<u8>, u32, Option<u64>)>(&["greeting"]).expect("an answer")["greeting"].clone();
    let version = version.expect("a version");
    assert!(client.cas("greeting", "hello again", 0, version).expect("an answer"));
    assert!(!client.cas("greeting", "too late", 0, version).expect("an answer"));

    client.set("number", 40, 0).expect("an answer");
    assert_eq!(client.increment("number", 2).expect("an answer"), 42);
    assert_eq!(client.decrement("number", 50).expect("an answer"), 0);
    assert!(client.touch("number", 1000).expect("an answer"));
    assert!(client.delete("number").expect("an answer"));
    assert!(!client.delete("number").expect("an answer"));
    assert_eq!(client.get::<String>("number").expect("an answer"), None);
    // (Its map of statistics stays empty over the text protocol, memcached's too.)
    client.stats().expect("an answer");
}
