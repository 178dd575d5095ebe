//! Connections: commands in any packaging, many at a time, large values, slow readers, limits.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use guira_item::Immediate;
use guira_server::Settings;

use crate::support::client::Client;
use crate::support::reference::Reference;
use crate::support::{settings, start, start_with, wait_until};

#[test]
fn a_pipeline_is_answered_in_order() {
    let server = start(settings());
    let mut client = Client::connect(&server);
    let mut said = String::new();
    let mut wanted = String::new();
    for n in 0..5000 {
        said += &format!("set key{n} {n} 0 5\r\n{n:05}\r\nget key{n} none\r\nbogus\r\n");
        wanted += &format!("STORED\r\nVALUE key{n} {n} 5\r\n{n:05}\r\nEND\r\nERROR\r\n");
    }
    let mut writer = client.stream.try_clone().unwrap();
    let talker = std::thread::spawn(move || writer.write_all(said.as_bytes()).unwrap());
    client.expect(&wanted);
    talker.join().unwrap();
    client.ask("version\r\n", "VERSION 1.6.18\r\n");
}

#[test]
fn commands_may_come_byte_by_byte() {
    let server = start(settings());
    let mut client = Client::connect(&server);
    for byte in b"set a 1 0 4\r\nab\r\n\r\nget a\r\nmg a v f\r\n" {
        client.say([*byte]);
        // One byte, one packet: an answered command on another connection in between tells that it has been read.
        Client::connect(&server).ask("mn\r\n", "MN\r\n");
    }
    client.expect("STORED\r\nVALUE a 1 4\r\nab\r\n\r\nEND\r\nVA 4 f1\r\nab\r\n\r\n");
}

#[test]
fn many_connections_at_a_time() {
    let server = start(Settings { connections_max: 600, ..settings() });
    let mut clients: Vec<_> = (0..500).map(|_| Client::connect(&server)).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        client.say(format!("set k{n} 0 0 3\r\n{n:03}\r\nget k{n}\r\n"));
    }
    for (n, client) in clients.iter_mut().enumerate() {
        client.expect(format!("STORED\r\nVALUE k{n} 0 3\r\n{n:03}\r\nEND\r\n"));
    }
    assert_eq!(clients[0].stats("")["curr_connections"], "500");
    clients.truncate(1);
    wait_until("the others are gone", || clients[0].stats("")["curr_connections"] == "1");
}

#[test]
fn large_values_travel_whole() {
    let mut settings = settings();
    settings.protocol.item_len_max = 8 << 20;
    let server = start(settings);
    let mut client = Client::connect(&server);
    let value: Vec<u8> = (0..5_000_000u32).map(|n| (n * 7 % 251) as u8).collect();
    client.say(format!("set big 9 0 {}\r\n", value.len()));
    client.say(&value);
    client.ask("\r\nget small big\r\n", "STORED\r\n");
    client.expect([format!("VALUE big 9 {}\r\n", value.len()).as_bytes(), &value, b"\r\nEND\r\n"].concat());
    client.ask("append big 0 0 3\r\nabc\r\n", "STORED\r\n");
    let stats = client.stats("");
    assert_eq!(stats["cmd_set"], "2");
    assert!(stats["bytes_read"].parse::<usize>().unwrap() > value.len());
}

#[test]
fn a_slow_reader_is_not_read_from_and_others_go_on() {
    let server = start(Settings { threads: 1, ..settings() });
    let mut client = Client::connect(&server);
    let value = vec![b'v'; 100_000];
    client.say("set v 0 0 100000\r\n");
    client.say(&value);
    client.ask("\r\n", "STORED\r\n");
    // 4 GB of answers wanted by somebody who reads none of them.
    let mut slow = Client::connect(&server);
    slow.stream.set_nonblocking(true).unwrap();
    let gets = "get v\r\n".repeat(1000);
    let mut sent = 0;
    wait_until("the server stops reading", || {
        match slow.stream.write(&gets.as_bytes()[sent % gets.len()..]) {
            Ok(len) => sent += len,
            Err(error) => {
                return error.kind() == std::io::ErrorKind::WouldBlock && client.stats("").contains_key("pid");
            }
        }
        sent > 400 << 20
    });
    assert!(sent < 100 << 20, "the server took {sent} bytes of commands from a client that reads nothing");
    let unread = client.stats("")["response_obj_bytes"].parse::<usize>().unwrap();
    assert!(unread < 64 << 20, "{unread} bytes held for one client");
    // It wakes up and gets everything it asked for, in order.
    slow.stream.set_nonblocking(false).unwrap();
    let one = [b"VALUE v 0 100000\r\n", &value[..], b"\r\nEND\r\n"].concat();
    for _ in 0..200 {
        slow.expect(&one);
    }
}

#[test]
fn answers_that_nobody_reads_are_bounded_over_all_connections() {
    let server = start(Settings { output_len_max: 1 << 20, ..settings() });
    let mut client = Client::connect(&server);
    client.say("set v 0 0 16000\r\n");
    client.say(vec![b'v'; 16_000]);
    client.ask("\r\n", "STORED\r\n");
    let mut slow: Vec<_> = (0..10).map(|_| Client::connect(&server)).collect();
    for slow in &mut slow {
        slow.say(format!("get{}\r\n", " v".repeat(1000)).repeat(5));
    }
    wait_until("a slow reader is dropped", || client.stats("")["response_obj_oom"] != "0");
}

#[test]
fn unfinished_commands_are_bounded_over_all_connections() {
    let server = start(Settings { input_len_max: 1 << 20, ..settings() });
    let mut slow: Vec<_> = (0..4).map(|_| Client::connect(&server)).collect();
    for slow in &mut slow {
        slow.say("set k 0 0 500000\r\n");
        // The last ones may be cut off while they write.
        let _ = slow.stream.write_all(&vec![b'x'; 400_000]);
    }
    let mut client = Client::connect(&server);
    wait_until("one is refused", || client.stats("")["read_buf_oom"] != "0");
    client.ask("get k\r\n", "END\r\n");
    // The refused ones are told, the rest of their values is passed over, and they go on.
    let mut stored = 0;
    for slow in &mut slow {
        slow.say(vec![b'x'; 100_000]);
        slow.say("\r\nmn\r\n");
        let said = slow.read_to("MN\r\n");
        assert!(
            said == "STORED\r\nMN\r\n" || said == "SERVER_ERROR out of memory storing object\r\nMN\r\n",
            "{said:?}"
        );
        stored += usize::from(said.starts_with("STORED"));
    }
    assert!((1..4).contains(&stored), "{stored} of 4 were stored");
    assert_ne!(client.stats("")["store_no_memory"], "0");
}

#[test]
fn what_is_no_value_and_finds_no_memory_is_told_and_closed() {
    let server = start(Settings { input_len_max: 64 << 10, ..settings() });
    let mut client = Client::connect(&server);
    // It may be cut off while it writes.
    let _ = client.stream.write_all(&[b"get".as_slice(), &b" key".repeat(50_000)].concat());
    assert!(client.read_to("\r\n").starts_with("SERVER_ERROR out of memory reading request"));
    client.expect_closed();
}

#[test]
fn a_refusal_finds_the_value_behind_other_commands() {
    let server = start(Settings { input_len_max: 32 << 10, ..settings() });
    for before in ["version\r\n".to_owned(), "mn\r\n".repeat(3_000)] {
        let mut client = Client::connect(&server);
        client.say([before.as_bytes(), b"set k 0 0 60000\r\n", &[b'x'; 50_000]].concat());
        let answers = if before.starts_with('v') { "VERSION 1.6.18\r\n".to_owned() } else { "MN\r\n".repeat(3_000) };
        client.expect(answers);
        client.expect("SERVER_ERROR out of memory storing object\r\n");
        client.say([&[b'x'; 10_000], b"\r\nmn\r\n".as_slice()].concat());
        client.expect("MN\r\n");
    }
}

#[test]
fn a_service_lends_memory_for_what_is_still_arriving() {
    let reference = Arc::new(Reference::default());
    reference.lendable.store(1 << 20, SeqCst);
    let settings = Settings { input_len_max: 64 << 10, ..settings() };
    let server = start_with(settings, Immediate(Arc::clone(&reference)));
    let mut client = Client::connect(&server);
    for _ in 0..3 {
        client.say("set k 0 0 600000\r\n");
        client.say(vec![b'x'; 600_000]);
        client.ask("\r\n", "STORED\r\n");
        wait_until("all is given back", || reference.lendable.load(SeqCst) == 1 << 20);
    }
    assert_eq!(client.stats("")["read_buf_oom"], "0");
    client.say("set k 0 0 700000\r\n");
    client.say(vec![b'x'; 300_000]);
    wait_until("memory is lent", || reference.lendable.load(SeqCst) < 1 << 20);
    drop(client);
    wait_until("a lost connection gives back", || reference.lendable.load(SeqCst) == 1 << 20);
}

/// Half-sent large values used to fill the bound, and then whoever's small set came in two parts was closed.
#[test]
fn a_small_command_in_two_parts_survives_full_buffers() {
    let server = start(Settings { input_len_max: 64 << 10, ..settings() });
    let mut holder = Client::connect(&server);
    holder.say("set k 0 0 500000\r\n");
    holder.say(vec![b'x'; 60_000]);
    let mut client = Client::connect(&server);
    wait_until("the bound is nearly reached", || {
        client.stats("")["read_buf_bytes"].parse::<usize>().expect("a number") > (64 << 10) + 60_000
    });
    for _ in 0..20 {
        client.say("set small 0 0 2000\r\n");
        client.say(vec![b's'; 1_000]);
        // The answer to another connection's request shows that the first half has been read.
        Client::connect(&server).ask("mn\r\n", "MN\r\n");
        client.say(vec![b's'; 1_000]);
        client.ask("\r\n", "STORED\r\n");
    }
}

#[test]
fn silence_is_ended_after_the_idle_timeout() {
    let timeout = std::time::Duration::from_millis(300);
    let server = start(Settings { idle_timeout: Some(timeout), ..settings() });
    let mut silent = Client::connect(&server);
    silent.ask("mn\r\n", "MN\r\n");
    silent.expect_closed();
    let mut client = Client::connect(&server);
    assert_eq!(client.stats("")["idle_kicks"], "1");
}

#[test]
fn one_too_many_is_told_and_closed() {
    let server = start(Settings { connections_max: 2, ..settings() });
    let mut first = Client::connect(&server);
    first.ask("mn\r\n", "MN\r\n");
    let mut second = Client::connect(&server);
    second.ask("mn\r\n", "MN\r\n");
    let mut third = Client::connect(&server);
    third.expect("ERROR Too many open connections\r\n");
    third.expect_closed();
    assert_eq!(first.stats("")["rejected_connections"], "1");
    drop(second);
    wait_until("there is room again", || first.stats("")["curr_connections"] == "1");
    Client::connect(&server).ask("mn\r\n", "MN\r\n");
}

#[test]
fn without_maxconns_fast_one_too_many_waits() {
    let server = start(Settings { connections_max: 1, connections_max_fast: false, ..settings() });
    let mut first = Client::connect(&server);
    first.ask("mn\r\n", "MN\r\n");
    let mut second = Client::connect(&server);
    second.say("mn\r\n");
    wait_until("the listener pauses", || first.stats("")["listen_disabled_num"] == "1");
    assert_eq!(first.stats("")["accepting_conns"], "0");
    drop(first);
    second.expect("MN\r\n");
}

#[test]
fn garbage_hurts_nobody_else() {
    let server = start(settings());
    let mut good = Client::connect(&server);
    good.ask("set a 0 0 1\r\n1\r\n", "STORED\r\n");
    for garbage in [
        &b"\x80\x00\x00\x00\x00\x00\x00\x00"[..],
        b"get \r\n\r\n\n\n",
        b"set a 0 0 18446744073709551615\r\n",
        b"set a 0 0 -1\r\nxx\r\n",
        &[b'x'; 100_000],
        &[b'\n'; 100_000],
        &[0; 5000],
        b"get a a a a",
    ] {
        let mut bad = Client::connect(&server);
        let _ = bad.stream.write_all(garbage);
        let _ = bad.stream.shutdown(std::net::Shutdown::Write);
        bad.read_all();
        good.ask("get a\r\n", "VALUE a 0 1\r\n1\r\nEND\r\n");
    }
}

#[test]
fn quit_and_half_close_end_a_connection_after_its_answers() {
    let server = start(settings());
    let mut client = Client::connect(&server);
    client.say("set a 0 0 1\r\n1\r\nget a\r\nquit\r\nget a\r\n");
    client.expect("STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n");
    client.expect_closed();
    let mut client = Client::connect(&server);
    client.say("get a\r\n".repeat(10_000));
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    client.expect("VALUE a 0 1\r\n1\r\nEND\r\n".repeat(10_000));
    client.expect_closed();
}
