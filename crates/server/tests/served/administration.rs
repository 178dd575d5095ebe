//! Commands about the server: stats, dumps, watchers, limits, and its end.

use std::net::TcpStream;
use std::sync::Arc;

use guira_item::Immediate;
use guira_server::Settings;

use crate::support::client::Client;
use crate::support::reference::Reference;
use crate::support::{settings, start, start_with, wait_until};

#[test]
fn stats_have_memcacheds_names() {
    let server = start(settings());
    let mut client = Client::connect(&server);
    client.ask("set a 0 0 1\r\n1\r\nget a b\r\n", "STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n");
    let stats = client.stats("");
    for (name, value) in [
        ("version", "1.6.18"),
        ("pointer_size", "64"),
        ("cmd_get", "2"),
        ("cmd_set", "1"),
        ("get_hits", "1"),
        ("get_misses", "1"),
        ("curr_connections", "1"),
        ("curr_items", "1"),
        ("threads", "2"),
        ("accepting_conns", "1"),
    ] {
        assert_eq!(stats[name], value, "{name}");
    }
    assert_eq!(client.stats("settings")["maxconns"], "1024");
    assert_eq!(client.stats("items")["items:1:number"], "1");
    assert_eq!(client.stats("slabs")["1:chunk_size"], "96");
    client.ask("stats reset\r\n", "RESET\r\n");
    assert_eq!(client.stats("")["cmd_get"], "0");
    client.ask("stats sizes\r\n", "STAT sizes_status disabled\r\nEND\r\n");
    client.ask("stats sizes_enable\r\n", "STAT sizes_status enabled\r\n");
    client.ask("set big 0 0 62\r\n".to_owned() + &"b".repeat(62) + "\r\n", "STORED\r\n");
    client.ask("stats sizes\r\n", "STAT 32 1\r\nSTAT 96 1\r\nEND\r\n");
    assert_eq!(client.stats("settings")["track_sizes"], "yes");
    client.ask("stats sizes_disable\r\n", "STAT sizes_status disabled\r\n");
    client.ask("stats detail on\r\nstats detail dump\r\n", "OK\r\nEND\r\n");
    client.ask("set user:1 0 0 1\r\n1\r\nset user:2 0 0 1\r\n2\r\n", "STORED\r\nSTORED\r\n");
    client.ask("get user:1 user:3 none\r\n", "VALUE user:1 0 1\r\n1\r\nEND\r\n");
    client.ask("delete user:1\r\ndelete page:9\r\n", "DELETED\r\nNOT_FOUND\r\n");
    let dumped = "PREFIX page get 0 hit 0 set 0 del 1\r\nPREFIX user get 2 hit 1 set 2 del 1\r\nEND\r\n";
    client.ask(
        "stats detail off\r\nget user:2\r\nstats detail dump\r\n",
        format!("OK\r\nVALUE user:2 0 1\r\n2\r\nEND\r\n{dumped}"),
    );
    client.ask("stats reset\r\nstats detail dump\r\n", "RESET\r\nEND\r\n");
    client.ask("stats nonsense\r\n", "ERROR\r\n");
}

#[test]
fn commands_are_counted_by_class() {
    let server = start(settings());
    let mut clients = [Client::connect(&server), Client::connect(&server)];
    let counts = |client: &mut Client<TcpStream>| {
        let stats = client.stats("slabs");
        let names =
            ["get_hits", "cmd_set", "delete_hits", "incr_hits", "decr_hits", "cas_hits", "cas_badval", "touch_hits"];
        names.map(|name| stats[&format!("1:{name}")].parse::<u32>().unwrap())
    };
    // The clients are different workers', whose counts are added up.
    for client in &mut clients {
        client.ask("set a 0 0 1\r\n1\r\n", "STORED\r\n");
        client.ask("get a a none\r\n", "VALUE a 0 1\r\n1\r\nVALUE a 0 1\r\n1\r\nEND\r\n");
        client.ask("mg a v\r\nmg none v\r\nme a\r\n", "VA 1\r\n1\r\nEN\r\nME a exp=-1 la=");
        client.read_to("\r\n");
        client.ask("incr a 1\r\ndecr a 1\r\ndecr none 1\r\n", "2\r\n1\r\nNOT_FOUND\r\n");
        client.ask("touch a 0\r\ngat 0 a\r\n", "TOUCHED\r\nVALUE a 0 1\r\n1\r\nEND\r\n");
        client.ask("cas a 0 0 1 999999\r\n1\r\nadd a 0 0 1\r\n1\r\n", "EXISTS\r\nNOT_STORED\r\n");
        client.ask("delete a\r\ndelete a\r\nset a 0 0 1\r\n1\r\n", "DELETED\r\nNOT_FOUND\r\nSTORED\r\n");
    }
    let [client, _] = &mut clients;
    assert_eq!(counts(client), [6, 8, 2, 2, 2, 0, 2, 4]);
    assert_eq!(client.stats("items")["items:1:hits_to_cold"], "6");
    client.ask("stats reset\r\nget a\r\n", "RESET\r\nVALUE a 0 1\r\n1\r\nEND\r\n");
    assert_eq!(counts(client), [1, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn stats_conns_lists_everyone() {
    let server = start(settings());
    let mut clients: Vec<_> = (0..5).map(|_| Client::connect(&server)).collect();
    for client in &mut clients {
        client.ask("mn\r\n", "MN\r\n");
    }
    clients[0].say("stats conns\r\nmn\r\n");
    let text = clients[0].read_to("END\r\n");
    clients[0].expect("MN\r\n");
    for client in &clients {
        let local = client.stream.local_addr().unwrap();
        assert!(text.contains(&format!(":addr tcp:{local}\r\n")), "{text}");
    }
    assert_eq!(text.matches(":listen_addr").count(), 5);
    assert_eq!(text.matches("conn_listening").count(), 1);
}

#[test]
fn a_metadump_shows_every_item_and_the_pipeline_goes_on() {
    let server = start(settings());
    let mut client = Client::connect(&server);
    let count = 10_000;
    let sets: String = (0..count).map(|n| format!("set key%{n} 0 100 1 noreply\r\n1\r\n")).collect();
    client.say(sets);
    client.say("lru_crawler metadump all\r\nmn\r\n");
    let text = client.read_to("END\r\n");
    client.expect("MN\r\n");
    assert_eq!(text.lines().count(), count + 1);
    let line = text.lines().find(|line| line.starts_with("key=key%2577 ")).unwrap();
    assert!(line.contains(" exp=") && line.ends_with("fetch=no cls=1 size=7"), "{line}");
    client.ask("lru_crawler metadump 7\r\n", "END\r\n");
    client.say("lru_crawler metadump 7,,1,\r\n");
    assert_eq!(client.read_to("END\r\n").lines().count(), count + 1, "an empty place in a list names nothing");
    client.ask("lru_crawler disable\r\n", "OK\r\n");
    client.ask("lru_crawler metadump all\r\n", "CLIENT_ERROR lru crawler disabled\r\n");
    client.ask("lru_crawler crawl all\r\n", "CLIENT_ERROR lru crawler disabled\r\n");
    client.ask("lru_crawler enable\r\nlru_crawler crawl all\r\n", "OK\r\nOK\r\n");
    client.say("stats cachedump 1 3\r\n");
    assert_eq!(client.read_to("END\r\n").matches(" [1 b; ").count(), 3);
}

#[test]
fn a_watcher_sees_reads_writes_evictions_and_connections() {
    let engine = Arc::new(Reference::default());
    let server = start_with(settings(), Immediate(Arc::clone(&engine)));
    let mut watcher = Client::connect(&server);
    watcher.ask("watch fetchers mutations evictions connevents\r\n", "OK\r\n");
    let mut client = Client::connect(&server);
    client.ask("set a,b 0 60 1\r\n1\r\nget a,b c\r\n", "STORED\r\nVALUE a,b 0 1\r\n1\r\nEND\r\n");
    let port = client.stream.local_addr().unwrap().port();
    watcher.read_to(&format!("type=conn_new rip=127.0.0.1 rport={port} transport=tcp cfd="));
    watcher.read_to("type=item_get key=a%2Cb status=not_found clsid=0 cfd=");
    watcher.read_to("type=item_store key=a%2Cb status=stored cmd=set ttl=60 clsid=1 cfd=");
    watcher.read_to("type=item_get key=a%2Cb status=found clsid=1 cfd=");
    watcher.read_to("type=item_get key=c status=not_found clsid=0 cfd=");
    client.ask("set dead 0 -1 1\r\n1\r\nget dead\r\n", "STORED\r\nEND\r\n");
    watcher.read_to("type=item_get key=dead status=expired clsid=0 cfd=");
    engine.evict(b"a,b");
    watcher.read_to("type=eviction key=a%2Cb fetch=yes ttl=60 la=0 clsid=1 size=1\n");
    drop(client);
    watcher.read_to(&format!("type=conn_close rip=127.0.0.1 rport={port} transport=tcp reason=normal cfd="));
    assert_eq!(Client::connect(&server).stats("")["log_watchers"], "1");
    drop(watcher);
    wait_until("the log is off again", || !engine.is_logging_evictions());
}

#[test]
fn a_watcher_that_does_not_read_loses_lines_and_hinders_nobody() {
    let server = start(Settings { watcher_queue_len_max: 1000, ..settings() });
    let mut watcher = Client::connect(&server);
    watcher.ask("watch fetchers\r\n", "OK\r\n");
    let mut client = Client::connect(&server);
    wait_until("lines are dropped", || {
        client.ask("get a\r\n".repeat(1000), "END\r\n".repeat(1000));
        client.stats("")["log_watcher_skipped"] != "0"
    });
}

#[test]
fn settings_change_on_command() {
    let levels = Arc::new(std::sync::Mutex::new(Vec::new()));
    let heard = Arc::clone(&levels);
    let server =
        start(Settings { on_verbosity: Some(Arc::new(move |level| heard.lock().unwrap().push(level))), ..settings() });
    let mut client = Client::connect(&server);
    client.ask("verbosity 2\r\n", "OK\r\n");
    assert_eq!(*levels.lock().unwrap(), [2]);
    client.ask("cache_memlimit 32\r\n", "OK\r\n");
    let refusal = "MEMLIMIT_ADJUST_FAILED at most the 64m of -m: restart with a larger one\r\n";
    client.ask("cache_memlimit 100\r\n", refusal);
    client.ask("set a 0 0 1\r\n1\r\nflush_all\r\nget a\r\n", "STORED\r\nOK\r\nEND\r\n");
    client.ask("set a 0 0 1\r\n1\r\nflush_all 1000 noreply\r\nget a\r\n", "STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n");
    assert_eq!(client.stats("")["cmd_flush"], "2");
    for accepted in ["slabs automove 1\r\n", "lru mode flat\r\n", "lru_crawler sleep 100\r\n"] {
        client.ask(accepted, "OK\r\n");
    }
}

#[test]
fn shutdown_only_where_it_is_allowed() {
    let server = start(settings());
    Client::connect(&server).ask("shutdown\r\n", "ERROR: shutdown not enabled\r\n");
    let mut settings = settings();
    settings.protocol.shutdown_enabled = true;
    let server = start(settings);
    let mut client = Client::connect(&server);
    client.say("shutdown\r\n");
    client.expect_closed();
    server.join().unwrap();
}

#[test]
fn a_graceful_stop_answers_what_was_sent() {
    let server = start(settings());
    let mut idle = Client::connect(&server);
    idle.ask("mn\r\n", "MN\r\n");
    let mut busy = Client::connect(&server);
    busy.say("set v 0 0 100000\r\n");
    busy.say(vec![b'v'; 100_000]);
    busy.ask("\r\n", "STORED\r\n");
    busy.say("get v\r\n".repeat(200));
    // The first byte of the answers shows that the commands have been read.
    busy.expect("V");
    let address = server.tcp_addresses()[0];
    server.stopper().stop_gracefully();
    idle.expect_closed();
    let rest = busy.read_all();
    assert_eq!(rest.len(), 200 * (18 + 100_000 + 7) - 1);
    server.join().unwrap();
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[test]
fn an_immediate_stop_does_not_wait() {
    let server = start(settings());
    let mut client = Client::connect(&server);
    client.ask("mn\r\n", "MN\r\n");
    server.stopper().stop_now();
    server.join().unwrap();
    client.expect_closed();
}

#[test]
fn the_janitor_maintains_the_service() {
    let engine = Arc::new(Reference::default());
    let _server = start_with(settings(), Immediate(Arc::clone(&engine)));
    wait_until("some rounds", || engine.maintained.load(std::sync::atomic::Ordering::Relaxed) > 2);
}
