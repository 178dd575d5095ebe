//! What a cluster's file may say, and what it is told that it may not.

use std::{net::SocketAddr, num::NonZero, time::Duration};

use guira_cluster::{Incarnation, MembersError, NodeClock};
use guira_item::Moment;

use super::*;

const SMALL: &str = r#"
        secret = "0123456789abcdef"
        [[member]]
        id = 1
        role = "controller"
        address = "127.0.0.1:7001"
        [[member]]
        id = 100
        role = "cache"
        address = "127.0.0.1:7002"
        [[member]]
        id = 1000
        role = "backend"
        address = "127.0.0.1:7003"
        cache = 100
        [[member]]
        id = 10000
        role = "gateway"
        address = "127.0.0.1:7004"
        listen = "127.0.0.1:11211"
    "#;

#[test]
fn what_is_printed_is_read_again() {
    let file = StaticFile::parse(SMALL).expect("a cluster");
    assert_eq!(StaticFile::parse(&file.print().expect("it can be written")), Ok(file.clone()));
    let printed = file.print_without_secret().expect("it can be written");
    assert!(!printed.contains(&file.secret));
    assert_eq!(StaticFile::parse(&printed), Err(FileError::Secret.into()));
    assert_eq!(StaticFile::parse_with_secret(&printed, file.secret.clone()), Ok(file.clone()));
    assert_eq!((file.controller(), file.caches()), (NodeId(1), [NodeId(100)].into_iter().collect()));
    assert_eq!((file.backends(), file.gateways()), (vec![NodeId(1_000)], vec![NodeId(10_000)]));
    assert_eq!(file.members().map(|members| members.epoch()), Ok(EPOCH));
}

#[test]
fn how_much_is_reported_is_what_the_file_says() {
    let with = |lines: &str| StaticFile::parse(&format!("{lines}\n{SMALL}"));
    let hot = |file: &StaticFile| {
        let life =
            Life { incarnation: Incarnation(1), clock: NodeClock::set(Moment::default(), Duration::ZERO), seed: 1 };
        let hot = file.backend_config(NodeId(1_000), &file.shares().expect("a backend"), life).hot;
        (hot.reported, hot.sample_one_in)
    };
    let file = with("reported = 7\nsample_one_in = 10").expect("a cluster");
    assert_eq!(hot(&file), (7, 10));
    assert_eq!(StaticFile::parse(&file.print().expect("it can be written")), Ok(file));
    for refused in ["reported = 0", "reported = 41", "sample_one_in = 0", "sample_one_in = 1001"] {
        assert!(matches!(with(refused), Err(StaticFileError::File(FileError::Bounds(_)))), "{refused}");
    }
    // A build that does not know them reads what says nothing of them.
    let usual = with("").expect("a cluster");
    assert_eq!(hot(&usual), (5, 1));
    let printed = usual.print().expect("it can be written");
    assert!(!printed.contains("reported") && !printed.contains("sample_one_in"), "{printed}");
}

/// The cache nodes of backends, with those that there are.
fn spread(caches: &[u16], homes: &[Option<u16>]) -> Vec<Option<u16>> {
    spread_over(&caches.iter().map(|cache| (*cache, NonZero::<u16>::MIN)).collect::<Vec<_>>(), homes)
}

/// The same, with cache nodes of so many threads.
fn spread_over(caches: &[(u16, NonZero<u16>)], homes: &[Option<u16>]) -> Vec<Option<u16>> {
    let address: SocketAddr = "127.0.0.1:1".parse().unwrap();
    let cache = |(id, threads): &(u16, NonZero<u16>)| Member::new(*id, address, Role::Cache { threads: *threads });
    let backend = |(id, cache): (u16, &Option<u16>)| Member::new(id, address, Role::backend(*cache));
    let members = caches.iter().map(cache).chain((1_000..).zip(homes).map(backend)).collect();
    let mut file = StaticFile { members, ..StaticFile::default() };
    file.spread_homes();
    let of = |member: &Member| member.role.as_backend().map(|backend| backend.cache);
    file.members.iter().filter_map(of).collect()
}

#[test]
fn homes_are_spread_and_few_change() {
    let [a, b, c] = [1, 2, 3].map(Some);
    assert_eq!(spread(&[1, 2], &[a, b, a, b, a]), [a, b, a, b, a]);
    assert_eq!(spread(&[1, 2, 3], &[a, b, a, b, a, b]), [a, b, a, b, c, c]);
    assert_eq!(spread(&[1, 2, 3], &[b, b, b, b, a]), [b, b, a, c, a]);
    assert_eq!(spread(&[2], &[a, b, a, None]), [b; 4]);
    assert_eq!(spread(&[1, 2], &[None; 3]), [a, a, b]);
    assert_eq!(spread(&[], &[a, b, None]), [None; 3]);
}

#[test]
fn homes_are_spread_by_threads() {
    let [a, b] = [1, 10].map(Some);
    let spread = |threads: [u16; 2], homes: &[Option<u16>]| {
        let threads = threads.map(|threads| NonZero::new(threads).expect("not none"));
        spread_over(&[(1, threads[0]), (10, threads[1])], homes)
    };
    assert_eq!(spread([3, 1], &[None; 8]), [a, a, a, a, a, a, b, b]);
    assert_eq!(spread([1, 1], &[a, b, b, a, a]), [a, b, b, a, a]);
    // 3.75 and 1.25: who has more of one over has it, and few change.
    assert_eq!(spread([3, 1], &[b, b, a, a, a]), [b, a, a, a, a]);
    assert_eq!(spread([1, 4], &[None; 2]), [b, b]);
}

#[test]
fn a_cache_node_has_a_number_and_a_port_for_each_thread() {
    let with_threads =
        |threads: &str| SMALL.replace("role = \"cache\"", &format!("role = \"cache\"\nthreads = {threads}"));
    // With free ports behind its own.
    let with = |threads: &str| StaticFile::parse(&with_threads(threads).replace("7002", "7100"));
    let file = with("3").expect("a cluster");
    let caches = file.caches();
    assert_eq!((caches.len(), caches.parts_len(), file.backends().len()), (1, 3, 1));
    let [part, first] = [102, 100].map(NodeId);
    let members = file.members().expect("members");
    let port = |node| members.address(node).expect("a member").port();
    assert_eq!(port(part), port(first) + 2);
    let (shares, life) = (file.shares().expect("a backend"), Life::begin(None).expect("it only looks at clocks"));
    let config = |part| file.cache_config(part, &shares, life);
    for part in caches.parts() {
        assert_eq!((config(part).charge, config(part).me), (file.backends(), part), "all are in charge of the same");
    }
    assert_eq!((config(part).items_max, config(part).bytes_max), (3_334, (64 << 20) / 3));
    assert_eq!(with("1").expect("a cluster").caches(), [first].into_iter().collect());
    let text = file.print().expect("it can be written");
    assert_eq!(StaticFile::parse(&text), Ok(file));
    for threads in ["0", "-1", "65536", "\"four\""] {
        let told = with(threads).expect_err(threads);
        assert!(matches!(told, StaticFileError::File(FileError::Syntax(_))), "{told}");
    }
    assert_eq!(with("257"), Err(StaticFileError::Threads(100)));
    let taken = MembersError::SameAddress(([127, 0, 0, 1], 7_003).into());
    assert_eq!(StaticFile::parse(&with_threads("2")), Err(FileError::Members(taken).into()), "the backend is there");
    let backend = with_threads("2").replace("7002", "7100").replace("id = 1000\n", "id = 101\n");
    let taken = MembersError::SameNode(NodeId(101));
    assert_eq!(StaticFile::parse(&backend), Err(FileError::Members(taken).into()));
    for last in [
        with_threads("2").replace("id = 100\n", "id = 65535\n").replace("cache = 100", "cache = 65535"),
        with_threads("2").replace("7002", "65535"),
    ] {
        let told = StaticFile::parse(&last).expect_err("there is nothing behind it");
        assert!(matches!(told, StaticFileError::Threads(_)), "{told}");
    }
}

#[test]
fn who_is_leaving_is_to_have_nothing_where_that_may_be() {
    let backend = "[[member]]\nid = 1001\nrole = \"backend\"\naddress = \"127.0.0.1:7005\"\n";
    let file = StaticFile::parse(&format!("{SMALL}\n{backend}")).expect("a cluster");
    assert_eq!(file.wanted(), file.partitions());
    assert!(!file.print().expect("it can be written").contains("leaving"));
    let text = format!("{SMALL}\n{backend}leaving = true\n");
    assert_eq!(StaticFile::parse(&text), Err(StaticFileError::Leaves(1_001)));
    let file = StaticFile::parse_with_secret(&text, file.secret).expect("a cluster");
    assert_eq!(
        StaticFile::parse_with_secret(&file.print().expect("it can be written"), file.secret.clone()),
        Ok(file.clone())
    );
    assert_eq!((file.backends().len(), file.staying()), (2, vec![NodeId(1_000)]));
    assert_eq!(file.wanted(), Ok(PartitionMap::over(&[NodeId(1_000)]).expect("a map")));
    let text = text.replace("cache = 100", "leaving = true");
    assert_eq!(StaticFile::parse_with_secret(&text, file.secret), Err(StaticFileError::AllLeave));
}

/// Two backends before a Cassandra, and more that is said of members.
fn shared(more: &str) -> String {
    let backend = |id: u16, store: &str| {
        format!("[[member]]\nid = {id}\nrole = \"backend\"\naddress = \"127.0.0.1:{id}\"\nstore = \"{store}\"\n")
    };
    let first = SMALL.replace("cache = 100", "cache = 100\nstore = \"cassandra:h/a\"\nstore_limit = 9");
    [first, backend(1_001, "cassandra:h/b"), backend(1_002, "cassandra:h/a"), more.into()].concat()
}

fn kept(text: &str) -> Result<StaticFile, StaticFileError> {
    StaticFile::parse_with_secret(text, "0123456789abcdef".into())
}

#[test]
fn who_stands_by_has_nothing_until_it_has_anothers_place() {
    let text = shared("standby_of = 1000\n");
    assert_eq!(StaticFile::parse(&text), Err(StaticFileError::StandbyInFile(1_002)));
    let mut file = kept(&text).expect("a cluster");
    assert_eq!(kept(&file.print().expect("it can be written")), Ok(file.clone()));
    let [a, b, c] = [1_000, 1_001, 1_002].map(NodeId);
    assert_eq!((file.backends(), file.staying()), (vec![a, b], vec![a, b]));
    assert_eq!((file.standby_of(c), file.standby_of(a), file.standby_for(a)), (Some(a), None, Some(c)));
    assert_eq!(file.cache_of().keys().copied().collect::<Vec<_>>(), [a]);
    file.spread_homes();
    assert!(!file.cache_of().contains_key(&c));
    let before = file.wanted().expect("a map");
    for of in [a, b] {
        assert_eq!(file.take_place(of), Err(StandbyError::ForNobody));
    }
    assert_eq!(file.take_place(c), Ok(a));
    assert_eq!((file.backends(), file.standby_of(c), file.former[0].id), (vec![b, c], None, 1_000));
    let taken = file.member(c).and_then(|member| member.role.as_backend()).expect("a backend");
    assert_eq!((taken.cache, taken.store_limit, taken.place), (Some(100), Some(9), Some(1_000)));
    assert_eq!(file.take_place(c), Err(StandbyError::ForNobody));
    // Nothing moves.
    assert_eq!(file.wanted(), Ok(before.renamed(|node| if node == a { c } else { node })));
    assert_eq!(kept(&file.print().expect("it can be written")), Ok(file.clone()));
    assert!(StaticFile::parse(&file.print().expect("it can be written")).is_err());
    // The next one has the first one's place, too, and gives away what it was to give away.
    for member in file.members.iter_mut().filter(|member| member.id == 1_002) {
        member.role = Role::Backend(BackendRole { leaving: true, ..taken_of(member).clone() });
    }
    let role =
        Role::Backend(BackendRole { store: "cassandra:h/a".into(), standby_of: Some(1_002), ..BackendRole::default() });
    file.members.push(Member::new(1_003, "127.0.0.1:1003".parse().expect("one"), role));
    assert_eq!((file.check(), file.take_place(NodeId(1_003))), (Ok(()), Ok(c)));
    let last = taken_of(&file.members[file.members.len() - 1]);
    assert_eq!((last.place, last.leaving, file.staying()), (Some(1_000), true, vec![b]));
}

fn taken_of(member: &Member) -> &BackendRole {
    member.role.as_backend().expect("a backend")
}

#[test]
fn who_cannot_stand_by_is_told_why() {
    let told = |text: &str| kept(text).expect_err(text).to_string();
    let another = "[[member]]\nid = 1003\nrole = \"backend\"\naddress = \"127.0.0.1:9\"\nstore = \"cassandra:h/a\"\n";
    let two = shared(&format!("standby_of = 1000\n{another}standby_of = 1000\n"));
    for (text, says) in [
        (shared("standby_of = 7\n"), "member 1002: it is to stand by for member 7, which is no backend"),
        (shared("standby_of = 100\n"), "member 1002: it is to stand by for member 100, which is no backend"),
        (shared("standby_of = 1002\n"), "member 1002: it is to stand by for member 1002, which is no backend"),
        (
            shared("standby_of = 1001\n"),
            "member 1002: its store has to be written as that of member 1001: cassandra:h/b",
        ),
        (
            shared("standby_of = 1000\n").replace("cassandra:h/a", "rocksdb:/x"),
            "member 1002: the store of member 1000 is not another's",
        ),
        (shared("standby_of = 1000\nleaving = true\n"), "member 1002: who stands by has nothing"),
        (shared("standby_of = 1000\nplace = 7\n"), "member 1002: who stands by has nothing"),
        (two, "member 1003: member 1002 stands by for the same backend"),
        (shared(""), "member 1002: its store is that of member 1000: give each a keyspace of its own"),
        (
            shared("place = 1001\n").replace("h/a", "h/c").replacen("h/c", "h/a", 1),
            "backends: backend 1001 is there twice",
        ),
    ] {
        let line = told(&text);
        assert!(line.starts_with(says), "{line}");
    }
}

#[test]
fn what_is_no_cluster_is_said_in_a_line() {
    let told = |text: &str| StaticFile::parse(text).expect_err(text).to_string();
    let without = |from: &str, to: &str| SMALL.replace(from, to);
    for (text, says) in [
        (without("0123456789abcdef", "short"), "secret: at least 16 bytes, such as of `openssl rand -hex 16`"),
        (without("id = 100\n", "id = 1000\n"), "members:"),
        (without("127.0.0.1:7002", "127.0.0.1:7001"), "members:"),
        (without("127.0.0.1:7002", "0.0.0.0:7002"), "member 100: its address has to be"),
        (without("cache = 100", "cache = 7"), "member 1000: its cache, 7, is no cache node"),
        (without("\"controller\"", "\"cache\""), "0 members are the controller: one has to be"),
        (without("role = \"gateway\"", "role = \"nothing\""), "line "),
        (format!("lease_ms = 5\n{SMALL}"), "lease_ms: from 100 to 60000"),
        (format!("item_len_max = 16777217\n{SMALL}"), "item_len_max: from 1024 to 16777216"),
        (format!("lease = 5\n{SMALL}"), "line "),
        (without("cache = 100", "cash = 100"), "line "),
        ("secret = \"0123456789abcdef\"".into(), "0 members are the controller: one has to be"),
    ] {
        let line = told(&text);
        assert!(line.starts_with(says), "{line}");
    }
}
