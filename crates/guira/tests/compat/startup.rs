//! How the server starts, refuses to start, and stops.

use std::{
    ffi::OsStr,
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket},
    os::unix::{
        ffi::OsStrExt,
        fs::{PermissionsExt, symlink},
        net::UnixStream,
    },
    process::Command,
};

use rustix::process::Signal;

use crate::{
    condition::{DEADLINE, wait_for},
    connection::Heard,
    server::{Ended, Process, Program, Server, free_port},
};

/// Insists that these arguments stop the start with one line that says `about` what, and exit code 1.
#[track_caller]
fn refuses(arguments: &[&str], about: &str) {
    let Ended { status, stdout, stderr } = Program::Guira.ends(arguments);
    if Program::Guira.is_memcached() {
        assert!(!status.success(), "{arguments:?}: {stderr}");
        return;
    }
    assert_eq!(status.code(), Some(1), "{arguments:?}: {stderr}");
    assert_eq!(stderr.trim_end().lines().count(), 1, "{arguments:?}: one line, not {stderr:?}");
    assert!(stderr.contains(about), "{arguments:?}: {stderr:?} says nothing about {about:?}");
    assert!(stdout.is_empty(), "{arguments:?}: {stdout:?} on standard output");
}

#[test]
fn a_taken_port_is_told_in_one_line() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    refuses(&["-l", "127.0.0.1", "-p", &port], &port);
}

#[test]
fn an_address_that_is_not_ours_is_told_in_one_line() {
    refuses(&["-l", "192.0.2.1", "-p", &free_port().to_string()], "192.0.2.1");
}

#[test]
fn bad_flags_are_told_in_one_line() {
    refuses(&["--no-such-flag"], "--no-such-flag");
    if Program::Guira.is_memcached() {
        // memcached takes what a number begins with.
        return;
    }
    for (arguments, about) in [
        (["-p", "notaport"], "notaport"),
        (["-p", "65536"], "65536"),
        (["-m", "much"], "much"),
        (["-t", "0"], "-t"),
        (["-t", "many"], "many"),
        (["-c", "none"], "none"),
        (["-m", "-5"], "-m -5: write a whole number"),
        (["-f", "steep"], "-f steep: write a number, such as 1.25"),
        (["-n", "0"], "-n 0: at least 1 byte"),
        (["-P", "/nonexistent/pid"], "choose another path"),
        (["-s", "/nonexistent/socket"], "choose another path with -s"),
        (["-I", "1"], "-I"),
        (["-I", "huge"], "huge"),
        (["--engine", "steam"], "steam"),
        (["--eviction", "never"], "never"),
        (["--engine=cphash", "--partitions=3"], "--partitions 3: write a power of two"),
        (
            ["--engine=memc3", "--partitions=8"],
            "--partitions 8: memc3 has none, leave it out or choose --engine cphash or",
        ),
        (["--partitions", "many"], "many"),
        (["--server-threads", "-1"], "-1"),
        (["--engine=memc3", "--server-cores=0"], "--server-cores 0: memc3 has none"),
        (["--engine=memc3", "--bucket-locks"], "--bucket-locks: memc3 has none"),
        (["--engine=cphash", "--bucket-locks"], "--bucket-locks: cphash has none"),
        (["--engine=lockhash", "--bucket-locks"], "--bucket-locks: under lru every read changes"),
        (["--engine=lockhash", "--server-threads=1"], "--server-threads 1: lockhash has none"),
        (["--engine=cphash", "--server-cores=0-"], "--server-cores 0-: write cores by number"),
        (["--engine=cphash", "--server-cores=1024"], "--server-cores 1024: write cores by number, below 1024"),
        (["--engine=cphash", "--server-cores=1023"], "--server-cores: this process may not run on core 1023"),
        (["--huge-pages", "always"], "write auto or off"),
    ] {
        refuses(&arguments, about);
        // Files and sockets are only looked for when they are needed.
        if !["-P", "-s"].contains(&arguments[0]) {
            refuses(&[&arguments[..], &["--print-config"]].concat(), about);
        }
    }
}

#[test]
fn a_mistake_is_told_by_the_name_it_was_made_under() {
    if Program::Guira.is_memcached() {
        return;
    }
    let complaint = |mut command: Command, variable: &str, value: &str| {
        command.env(variable, value);
        let mut process = Process::start(command);
        assert_eq!(process.wait().code(), Some(1));
        process.complaints()
    };
    let serve = |arguments: &[&str]| Program::Guira.command(arguments);
    for (variable, value, told) in [
        ("GUIRA_PORT", "x", "guira: GUIRA_PORT x: write a port, a number up to 65535 (0: off)\n"),
        ("GUIRA_PORT", "70000", "guira: GUIRA_PORT 70000: a port is a number up to 65535 (0: off)\n"),
        ("GUIRA_THREADS", "", "guira: GUIRA_THREADS needs a value: write a whole number\n"),
        ("GUIRA_ENABLE_SHUTDOWN", "perhaps", "guira: GUIRA_ENABLE_SHUTDOWN perhaps: write true or false\n"),
    ] {
        assert_eq!(complaint(serve(&[]), variable, value), told);
    }
    // The flag goes before the variable, and its mistake is the flag's.
    assert!(complaint(serve(&["-t", "x"]), "GUIRA_THREADS", "x").starts_with("guira: -t x: "));
    assert!(complaint(serve(&["-t", "0"]), "GUIRA_THREADS", "2").starts_with("guira: -t 0: "));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("guira.toml");
    fs::write(&file, "port = 70000\n").unwrap();
    let told = format!("guira: {}: port 70000: a port is a number up to 65535 (0: off)\n", file.display());
    assert_eq!(complaint(serve(&["--config", file.to_str().unwrap()]), "GUIRA_THREADS", "2"), told);
    // Words of a value are nobody's flags, and do not break the line.
    let told = complaint(serve(&["-Y", "/no -p\nfile"]), "GUIRA_PORT", "11211");
    assert!(told.starts_with("guira: -Y /no -p\\nfile: cannot be read"), "{told}");
    for variable in ["GUIRA_PROTOCOL", "GUIRA_PIDFILE"] {
        let mut command = serve(&[]);
        command.env(variable, OsStr::from_bytes(b"/x\xff"));
        let Ended { stderr, .. } = Process::start(command).end();
        assert_eq!(stderr, format!("guira: {variable}: its value is not UTF-8; write it in UTF-8\n"));
    }
    let mut command = serve(&["-P"]);
    command.arg(OsStr::from_bytes(b"/x\xff"));
    let Ended { stderr, .. } = Process::start(command).end();
    assert_eq!(stderr, "guira: -P: its value is not UTF-8; write it in UTF-8\n");
}

#[test]
fn the_version_is_told_whatever_else_is_wrong() {
    if Program::Guira.is_memcached() {
        return;
    }
    for flag in ["-V", "-h", "-i"] {
        let mut command = Program::Guira.command(&[flag]);
        command.env("GUIRA_THREADS", "x");
        let Ended { status, stdout, stderr } = Process::start(command).end();
        assert!(status.success() && stdout.len() > 10, "{flag}: {stderr}");
    }
}

#[test]
fn what_is_not_supported_is_refused() {
    if !Program::Guira.is_memcached() {
        refuses(&["-o", "ext_path=/tmp/x:1g"], "ext_path");
        refuses(&["-o", "proxy_config=/tmp/x.lua"], "proxy_config");
    }
}

#[test]
fn too_many_connections_for_the_kernel_are_told_in_one_line() {
    refuses(&["-l", "127.0.0.1", "-p", &free_port().to_string(), "-c", "2000000000"], "-c");
}

#[test]
fn too_little_memory_is_told_in_one_line() {
    if Program::Guira.is_memcached() {
        return;
    }
    refuses(&["-l", "127.0.0.1", "-p", &free_port().to_string(), "-m", "1000000000"], "-m");
    refuses(&["-l", "127.0.0.1", "-p", &free_port().to_string(), "-m", "0"], "-m");
}

#[test]
fn an_unreadable_configuration_is_told_in_one_line() {
    if Program::Guira.is_memcached() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing.toml");
    refuses(&["--config", missing.to_str().unwrap()], "missing.toml");
    let malformed = folder.path().join("malformed.toml");
    fs::write(&malformed, "port = = 5\n").unwrap();
    refuses(&["--config", malformed.to_str().unwrap()], "malformed.toml");
    let unknown = folder.path().join("unknown.toml");
    fs::write(&unknown, "no_such_setting = 5\n").unwrap();
    refuses(&["--config", unknown.to_str().unwrap()], "no_such_setting");
}

#[test]
fn version_and_help_are_printed() {
    let version = Program::Guira.ends(&["-V"]);
    assert!(version.status.success(), "{}", version.stderr);
    assert!(version.stdout.contains(|character: char| character.is_ascii_digit()), "{:?}", version.stdout);
    let Ended { status, stdout: help, stderr } = Program::Guira.ends(&["-h"]);
    assert!(status.success(), "{stderr}");
    for flag in ["-p", "-s", "-l", "-m", "-c", "-t", "-I"] {
        assert!(help.contains(flag), "{flag} in {help}");
    }
}

#[test]
fn called_memcached_it_takes_memcacheds_flags() {
    if Program::Guira.is_memcached() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("memcached");
    symlink(fs::canonicalize(Program::Guira.path()).unwrap(), &link).unwrap();
    let said = |program: &str, flag: &str| {
        let output = Command::new(program).arg(flag).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let (ours, theirs) = (link.to_str().unwrap(), "memcached");
    assert_eq!(said(ours, "-V"), said(theirs, "-V"));
    assert_eq!(said(ours, "-h").lines().next(), said(theirs, "-h").lines().next());
    let port = free_port();
    let mut command = Command::new(&link);
    command.args([
        "-l",
        "127.0.0.1",
        "-p",
        &port.to_string(),
        "-U",
        "0",
        "-m",
        "64",
        "-t",
        "2",
        "-u",
        "root",
        "-o",
        "modern",
    ]);
    let mut process = Process::start(command);
    wait_for("the link listens", || {
        if let Some(status) = process.ended() {
            panic!("{status}: {}", process.complaints());
        }
        process.listens_on(port).then_some(())
    });
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    stream.write_all(b"set k 0 0 1\r\nx\r\nquit\r\n").unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    assert_eq!(said, "STORED\r\n");
}

#[test]
fn the_last_of_a_repeated_flag_counts() {
    let server = Server::start(Program::Guira, &["-m", "32", "-c", "10", "-c", "20"]);
    assert_eq!(server.stat("limit_maxbytes"), 32 << 20);
    assert_eq!(server.stat("max_connections"), 20);
}

#[test]
fn signals_end_it_well() {
    for signal in [Signal::TERM, Signal::INT, Signal::USR1] {
        let mut server = Server::start(Program::Guira, &[]);
        let mut client = server.connect();
        client.expect(b"set k 0 0 1\r\nx\r\n", b"STORED\r\n");
        server.process().signal(signal);
        if signal == Signal::USR1 {
            // Graceful: whoever is connected may finish; it ends when they leave (or at once).
            client.finish_sending();
            assert_eq!(client.hear_all(), Heard::Closed(vec![]));
        }
        let status = server.process().wait();
        assert!(status.success(), "{signal:?}: {status}: {}", server.process().complaints());
    }
}

#[test]
fn without_versions_each_is_zero_and_none_fits() {
    for program in [Program::Guira, Program::Memcached] {
        let server = Server::start(program, &["-C"]);
        let mut client = server.connect();
        let talk: [(&[u8], &[u8]); 12] = [
            (b"set a 0 0 1\r\na\r\n", b"STORED\r\n"),
            (b"gets a\r\n", b"VALUE a 0 1 0\r\na\r\nEND\r\n"),
            (b"cas a 0 0 1 1\r\nb\r\n", b"EXISTS\r\n"),
            (b"cas a 0 0 1 0\r\nb\r\n", b"EXISTS\r\n"),
            (b"cas b 0 0 1 0\r\nb\r\n", b"NOT_FOUND\r\n"),
            (b"ms a 1 c\r\nc\r\n", b"HD c0\r\n"),
            (b"ms a 1 C5\r\nd\r\n", b"EX\r\n"),
            (b"md a C3\r\n", b"EX\r\n"),
            (b"ma a C1\r\n", b"EX\r\n"),
            (b"mg a c\r\n", b"HD c0\r\n"),
            (b"md a C0\r\n", b"HD\r\n"),
            (b"mg a c\r\n", b"EN\r\n"),
        ];
        for (request, answer) in talk {
            client.expect(request, answer);
        }
    }
}

/// What comes after the lock, under another user's limit, is no allocation that fails.
#[test]
fn memory_is_locked_or_it_says_that_it_is_not() {
    if Program::Guira.is_memcached() {
        return;
    }
    let mut server = Server::start(Program::Guira, &["-k", "-u", "nobody"]);
    let value = vec![b'x'; 900_000];
    let set = [&b"set large 0 0 900000\r\n"[..], &value, b"\r\n"].concat();
    server.connect().expect(&set, b"STORED\r\n");
    server.assert_alive();
    let status = fs::read_to_string(format!("/proc/{}/status", server.process().pid())).unwrap();
    let locked_kb = status.lines().find_map(|line| line.strip_prefix("VmLck:")).map(str::trim);
    let said = server.process().complaints();
    assert_eq!(locked_kb == Some("0 kB"), said.contains("-k: memory is not locked"), "{locked_kb:?} {said}");
    refuses(&["-l", "127.0.0.1", "-p", &free_port().to_string(), "-k", "-m", "900000000"], "lower -m");
}

/// A limit that leaves no room for threads, or for the arena.
#[test]
fn too_little_address_space_is_told_in_one_line() {
    if Program::Guira.is_memcached() {
        return;
    }
    let program = Program::Guira.path();
    // With less than some of these the program itself cannot be loaded.
    let mut loaded = 0;
    for kilobytes in (30_000..).step_by(10_000) {
        assert!(kilobytes < 500_000, "it says nothing, however much room there is");
        let line = format!("ulimit -v {kilobytes}; exec \"$0\" serve -l 127.0.0.1 -p {} -m 64", free_port());
        let ended = Process::start({
            let mut shell = Command::new("sh");
            shell.arg("-c").arg(line).arg(&program);
            shell
        })
        .end();
        if loaded == 0 && ended.status.code() != Some(1) {
            continue;
        }
        assert_eq!((ended.status.code(), ended.stderr.trim_end().lines().count()), (Some(1), 1), "{}", ended.stderr);
        assert!(ended.stderr.contains("ulimit -v"), "{}", ended.stderr);
        loaded += 1;
        if loaded == 6 {
            return;
        }
    }
}

#[test]
fn the_shutdown_command_is_off_unless_asked_for() {
    let mut off = Server::start(Program::Guira, &[]);
    off.connect().expect(b"shutdown\r\n", b"ERROR: shutdown not enabled\r\n");
    off.assert_alive();
    let mut on = Server::start(Program::Guira, &["-A"]);
    on.connect().send(b"shutdown\r\n");
    assert!(on.process().wait().success());
}

#[test]
fn a_unix_socket_serves_with_the_mode_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("guira.sock");
    let path_text = path.to_str().unwrap();
    let mut process = Process::start(Program::Guira.command(&["-s", path_text, "-a", "0770", "-m", "64", "-t", "1"]));
    let mut stream = wait_for("the socket answers", || {
        if let Some(status) = process.ended() {
            panic!("{status}: {}", process.complaints());
        }
        UnixStream::connect(&path).ok()
    });
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o770);
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.write_all(b"set k 0 0 5\r\nhello\r\nget k\r\nquit\r\n").unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    assert_eq!(said, "STORED\r\nVALUE k 0 5\r\nhello\r\nEND\r\n");
    process.signal(Signal::TERM);
    assert!(process.wait().success());
}

/// A UDP request: the frame header of protocol.txt (request id, sequence, datagrams, reserved), then the command.
fn datagram(request_id: u16, command: &[u8]) -> Vec<u8> {
    let [high, low] = request_id.to_be_bytes();
    [&[high, low, 0, 0, 0, 1, 0, 0], command].concat()
}

#[test]
fn udp_answers_in_numbered_datagrams() {
    let port = free_port();
    let port_text = port.to_string();
    let server = Server::start(Program::Guira, &["-U", &port_text]);
    let value = b"0123456789".repeat(500);
    let set = [b"set large 0 0 5000\r\n".as_slice(), &value, b"\r\n"].concat();
    server.connect().expect(&set, b"STORED\r\n");

    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut buffer = [0; 2048];

    socket.send(&datagram(0x1234, b"set small 0 0 2\r\nhi\r\n")).unwrap();
    let len = socket.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..len], [&[0x12, 0x34, 0, 0, 0, 1, 0, 0], b"STORED\r\n".as_slice()].concat());

    socket.send(&datagram(0xbeef, b"get large\r\n")).unwrap();
    let mut pieces: Vec<Option<Vec<u8>>> = Vec::new();
    while pieces.is_empty() || pieces.iter().any(Option::is_none) {
        let len = socket.recv(&mut buffer).unwrap();
        let number = |place: usize| usize::from(u16::from_be_bytes([buffer[place], buffer[place + 1]]));
        assert_eq!((number(0), number(6)), (0xbeef, 0), "request id and reserved");
        assert!(len <= 1400, "a datagram of {len} bytes");
        pieces.resize(number(4), None);
        pieces[number(2)] = Some(buffer[8..len].to_vec());
    }
    let answer: Vec<u8> = pieces.into_iter().flatten().flatten().collect();
    assert_eq!(answer, [b"VALUE large 0 5000\r\n".as_slice(), &value, b"\r\nEND\r\n"].concat());

    // Too short for a header, and a request in several datagrams: neither is answered, and the next one is.
    socket.send(b"abc").unwrap();
    socket.send(&[0, 1, 0, 0, 0, 2, 0, 0, b'g', b'e', b't']).unwrap();
    socket.send(&datagram(7, b"get small\r\n")).unwrap();
    let last = wait_for("the answer to the good request", || {
        let len = socket.recv(&mut buffer).unwrap();
        (buffer[..2] == [0, 7]).then(|| buffer[8..len].to_vec())
    });
    assert_eq!(last, b"VALUE small 0 2\r\nhi\r\nEND\r\n");
}

#[test]
fn udp_is_off_by_default() {
    let port = free_port();
    let text = port.to_string();
    let mut process = Process::start(Program::Guira.command(&["-l", "127.0.0.1", "-p", &text, "-m", "64", "-t", "1"]));
    wait_for("it listens on TCP", || {
        assert!(process.ended().is_none(), "{}", process.complaints());
        process.listens_on(port).then_some(())
    });
    // Nobody has the UDP port of the same number.
    UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
}

#[test]
fn very_verbose_names_connections_and_requests() {
    let mut server = Server::start(Program::Guira, &["-vv"]);
    let mut client = server.connect();
    client.ask(b"set spoken 0 0 2\r\nhi\r\nmg spoken v\r\ndelete sp\xf6ken\r\n", b"NOT_FOUND\r\n");
    wait_for("the requests are logged", || {
        let said = server.process().complaints();
        let all = ["new connection", "set spoken", "get spoken", "delete sp\\xf6ken"];
        all.iter().all(|line| said.contains(line)).then_some(())
    });
    client.ask(b"verbosity 0\r\n", b"OK\r\n");
    client.ask(b"get silent\r\n", b"END\r\n");
    drop(client);
    server.process().signal(Signal::TERM);
    assert!(server.process().wait().success());
    assert!(!server.process().complaints().contains("silent"));
}
