//! Commands about the server, asked of Guira and of Debian's memcached: counters by slab class, dumps, logs, and the lines
//! that refuse.

use std::collections::BTreeMap;

use crate::{
    condition::wait_for,
    connection::{Connection, Heard},
    server::{Program, Server},
};

const BOTH: [Program; 2] = [Program::Guira, Program::Memcached];

/// Commands of every kind that touches an item, and what ends the answers to them.
const EVERY_KIND: &str = "set w 0 0 3\r\nabc\r\nget w w\r\nget nope\r\nincr w 1\r\nset n 5 1000 1\r\n8\r\nincr n 1\r\n\
    decr n 1\r\nincr none 1\r\ndecr none 1\r\ntouch n 1000\r\ntouch none 0\r\ndelete n\r\ndelete none\r\n\
    gat 1000 w\r\ngat 10 none\r\nadd w 0 0 1\r\nx\r\nadd w2 0 0 1\r\nx\r\nreplace w9 0 0 1\r\nx\r\n\
    replace w 0 0 1\r\nx\r\nappend w 0 0 2\r\nyy\r\nprepend w9 0 0 1\r\nz\r\ncas w 0 0 1 7777777\r\nq\r\n\
    cas w9 0 0 1 7777777\r\nq\r\nmg w v\r\nmg w s\r\nmg none v\r\nmg viv N1000 v\r\nmg viv v\r\nms m 2 T1000\r\nab\r\n\
    ms m 1 MA\r\nc\r\nms m 1 C7777777\r\nd\r\nmg m T1000\r\nmd m C7777777\r\nmd m I\r\nmd m\r\nmd m\r\n\
    ma num N0 J13 v\r\nma num v\r\nma none\r\nma num MD\r\nme num\r\nme none\r\nmn\r\n";

pub(crate) fn stats(client: &mut Connection, what: &str) -> Vec<(String, String)> {
    let text = client.ask(format!("stats {what}\r\n").as_bytes(), b"END\r\n");
    let text = String::from_utf8(text).expect("text");
    let row = |line: &str| line.strip_prefix("STAT ")?.split_once(' ').map(|(name, value)| (name.into(), value.into()));
    text.lines().filter_map(row).collect()
}

/// The counters of all classes added up.
fn counted_by_class(client: &mut Connection) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for (name, value) in stats(client, "slabs") {
        if let Some((_, name)) = name.split_once(':')
            && ["_hits", "_set", "_badval"].iter().any(|end| name.ends_with(end))
        {
            *sums.entry(name.to_owned()).or_default() += value.parse::<u64>().expect("a count");
        }
    }
    sums
}

#[test]
fn commands_are_counted_by_class_as_memcached_does() {
    let counts = BOTH.map(|program| {
        let server = Server::start(program, &[]);
        let mut client = server.connect();
        client.ask(EVERY_KIND.as_bytes(), b"MN\r\n");
        let item = String::from_utf8(client.ask(b"gets w\r\n", b"END\r\n")).unwrap();
        let version = item.lines().next().unwrap().rsplit(' ').next().unwrap();
        client.expect(format!("cas w 0 0 1 {version}\r\nv\r\n").as_bytes(), b"STORED\r\n");
        let all = counted_by_class(&mut client);
        client.expect(b"stats reset\r\n", b"RESET\r\n");
        (all, counted_by_class(&mut client))
    });
    assert_eq!(counts[0], counts[1]);
    let (all, after_reset) = &counts[0];
    assert!(all.values().all(|count| *count > 0), "{all:?}");
    assert!(after_reset.values().all(|count| *count == 0), "{after_reset:?}");
}

/// The names of `stats`, and sums over the classes of those of `stats items`.
fn counted(client: &mut Connection) -> BTreeMap<String, u64> {
    let text = String::from_utf8(client.ask(b"stats\r\nstats items\r\nmn\r\n", b"MN\r\n")).expect("text");
    let mut sums = BTreeMap::new();
    for row in text.lines().filter_map(|line| line.strip_prefix("STAT ")) {
        let (name, value) = row.split_once(' ').expect("a value");
        let name = name.rsplit_once(':').map_or(name.to_owned(), |(_, of_class)| format!("items: {of_class}"));
        *sums.entry(name).or_default() += value.parse::<u64>().unwrap_or(0);
    }
    sums
}

#[test]
fn evictions_and_what_else_the_engine_counts_start_again_after_a_reset() {
    let counts = BOTH.map(|program| {
        let server = Server::start(program, &["-m", "8"]);
        let mut client = server.connect();
        let value = "x".repeat(1000);
        let sets: String = (0..20_000).map(|n| format!("set key{n} 0 0 1000 noreply\r\n{value}\r\n")).collect();
        let heard = client.converse(format!("{sets}set past 0 -1 1\r\nx\r\nget past\r\nmn\r\n").as_bytes(), b"MN\r\n");
        assert!(matches!(heard, Heard::Answer(_)), "{program:?} said {heard:?}");
        let before = counted(&mut client);
        client.expect(b"stats reset\r\n", b"RESET\r\n");
        (before, counted(&mut client))
    });
    for (before, after) in &counts {
        for name in ["evictions", "evicted_unfetched", "total_items", "items: evicted", "items: evicted_unfetched"] {
            assert!(before[name] > 0, "{name} of {before:?}");
            assert_eq!(after[name], 0, "{name}");
        }
        let others = ["reclaimed", "expired_unfetched", "malloc_fails", "slabs_moved", "items: outofmemory"];
        for name in others.into_iter().chain(["total_connections", "time_in_listen_disabled_us", "lru_crawler_starts"])
        {
            assert_eq!(after[name], 0, "{name}");
        }
    }
}

#[test]
fn items_of_different_sizes_are_counted_apart() {
    let server = Server::start(Program::Guira, &[]);
    let mut client = server.connect();
    for len in [200, 1000, 100_000] {
        let set = format!("set k{len} 0 0 {len}\r\n{}\r\n", "x".repeat(len));
        client.expect(set.as_bytes(), b"STORED\r\n");
        client.ask(format!("get k{len}\r\nmg k{len} s v\r\nmn\r\n").as_bytes(), b"MN\r\n");
    }
    let stats = stats(&mut client, "slabs");
    for len in [200, 1000, 100_000] {
        let line = String::from_utf8(client.ask(format!("me k{len}\r\n").as_bytes(), b"\r\n")).unwrap();
        let class = line.split_whitespace().find_map(|word| word.strip_prefix("cls=")).unwrap();
        for (name, count) in [("cmd_set", "1"), ("get_hits", "2"), ("touch_hits", "0")] {
            let row = (format!("{class}:{name}"), count.to_owned());
            assert!(stats.contains(&row), "{row:?}, for {len} bytes, is not in {stats:?}");
        }
    }
}

#[test]
fn a_cachedump_tells_the_lengths_of_values() {
    let dumps = BOTH.map(|program| {
        // memcached dumps one of its LRUs: with a maintainer, items come there when it gets to them.
        let server = Server::start(program, &["-o", "no_lru_maintainer"]);
        let mut client = server.connect();
        for len in [0, 1, 100, 5000, 50_000] {
            let set = format!("set key{len} 7 0 {len}\r\n{}\r\n", "x".repeat(len));
            client.expect(set.as_bytes(), b"STORED\r\n");
        }
        let mut lines = Vec::new();
        for class in 1..64 {
            let text = client.ask(format!("stats cachedump {class} 0\r\n").as_bytes(), b"END\r\n");
            lines.extend(String::from_utf8(text).unwrap().lines().filter(|line| *line != "END").map(str::to_owned));
        }
        lines.sort();
        lines
    });
    assert_eq!(dumps[0], dumps[1]);
}

/// A log line without time, number and connection, and of its class only whether there is one.
fn essence(line: &str) -> String {
    let words = line.split(' ').filter(|word| !["ts=", "gid=", "cfd="].iter().any(|name| word.starts_with(name)));
    let words = words.map(|word| match word.strip_prefix("clsid=") {
        Some("0") | None => word,
        Some(_) => "clsid=some",
    });
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn a_watcher_is_told_what_memcached_tells() {
    let logs = BOTH.map(|program| {
        let server = Server::start(program, &[]);
        let mut watcher = server.connect();
        watcher.expect(b"watch fetchers mutations\r\n", b"OK\r\n");
        let mut client = server.connect();
        client.ask(EVERY_KIND.as_bytes(), b"MN\r\n");
        client.ask(b"get the-last\r\n", b"END\r\n");
        let Heard::Answer(log) = watcher.hear(b"size=0\n") else { panic!("{program:?} logs nothing") };
        let mut log = String::from_utf8(log).unwrap();
        while !log.contains("key=the-last ") {
            let Heard::Answer(more) = watcher.hear(b"size=0\n") else { panic!("{program:?} stopped after {log}") };
            log.push_str(std::str::from_utf8(&more).unwrap());
        }
        log.lines().map(essence).collect::<Vec<_>>()
    });
    for (number, (guira, memcached)) in logs[0].iter().zip(&logs[1]).enumerate() {
        assert_eq!(guira, memcached, "line {number}");
    }
    assert_eq!(logs[0].len(), logs[1].len());
}

#[test]
fn what_lies_in_memory_dead_is_told_from_what_was_never_there() {
    // Every kind of command that looks for an item; the second get finds that the first has taken it away.
    const COMMANDS: [&str; 12] = [
        "get k\r\nget k",
        "mg k v",
        "gat 0 k",
        "touch k 0",
        "mg k N0 v",
        "incr k 1",
        "delete k",
        "set k 0 0 1\r\ny",
        "add k 0 0 1\r\ny",
        "append k 0 0 1\r\ny",
        "ma k N0",
        "me k",
    ];
    for (exptime, flush, counts) in [(-1, "", (12, 0)), (0, "flush_all\r\n", (0, 12))] {
        let look = |program| {
            // memcached then looks for dead items in a size class only when it stores one there: the values are of another
            // class than those that the commands store. Guira looks from time to time: if that was in between, once more.
            let guira = program == Program::Guira;
            let server = Server::start(program, if guira { &[] } else { &["-o", "no_lru_maintainer,no_lru_crawler"] });
            let mut watcher = server.connect();
            watcher.expect(b"watch fetchers\r\n", b"OK\r\n");
            let mut client = server.connect();
            let set = format!("set k 0 {exptime} 500 noreply\r\n{}\r\n", "v".repeat(500));
            let all: String = COMMANDS.iter().map(|command| format!("{set}{flush}{command}\r\ndelete k\r\n")).collect();
            client.ask(format!("{all}get the-last\r\nmn\r\n").as_bytes(), b"MN\r\n");
            let mut log = String::new();
            while !log.contains("key=the-last ") {
                let Heard::Answer(more) = watcher.hear(b"\n") else { panic!("{program:?} stopped after {log}") };
                log.push_str(std::str::from_utf8(&more).unwrap());
            }
            let counts = counted(&mut client);
            let seen = (log.lines().map(essence).collect::<Vec<_>>(), (counts["get_expired"], counts["get_flushed"]));
            (counts["crawler_reclaimed"] == 0).then_some(seen)
        };
        let seen = BOTH.map(|program| wait_for("nobody else finds the dead", || look(program)));
        assert_eq!(seen[0], seen[1]);
        assert_eq!(seen[0].1, counts);
    }
}

#[test]
fn commands_about_the_server_answer_alike() {
    let answers = BOTH.map(|program| {
        let server = Server::start(program, &[]);
        let mut client = server.connect();
        [
            "slabs reassign 1 1",
            "slabs reassign 0 0",
            "slabs reassign -1 -1",
            "slabs reassign -1 5",
            "slabs reassign -2 1",
            "slabs reassign 1 -1",
            "slabs reassign 300 1",
            "slabs reassign 1 300",
            "slabs reassign 1 2",
            "slabs reassign 1 0",
            "slabs reassign a b",
            "slabs reassign 1",
            "slabs reassign 1 2 3",
            "refresh_certs",
            "refresh_certs x",
            "stats sizes",
            "stats sizes_enable",
            "stats sizes_disable",
            "stats sizes",
            "ms YWI= 1 b\r\nx",
            "mg YWI= k b",
            "cache_memlimit 32",
            "cache_memlimit 64",
            "cache_memlimit 7",
            "cache_memlimit x",
            "cache_memlimit 4000000000",
        ]
        .map(|command| {
            let answer = client.ask(format!("{command}\r\nmn\r\n").as_bytes(), b"MN\r\n");
            format!("{command}: {}", answer.escape_ascii())
        })
    });
    assert_eq!(answers[0], answers[1]);
}

#[test]
fn the_sizes_of_items_are_told_once_asked_for() {
    let answers = BOTH.map(|program| {
        let server = Server::start(program, &["-o", "track_sizes"]);
        let mut client = server.connect();
        for len in [1, 1, 1000] {
            let set = format!("set sized{len} 0 0 {len}\r\n{}\r\n", "x".repeat(len));
            client.expect(set.as_bytes(), b"STORED\r\n");
        }
        let sizes = stats(&mut client, "sizes");
        assert!(sizes.iter().all(|(size, _)| size.parse::<u32>().unwrap().is_multiple_of(32)), "{sizes:?}");
        sizes.into_iter().map(|(_, items)| items).collect::<Vec<_>>()
    });
    assert_eq!(answers[0], answers[1]);
}

#[test]
fn more_memory_than_at_the_start_is_refused_with_a_reason() {
    if Program::Guira.is_memcached() {
        return;
    }
    let server = Server::start(Program::Guira, &[]);
    let mut client = server.connect();
    let refusal = b"MEMLIMIT_ADJUST_FAILED at most the 64m of -m: restart with a larger one\r\n";
    client.expect(b"cache_memlimit 65\r\n", refusal);
}

/// The class with the most pages, and how many.
fn largest_class(client: &mut Connection) -> (u32, u64) {
    let pages = stats(client, "slabs").into_iter().filter_map(|(name, value)| {
        let class = name.strip_suffix(":total_pages")?.parse().ok()?;
        Some((class, value.parse().expect("a number of pages")))
    });
    pages.max_by_key(|(_, pages)| *pages).expect("a class")
}

#[test]
fn a_page_moves_when_it_is_told_to() {
    for program in BOTH {
        let server = Server::start(program, &["-m", "8", "-o", "no_slab_automove"]);
        let mut client = server.connect();
        let value = "x".repeat(1000);
        let sets: String = (0..20_000).map(|n| format!("set key{n} 0 0 1000 noreply\r\n{value}\r\n")).collect();
        let heard = client.converse(format!("{sets}set other 0 0 1\r\nx\r\nmn\r\n").as_bytes(), b"MN\r\n");
        assert!(matches!(heard, Heard::Answer(_)), "{program:?} said {heard:?}");
        let other = stats(&mut client, "slabs")[0].0.split(':').next().unwrap().to_owned();
        let (full, pages_before) = largest_class(&mut client);
        client.expect(format!("slabs reassign {full} {other}\r\n").as_bytes(), b"OK\r\n");
        let has_pages = |client: &mut Connection, of_other: u64, of_full: u64| {
            let stats = stats(client, "slabs");
            let has = |class: &str, count: u64| stats.contains(&(format!("{class}:total_pages"), count.to_string()));
            (has(&other, of_other) && has(&full.to_string(), of_full)).then_some(())
        };
        wait_for("the page has moved", || has_pages(&mut client, 2, pages_before - 1));
        wait_for("none is to spare", || {
            let answer = client.ask(format!("slabs reassign {other} {full}\r\n").as_bytes(), b"\r\n");
            (answer == b"NOSPARE source class has no spare pages\r\n").then_some(())
        });
        wait_for("it has gone back", || has_pages(&mut client, 1, pages_before));
        let moved = stats(&mut client, "").into_iter().find(|(name, _)| name == "slabs_moved").expect("is there").1;
        assert!(moved.parse::<u64>().expect("a number") >= 2, "{moved}");
    }
}
