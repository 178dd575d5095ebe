//! A server that was stopped comes back with its items (`-e`); one that was killed, or finds a file it cannot use, does not pretend to.

use std::{fs, os::unix::process::ExitStatusExt, path::Path};

use rustix::process::Signal;

use crate::{
    condition::wait_for,
    connection::{Connection, show},
    server::{Ended, Program, Server, free_port},
};

const ITEMS: usize = 500;

fn value(number: usize) -> String {
    format!("{number:04} ").repeat(if number.is_multiple_of(100) { 40_000 } else { number })
}

/// A path in a folder of its own.
fn path_in(folder: &tempfile::TempDir) -> String {
    folder.path().join("items").to_str().expect("a path in text").to_owned()
}

fn start(path: &str) -> Server {
    Server::start(Program::Guira, &["-A", "-e", path])
}

/// What `start` says on standard error, once it serves.
fn told(server: &mut Server) -> String {
    server.connect().expect(b"mn\r\n", b"MN\r\n");
    server.process().complaints()
}

/// The answer to a meta get, and its value.
fn look(client: &mut Connection, key: &str, flags: &str) -> String {
    let answer = client.ask(format!("mg {key} {flags}\r\nmn\r\n").as_bytes(), b"MN\r\n");
    String::from_utf8(answer).expect("text")
}

fn fill(client: &mut Connection) {
    for number in 0..ITEMS {
        let (value, lasts) = (value(number), if number.is_multiple_of(3) { 5_000 } else { 0 });
        let request = format!("set key{number} {number} {lasts} {}\r\n{value}\r\n", value.len());
        client.expect(request.as_bytes(), b"STORED\r\n");
    }
    client.expect(b"delete key7\r\n", b"DELETED\r\n");
    client.expect(b"set gone 0 -1 1\r\nx\r\n", b"STORED\r\n");
    client.expect(b"set number 0 0 2\r\n41\r\nincr number 1\r\n", b"STORED\r\n42\r\n");
    client.expect(b"md key9 I\r\n", b"HD\r\n");
}

fn is_all_there(client: &mut Connection, versions: &[String]) {
    for (number, version) in versions.iter().enumerate() {
        let key = format!("key{number}");
        let told = look(client, &key, "f c t v q k");
        if number == 7 {
            assert_eq!(told, "MN\r\n", "it was deleted");
            continue;
        }
        let (line, rest) = told.split_once("\r\n").unwrap_or_else(|| panic!("{told}"));
        assert!(rest.starts_with(&value(number)), "{key}: {line}");
        let words: Vec<&str> = line.split(' ').collect();
        let lasts: i64 = words[4].strip_prefix('t').and_then(|word| word.parse().ok()).expect("a time to live");
        assert_eq!(words[2..4], [format!("f{number}"), version.clone()], "{key}");
        assert!(if number.is_multiple_of(3) { (4_000..=5_000).contains(&lasts) } else { lasts == -1 }, "{key}: {line}");
        // Who looked at its version was the first to read it stale.
        assert_eq!(line.ends_with(" Z X"), number == 9, "{key}: {line}");
    }
    client.expect(b"get gone\r\nincr number 1\r\n", b"END\r\n43\r\n");
}

fn version(client: &mut Connection, key: &str) -> String {
    look(client, key, "c").split_whitespace().nth(1).unwrap_or_default().to_owned()
}

#[test]
fn after_every_kind_of_stop_the_items_are_back() {
    if Program::Guira.is_memcached() {
        // Its file has to lie in a file system in memory.
        return;
    }
    type Stop = fn(&mut Server);
    let stops: [(&str, Stop); 4] = [
        ("SIGTERM", |server| server.process().signal(Signal::TERM)),
        ("SIGINT", |server| server.process().signal(Signal::INT)),
        ("SIGUSR1", |server| server.process().signal(Signal::USR1)),
        ("shutdown", |server| server.connect().send(b"shutdown\r\n")),
    ];
    for (name, stop) in stops {
        let folder = tempfile::tempdir().expect("a folder");
        let path = path_in(&folder);
        let mut server = start(&path);
        assert!(told(&mut server).contains("no file yet, the cache is empty"), "{name}");
        let mut client = server.connect();
        fill(&mut client);
        let versions: Vec<String> = (0..ITEMS).map(|number| version(&mut client, &format!("key{number}"))).collect();
        drop(client);
        // And again, with what was loaded.
        for life in 0..2 {
            stop(&mut server);
            assert!(server.process().wait().success(), "{name}: {}", server.process().complaints());
            assert!(Path::new(&path).exists(), "{name}");
            server = start(&path);
            // All but one, and a number.
            let back = format!("-e {path}: {ITEMS} items are back");
            let text = told(&mut server);
            assert!(text.contains(&back), "{name}, life {life}: {text}");
            assert!(
                fs::read_dir(&folder)
                    .expect("a folder")
                    .all(|file| { file.is_ok_and(|file| file.file_name() == "items.next") }),
                "what is served is not kept"
            );
            let shown = server.connect().ask(b"stats settings\r\n", b"END\r\n");
            let row = format!("STAT memory_file {path}\r\n");
            assert!(String::from_utf8_lossy(&shown).contains(&row), "{}", show(&shown));
        }
        let mut client = server.connect();
        is_all_there(&mut client, &versions);
        // One that is killed comes back with nothing rather than with what is out of date.
        server.process().signal(Signal::KILL);
        assert_eq!(server.process().wait().signal(), Some(Signal::KILL.as_raw()));
        let mut server = start(&path);
        assert!(told(&mut server).contains("no file yet"), "{name}");
        assert_eq!(server.stat("curr_items"), 0, "{name}");
    }
}

/// A `flush_all` that is still to come at the stop is not forgotten: it takes the items at its second, or while nobody runs.
#[test]
fn a_flush_that_was_to_come_comes_over_a_restart() {
    if Program::Guira.is_memcached() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = path_in(&folder);
    let restarted = |mut server: Server| {
        server.process().signal(Signal::TERM);
        assert!(server.process().wait().success(), "{}", server.process().complaints());
        start(&path)
    };
    let server = start(&path);
    let mut client = server.connect();
    client.expect(b"set key 0 0 1\r\nx\r\nflush_all 4\r\n", b"STORED\r\nOK\r\n");
    drop(client);
    let mut server = restarted(server);
    let text = told(&mut server);
    assert!(text.contains("1 item is back") || text.contains("1 went with a flush_all"), "{text}");
    wait_for("the flush", || (server.connect().ask(b"get key\r\n", b"END\r\n") == b"END\r\n").then_some(()));
    let mut client = server.connect();
    client.expect(b"set key 0 0 1\r\nx\r\nflush_all 5\r\n", b"STORED\r\nOK\r\n");
    drop(client);
    server.process().signal(Signal::TERM);
    assert!(server.process().wait().success(), "{}", server.process().complaints());
    let saved = fs::metadata(&path).and_then(|file| file.modified()).expect("saved");
    wait_for("the flush is due", || saved.elapsed().is_ok_and(|since| since.as_secs() > 5).then_some(()));
    let text = told(&mut start(&path));
    assert!(text.contains("0 items are back, 1 went with a flush_all that came due"), "{text}");
}

/// Seconds since the last use (`mg`'s `l`, `me`'s `la`) go on over a restart. Asking for them by `me` is no use.
#[test]
fn what_was_not_used_for_a_while_is_so_after_a_restart_too() {
    if Program::Guira.is_memcached() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = path_in(&folder);
    let idle_s = |server: &Server| {
        let told = server.connect().ask(b"me key\r\nmn\r\n", b"MN\r\n");
        let told = String::from_utf8(told).expect("text");
        let idle_s = told.split_whitespace().find_map(|word| word.strip_prefix("la=")?.parse().ok());
        idle_s.unwrap_or_else(|| panic!("{told}"))
    };
    let mut server = start(&path);
    server.connect().expect(b"set key 0 0 1\r\nx\r\n", b"STORED\r\n");
    for _ in 0..2 {
        let before: u32 = wait_for("it is not used", || Some(idle_s(&server)).filter(|idle_s| *idle_s >= 2));
        server.process().signal(Signal::TERM);
        assert!(server.process().wait().success(), "{}", server.process().complaints());
        server = start(&path);
        assert!(idle_s(&server) >= before);
    }
}

/// A killed save leaves nothing that is taken for a file.
#[test]
fn killed_while_it_saves_it_starts_empty() {
    if Program::Guira.is_memcached() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = path_in(&folder);
    let mut server = start(&path);
    let mut client = server.connect();
    let value = "x".repeat(500_000);
    for number in 0..80 {
        client.expect(format!("set key{number} 0 0 500000\r\n{value}\r\n").as_bytes(), b"STORED\r\n");
    }
    drop(client);
    let unfinished = folder.path().join("items.next");
    let len = || fs::metadata(&unfinished).map_or(0, |file| file.len());
    server.process().signal(Signal::TERM);
    wait_for("it has begun to save, or saved", || (len() > 0 || Path::new(&path).exists()).then_some(()));
    server.process().signal(Signal::KILL);
    let status = server.process().wait();
    let was_killed = status.signal() == Some(Signal::KILL.as_raw());
    let mut server = start(&path);
    let text = told(&mut server);
    // It may have been faster.
    let expected = if Path::new(&unfinished).exists() && text.contains("no file yet") { 0 } else { 80 };
    assert!(expected == 80 || was_killed, "{text}");
    assert_eq!(server.stat("curr_items"), expected, "{text}");
}

#[test]
fn a_file_that_cannot_be_used_is_refused_and_left_as_it_is() {
    if Program::Guira.is_memcached() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = path_in(&folder);
    let mut server = start(&path);
    fill(&mut server.connect());
    let refuses = |path: &str, about: &str| {
        let Ended { status, stdout, stderr } =
            Program::Guira.ends(&["-l", "127.0.0.1", "-p", &free_port().to_string(), "-e", path]);
        assert_eq!(status.code(), Some(1), "{stderr}");
        let line = stderr.lines().last().unwrap_or_default();
        assert!(line.contains(about) && line.contains(path), "{stderr:?} says nothing about {about:?}");
        assert!(stdout.is_empty(), "{stdout:?} on standard output");
    };
    refuses(&path, "is another server's");
    server.process().signal(Signal::TERM);
    assert!(server.process().wait().success());
    let sound = fs::read(&path).expect("saved");
    let change = |at: usize, to: u8| {
        let mut bytes = sound.clone();
        bytes[at] = to;
        bytes
    };
    let middle = sound.len() / 2;
    for (bytes, about) in [
        (change(middle, !sound[middle]), "is cut short or damaged"),
        (sound[..middle].to_vec(), "is cut short or damaged"),
        (change(8, 200), "is of version 200, and this guira reads version 2"),
        (b"key 0 0 3\r\n".to_vec(), "is no memory file of guira's"),
        (Vec::new(), "is no memory file of guira's"),
    ] {
        fs::write(&path, &bytes).expect("disk");
        refuses(&path, about);
        assert!(fs::read(&path).expect("still there") == bytes, "{about}");
    }
    refuses(&format!("{path}/below/a/file"), "cannot be had");
    // What was sound is, again.
    fs::write(&path, &sound).expect("disk");
    assert!(told(&mut start(&path)).contains(&format!("{ITEMS} items are back")));
}
